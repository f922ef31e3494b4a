"""The hedged start on a real slurmctld: places kept, jobs brought back once, crashes at every step."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.model.advice import HedgeKind
from advisor.model.errors import RetryLater
from advisor.model.snapshot import QueuedJob
from advisor.service.hedge import going_again
from advisor.service.state.hedge_entries import Phase
from advisor.slurm.placeholders import Placeholders
from advisor.slurm.protocol import SlurmBackend
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.watched import WatchedLab, small_comment

pytestmark = [pytest.mark.slurm]

# ages are reckoned anew every minute, which is as often as slurmctld does
AGEING = ("PriorityWeightAge=1000000", "PriorityMaxAge=0-1", "PriorityCalcPeriod=1")
# ends only on-premise
ENDLESS = (
    "echo $SLURM_JOB_PARTITION $SLURM_RESTART_COUNT $(date +%s.%N); "
    "[ $SLURM_JOB_PARTITION = burst ] && sleep 300; sleep 2"
)
FULL_MINUTES = 4
REQUEUE_SECONDS = 120  # Slurm's own: else, where all is slow, a job may start in the cloud once more
TELL = "echo $SLURM_JOB_PARTITION $SLURM_RESTART_COUNT $(date +%s.%N); sleep {}"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    options = LabOptions(
        nodes=1, burst_nodes=3, suspend_seconds=60, requeue_seconds=REQUEUE_SECONDS, extra=AGEING
    )
    with Lab.temporary(options) as lab:
        yield lab


@pytest.fixture(autouse=True)
def _emptied(lab: Lab) -> Iterator[None]:
    yield
    lab.run("scancel", "--full", "--user=root")
    until(lambda: not lab.run("squeue", "-h").stdout.strip())


def until(
    condition: Callable[[], bool], step: Callable[[], None] | None = None, seconds: float = 240
) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            msg = "not in time"
            raise AssertionError(msg)
        if step is not None:
            try:
                step()
            except RetryLater:  # as the real loop: the next round tries again
                continue
        time.sleep(0.2)


def until_told(file: Path) -> str:
    """Script of a job that runs until a file is there: however slow this machine is, no sooner or later."""
    return f"while [ ! -e {file} ]; do sleep 0.1; done"


def busy(lab: Lab, go: Path) -> int:
    """Fill the on-premise node, until told."""
    job_id = lab.sbatch("-n4", f"--time={FULL_MINUTES}", script=until_told(go)).job_id
    until(lambda: state(lab, job_id) == "RUNNING")
    return job_id


def starts(lab: Lab, job_id: int) -> list[tuple[str, float]]:
    """Partition and time of each of a job's starts that got as far as its first line."""
    path = lab.folder / "jobs" / f"{job_id}.out"
    lines = path.read_text().split("\n") if path.exists() else []
    found = [line.split() for line in lines]  # slurmstepd writes there as well
    return [(words[0], float(words[-1])) for words in found if words and words[0] in ("burst", "onprem")]


def state(lab: Lab, job_id: int) -> str:
    return lab.job(job_id)["JobState"]


def placeholders(lab: Lab, job_id: int) -> list[str]:
    shown = lab.run("squeue", "-h", f"--name=place-of-{job_id}", "-o", "%i %T").stdout
    return shown.splitlines()


def test_a_short_speculation_ends_in_the_cloud(lab: Lab, tmp_path: Path) -> None:
    watched = WatchedLab(lab, tmp_path)
    here, there = tmp_path / "here", tmp_path / "there"
    filler = busy(lab, here)
    job = watched.hedged(
        "-n4", "-c1", script=until_told(there), stop_seconds=200, kind=HedgeKind.SPECULATION, limit_minutes=5
    )
    watched.step()
    assert len(placeholders(lab, job)) == 1
    there.touch()
    until(lambda: state(lab, job) == "COMPLETED", watched.step)
    assert lab.job(job)["Partition"] == "burst"
    assert lab.job(job)["Restarts"] == "0"
    until(lambda: not placeholders(lab, job) and watched.kept(job) is None, watched.step)
    assert state(lab, filler) == "RUNNING"
    here.touch()


@pytest.mark.parametrize("priorities", ["priority/multifactor", "priority/basic"])
def test_a_long_speculation_comes_back_once_to_its_place(priorities: str, tmp_path: Path) -> None:
    extra = AGEING if priorities == "priority/multifactor" else ()
    options = LabOptions(
        nodes=1, burst_nodes=1, requeue_seconds=REQUEUE_SECONDS, priority_type=priorities, extra=extra
    )
    with Lab.temporary(options) as lab:
        _comes_back_once_to_its_place(lab, tmp_path, is_exact=not extra)


def _comes_back_once_to_its_place(lab: Lab, tmp_path: Path, *, is_exact: bool) -> None:
    # a slow cloud: else it would be done there before slurmctld expects a slot here, and would stay
    watched = WatchedLab(lab, tmp_path, sections={"placement": {"baseline": 3.0}})
    go = tmp_path / "go"
    busy(lab, go)
    before = lab.sbatch("-n4", "--time=1", script="sleep 2").job_id
    time.sleep(2.1)  # slurmctld counts in whole seconds: of two in one second neither is first
    job = watched.hedged(
        "-n4", script=ENDLESS, stop_seconds=3, kind=HedgeKind.SPECULATION, limit_minutes=FULL_MINUTES
    )
    watched.step()
    time.sleep(2.1)
    after = lab.sbatch("-n4", "--time=1", script="sleep 2").job_id
    until(lambda: lab.job(job)["Partition"] == "onprem", watched.step)
    assert state(lab, job) == "PENDING"  # long before its turn: 22.05 by itself would put it last
    lab.restart_slurmctld()
    go.touch()
    until(lambda: state(lab, after) == "COMPLETED", watched.step)
    until(lambda: watched.kept(job) is None, watched.step)
    shown = lab.job(job)
    assert (shown["JobState"], shown["Restarts"], shown["TimeLimit"]) == (
        "COMPLETED",
        "1",
        f"00:0{FULL_MINUTES}:00",
    )
    started = [lab.job(number)["StartTime"] for number in (before, job, after)]
    assert started[1] < started[2]
    if (
        is_exact
    ):  # else: where all ages are of the last reckoning, nobody submitted since then is before another
        assert started[0] < started[1]
    assert [where for where, _ in starts(lab, job)][-1] == "onprem"
    assert not placeholders(lab, job)


@pytest.mark.parametrize("option", ["--no-requeue", "--comment=advisor:no-hedge"])
def test_who_refuses_is_never_touched(lab: Lab, tmp_path: Path, option: str) -> None:
    watched = WatchedLab(lab, tmp_path)
    busy(lab, tmp_path / "go")
    job = watched.hedged("-n1", option, script=TELL.format(5), stop_seconds=0.5)
    until(lambda: state(lab, job) == "COMPLETED", watched.step)
    assert (lab.job(job)["Restarts"], lab.job(job)["Partition"]) == ("0", "burst")
    assert len(watched.record) == 0
    assert lab.job(job)["SubmitTime"] <= lab.job(job)["StartTime"]


def test_arrays_and_jobs_others_wait_for_are_never_touched(lab: Lab, tmp_path: Path) -> None:
    watched = WatchedLab(lab, tmp_path)
    array = watched.hedged("--array=1-2", script="sleep 1", stop_seconds=0.5)
    job = watched.hedged("-n1", script=TELL.format(3), stop_seconds=0.5)
    dependant = lab.sbatch(f"--dependency=afterok:{job}", "-n1", script="true").job_id
    until(lambda: state(lab, dependant) == "COMPLETED", watched.step)
    lab.wait_for_jobs([array])
    assert len(watched.record) == 0
    assert lab.job(job)["Restarts"] == "0"


def test_its_placeholder_starts_only_where_it_could(lab: Lab, tmp_path: Path) -> None:
    watched, asked = WatchedLab(lab, tmp_path), ("--exclude=burst3", "--mincpus=2", "--exclusive=user")
    busy(lab, tmp_path / "go")
    job = watched.hedged("-n2", *asked, script=ENDLESS, stop_seconds=1000, limit_minutes=FULL_MINUTES)
    watched.step()
    (place,) = placeholders(lab, job)
    shown = lab.job(int(place.split()[0]))
    found = [shown[name] for name in ("ExcNodeList", "MinCPUsNode", "OverSubscribe")]
    assert found == ["burst3", "2", "USER"]


def test_its_turn_comes_and_it_takes_its_slot(lab: Lab, tmp_path: Path) -> None:
    """A slow cloud: starting anew is sooner. Another job waits for the very same processors."""
    sections = {"placement": {"baseline": 3.0}}
    watched = WatchedLab(lab, tmp_path, sections=sections)
    go = tmp_path / "go"
    filler = busy(lab, go)
    job = watched.hedged("-n4", script=ENDLESS, stop_seconds=1000, limit_minutes=FULL_MINUTES)
    watched.step()
    thief = lab.sbatch("-n4", "--time=1", script="sleep 1").job_id
    until(lambda: len(starts(lab, job)) == 1, watched.step)
    go.touch()
    until(lambda: watched.kept(job) is None, watched.step)
    lab.wait_for_jobs([thief])
    assert (state(lab, job), lab.job(job)["Restarts"]) == ("COMPLETED", "1")
    assert [where for where, _ in starts(lab, job)] == ["burst", "onprem"]
    assert lab.job(filler)["EndTime"] <= lab.job(job)["StartTime"] < lab.job(thief)["StartTime"]
    assert watched.record.counts == {"places_kept": 1, "brought_back": 1}


def test_its_turn_comes_and_it_stays(lab: Lab, tmp_path: Path) -> None:
    """The cloud is as fast as we are: what it has done is never done again."""
    sections = {"placement": {"overhead_per_processor": 0.0}}
    watched = WatchedLab(lab, tmp_path, sections=sections)
    here, there = tmp_path / "here", tmp_path / "there"
    busy(lab, here)
    job = watched.hedged("-n4", script=until_told(there), stop_seconds=1000, limit_minutes=FULL_MINUTES)
    watched.step()
    after = lab.sbatch("-n4", "--time=1", script="true").job_id
    until(lambda: state(lab, job) == "RUNNING", watched.step)
    time.sleep(1.1)  # slurmctld counts in whole seconds
    here.touch()
    until(lambda: state(lab, after) == "COMPLETED", watched.step)
    assert state(lab, job) == "RUNNING"  # its slot was given up at once
    there.touch()
    until(lambda: watched.kept(job) is None, watched.step)
    assert (state(lab, job), lab.job(job)["Restarts"]) == ("COMPLETED", "0")


class SecondRun:
    """A price that sells a job which has come back one more run, to its end."""

    def next_stop(self, _queued: QueuedJob, _elapsed_seconds: float, _placeholder: int) -> float | None:
        return None

    def stays(self, _queued: QueuedJob, _elapsed: float, _held: float, _ran: float) -> bool:
        return True

    def another_stop(self, _queued: QueuedJob, ran_seconds: float) -> float | None:
        return ran_seconds + 1000.0


def test_a_slice_that_came_back_goes_once_more_and_keeps_its_place(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(going_again, "PERIOD_SECONDS", 1.0)
    watched = WatchedLab(lab, tmp_path)
    here, there = tmp_path / "here", tmp_path / "there"
    filler = busy(lab, here)
    script = f"{TELL.format(0)}; {until_told(there)}"
    job = watched.hedged("-n4", script=script, stop_seconds=3, limit_minutes=FULL_MINUTES)
    watched.step()
    (place,) = placeholders(lab, job)
    until(lambda: lab.job(job)["Partition"] == "onprem", watched.step)
    assert state(lab, job) == "PENDING"
    watched.slices = SecondRun()
    until(lambda: lab.job(job)["Partition"] == "burst", watched.step)
    until(lambda: len(starts(lab, job)) == 2, watched.step)
    assert placeholders(lab, job) == [place]
    there.touch()
    until(lambda: watched.kept(job) is None, watched.step)
    shown = lab.job(job)
    assert (shown["JobState"], shown["Partition"], shown["Restarts"]) == ("COMPLETED", "burst", "1")
    assert [where for where, _ in starts(lab, job)] == ["burst", "burst"]
    assert watched.record.counts == {"places_kept": 1, "brought_back": 1, "moved_again": 1}
    assert not placeholders(lab, job)
    assert state(lab, filler) == "RUNNING"
    here.touch()


class Killed(BaseException):
    """The process ends here."""


class Breaking:
    """Lets so many changes through, then "kills" the loop just before or just after one."""

    def __init__(self, inner: Any, left: Iterator[str]) -> None:
        self._inner = inner
        self._left = left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("requeue", "update_job", "reserve", "cancel", "raise_priority"):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            hedge_outcome = next(self._left)
            if hedge_outcome == "before":
                raise Killed
            result = found(*arguments, **named)
            if hedge_outcome == "after":
                raise Killed
            return result

        return call


@pytest.mark.parametrize("stop_seconds", [2.0, 1000.0], ids=["at its stop-loss", "at its turn"])
def test_killed_around_every_change(lab: Lab, tmp_path: Path, stop_seconds: float) -> None:
    """Each time the loop has made a change it dies and comes again: nothing is lost, nothing done twice."""
    hedge_outcomes = itertools.cycle(["after", "before", "go"])

    def wrap(slurm: SlurmBackend, places: Placeholders) -> tuple[Any, Any]:
        return Breaking(slurm, hedge_outcomes), Breaking(places, hedge_outcomes)

    def fresh() -> WatchedLab:
        return WatchedLab(lab, tmp_path, sections={"placement": {"baseline": 3.0}}, wrap=wrap)

    go = tmp_path / "go"
    busy(lab, go)
    watched, kills = fresh(), 0
    job = watched.hedged("-n4", script=ENDLESS, stop_seconds=stop_seconds, limit_minutes=FULL_MINUTES)
    most = 0

    def step() -> None:
        nonlocal watched, kills, most
        try:
            watched.step()
        except Killed:
            kills += 1
            watched = fresh()
        most = max(most, len(placeholders(lab, job)))

    until(lambda: len(starts(lab, job)) == 1)
    until(lambda: len(placeholders(lab, job)) == 1, step)
    go.touch()
    until(lambda: state(lab, job) == "COMPLETED" and watched.kept(job) is None, step)
    assert kills >= 4
    assert most == 1
    assert lab.job(job)["Restarts"] == "1"
    assert [where for where, _ in starts(lab, job)] == ["burst", "onprem"]
    assert not placeholders(lab, job)


def test_slurmctld_dies_between_the_kill_and_the_move(lab: Lab, tmp_path: Path) -> None:
    hedge_outcomes = iter(["go", "go", "after"])  # placeholder, its priority, requeue

    def wrap(slurm: SlurmBackend, places: Placeholders) -> tuple[Any, Any]:
        return Breaking(slurm, hedge_outcomes), Breaking(places, hedge_outcomes)

    watched = WatchedLab(lab, tmp_path, wrap=wrap)
    go = tmp_path / "go"
    busy(lab, go)
    # slurmctld writes its jobs down within five seconds: one that dies before has never had them
    job = watched.hedged("-n4", script=ENDLESS, stop_seconds=8, limit_minutes=FULL_MINUTES)
    with pytest.raises(Killed):
        until(lambda: False, watched.step)
    lab.restart_slurmctld(kill=True)
    again = WatchedLab(lab, tmp_path)
    kept = again.kept(job)
    assert kept is not None
    assert kept.phase is Phase.RETURNING
    go.touch()
    until(lambda: again.kept(job) is None, again.step)
    # how often it was requeued slurmctld may have forgotten: it writes that down seconds later
    assert (state(lab, job), lab.job(job)["Partition"]) == ("COMPLETED", "onprem")
    assert lab.job(job)["Restarts"] in {"0", "1"}


def test_a_job_that_is_not_small_is_requeued_as_large_once(lab: Lab, tmp_path: Path) -> None:
    sections = {"size": {"safeguard": True}}
    watched = WatchedLab(lab, tmp_path, sections=sections, divider=2.0)
    go = tmp_path / "go"
    once = f'[ "${{SLURM_RESTART_COUNT:-0}}" = 1 ] || {until_told(go)}'
    jobs = [
        lab.sbatch("-n4", f"--time={FULL_MINUTES}", *option, script=once).job_id
        for option in ([], ["--no-requeue"])
    ]
    for job in jobs:
        lab.run("scontrol", "update", f"jobid={job}", f"admincomment={small_comment()}", "sitefactor=1000")
    other = lab.sbatch("-n4", "--time=1", script="true").job_id
    until(lambda: (watched.small_jobs.requeued_jobs, watched.small_jobs.left_jobs) == (1, 1), watched.step)
    go.touch()
    until(lambda: all(state(lab, job) == "COMPLETED" for job in (*jobs, other)), watched.step)
    assert [lab.job(job)["Restarts"] for job in jobs] == ["1", "0"]
    assert (watched.small_jobs.requeued_jobs, watched.small_jobs.left_jobs) == (1, 1)
