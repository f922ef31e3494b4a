"""What pyslurm cannot do is done by the command line, whole; what it can is not."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from advisor.config import load
from advisor.model.errors import BadInput, RetryLater
from advisor.slurm.cli import CliBackend
from advisor.slurm.pyslurm_backend import PyslurmBackend, backend_of, load_pyslurm
from advisor.testing.manual_clock import ManualClock
from advisor.testing.memory_pyslurm import MemoryPyslurm
from advisor.testing.memory_slurm import MemorySlurm


@pytest.fixture
def slurm() -> MemorySlurm:
    clock = ManualClock()
    return MemorySlurm(
        now=lambda: clock.wall,
        program=lambda *_: None,
        answers=lambda *_: True,
        node_count=3,
        features=("x",),
    )


@pytest.fixture
def backend(slurm: MemorySlurm) -> PyslurmBackend:
    return PyslurmBackend(MemoryPyslurm(slurm), slurm)  # type: ignore[arg-type]


def waiting(slurm: MemorySlurm, backend: PyslurmBackend, *, held: bool = True, **how: Any) -> int:
    job = slurm.submit(10.0, partition="burst", **how)
    if held:
        slurm.hold([job.job_id])
    backend.snapshot(0.0)
    slurm.told.clear()
    return job.job_id


@pytest.mark.parametrize(
    ("changes", "by_commands"),
    [
        ({"partition": "onprem", "admincomment": "{}", "nice": "7"}, 0),
        ({"partition": "onprem", "nice": "0"}, 1),
        ({"partition": "onprem", "excnodelist": ""}, 1),
        ({"prefer": "x"}, 1),
        ({"starttime": "now+60"}, 1),
    ],
)
def test_a_change_is_made_whole_by_one_of_both(
    slurm: MemorySlurm, backend: PyslurmBackend, changes: dict[str, str], by_commands: int
) -> None:
    job_id = waiting(slurm, backend)
    backend.update_job([job_id], changes)
    assert slurm.told == [("job", (job_id,), changes)]
    backend.update_jobs({job_id: changes})
    assert slurm.told == [("job", (job_id,), changes)] * 2
    assert backend.by_commands == by_commands


def test_more_than_ten_jobs_are_changed_in_one_call_of_the_command_line(
    slurm: MemorySlurm, backend: PyslurmBackend
) -> None:
    ids = tuple(slurm.submit(10.0, partition="burst").job_id for _ in range(11))
    slurm.hold(ids)
    backend.snapshot(0.0)
    slurm.told.clear()
    backend.update_job(ids, {"nice": "7"})
    assert slurm.told == [("job", ids, {"nice": "7"})]
    backend.update_job(ids[:2], {"nice": "8"})
    assert slurm.told[1:] == [("job", (job_id,), {"nice": "8"}) for job_id in ids[:2]]


def test_a_task_of_an_array_is_left_to_the_command_line(slurm: MemorySlurm, backend: PyslurmBackend) -> None:
    ids = [job.job_id for job in slurm.submit_array(3, 10.0, partition="burst")]
    backend.snapshot(0.0)
    backend.update_job([ids[-1]], {"partition": "onprem"})
    assert backend.by_commands == 1
    backend.release([ids[-1]])
    backend.requeue([ids[-1]])
    assert backend.by_commands == 3


def test_a_job_that_was_not_read_is_left_to_the_command_line(
    slurm: MemorySlurm, backend: PyslurmBackend
) -> None:
    job_id = slurm.submit(10.0, partition="burst").job_id
    backend.update_job([job_id], {"partition": "onprem"})
    assert backend.by_commands == 1


def test_the_queue_is_asked_about_new_jobs_only(slurm: MemorySlurm, backend: PyslurmBackend) -> None:
    job_id = waiting(slurm, backend)
    calls: list[str] = []
    slurm.observe = lambda name, _stage: calls.append(name)
    assert backend.waiting({job_id}) == {job_id: None}
    assert "waiting" not in calls
    assert backend.waiting(set())[job_id] is not None
    assert "waiting" in calls


def test_a_refusal_is_said_after_what_could_be_done(slurm: MemorySlurm, backend: PyslurmBackend) -> None:
    first, second = waiting(slurm, backend), waiting(slurm, backend)
    slurm.cancel([first])
    with pytest.raises(RetryLater, match="refuses"):
        backend.update_job([first, second], {"nice": "7"})
    assert slurm.jobs[second].priority_offset == -7


def test_what_cannot_be_read_is_read_by_the_command_line(
    slurm: MemorySlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = MemoryPyslurm(slurm)
    backend = PyslurmBackend(module, slurm)  # type: ignore[arg-type]
    job_id = waiting(slurm, backend)

    def broken() -> dict[int, Any]:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    monkeypatch.setattr(module.Jobs, "load", broken)
    assert [one.job.job_id for one in backend.snapshot(0.0).jobs] == [job_id]
    assert list(backend.waiting(set())) == [job_id]
    assert backend.by_commands == 2


def test_nodes_are_changed_and_a_weight_of_zero_goes_by_the_command_line(
    slurm: MemorySlurm, backend: PyslurmBackend
) -> None:
    backend.update_node(["burst1", "burst2"], weight=7)
    assert [node.weight for node in backend.snapshot(0.0).nodes if node.name != "fixed1"] == [7, 7, 100]
    assert backend.by_commands == 0
    backend.update_node(["burst1"], weight=0)
    assert slurm.nodes["burst1"].weight == 0
    assert backend.by_commands == 1
    with pytest.raises(
        ValueError, match="IDLE"
    ):  # pyslurm has no word for it, and the memory's Slurm no state
        backend.update_node(["burst1"], state="IDLE")
    backend.update_node([], state="RESUME")


def test_a_slurmctld_that_is_away_is_tried_later(slurm: MemorySlurm, backend: PyslurmBackend) -> None:
    slurm.is_away = True
    with pytest.raises(RetryLater):
        backend.snapshot(0.0)


def module_of(version: str) -> ModuleType:
    module = ModuleType("pyslurm")
    module.__version__ = version  # type: ignore[attr-defined]
    return module


def test_a_pyslurm_of_another_release_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/nowhere")
    conf = tmp_path / "slurm.conf"
    with pytest.raises(BadInput, match="cannot be read"):
        load_pyslurm(conf, (22, 5, 8))
    conf.write_text("ClusterName=c\n")
    monkeypatch.setitem(sys.modules, "pyslurm", None)
    with pytest.raises(BadInput, match="cannot be imported"):
        load_pyslurm(conf, (22, 5, 8))
    monkeypatch.setitem(sys.modules, "pyslurm", module_of("24.11.0"))
    with pytest.raises(BadInput, match=r"not for Slurm 22\.5\.8"):
        load_pyslurm(conf, (22, 5, 8))
    monkeypatch.setitem(sys.modules, "pyslurm", module_of("22.5.3"))
    assert load_pyslurm(conf, (22, 5, 8)).__version__ == "22.5.3"


def test_the_commands_are_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = load(None, {}).settings
    assert isinstance(backend_of(settings), CliBackend)
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=c\n")
    monkeypatch.setenv("SLURM_CONF", "/nowhere")
    monkeypatch.setitem(sys.modules, "pyslurm", module_of("22.5.3"))
    monkeypatch.setattr(CliBackend, "version", lambda _: (22, 5, 8))
    cluster = settings.cluster.model_copy(update={"slurm_api": "pyslurm"})
    paths = settings.paths.model_copy(update={"slurm_conf": conf})
    chosen = backend_of(settings.model_copy(update={"cluster": cluster, "paths": paths}))
    assert isinstance(chosen, PyslurmBackend)
