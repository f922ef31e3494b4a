"""Following ``lsb.events``: the records of a real volclava cluster, and the file as mbatchd treats it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.lsf.events import EventsReader, JobsInEvents
from advisor.lsf.fields import MalformedRecord
from advisor.lsf.live_job import LiveJob, elements
from advisor.model.errors import BadInput, RetryLater

RECORDED = (Path(__file__).parent / "records" / "volclava.lsb.events").read_text()
"""bsub, bswitch, bmod, btop, bkill, brequeue, bstop and arrays, as a cluster wrote them."""


class Log:
    """A file that a test writes as mbatchd does, and its reader."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lsb.events"
        self.path.touch()
        self.reader = EventsReader(self.path)

    def look(self, text: str = "") -> JobsInEvents:
        with self.path.open("a") as file:
            file.write(text)
        return self.reader.look()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    found = Log(tmp_path)
    yield found
    found.reader.close()


def until(marker: str) -> str:
    """The recorded lines up to the first that has `marker`, with it."""
    lines = RECORDED.splitlines(keepends=True)
    last = next(number for number, line in enumerate(lines) if marker in line)
    return "".join(lines[: last + 1])


def lines_of(*markers: str) -> str:
    """The first recorded line that has each of `markers`."""
    return "".join(
        next(line for line in RECORDED.splitlines(keepends=True) if marker in line) for marker in markers
    )


def by_key(jobs: tuple[LiveJob, ...]) -> dict[tuple[int, int], LiveJob]:
    return {(job.job_id, job.array_index): job for job in jobs}


def test_jobs_as_they_were_submitted(log: Log) -> None:
    jobs = by_key(log.look(until('"l2kill"')).jobs)
    assert list(jobs) == [(224, 0), (225, 0), (226, 0), (227, 1), (227, 2), (227, 3), (229, 0)]
    plain, held, later = jobs[224, 0], jobs[225, 0], jobs[226, 0]
    assert (plain.user, plain.queue, plain.processors, plain.project) == ("ann", "normal", 2, "proj")
    assert (plain.state, plain.run_limit_seconds, plain.submit_time) == ("PEND", 600, 1795485267)
    assert not plain.deferred
    assert (held.state, held.deferred, held.resource_request) == ("PSUSP", True, "rusage[mem=100]")
    assert (held.command, held.run_limit_seconds) == ('echo "a b"; sleep 3', None)
    assert (later.begin_time, later.deferred) == (1795564740, True)
    assert jobs[227, 2].name == "l2arr[2]"


def test_a_start_a_switch_and_changes(log: Log) -> None:
    jobs = by_key(log.look(until('"JOB_MOVE"')).jobs)
    running, moved = jobs[224, 0], jobs[225, 0]
    assert (running.state, running.hosts, running.start_time) == ("RUN", ("head", "head"), 1795485271)
    assert (moved.queue, moved.submit_time) == ("aws", 1795485267)
    assert (moved.description, moved.run_limit_seconds) == ("advice x", 1200)
    assert not {(227, 1), (227, 2), (227, 3)} & set(jobs)


def test_a_requeued_job_waits_again_and_is_told_as_finished_once(log: Log) -> None:
    look = log.look(until('"JOB_REQUEUE"'))
    again = by_key(look.jobs)[224, 0]
    assert (again.state, again.hosts, again.start_time, again.restarts) == ("PEND", (), None, 1)
    assert 224 not in {job.job_id for job in look.finished}
    rest = RECORDED.removeprefix(until('"JOB_REQUEUE"'))
    ended = by_key(log.look(rest).finished)[224, 0]
    assert (ended.state, ended.start_time, ended.end_time) == ("DONE", 1795485291, 1795485299)
    assert log.look().finished == ()


def test_every_recorded_line_is_understood(log: Log) -> None:
    look = log.look(RECORDED)
    assert (look.jobs, look.malformed, look.problems) == ((), 0, ())
    finished = by_key(look.finished)
    assert {key for key, job in finished.items() if job.queue == "aws"} == {
        (225, 0), (231, 0), (232, 4), (232, 6), (232, 8)
    }  # fmt: skip
    changed = finished[231, 0]
    assert (changed.name, changed.processors) == ("l2new", 3)
    assert (changed.run_limit_seconds, changed.resource_request) == (None, "")
    assert [finished[232, index].run_limit_seconds for index in (1, 4, 6, 8)] == [None, None, 420, None]


def test_a_stopped_job_holds_its_hosts(log: Log) -> None:
    job = by_key(log.look(until(" 230 16 ")).jobs)[230, 0]
    assert (job.state, job.hosts) == ("USUSP", ("head",))


def test_looks_at_any_moment_add_up(log: Log, tmp_path: Path) -> None:
    """The file in pieces of 97 characters, most of which end inside a line, is the file at once."""
    finished: list[LiveJob] = []
    for start in range(0, len(RECORDED), 97):
        look = log.look(RECORDED[start : start + 97])
        assert look.malformed == 0
        finished += look.finished
    whole = EventsReader(tmp_path / "lsb.events")
    at_once = whole.look()
    whole.close()
    ends = by_key(tuple(finished))
    assert ends == by_key(at_once.finished)
    assert look.jobs == at_once.jobs


def test_a_new_file_has_the_live_jobs_again(log: Log) -> None:
    before = log.look(until('"JOB_MOVE"'))
    assert before.began_anew
    assert not log.look().began_anew
    kept = [line for line in until('"JOB_MOVE"').splitlines(keepends=True) if "227" not in line]
    new = log.path.with_suffix(".tmp")
    # longer than the old file: its length alone does not tell that it is another one
    header = "#" + " " * len(until('"JOB_MOVE"')) + "\n"
    new.write_text(header + "".join(kept) + lines_of(" 229 32 "))
    new.replace(log.path)
    after = log.look()
    assert after.began_anew
    assert [job.job_id for job in after.finished] == [229]
    assert by_key(after.jobs) == {key: job for key, job in by_key(before.jobs).items() if key[0] != 229}


def test_a_file_that_became_shorter_is_read_anew(log: Log) -> None:
    log.look(until('"JOB_MOVE"'))
    log.path.write_text(lines_of('"l2run"'))
    look = log.look()
    assert look.began_anew
    assert [job.job_id for job in look.jobs] == [224]


def test_no_file_for_a_moment_is_no_reason_to_stop(log: Log) -> None:
    log.look(lines_of('"l2run"'))
    log.path.unlink()
    with pytest.raises(RetryLater, match="not there at this moment"):
        log.reader.look()
    log.path.write_text(lines_of('"l2run"'))
    assert [job.job_id for job in log.reader.look().jobs] == [224]


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"lsb\.events"):
        EventsReader(tmp_path / "lsb.events").look()


def test_malformed_lines_are_counted_and_the_rest_is_read(log: Log) -> None:
    broken = lines_of('"l2run"').replace("1002", '"who"', 1)
    look = log.look(broken + '"JOB_SWITCH" "22" 5 \n' + lines_of('"l2kill"'))
    assert [job.job_id for job in look.jobs] == [229]
    assert look.malformed == 2
    assert look.problems[0].startswith("line 1: field 5 (user id) is a string")


def test_records_of_another_release_are_refused(log: Log) -> None:
    lines = lines_of('"l2run"').replace('"22"', '"7.06"', 1) + lines_of('"l2kill"')
    with pytest.raises(BadInput, match=r"version '7\.06'") as caught:
        log.look(lines)
    assert caught.value.code == "lsf.version"
    with pytest.raises(BadInput, match="line 1"):  # it stays so: no later look takes the rest for all jobs
        log.look()


@pytest.mark.parametrize("text", ["", "a", "1-", "1-999999", "3,,4"])
def test_indices_that_are_none(text: str) -> None:
    with pytest.raises(MalformedRecord, match=r"indices|elements"):
        elements(text)
