"""`advisor control` put together: what its features offer is connected, and one that is off costs nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.ec2.reading_account import AccountCache
from advisor.model.errors import RetryLater
from advisor.model.settings import PathSettings, Settings
from advisor.model.settings_cloud import Ec2Settings
from advisor.model.settings_hedge import HedgeSettings
from advisor.model.settings_nodes import AcquirerSettings, PortfolioSettings
from advisor.model.site import CloudState, SiteState
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.cloud.interrupting import SpotParts
from advisor.service.control import process as processes
from advisor.service.control.connections import Connections
from advisor.service.control.wiring import Control
from advisor.service.exchange import snapshot as snapshots
from advisor.service.learn.learning import LearnLoop
from advisor.service.running.feature import Poll
from advisor.testing.memory_slurm import MemorySlurm
from tests.lsf.test_cloud_hosts import CLASSES
from tests.service.doubles import FakeFleet, make_instance, make_look, make_queued
from tests.service.site import make_cluster


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    control = make_control(tmp_path)
    yield control
    control.store.close()


def make_control(tmp_path: Path, **parts: Any) -> Control:
    for name in ("models", "run"):
        (tmp_path / name).mkdir(mode=0o700)
    settings = Settings(
        paths=PathSettings(state=tmp_path, run=tmp_path / "run"),
        cluster={"hook": False},
        hedge=HedgeSettings(enabled=True),
        portfolio=PortfolioSettings(enabled=True),
        acquirer=AcquirerSettings(kept_nodes=1),
        capacity={"reserved_nodes": 1},
        promise={"enabled": True},
    )
    anything: Any = MemorySlurm(now=lambda: 0.0)
    connections = Connections(
        slurm=anything,
        spot=SpotParts(source=anything, jobs=anything),
        places=anything,
        steering=anything,
        nodes_asked=anything,
        **{"fleet": FakeFleet(), **parts},
    )
    return Control(settings, connections)


def learning(control: Control) -> LearnLoop:
    (feature,) = (each for each in control.features if isinstance(each, LearnLoop))
    return feature


def test_d4_a_damaged_history_is_told_and_hinders_nothing_but_learning(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"garbage" * 10_000)
    control = make_control(tmp_path)
    learning(control).prepare()
    control.folder.prepare()
    learn, provision = control.runners["learn"], control.runners["provision"]
    assert not learn.run_once()
    assert provision.run_once()
    said = control.status()["history_problem"]
    assert "not an SQLite database" in said
    assert "\nadvisor_history_usable 0.0\n" in control.metrics.exposition(lambda: "").decode()
    path.rename(tmp_path / "aside")
    learn.run_once()
    assert control.status()["history_problem"] is None
    assert "\nadvisor_history_usable 1.0\n" in control.metrics.exposition(lambda: "").decode()
    assert not control.is_outdated  # it knew of no other one
    path.rename(tmp_path / "aside too")
    learn.run_once()
    assert control.is_outdated
    control.store.close()


def test_d4_whatever_a_damaged_history_holds_control_starts(tmp_path: Path) -> None:
    control = make_control(tmp_path)

    def garbage() -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    learning(control).knowledge.prepare = garbage  # type: ignore[method-assign]
    learning(control).prepare()
    control.store.close()


def test_the_first_snapshot_waits_for_nobody_and_knows_whom_slurmctld_refuses(tmp_path: Path) -> None:
    asked = threading.Event()

    class Enforcing(MemorySlurm):
        def config(self) -> dict[str, str]:
            return {"ClusterName": "here", "AccountingStorageEnforce": "associations"}

        def snapshot(self, now: float) -> ClusterSnapshot:
            assert asked.wait(10.0), "the associations are read beside the first poll"
            return super().snapshot(now)

    def associations(_: str) -> dict[tuple[str, str], frozenset[str]]:
        asked.set()
        return {("ann", "phys"): frozenset({"onprem"})}

    for name in ("models", "run"):
        (tmp_path / name).mkdir(mode=0o700)
    settings = Settings(paths=PathSettings(state=tmp_path, run=tmp_path / "run"), loops={"metrics_port": 0})
    slurm: Any = Enforcing(now=lambda: 0.0)
    control = Control(settings, Connections(slurm=slurm, partitions_of_users=associations))
    control.start()
    try:
        assert asked.is_set()
        assert snapshots.read(settings.paths.snapshot).state.cluster is not None
    finally:
        assert control.stop()


def test_d4_learning_starts_last(control: Control) -> None:
    """It reads the history first, which may be locked for a while: all other loops run by then."""
    assert isinstance(control.features[-1], LearnLoop)


@pytest.mark.parametrize("loop", ["provision", "reconcile"])
def test_what_is_paid_for_is_read_before_anything_is_launched_or_counted(tmp_path: Path, loop: str) -> None:
    """After a start, nodes were launched beside the reservation, and hours in it counted at their price."""
    account = AccountCache(Ec2Settings(), "c1", connect=lambda *_: None)
    fleet = FakeFleet(listed=[make_instance("burst1")])
    control = make_control(tmp_path, fleet=fleet, account=account)
    control.folder.prepare()
    read, asked = [], fleet.asked

    def refresh() -> None:
        read.append(list(asked))
        if len(read) == 1:
            raise RetryLater("EC2 does not answer", code="ec2.server")

    for part in ("reservations", "reserved", "plans"):
        setattr(account, f"refresh_{part}", refresh)
    for _ in range(2):
        control.runners[loop].run_once()
    assert read == [[], [], []]  # each was tried once
    control.store.close()


def test_what_is_paid_for_is_read_under_lsf_as_well(tmp_path: Path) -> None:
    """Nobody read it there, and hosts were launched on-demand beside a reservation."""
    (tmp_path / "logdir").mkdir()
    (tmp_path / "logdir" / "lsb.events").touch()
    (tmp_path / "lsf.conf").write_text(f"LSF_BINDIR=/bin\nLSB_SHAREDIR={tmp_path}\n")
    settings = Settings.model_validate(
        {
            "cluster": {"scheduler": "lsf"},
            "ec2": {"image_id": "ami-1", "classes": CLASSES},
            "paths": dict.fromkeys(("state", "run", "lsf_envdir"), tmp_path),
        }
    )
    control = processes.make_control(settings)
    assert control.runners.keys() >= {"reservations", "provision"}
    control.store.close()


def parts_of(control: Control, offer: str) -> dict[str, Any]:
    """What a feature holds and what offers this, by the feature's and the attribute's name."""
    return {
        f"{type(feature).__name__}.{name}": part
        for feature in control.features
        for name, part in vars(feature).items()
        if hasattr(part, offer)
    }


def test_all_gauges_are_on_the_page(control: Control) -> None:
    parts = parts_of(control, "gauges")
    assert parts.keys() == {
        "HedgeFeature.watch",
        "StabilityFeature.match",
        "StabilityFeature.acquire",
    }
    page = control.metrics.exposition(lambda: "").decode()
    for part in parts.values():
        for name in part.gauges():
            assert f"\nadvisor_{name} " in page, name


def test_all_reports_are_in_the_status(control: Control) -> None:
    status = control.status()
    named = {
        "HedgeFeature.watch": "places",
        "AdvisingLoop": "advising",
        "LearnLoop.drift": "fallen_back",
        "LearnLoop.run_times": "promises",
        "PortfolioLoop": "portfolio",
        "PriceLoop": "price",
        "PriceLoop.keeper": "price",
        "PriceLoop._asking": "price",
        "StabilityFeature.match": "matching",
        "StabilityFeature.acquire": "acquirer",
    }
    loops = [each for each in control.features if callable(getattr(each, "report", None))]
    parts = {**parts_of(control, "report"), **{type(each).__name__: each for each in loops}}
    inner = {"CloudFeature._reconcile", "PortfolioLoop.leader"}
    assert parts.keys() - inner == named.keys()
    for name, field in named.items():
        assert parts[name].report().items() <= status[field].items(), name


def test_jobs_whose_users_name_a_time_are_published_by_user(control: Control) -> None:
    feature = learning(control)
    jobs = [make_queued(n, user=user, comment="by=+3h") for n, user in enumerate(("ann", "bob", "ann"))]
    jobs.append(make_queued(9, user="ann", comment="no time"))
    snapshot = make_look(0.0, (), jobs)
    feature.polled(Poll(snapshot=snapshot, cluster=make_cluster(), cloud=CloudState()))
    published = feature.publish(SiteState(time=0.0, cluster=None))
    assert published.promised_jobs == {"ann": 2, "bob": 1}


def test_the_submit_server_gets_the_run_times_that_are_expected_of_the_queue(
    tmp_path: Path, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = make_queued(7, requested_time=86_400.0, reason="Resources", admin_comment="{}")
    monkeypatch.setattr(MemorySlurm, "snapshot", lambda _self, now: make_look(now, (), (waiting,)))

    def runs() -> list[float]:
        control.runners["poll"].run_once()
        (queue,) = snapshots.read(tmp_path / "run" / "snapshot.msgpack").queues
        return queue.closed().waiting[:, 2].tolist()

    before = runs()
    control.runners["learn"].run_once()
    after = runs()
    assert before == [86_400.0]
    assert 0.0 < after[0] < 86_400.0


def test_every_loop_runs(control: Control) -> None:
    assert control.runners.keys() == {
        "poll",
        "watch",
        "full limits",
        "portfolio",
        "portfolio judge",
        "advise",
        "price",
        "provision",
        "reconcile",
        "unbegun",
        "interruptions",
        "notices",
        "match",
        "acquire",
        "learn",
    }
    steering = {name for feature in control.features for name in feature.steering}
    assert steering == {"watch", "portfolio", "advise", "price", "match", "acquire"}


_DAY_ONE = """
import sys
from advisor.model.settings import Settings
from advisor.service.control.process import make_control
control = make_control(Settings(paths={"state": sys.argv[1], "run": sys.argv[1]}))
print(*(type(feature).__name__ for feature in control.features))
print(*sorted(control.status()))
print(*(name for name in sys.modules if name.startswith("advisor.") and name.count(".") > 1))
"""


def test_features_that_are_off_are_not_constructed_and_not_imported(tmp_path: Path, control: Control) -> None:
    state = tmp_path / "day one"
    state.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _DAY_ONE, str(state)], capture_output=True, text=True, check=True
    )
    features, fields, imported = (line.split() for line in done.stdout.splitlines()[-3:])
    assert features == [
        "PriceLoop",
        "RaisingFeature",
        "PreemptingFeature",
        "AdmissionFeature",
        "LearnLoop",
    ]
    assert set(fields) == control.status().keys()
    for module in (
        "service.cloud.feature",
        "service.hedge.watching",
        "service.portfolio.portfolio_loop",
        "service.stability.match_loop",
        "service.waiting.advising",
        "service.waiting.asking_again",
        "simulate.portfolio",
    ):
        assert f"advisor.{module}" not in imported
