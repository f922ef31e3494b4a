"""What jobs have cost in the cloud reaches the ledger: however many end at once, in however many runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model import Advice, Capacity, Job, Mode, Placement
from advisor.model.settings import Ec2Settings, Settings
from advisor.service.learn.learning import LearnLoop
from advisor.service.running.clock import Clock
from advisor.slurm.protocol import AccountingExport
from tests.history.test_ingest import DELIMITER, FIELDS

NOW = 2_000_000_000
HOUR = 3600
SETTINGS = Settings(ec2=Ec2Settings(spot_usd_per_hour=1.0, on_demand_usd_per_hour=4.0))


def run(job_id: int, state: str, submit: int, start: int, end: int, partition: str = "burst") -> str:
    values = dict.fromkeys(FIELDS, "") | {
        "JobIDRaw": str(job_id),
        "JobID": str(job_id),
        "State": state,
        "Submit": str(NOW + submit),
        "Start": str(NOW + start),
        "End": str(NOW + end),
        "ReqCPUS": "1",
        "AllocCPUS": "1",
        "Partition": partition,
        "NodeList": "burst1" if partition == "burst" else "fixed1",
        "DBIndex": "1",
    }
    return DELIMITER.join(values[name] for name in FIELDS)


class Site:
    """A learn loop, and a slurmdbd that says what a test says."""

    def __init__(self, store: HistoryStore) -> None:
        self.store = store
        self._lines: list[str] = []
        self.loop = self.new_loop()
        self.ends()

    def new_loop(self) -> LearnLoop:
        others: dict[str, Any] = dict.fromkeys(("knowledge", "sizes", "view", "metrics"))
        clock = Clock(wall=lambda: NOW + 1e6, monotonic=lambda: 1e6)
        return LearnLoop(SETTINGS, slurm=self, store=self.store, clock=clock, **others)  # type: ignore[arg-type]

    @contextmanager
    def accounting(self, *_: float | None) -> Iterator[AccountingExport]:
        yield AccountingExport(fields=FIELDS, delimited_by=DELIMITER, lines=iter(self._lines))

    def ends(self, *lines: str) -> None:
        self._lines = list(lines)
        self.loop.ingest_accounting()
        self.loop.note_costs()

    def advise(self, job_id: int) -> None:
        advice = Advice(
            advice_id=f"a-{job_id}",
            time=float(NOW),
            placement=Placement.BURST,
            partition="burst",
            capacity=Capacity.SPOT,
            mode=Mode.ACT,
            answers=(),
        )
        self.store.add_advice([AdviceRecord(advice=advice, job=Job(job_id=0, submit_time=NOW, processors=1))])
        self.store.link(advice.advice_id, job_id)

    def costs(self) -> dict[int, float | None]:
        return {row.job_id: row.cost_usd for row in self.store.ledger()}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with HistoryStore(f"sqlite:///{tmp_path / 'history.db'}") as store:
        yield Site(store)


def test_after_an_outage_every_job_has_its_cost(site: Site) -> None:
    """Whether or not the estimators were built anew, as they are where very many end at once."""
    for job_id in range(1, 6):
        site.advise(job_id)
    site.ends(*(run(job_id, "COMPLETED", 0, 10, 10 + HOUR) for job_id in range(1, 6)))
    assert site.costs() == dict.fromkeys(range(1, 6), 1.0)


def test_a_restart_notes_what_was_not_noted_yet(site: Site) -> None:
    site.advise(1)
    site.ends()
    site._lines = [run(1, "COMPLETED", 0, 10, 10 + HOUR)]
    site.loop.ingest_accounting()  # and the process dies
    site.loop = site.new_loop()
    site.ends()
    assert site.costs() == {1: 1.0}


def test_a_hedge_that_came_back_has_cost_its_time_in_the_cloud(site: Site) -> None:
    site.advise(1)
    site.ends(
        run(1, "REQUEUED", 0, 10, 10 + HOUR),
        run(1, "COMPLETED", 10 + HOUR, 20 + HOUR, 20 + 3 * HOUR, partition="onprem"),
    )
    (row,) = site.store.ledger()
    assert row.cost_usd == pytest.approx(1.0)
    assert row.saved_seconds_estimate is None, "it has waited"


def test_a_job_whose_spot_node_was_taken_has_cost_both_runs(site: Site) -> None:
    site.advise(1)
    site.ends(run(1, "NODE_FAIL", 0, 10, 10 + HOUR))
    assert site.costs() == {1: pytest.approx(1.0)}
    site.ends(run(1, "COMPLETED", 10 + HOUR, 60 + HOUR, 60 + 3 * HOUR))
    assert site.costs() == {1: pytest.approx(3.0)}, "the end that replaces another one"


def test_a_job_requeued_on_premise_has_cost_nothing(site: Site) -> None:
    site.advise(1)
    site.ends(
        run(1, "REQUEUED", 0, 10, 100, partition="onprem"),
        run(1, "COMPLETED", 100, 110, 200, partition="onprem"),
    )
    assert site.costs() == {1: None}
