"""Faults in the loops (docs/faults.md): clean-up fails, protection ends cleanly, misfits, rare paths."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from advisor.model.errors import BadInput, RetryLater, TellAdmin
from advisor.service.control.looking import LookLoop
from advisor.service.exchange import snapshot as snapshots
from advisor.service.running.isolating import for_each
from advisor.service.running.loops import LoopRunner
from tests.service.cloud.test_loops import Rig, reconcile
from tests.service.doubles import make_instance, make_look, make_node


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_f11_a_clean_up_that_crashes_is_told_and_its_instances_are_collected_all_the_same(rig: Rig) -> None:
    rig.fleet.listed = [make_instance("burst1"), make_instance("burst2")]
    suspend = rig.fleet.suspend

    def crash(_nodes: object) -> list[str]:
        raise ZeroDivisionError

    rig.fleet.suspend = crash  # type: ignore[assignment]
    rig.hand_over("resume_fail", "burst1")
    rig.hand_over("suspend", "burst2")
    runner = LoopRunner(rig.provision, rig.hands.clock)
    rig.look([])
    assert not runner.run_once()
    assert runner.health.open_failures["hand-overs"].code == "loop.item_failed"
    assert rig.waiting == 2  # nothing is forgotten
    for _ in range(2):
        rig.look([make_node(name, "IDLE", "POWERED_DOWN") for name in ("burst1", "burst2")])
        reconcile(rig)
        rig.hands.pass_by(130.0)
    assert rig.fleet.of("terminate") == [("i-burst1", "i-burst2")]
    rig.fleet.suspend = suspend  # type: ignore[method-assign]
    rig.look([])
    assert runner.run_once()
    assert rig.waiting == 0


def protect(rig: Rig) -> None:
    for _ in range(5):
        rig.hand_over("resume_fail", "burst[1-2]")
    rig.provision.act_on_handovers()
    assert rig.cloud.protected


def after(rig: Rig, seconds: float, *states: str) -> None:
    for wait in (0.0, seconds):
        rig.hands.pass_by(wait)
        rig.look([make_node("burst1", *states), make_node("burst2", "IDLE", "POWERED_DOWN")])
        rig.reconcile.end_protection()


def test_f17_protection_ends_from_a_clean_start_only(rig: Rig) -> None:
    protect(rig)
    after(rig, 7200.0, "MIXED", "POWERING_UP")
    assert rig.cloud.protected  # a node of the time of the failures still powers up
    after(rig, 0.0, "IDLE", "POWERED_DOWN")
    assert not rig.cloud.protected
    rig.hand_over("resume_fail", "burst1")
    rig.provision.act_on_handovers()
    assert "10 cloud nodes in a row" in rig.cloud.protected  # one more failed boot, and it is back


def test_f17_protection_lasts_half_an_hour(rig: Rig) -> None:
    protect(rig)
    after(rig, 1700.0, "IDLE", "POWERED_DOWN")
    assert rig.cloud.protected
    after(rig, 200.0, "IDLE", "POWERED_DOWN")
    assert not rig.cloud.protected


def test_f17_a_long_job_on_a_node_that_is_up_keeps_nothing_protected(rig: Rig) -> None:
    protect(rig)
    rig.reconcile.instances = (make_instance("burst1"),)
    after(rig, 1900.0, "ALLOCATED")
    assert not rig.cloud.protected


@pytest.mark.parametrize("states", [("DOWN", "POWERED_DOWN"), ("IDLE", "POWERING_DOWN")])
def test_f17_a_node_that_is_down_or_on_its_way_is_no_clean_start(rig: Rig, states: tuple[str, ...]) -> None:
    protect(rig)
    after(rig, 7200.0, *states)
    assert rig.cloud.protected


@pytest.mark.parametrize("states", [("DOWN", "DRAIN", "POWERED_DOWN"), ("DOWN",)])
def test_f17_a_node_that_an_admin_keeps_down_does_not_shut_the_cloud(
    rig: Rig, states: tuple[str, ...]
) -> None:
    protect(rig)
    after(rig, 1900.0, *states)
    assert not rig.cloud.protected


def test_f27_a_node_smaller_than_declared_is_told_with_both_sizes(rig: Rig) -> None:
    reason = "Low RealMemory (reported:435161 < 100.00% of configured:443596)"
    rig.look([make_node("burst1", "IDLE", "DRAIN", reason=reason), make_node("burst2")])
    with pytest.raises(TellAdmin, match=r"burst1: Low RealMemory \(reported:435161 .* configured:443596\)"):
        rig.reconcile.tell_misfits()


def test_f28_one_bad_node_never_stops_the_others(rig: Rig) -> None:
    names = [f"burst{number}" for number in range(1, 6)]
    rig.fleet.listed = [make_instance(name, state="terminated") for name in names]
    told: list[str] = []

    def update_node(nodes: Collection[str], **_: Any) -> None:
        told.extend(nodes)
        if nodes[0] == "burst2":  # type: ignore[index]
            raise BadInput("no such node", where="burst2", mend="", code="slurm.value")
        if nodes[0] == "burst3":  # type: ignore[index]
            raise TypeError

    rig.slurm.update_node = update_node  # type: ignore[method-assign]
    runner = LoopRunner(rig.reconcile, rig.hands.clock)
    for _ in range(2):
        rig.look([make_node(name, "ALLOCATED", "NOT_RESPONDING") for name in names])
        runner.run_once()
        rig.hands.pass_by(20.0)
    assert told == names
    assert runner.health.open_failures.keys() == {"lost nodes"}


def test_f28_every_item_has_its_turn_and_the_last_failure_is_told() -> None:
    seen = []

    def act(number: int) -> None:
        seen.append(number)
        if number == 1:
            raise RetryLater("later", code="x.later")
        if number == 2:
            raise KeyError(number)

    with pytest.raises(TellAdmin, match="KeyError") as caught:
        for_each(range(5), act)
    assert isinstance(caught.value.__cause__, KeyError)
    assert seen == [0, 1, 2, 3, 4]


def test_f29_all_loops_together_ask_slurm_once_a_look(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    settings = rig.settings.model_copy(
        update={"paths": rig.settings.paths.model_copy(update={"run": tmp_path / "run"})}
    )
    asked = []

    class Slurm:
        def snapshot(self, now: float) -> Any:
            asked.append(now)
            return make_look(now, [make_node(f"burst{n}", "IDLE", "POWERED_DOWN") for n in range(2000)])

        def config(self) -> dict[str, str]:
            return {"JobRequeue": "0"}

    look = LookLoop(
        settings,
        slurm=Slurm(),  # type: ignore[arg-type]
        view=rig.view,
        cloud=rig.cloud,
        is_open=lambda: (True, True),
        status=dict,
        clock=rig.hands.clock,
    )
    for loop in (look, rig.provision, rig.reconcile):
        assert LoopRunner(loop, rig.hands.clock).run_once()
    assert asked == [rig.hands.wall]
    assert snapshots.read(settings.paths.snapshot).job_requeue is False
    cloud = look.cloud_state(
        [make_node("burst1", features=("spot",)), make_node("burst2", features=("reserved",))]
    )
    assert (cloud.spot_open, dict(cloud.nodes_with)) == (True, {"spot": 1, "reserved": 1})
    assert not look.cloud_state([make_node("burst2", features=("reserved", "spot"))]).spot_open
    assert (
        '"look_seconds"' in (tmp_path / "run" / "control-status.json").read_text()
    )  # and say how long it took
