"""The cluster as `advisor control` last saw it: a small file, replaced atomically, read by `advisor serve`.

Two processes share nothing else about the present: the submit server never asks Slurm anything, because
slurmctld may be waiting for its answer at that very moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, get_origin

import msgspec

from advisor.files import fence
from advisor.files.whole_file import read_replaced, replace_file
from advisor.model.errors import UseFallback
from advisor.model.site import SiteState
from advisor.service.exchange.seen_queue import SeenQueue

FORMAT: Final = 7
_MAX_BYTES: Final = 64 * 1024 * 1024
"""Longest file that is read: 500,000 jobs of 14 numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The site at one poll.

    Attributes:
        state: ``state.time`` is when the *query* of the queue began, seconds since the epoch: jobs submitted
            after it are not in here, and the submit server counts those itself.
        job_requeue: Slurm's ``JobRequeue``: whether a job that does not say may be requeued. None while it is
            not known.
        queues: The on-premise queue of each machine; empty where no decision asks for them.
        first_priorities: With what priority a new job begins, by `Job.priority_keys`.
        counters: Whatever the control loops want shown beside it (seconds the query took, jobs seen, ...).
    """

    state: SiteState
    job_requeue: bool | None = None
    queues: tuple[SeenQueue, ...] = ()
    first_priorities: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    format: int = FORMAT


def _plain(value: Any) -> Any:
    if isinstance(value, MappingProxyType):
        return dict(value)
    raise NotImplementedError(type(value).__name__)


def _read_only(kind: Any, value: Any) -> Any:
    if (get_origin(kind) or kind) is MappingProxyType:
        return MappingProxyType(msgspec.convert(value, dict[str, float]))
    raise NotImplementedError(str(kind))


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_plain)
_decoder: Final = msgspec.msgpack.Decoder(Snapshot, dec_hook=_read_only)


def write(path: Path, snapshot: Snapshot) -> None:
    """Replace the snapshot file; a reader sees the old one or the new one, never half.

    Raises:
        OSError: The folder is missing, full or not writable.
    """
    replace_file(path, _encoder.encode(snapshot), check=fence.check)


def _unreadable(path: Path, why: str) -> UseFallback:
    return UseFallback(
        f"{path} cannot be read: {why}. Restart `advisor control`, which writes a new one",
        code="snapshot.unreadable",
    )


def read(path: Path) -> Snapshot:
    """Read the snapshot file.

    Raises:
        UseFallback: No file (``snapshot.missing``), or one that cannot be used (``snapshot.unreadable``): the
            caller goes on without a cluster state, that is, everything stays on-premise.
    """
    try:
        content = read_replaced(path, _MAX_BYTES + 1)
    except FileNotFoundError:
        raise UseFallback(
            f"{path}: no snapshot yet. `advisor control` writes it: see `systemctl status advisor-control`",
            code="snapshot.missing",
        ) from None
    except OSError as error:
        raise _unreadable(path, error.strerror or type(error).__name__) from error
    if len(content) > _MAX_BYTES:
        raise _unreadable(path, f"it is longer than {_MAX_BYTES} bytes")
    try:
        snapshot = _decoder.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from error
    if snapshot.format != FORMAT:
        raise _unreadable(path, f"it has format {snapshot.format}, this release reads format {FORMAT}")
    return snapshot
