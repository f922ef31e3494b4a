"""What jobs have cost in the cloud reaches the ledger: however many end at once, in however many runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.advice import Advice, Capacity, Mode, Placement
from advisor.model.bill import midnight
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.settings_cloud import Ec2Settings
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.learn.learning import LearnLoop
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import cluster_state
from advisor.service.running.clock import Clock
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.budget_records import LaunchRequest, RunningNode
from advisor.service.state.state_files import BUDGET
from advisor.slurm.protocol import AccountingExport
from tests.history.test_ingest import DELIMITER, FIELDS
from tests.service.doubles import Hands, make_node, make_queued

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

    def __init__(self, store: HistoryStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        self._lines: list[str] = []
        self.loop = self.new_loop()
        self.ends()

    def new_loop(self) -> LearnLoop:
        others: dict[str, Any] = {"models": ModelStore(folder=self.folder), "view": None, "metrics": None}
        clock = Clock(wall=lambda: NOW + 1e6, monotonic=lambda: 1e6)
        return LearnLoop(SETTINGS, slurm=self, store=self.store, clock=clock, **others)  # type: ignore[arg-type]

    @contextmanager
    def accounting(self, *_: float | None) -> Iterator[AccountingExport]:
        yield AccountingExport(fields=FIELDS, delimited_by=DELIMITER, lines=iter(self._lines))

    def ends(self, *lines: str) -> None:
        self._lines = list(lines)
        self.loop.ingest_accounting()
        self.loop.note_costs()
        self.loop.costs.bill_today()

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
        yield Site(store, tmp_path)


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


def test_of_many_ended_jobs_only_those_that_may_have_been_in_the_cloud_are_kept(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage of slurmdbd a hundred thousand may have ended, a few of them there."""
    noted = Mock()
    monkeypatch.setattr(site.loop.costs, "note", noted)
    here = (run(job_id, "COMPLETED", 0, 10, 100, partition="onprem") for job_id in range(1, 6))
    site.ends(*here, run(6, "COMPLETED", 0, 10, 100))
    (kept,) = noted.call_args_list[-1].args
    assert [outcome.job.job_id for outcome in kept] == [6]


class Metered(Site):
    """The same with a budget that counts nodes: what they have cost is what jobs are charged."""

    def __init__(self, store: HistoryStore, folder: Path) -> None:
        self.hands = Hands(wall=float(NOW))
        self.budget = SpendingBudget(BUDGET.at(folder), self.hands.clock)
        self.view = SharedView(self.hands.clock, 60.0)
        self.running: list[QueuedJob] = []
        super().__init__(store, folder)

    def new_loop(self) -> LearnLoop:
        others: dict[str, Any] = {"models": ModelStore(folder=self.folder), "metrics": None}
        slurm: Any = self
        return LearnLoop(
            SETTINGS,
            slurm=slurm,
            store=self.store,
            clock=self.hands.clock,
            view=self.view,
            meter=self.budget,
            **others,
        )

    def until(self, seconds: float, *nodes: RunningNode) -> None:
        """Time goes by, and these are counted then."""
        self.hands.pass_by(NOW + seconds - self.hands.wall)
        self.budget.count(nodes)
        burst = [make_node(f"burst{number}", "MIXED") for number in (1, 2)]
        snapshot = ClusterSnapshot(time=self.hands.wall, jobs=tuple(self.running), nodes=tuple(burst))
        self.view.update(snapshot, cluster_state(snapshot, SETTINGS))

    def rows(self) -> tuple[float, float, float]:
        """Spent today, used by jobs, idle."""
        found = self.store.bill(midnight(NOW))
        spent, idle = found.spent_usd, found.idle_usd
        return round(spent, 6), round(spent - idle, 6), round(idle, 6)


def node(price: float = 1.0, number: int = 1) -> RunningNode:
    return RunningNode(
        instance_id=f"i-{number}", node=f"burst{number}", usd_per_hour=price, launch_time=float(NOW)
    )


@pytest.fixture
def metered(tmp_path: Path) -> Iterator[Metered]:
    with HistoryStore(f"sqlite:///{tmp_path / 'history.db'}") as store:
        yield Metered(store, tmp_path)


def test_day_one_10_jobs_on_one_node_cost_what_the_node_does(metered: Metered) -> None:
    for job_id in (1, 2):
        metered.advise(job_id)
    metered.until(HOUR, node())
    metered.until(2 * HOUR, node())
    metered.ends(run(1, "COMPLETED", 0, HOUR, 2 * HOUR), run(2, "COMPLETED", 0, HOUR, int(1.5 * HOUR)))
    assert metered.costs() == {1: pytest.approx(0.75), 2: pytest.approx(0.25)}
    assert metered.rows() == (2.0, 1.0, 1.0)
    assert metered.loop.costs.today is not None
    assert metered.budget.spent_today()[0] == pytest.approx(metered.loop.costs.today.spent_usd)


def test_day_one_10_who_ends_later_changes_what_the_others_cost(metered: Metered) -> None:
    """Accounting tells of a short job only after the long one beside it has its cost."""
    for job_id in (1, 2):
        metered.advise(job_id)
    metered.until(2 * HOUR, node())
    metered.ends(run(1, "COMPLETED", 0, 0, HOUR))
    assert metered.costs() == {1: pytest.approx(1.0)}
    metered.until(2 * HOUR + 60, node())
    metered.ends(run(2, "COMPLETED", 0, HOUR // 2, 2 * HOUR))
    assert metered.costs() == {1: pytest.approx(0.75), 2: pytest.approx(1.25)}


def test_day_one_10_a_node_that_is_paid_later_is_charged_later(metered: Metered) -> None:
    """EC2 could not be read when the job ended, and the advisor was restarted since."""
    metered.advise(1)
    metered.until(HOUR, node())
    metered.hands.pass_by(HOUR)
    metered.ends(run(1, "COMPLETED", 0, 0, 2 * HOUR))
    assert metered.costs() == {1: pytest.approx(1.0)}
    metered.loop = metered.new_loop()
    metered.until(3 * HOUR, node())
    metered.ends()
    assert metered.costs() == {1: pytest.approx(2.0)}
    metered.until(4 * HOUR, node(3.0))
    metered.ends()
    assert metered.costs() == {1: pytest.approx(2.0)}
    assert metered.rows() == (6.0, 2.0, 4.0)


def test_day_one_10_a_running_job_is_not_idle_time(metered: Metered) -> None:
    metered.running = [
        make_queued(
            7, "RUNNING", nodes="burst1", account="law", queue="burst", start_time=float(NOW), processors=1
        )
    ]
    metered.until(HOUR, node(), node(2.0, 2))
    metered.ends()
    today = metered.loop.costs.today
    assert today is not None
    assert (today.accounts, today.no_account_usd) == ({"law": pytest.approx(1.0)}, 0.0)
    assert today.idle_usd == pytest.approx(2.0)
    metered.running = []
    metered.until(HOUR + 60, node(), node(2.0, 2))
    metered.ends(run(7, "COMPLETED", 0, 0, HOUR - 60))
    assert metered.rows() == (round(3.0 * 61 / 60, 6), round(59 / 60, 6), round(3.0 * 61 / 60 - 59 / 60, 6))


def test_day_one_10_requeued_and_on_two_nodes(metered: Metered) -> None:
    metered.advise(1)
    metered.until(4 * HOUR, node(), node(2.0, 2))
    again = run(1, "COMPLETED", HOUR, 2 * HOUR, 3 * HOUR).replace("burst1", "burst[1-2]")
    metered.ends(run(1, "REQUEUED", 0, 0, HOUR), again)
    assert metered.costs() == {1: pytest.approx(1.0 + 3.0)}
    assert metered.rows() == (12.0, 4.0, 8.0)


def test_a_node_that_was_ended_is_paid_until_then_and_a_minute_at_least(metered: Metered) -> None:
    metered.budget.promise([LaunchRequest(node="burst1", account="", usd=1.0, usd_per_hour=60.0)], ())
    metered.until(10.0, node(60.0))
    metered.until(30.0, node(60.0))
    metered.budget.release(["burst1"], launched=True)
    metered.until(600.0)
    metered.ends()
    assert metered.rows() == (1.0, 0.0, 1.0)
    metered.until(700.0, dataclasses.replace(node(60.0, 2), launch_time=NOW + 600.0))
    metered.hands.pass_by(10.0)
    metered.budget.release(["burst2"], launched=True)
    metered.until(800.0)
    metered.ends()
    assert metered.rows()[0] == pytest.approx(1.0 + 110.0 / 60.0)
    assert metered.budget.spent_today()[0] == pytest.approx(1.0 + 110.0 / 60.0)
    assert metered.budget.paid() == [], "the history has them"


def test_day_one_10_a_minute_paid_in_advance_hides_no_job_that_ends_meanwhile(metered: Metered) -> None:
    """A node launched a second ago is paid until in a minute: a job on another one ends before that."""
    metered.advise(1)
    metered.until(HOUR, node(), dataclasses.replace(node(1.0, 2), launch_time=float(NOW + HOUR)))
    metered.ends()
    metered.hands.pass_by(5.0)
    metered.ends(run(1, "COMPLETED", 0, 0, HOUR + 5))
    metered.until(HOUR + 15, node(), dataclasses.replace(node(1.0, 2), launch_time=float(NOW + HOUR)))
    metered.ends()
    assert metered.costs() == {1: pytest.approx((HOUR + 5) / HOUR, abs=1e-9)}
