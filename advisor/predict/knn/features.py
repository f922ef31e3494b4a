"""Input features of Cunha et al., Table I, and their encoding as numbers.

A feature vector is float64, NaN where a value is unknown. A nominal value is encoded by a hash of its text.
No vocabulary has to be stored, bounded, or shared between the process that learns and the one that answers:
equal names have equal codes everywhere, and two different names collide with probability 2**-52.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.model.cluster import ClusterState
from advisor.model.errors import BadInput
from advisor.model.job import Job
from advisor.model.table import UNKNOWN_CODE, JobTable
from advisor.predict.knn.tracker import StateColumns

DAY: Final = 86_400.0
EPOCH_WEEKDAY: Final = 3  # 1970-01-01 was a Thursday; Monday is 0
CODES_REMEMBERED: Final = 65_536
MAX_NAME: Final = 1024

_JOB_NOMINAL: Final = ("user", "group", "queue")
_JOB_NUMBERS: Final = ("requested_time", "processors")
_TIME_NUMBERS: Final = MappingProxyType[str, Callable[[Floats], Floats]](
    {
        "submission_time": lambda local: local,
        "weekday": lambda local: (local // DAY + EPOCH_WEEKDAY) % 7,
        "time_since_midnight": lambda local: local % DAY,
    }
)
_STATE_NUMBERS: Final = MappingProxyType(
    {
        "queue_size": "queue_size",
        "queued_work": "queued_work_core_seconds",
        "remaining_work": "remaining_work_core_seconds",
        "free_processors": "free_processors",
    }
)


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """Names of the input features, in the order of a vector.

    Args:
        features: Known names: ``user group queue`` (nominal); ``requested_time processors`` (of the job);
            ``submission_time weekday time_since_midnight`` (site's local time); ``queue_size queued_work
            remaining_work free_processors`` (of the cluster).

    Raises:
        BadInput: A name is not known or occurs twice.
    """

    name: str
    features: tuple[str, ...]

    def __post_init__(self) -> None:
        known = [*_JOB_NOMINAL, *_JOB_NUMBERS, *_TIME_NUMBERS, *_STATE_NUMBERS]
        wrong = sorted(set(self.features) - set(known)) or [
            feature for feature in self.features if self.features.count(feature) > 1
        ]
        if wrong or not self.features:
            raise BadInput(
                f"unknown or repeated features {wrong}" if wrong else "no features",
                where=f"feature schema {self.name!r}",
                mend=f"Name each at most once, out of: {', '.join(known)}. If a saved model has them: it is "
                "of another release, and `advisor control` builds a new one at its next start",
                code="features.unknown",
            )

    def __len__(self) -> int:
        return len(self.features)

    @property
    def nominal(self) -> NDArray[np.bool_]:
        """Whether each feature is nominal and so compared by overlap; shape (features,)."""
        return np.array([feature in _JOB_NOMINAL for feature in self.features])


CUNHA_TABLE_I: Final = FeatureSchema(
    "cunha-table-1",
    (
        "user",
        "group",
        "queue",
        "submission_time",
        "requested_time",
        "queue_size",
        "queued_work",
        "remaining_work",
        "weekday",
        "time_since_midnight",
        "free_processors",
    ),
)
"""The published features; the requested processors are not among them."""


def code_of(text: str) -> float:
    """Code of a nominal value: 52 bits of its hash, exact in a float64."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return float(int.from_bytes(digest, "little") >> 12)


class Encoder:
    """Turns jobs and cluster states into feature vectors.

    Args:
        start_of_log: Epoch seconds of time 0: 0 live, the log's start in a replay. Weekdays depend on it.
        utc_offset_seconds: The site's offset from UTC: times of day are local.
    """

    def __init__(
        self,
        schema: FeatureSchema = CUNHA_TABLE_I,
        *,
        start_of_log: float = 0.0,
        utc_offset_seconds: float = 0.0,
    ) -> None:
        self.schema = schema
        self.start_of_log = start_of_log
        self.utc_offset_seconds = utc_offset_seconds
        self._codes: dict[str, float] = {}
        self._reads = [self._reader(feature) for feature in schema.features]

    def encode(self, job: Job, state: ClusterState | None) -> Floats:
        """Encode one submission, shape (features,); NaN where unknown, as without a state."""
        local = job.submit_time + self.start_of_log + self.utc_offset_seconds
        return np.array([read(job, state, local) for read in self._reads])

    def encode_table(self, table: JobTable, states: StateColumns) -> Floats:
        """Encode each row of a log as :meth:`encode` encodes its job; shape (jobs, features).

        A table's nominal codes stand for its ``names``, or for the text of the number where it has none. The
        table's own ``start_of_log`` applies; the offset from UTC is the encoder's.
        """
        local = table.submit + table.start_of_log + self.utc_offset_seconds
        columns = [self._column(feature, table, states, local) for feature in self.schema.features]
        return np.ascontiguousarray(np.array(columns).T)

    def _column(self, feature: str, table: JobTable, states: StateColumns, local: Floats) -> Floats:
        if feature in _JOB_NOMINAL:
            numbers, rows = np.unique(getattr(table, feature), return_inverse=True)
            names = table.names.get(feature)
            texts = [
                None if number == UNKNOWN_CODE else str(number) if names is None else names[number]
                for number in numbers.tolist()
            ]
            return np.array([self._code(text) for text in texts], np.float64)[rows]
        if feature in _TIME_NUMBERS:
            return _TIME_NUMBERS[feature](local)
        if feature in _STATE_NUMBERS:
            return np.asarray(getattr(states, _STATE_NUMBERS[feature]), np.float64)
        return np.asarray(getattr(table, feature), np.float64)

    def _reader(self, feature: str) -> Callable[[Job, ClusterState | None, float], float]:
        if feature in _JOB_NOMINAL:
            return lambda job, _state, _local: self._code(getattr(job, feature))
        if feature in _JOB_NUMBERS:
            return lambda job, _state, _local: _number(getattr(job, feature))
        if feature in _TIME_NUMBERS:
            clock: Callable[[float], float] = _TIME_NUMBERS[feature]  # type: ignore[assignment]  # same on a float
            return lambda _job, _state, local: clock(local)
        attribute = _STATE_NUMBERS[feature]
        return lambda _job, state, _local: math.nan if state is None else float(getattr(state, attribute))

    def _code(self, text: str | None) -> float:
        if not text:
            return math.nan
        text = text[:MAX_NAME]
        code = self._codes.get(text)
        if code is None:
            if len(self._codes) >= CODES_REMEMBERED:  # a cache, not a vocabulary: nothing is lost
                self._codes.clear()
            code = self._codes[text] = code_of(text)
        return code


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
