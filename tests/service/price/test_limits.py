"""Jobs that limits of users, accounts, QOS, arrays and licences hold, and those that wait beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from advisor.decide.explanation.reasons import Reason
from advisor.model.cluster import Limit
from advisor.model.limits import far_from_start, held_jobs, limit_of, limits_there, never_starts
from advisor.model.snapshot import QueuedJob
from advisor.service.price.queue_view import OnPremiseQueue, forecast_waits, on_premise_queue, seen_queues
from advisor.service.submit.recent import QueueForecast, Submission
from advisor.service.submit.state_holder import profiles_of
from tests.decide.cases import ask, make_job, make_settings
from tests.service.doubles import make_look, make_node, make_queued
from tests.service.site import make_snapshot

NOW = 1_800_000_000.0
HOUR = 3600.0
NODES = (make_node("n1", processors=16, partitions=("cpu",)),)
PER_USER = "QOSMaxJobsPerUserLimit"


def runs(job_id: int, **changes: Any) -> QueuedJob:
    known = {"user": "ann", "account": "chem", "qos": "normal", "requested_time": HOUR}
    return make_queued(job_id, "RUNNING", queue="cpu", start_time=NOW, **(known | changes))


def waits(job_id: int, reason: str, **changes: Any) -> QueuedJob:
    known = {"user": "ann", "account": "chem", "qos": "normal", "requested_time": HOUR}
    return make_queued(job_id, queue="cpu", reason=reason, **(known | changes))


def queue_of(*jobs: QueuedJob) -> OnPremiseQueue:
    look = make_look(NOW, NODES, jobs)
    return on_premise_queue(look, make_settings(cluster={"on_premise_partitions": ["cpu"]}))


def hours(queue: OnPremiseQueue) -> dict[int, float]:
    return {job: wait / HOUR for job, wait in forecast_waits(queue).items()}


@pytest.mark.parametrize(
    ("reason", "limit"),
    [
        (PER_USER, Limit("ann", None, "normal", "", "jobs")),
        ("QOSMaxCpuPerUserLimit", Limit("ann", None, "normal", "", "processors")),
        ("QOSMaxNodePerUserLimit", Limit("ann", None, "normal", "", "nodes")),
        ("QOSMaxGRESPerUser", Limit("ann", None, "normal", "", "gpus")),
        ("QOSMaxMemoryPerUser", Limit("ann", None, "normal", "", "memory")),
        ("MaxCpuPerAccount", Limit(None, "chem", "normal", "", "processors")),
        ("MaxCpuRunMinsPerUser", Limit("ann", None, "normal", "", "processors")),  # from 23.02 on
        ("MaxGRESRunMinsPerAccount", Limit(None, "chem", "normal", "", "gpus")),
        ("MaxJobsPerAccount", Limit(None, "chem", "normal", "", "jobs")),
        ("MaxMemPerLimit", None),
        ("QOSGrpCpuLimit", Limit(None, None, "normal", "", "processors")),
        ("AssocGrpCPURunMinutesLimit", Limit(None, "chem", None, "", "processors")),
        ("AssocMaxJobsLimit", Limit("ann", "chem", None, "", "jobs")),
        ("AssociationResourceLimit", Limit("ann", "chem", None, "", "processors")),
        ("JobArrayTaskLimit", Limit(None, None, None, "array 7", "jobs")),
        ("Licenses", Limit(None, None, None, "licences None", "jobs")),
        ("Resources", None),
        ("Priority", None),
        ("", None),
    ],
)
def test_slurms_reasons_name_a_limit(reason: str, limit: Limit | None) -> None:
    found = limit_of(waits(7, reason))
    assert found == (None if limit is None else limit._replace(reason=reason))


@pytest.mark.parametrize(
    ("reason", "never"),
    [
        ("QOSMaxCpuPerJobLimit", True),
        ("QOSMaxWallDurationPerJobLimit", True),
        ("AssocGrpCPUMinutesLimit", True),
        ("AssocGrpCPURunMinutesLimit", False),
        ("QOSMinCpuNotSatisfied", True),
        ("QOSMinGRES", True),
        ("MaxSubmitJobsPerAccount", True),
        ("AssociationTimeLimit", True),
        (PER_USER, False),
        ("PartitionTimeLimit", True),  # EnforcePartLimits=NO, slurm.conf's default
        ("PartitionNodeLimit", True),
        ("PartitionConfig", True),
        ("BadConstraints", True),
        ("AccountNotAllowed", True),
        ("Job's account not permitted to use this partition (cpu denies chem including chem)", True),
        ("Job's_QOS_not_permitted_to_use_this_partition_(cpu_allows_urgent_not_normal)", True),
        ("Resources", False),
    ],
)
def test_a_job_over_a_limit_of_its_own_does_not_wait_for_others(reason: str, *, never: bool) -> None:
    assert never_starts(waits(7, reason)) == never
    queue = queue_of(runs(1, processors=8), waits(7, reason, processors=8), waits(8, "Priority", user="bob"))
    assert (7 in hours(queue)) != never


@pytest.mark.parametrize(
    "reason",
    [
        "PartitionTimeLimit",
        "PartitionConfig",
        "PartitionDown",
        "job requeued in held state",
        "JobHoldMaxRequeue",
        "Job's account not permitted",
    ],
)
def test_a_job_that_cannot_start_keeps_no_other_waiting(reason: str) -> None:
    """An idle cluster: a full one was seen in it, and each new job was sent to the cloud for money."""
    stuck = waits(7, reason, processors=16)
    assert hours(queue_of(stuck, waits(8, "Priority", user="bob", processors=16))) == {8: 0.0}
    assert not stuck.is_queued


def test_the_other_jobs_of_a_user_at_their_limit_go_on_one_by_one() -> None:
    """Ann has 2 of 16 processors and three jobs that wait; Bob's job of all others is not behind them."""
    jobs = (
        runs(1, processors=2),
        waits(2, PER_USER, processors=8),
        waits(3, "Priority", processors=2),
        waits(4, PER_USER, processors=2, qos="urgent"),
        waits(5, "Priority", processors=14, user="bob"),
    )
    queue = queue_of(*jobs)
    assert queue.held.limits == (
        Limit("ann", None, "normal", "", "jobs", PER_USER),
        Limit("ann", None, "urgent", "", "jobs", PER_USER),
    )
    assert hours(queue) == {2: 1.0, 3: 2.0, 5: 0.0}  # nothing tells when job 4 may start
    at_once = {queued.job.job_id: replace(queued, reason="Priority") for queued in jobs if queued.reason}
    assert hours(queue_of(jobs[0], *at_once.values())) == {2: 0.0, 3: 0.0, 4: 0.0, 5: 1.0}


def test_the_submit_server_sees_the_same_limits() -> None:
    jobs = runs(1, processors=2), waits(2, PER_USER, processors=14), waits(3, PER_USER, processors=14)
    snapshot = replace(make_snapshot(NOW), queues=seen_queues(queue_of(*jobs)))
    found = QueueForecast(snapshot.queues, profiles_of(snapshot))
    bobs = make_job(user="bob", queue="cpu", processors=14, requested_time=1800.0)
    assert found.waits(bobs, NOW)[0] == 0.0
    assert found.waits(structs.replace(bobs, requested_time=2 * HOUR, processors=3), NOW)[0] == 0.0
    assert found.waits(structs.replace(bobs, processors=16), NOW)[0] == 3 * HOUR


def test_a_limit_of_processors_leaves_less_than_the_smallest_job_that_it_holds() -> None:
    word = "QOSMaxCpuPerUserLimit"
    held = held_jobs([runs(1, processors=6), waits(2, word, processors=4), waits(3, word, processors=3)])
    assert held.left == (2.0,)
    assert held.counted == {1: (1, 6.0), 2: (1, 4.0), 3: (1, 3.0)}


def test_a_limited_array_runs_as_many_tasks_at_a_time_as_it_does_now() -> None:
    running = [structs.replace(runs(n, processors=1).job) for n in (8, 9)]
    array = [replace(runs(job.job_id), job=job, array_job_id=7) for job in running]
    waiting = replace(waits(7, "JobArrayTaskLimit", processors=1, array_tasks=300), array_job_id=7)
    bobs = waits(99, "Priority", user="bob", processors=14)
    queue = queue_of(*array, waiting, bobs)
    assert hours(queue) == {7: 1.0, 99: 0.0}
    (seen,) = seen_queues(queue)
    rows = seen.closed().waiting
    assert (len(rows), rows[200].tolist()) == (202, [2.0, 50 * HOUR, 50 * HOUR])


def test_an_array_of_which_two_tasks_may_run_leaves_the_rest_to_others() -> None:
    """Whatever it waits for now, and also between its submission and the next snapshot."""
    full = runs(1, processors=16, user="eve")
    array = waits(7, "Resources", processors=1, array_tasks=10, array_at_once=2)
    bobs = waits(99, "Priority", user="bob", processors=14)
    assert hours(queue_of(full, array, bobs)) == {7: 1.0, 99: 1.0}
    all_at_once = replace(array, job=structs.replace(array.job, array_at_once=None))
    assert hours(queue_of(full, all_at_once, bobs)) == {7: 1.0, 99: 2.0}
    one_runs = replace(runs(8, processors=1), array_job_id=7)
    assert queue_of(full, one_runs, replace(array, array_job_id=7)).held.left == (1.0,)
    snapshot = replace(make_snapshot(NOW), queues=seen_queues(queue_of(full)))
    new = make_job(user="bob", queue="cpu", processors=14, requested_time=HOUR)
    for at_once, wait in ((2, HOUR), (0, 2 * HOUR), (9, 2 * HOUR)):
        found = QueueForecast(snapshot.queues, profiles_of(snapshot))
        found.join(
            Submission(
                time=NOW, processors=1, tasks=10, at_once=at_once, requested_seconds=HOUR,
                expected_seconds=HOUR, queue="cpu",
            )
        )  # fmt: skip
        assert found.waits(new, NOW)[0] == wait


@pytest.mark.parametrize(
    ("job", "limit", "is_held"),
    [
        ({"user": "ann", "qos": "normal"}, Limit("ann", None, "normal"), True),
        ({"user": "ann"}, Limit("ann", None, "normal"), False),  # the hook tells of Slurm's default
        ({"user": "ann", "qos": "normal"}, Limit("ann", None, "normal", unit="gpus"), False),
        ({"user": "ann", "qos": "urgent"}, Limit("ann", None, "normal"), False),
        ({"user": "bob", "qos": "normal"}, Limit("ann", None, "normal"), False),
        ({"user": "bob", "account": "chem"}, Limit(None, "chem", None), True),
        ({"user": "bob"}, Limit(None, "chem", None), False),
        ({"user": "bob", "qos": "normal"}, Limit(None, None, "normal"), True),
        ({"user": "bob"}, Limit(None, None, "normal"), False),
        ({"user": "ann"}, Limit(other="array 7"), False),
    ],
)
def test_a_user_at_their_limit_gets_nothing_from_the_cloud(
    job: dict[str, str], limit: Limit, *, is_held: bool
) -> None:
    advice = ask(make_job(**job), limits=(limit._replace(reason=PER_USER),))
    assert (advice.decisive.reason == Reason.LIMITED) == is_held
    if is_held:
        assert advice.decisive.detail == PER_USER


@pytest.mark.parametrize(
    ("reason", "qos_of", "is_told"),
    [
        (PER_USER, {}, True),
        (PER_USER, {"cpu": "cpu-users"}, False),
        (PER_USER, {"cpu": "users", "burst": "users"}, True),
        (PER_USER, {"gpu": "gpu-users"}, True),
        ("AssocMaxJobsLimit", {"cpu": "cpu-users"}, True),
        ("AssocGrpCPUMinutesLimit", {}, True),
        ("AssocGrpWallLimit", {}, True),
        ("AssocMaxCpuMinutesPerJobLimit", {}, False),
        ("QOSMaxWallDurationPerJobLimit", {}, False),
        ("Resources", {}, False),
    ],
)
def test_limits_that_hold_in_the_cloud_are_told_to_the_submit_server(
    reason: str, qos_of: dict[str, str], *, is_told: bool
) -> None:
    assert bool(limits_there([waits(7, reason)], ["cpu"], "burst", qos_of)) == is_told
    assert not limits_there([waits(7, reason)], ["gpu"], "burst", qos_of)


@pytest.mark.parametrize(
    ("reason", "qos_of", "user", "qos", "is_held"),
    [
        (PER_USER, {}, "ann", "normal", True),
        (PER_USER, {}, "ann", "urgent", False),
        (PER_USER, {"burst": "cap"}, "ann", "urgent", True),
        (PER_USER, {"burst": "cap"}, "bob", "normal", False),
        ("QOSGrpCpuLimit", {"burst": "cap"}, "bob", "urgent", True),
        ("QOSGrpCpuLimit", {"cpu": "cpu-users"}, "bob", "urgent", False),
    ],
)
def test_a_limit_that_holds_a_job_in_the_cloud_holds_others_that_it_counts(
    reason: str, qos_of: dict[str, str], user: str, qos: str, *, is_held: bool
) -> None:
    there = replace(waits(7, reason), partitions=("burst",))
    (limit,) = limits_there([there], ["cpu"], "burst", qos_of)
    assert limit.counts(make_job(user=user, qos=qos)) == is_held


def test_as_many_held_jobs_as_run_may_start_next() -> None:
    def there(job_id: int, reason: str, **changes: Any) -> QueuedJob:
        return replace(waits(job_id, reason, submit_time=NOW + job_id, **changes), partitions=("burst",))

    running = [runs(number) for number in (1, 2)]
    held = [there(number, PER_USER) for number in (6, 5, 4, 3)]
    free, here = there(7, "Priority", user="bob", account="law"), waits(8, PER_USER, submit_time=NOW)
    assert far_from_start([*running, *held, here, free], "burst") == {5, 6}
    assert far_from_start([free, *running], "burst") == frozenset()
    assert far_from_start([*running, there(1, "QOSMaxCpuPerJobLimit"), *held], "burst") == {1, 5, 6}
    assert far_from_start([*running, there(9, "JobArrayTaskLimit")], "burst") == frozenset()


def test_a_limit_of_gpus_holds_no_job_without_one() -> None:
    word = "QOSMaxGRESPerUser"
    jobs = runs(1, gpus=1), waits(2, word, gpus=1), waits(3, "Priority", processors=4)
    assert hours(queue_of(*jobs))[3] == 0.0
