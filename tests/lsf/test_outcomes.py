"""From a record to a finished job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from advisor.history.sacct import EndedRun
from advisor.lsf.fields import Fields
from advisor.lsf.job_finish import USUAL_TERMS, SiteTerms, read_job_finish, record_type
from advisor.lsf.outcomes import run_of
from advisor.model.job import JobOutcome, JobState

Write = Callable[..., str]


@pytest.fixture
def run(write_record: Write) -> Callable[..., EndedRun | None]:
    def read(version: str = "10.108", *, terms: SiteTerms = USUAL_TERMS, **changes: Any) -> EndedRun | None:
        found = Fields(write_record(version, **changes))
        record_type(found)
        return run_of(read_job_finish(found), terms)

    return read


@pytest.fixture
def outcome(run: Callable[..., EndedRun | None]) -> Callable[..., JobOutcome]:
    def read(*arguments: Any, **changes: Any) -> JobOutcome:
        ended = run(*arguments, **changes)
        assert ended is not None
        assert ended.outcome is not None
        return ended.outcome

    return read


Outcome = Callable[..., JobOutcome]
Run = Callable[..., EndedRun | None]


@pytest.mark.parametrize(
    ("running", "seconds"), [(1200, 1200.0), (3000, 3000.0), (9000, 3000.0), (0, 3000.0)]
)
def test_time_in_which_a_job_was_suspended_is_no_run_time(
    outcome: Outcome, running: int, seconds: float
) -> None:
    assert outcome(running_seconds=running).run_seconds == seconds


def test_what_an_esub_has_described_is_no_word_of_the_users(outcome: Outcome) -> None:
    assert outcome(description="Burst Advisor: advice 6925a1-1").job.comment is None


def test_every_field(outcome: Outcome) -> None:
    ended = outcome(
        run_limit=7200,
        resource_request="rusage[mem=4G:matlab=1] span[ptile=2]",
        share_account="/chemistry/theory/ann",
        service_class="gold",
        description="no-burst",
        reservation="ann#0",
        dependency="done(4700)",
        asked_hosts=["node1", "node2"],
        options=0x2000002 | 0x4000,
    )
    job = ended.job
    assert (job.job_id, job.submit_time) == (4711, 1_700_000_000.0)
    assert (ended.start_time, ended.end_time) == (1_700_000_600.0, 1_700_003_600.0)
    assert (ended.wait_seconds, ended.run_seconds) == (600.0, 3000.0)
    assert (job.user, job.group, job.account, job.qos) == ("ann", "chemistry/theory", "physics", "gold")
    assert (job.queue, ended.partition, ended.nodes) == ("normal", "normal", "node1,node2")
    assert (job.processors, ended.processors_used, job.nodes) == (4, 4, 2)
    assert (job.memory_mb, job.memory_mb_per_node, job.licenses) == (8192, 4096, "matlab=1")
    assert (job.requested_time, job.explicit_time_limit) == (7200.0, True)
    assert (job.name, job.comment, job.reservation) == ("flow", "no-burst", "ann#0")
    assert (job.dependency, job.node_list, job.requeue) == ("done(4700)", "node1,node2", True)
    assert (ended.state, ended.restarts, ended.advice_id) == (JobState.COMPLETED, 0, None)
    assert (job.interactive, job.deferred, job.explicit_partition) == (False, False, False)


def test_what_is_not_said_is_unknown(outcome: Outcome, release: str) -> None:
    job = outcome(release).job
    assert (job.requested_time, job.memory_mb, job.nodes, job.node_list) == (None, None, None, None)
    assert (job.group, job.qos, job.comment, job.reservation, job.licenses) == (None, None, None, None, None)
    assert (job.explicit_time_limit, job.requeue) == (False, None)


@pytest.mark.parametrize(
    ("status", "exit_info", "state"),
    [
        (64, 0, JobState.COMPLETED),
        (64 | 128, 0, JobState.COMPLETED),  # and its post-processing is done
        (32, 0, JobState.FAILED),
        (32, 17, JobState.FAILED),
        (32, 99, JobState.FAILED),
        (32, 5, JobState.TIMEOUT),
        (32, 12, JobState.TIMEOUT),
        (32, 16, JobState.OUT_OF_MEMORY),
        (32, 14, JobState.CANCELLED),
        (32, 15, JobState.CANCELLED),
        (32, 1, JobState.PREEMPTED),
        (32, 34, JobState.PREEMPTED),
        (32, 22, JobState.NODE_FAIL),
    ],
)
def test_states(outcome: Outcome, status: int, exit_info: int, state: JobState) -> None:
    assert outcome(status=status, exit_info=exit_info).state is state


@pytest.mark.parametrize("exit_info", [4, 10, 11, 30, 31])
def test_a_requeued_run_is_no_end(run: Run, exit_info: int) -> None:
    ended = run(status=32, exit_info=exit_info)
    assert ended is not None
    assert (ended.outcome, ended.may_continue) == (None, True)


def test_runs_after_which_another_may_follow(run: Run) -> None:
    def may_continue(**changes: Any) -> bool:
        ended = run(**changes)
        assert ended is not None
        assert ended.outcome is not None
        return ended.may_continue

    assert may_continue(status=32, exit_info=1)
    assert may_continue(status=32, requeue_exit_values="99")
    assert not may_continue(status=64, requeue_exit_values="99")
    assert not may_continue(status=32)


def test_a_requeue_is_told_by_its_time(outcome: Outcome) -> None:
    assert outcome(requeue_time=1_700_000_300).restarts == 1


@pytest.mark.parametrize(
    "times",
    [{"start_time": 0}, {"start_time": 1_699_999_999}, {"start_time": 1_700_003_601}, {"submit_time": 0}],
)
def test_without_a_start_that_makes_sense_there_is_nothing_to_learn(run: Run, times: dict[str, int]) -> None:
    assert run(**times) is None


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 0.0),
        ({"begin_time": 1_700_000_500}, 500.0),
        ({"begin_time": 1_700_000_030}, 0.0),
        ({"begin_time": 1_699_990_000}, 0.0),
        ({"dependency": "done(4700)"}, 600.0),  # nobody says when it was fulfilled
        ({"dependency": "done(4700)", "ineligible": 400}, 400.0),
        ({"dependency": "done(4700)", "ineligible": 0}, 0.0),
        ({"ineligible": 90_000}, 600.0),
    ],
)
def test_the_part_of_its_wait_in_which_it_might_not_start(
    outcome: Outcome, changes: dict[str, Any], seconds: float
) -> None:
    """As of sacct: else jobs of `bsub -b` and `-w` teach that the queue is long."""
    ended = outcome(**changes)
    assert ended.ineligible_seconds == seconds
    assert (ended.first_wait_seconds is None) == (seconds > 0.0)


def test_what_a_record_leaves_to_its_sites_configuration(outcome: Outcome, release: str) -> None:
    """Forecasts are asked about live jobs, which have their queue's limit, and look for jobs alike."""
    terms = SiteTerms(limits={"normal": 3600.0}, reserves_per_task=True)
    plain = outcome(release, terms=terms, resource_request="rusage[mem=100]").job
    has_limit = release not in {"5.1", "7.06"}  # older records say nothing of a limit, given or not
    assert plain.requested_time == (3600.0 if has_limit else None)
    assert (plain.explicit_time_limit, plain.memory_mb) == (False, 400)
    assert outcome(release, terms=terms, queue="long").job.requested_time is None
    if has_limit:
        assert outcome(release, terms=terms, run_limit=7200).job.requested_time == 7200.0


def test_elements_of_an_array_have_ids_of_their_own(outcome: Outcome) -> None:
    ids = {outcome(array_index=index).job.job_id for index in range(5)}
    assert len(ids) == 5
    assert outcome(array_index=1, job_id=1000).job.job_id == 4294968296  # LSF's own
    assert outcome(array_index=7, name="scan[1-1000]%20").job.name == "scan"
    assert outcome(array_index=0, name="scan[1]").job.name == "scan[1]"
    assert [outcome(array_index=index, job_id=9).job.array_job_id for index in range(2)] == [None, 9]


def test_processors_are_slots_used_where_nobody_asked_for_a_number(outcome: Outcome) -> None:
    hosts = {"hosts": ["16*node1", "node2"], "allocated_slots": ["16*node1", "node2"]}
    assert outcome(processors=0, **hosts).job.processors == 17
    assert outcome("7.06", **hosts).processors_used == 17
    assert outcome(hosts=[], allocated_slots=[]).processors_used == 4
    assert outcome("7.06", hosts=[]).nodes is None


def test_options_of_bsub(outcome: Outcome) -> None:
    assert outcome(options=503316486).job.interactive  # a pseudo-terminal, as it was seen
    assert outcome(begin_time=1_700_000_100).job.deferred
    assert not outcome(begin_time=1_699_999_000).job.deferred


def test_a_user_without_a_name_has_a_number(outcome: Outcome) -> None:
    assert outcome(user="", share_account="").job.user == "1001"


def test_the_sites_unit_of_memory(outcome: Outcome) -> None:
    asked = {"resource_request": "rusage[mem=4]", "processors": 1}
    assert outcome(terms=SiteTerms(memory_unit="GB"), **asked).job.memory_mb == 4096
    assert outcome(**asked).job.memory_mb == 4


def test_the_memory_that_a_job_held(outcome: Outcome) -> None:
    """A number for each host is for those that it had: here two."""
    asked = outcome(resource_request="rusage[mem=3000]")
    assert (asked.job.memory_mb, asked.memory_held_mb) == (None, 6000)
    assert outcome(resource_request="rusage[mem=3000/job]").memory_held_mb == 3000
    assert outcome().memory_held_mb == 0


def test_long_texts_are_cut(outcome: Outcome) -> None:
    assert outcome(name="x" * 4094).job.name == "x" * 1000


def test_a_replay_keeps_the_jobs_here_that_stay_here_live(outcome: Outcome) -> None:
    combined = "select[(ngpus>0) && (type == any)] order[gpu_maxfactor] rusage[ngpus_physical=2.00] "
    assert outcome(effective_resource_request=combined).job.gres == "ngpus_physical=2.00"
    assert outcome(resource_request="bigmem rusage[mem=4]").job.node_list == "bigmem rusage[mem=4]"
    assert outcome(resource_request="rusage[mem=4]").job.node_list is None
