"""``burst-why`` and ``burst-when``, as a login node runs them: one file, an old Python, Slurm's commands."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs
from typer.testing import CliRunner

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.decide.explanation.wording import recorded_explanation, sentence
from advisor.model.advice import Advice
from advisor.model.estimate import Estimate
from tests.commands import app
from tests.decide.cases import ask, make_estimates, make_job

SCONTROL = """#!/bin/sh
[ "$3" = 12345 ] && [ "$SLURM_TIME_FORMAT" = standard ] || exit 1
cat <<'END'
JobId=12345 JobName=relax
   UserId=ann(1001) GroupId=ann(1001) MCS_label=N/A
   JobState={state} Reason=Priority Dependency=(null)
   Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode=0:0
   SubmitTime=2026-11-24T10:00:00 EligibleTime=2026-11-24T10:00:00
   StartTime={start} EndTime={end} Deadline=N/A
   Partition=onprem AllocNode:Sid=login:1
   AdminComment={comment}
   Comment=by=18:00 JobState=COMPLETED
END
"""


@pytest.fixture(scope="module")
def tool() -> str:
    done = CliRunner().invoke(app, ["config", "login-tool"], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


class LoginNode:
    """A folder with the tool and a scontrol that shows one job."""

    def __init__(self, folder: Path, tool: str) -> None:
        self.folder = folder
        for name in ("burst-why", "burst-when"):
            self._program(name, tool)

    def _program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def shows(
        self,
        comment: str,
        state: str = "PENDING",
        start: str = "Unknown",
        end: str = "Unknown",
        restarts: int = 0,
    ) -> None:
        shown = {"comment": comment, "state": state, "start": start, "end": end, "restarts": restarts}
        self._program("scontrol", SCONTROL.format_map(shown))
        self._program("sacct", "#!/bin/sh\nexit 0\n")

    def run(self, name: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder}:{Path(sys.executable).parent}:{os.defpath}"
        return subprocess.run(
            [sys.executable, "-I", "-X", "utf8=0", str(self.folder / name), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={"PATH": path, "TZ": "UTC", "SLURM_TIME_FORMAT": "relative", **environment},
        )


@pytest.fixture
def login(tmp_path: Path, tool: str) -> LoginNode:
    return LoginNode(tmp_path, tool)


def moved() -> Advice:
    return at_ten(ask(make_job(queue="onprem"), make_estimates(wait=7200.0)))


def at_ten(advice: Advice, *, later: float = 0.0) -> Advice:
    """An advice given so many seconds after the submission that Slurm shows."""
    return structs.replace(advice, time=datetime(2026, 11, 24, 10, tzinfo=UTC).timestamp() + later)


def test_it_is_written_for_python_3_6(tool: str) -> None:
    tree = ast.parse(tool, feature_version=(3, 6))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported <= {"json", "math", "os", "re", "signal", "subprocess", "sys", "time"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


@pytest.mark.parametrize(
    "advice",
    [moved(), ask(make_job(queue="onprem", comment="no-burst")), ask(estimates=make_estimates(wait=0.0))],
    ids=["moved", "opted out", "room here"],
)
def test_it_says_what_advisor_why_says(login: LoginNode, advice: Advice) -> None:
    login.shows(admin_comment(advice))
    said = login.run("burst-why", "12345")
    assert (said.returncode, said.stderr) == (0, "")
    assert sentence(advice.decisive) in said.stdout
    where = "the cloud" if advice.partition else "the on-premise cluster"
    assert said.stdout.startswith(f"It starts in {where}")
    # a moved job may have been taken back since, by its user or the advisor
    assert ("Its partition is onprem now." in said.stdout) == bool(advice.partition)


DEAR = (
    '{"burst_advisor":1,"id":"a","to":"on-premise","mode":"act","why":"price.too_dear","size":"unknown",'
    '"n":{"hour_costs":2,"hour_may_cost":0.5,"slice_chance":0.1171}}'
)


LARGE = (
    '{"burst_advisor":1,"id":"a","to":"on-premise","mode":"act","why":"rule.more_memory_than_burst",'
    '"size":"unknown","n":{"memory":524288,"burst_memory":65536,"burst_nodes":1,"data":2000000,"performance_ratio":1234}}'
)


def test_the_rest_of_a_pipe_may_close(login: LoginNode) -> None:
    login.shows(admin_comment(moved()))
    shell = f"{sys.executable} -I -u {login.folder}/burst-why 12345 | (exec <&-; sleep 1)"
    path = f"{login.folder}:{Path(sys.executable).parent}:{os.defpath}"
    words = ["/bin/sh", "-c", shell]
    done = subprocess.run(words, capture_output=True, check=True, timeout=60, env={"PATH": path, "TZ": "UTC"})
    assert done.stderr == b""


@pytest.mark.parametrize("comment", [admin_comment(moved()), DEAR, LARGE], ids=["moved", "too dear", "large"])
def test_numbers_have_their_units(login: LoginNode, comment: str) -> None:
    from advisor.decide.explanation.admin_comment import parse_admin_comment

    login.shows(comment)
    said = login.run("burst-why", "12345").stdout
    recorded = parse_admin_comment(comment)
    assert recorded is not None
    for line in recorded_explanation(recorded).splitlines():
        if line.startswith("    "):
            assert line in said.splitlines()


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_name_in_latin_1_and_a_terminal_of_ascii_hide_nothing(login: LoginNode, locale: str) -> None:
    shown = {"comment": admin_comment(moved()), "state": "PENDING", "start": "Unknown", "end": "Unknown"}
    text = SCONTROL.format_map(shown | {"restarts": 0})
    scontrol = login.folder / "scontrol"
    login.shows("")
    scontrol.write_bytes(text.encode().replace(b"JobName=relax", b"JobName=gr\xf6\xdfe"))
    said = login.run("burst-why", "12345", LC_ALL=locale)
    assert (said.returncode, said.stderr) == (0, "")
    assert "It starts in the cloud" in said.stdout


def test_when_it_starts(login: LoginNode) -> None:
    stays = at_ten(ask(make_job(queue="onprem"), make_estimates(wait=7200.0, run=1e6, run_variance=1e12)))
    login.shows(admin_comment(stays), start="2026-11-24T13:30:00")
    said = login.run("burst-when", "12345").stdout
    assert "expected to start here about 2026-11-24 12:00" in said or "about 12:00" in said
    assert "Slurm plans its start by" in said
    login.shows(admin_comment(stays), "RUNNING", "2026-11-24T13:30:00", "2026-11-24T15:30:00")
    assert "It started at" in login.run("burst-when", "12345").stdout
    login.shows(admin_comment(stays), "CONFIGURING", "2026-11-24T13:30:00", "2026-11-24T15:30:00")
    booting = login.run("burst-when", "12345").stdout
    assert "Its nodes are being started since" in booting
    assert "ended" not in booting


@pytest.mark.parametrize(("restarts", "end"), [(0, "12:00"), (1, "11:00")])
def test_when_a_moved_job_ends(login: LoginNode, restarts: int, end: str) -> None:
    """The cloud is slower; a job that was started again may be here."""
    comment = admin_comment(moved(), values={"predicted_run": 3600.0, "predicted_cloud_run": 7200.0})
    login.shows(comment, "RUNNING", "2026-11-24T10:00:00", "2026-11-24T18:00:00", restarts)
    said = login.run("burst-when", "12345").stdout
    assert f"It is expected to end about 2026-11-24 {end}." in said


def test_a_jobs_name_is_none_of_its_fields(login: LoginNode) -> None:
    login.shows(DEAR, "RUNNING", "2026-11-24T10:00:00", "2026-11-24T18:00:00")
    scontrol = login.folder / "scontrol"
    scontrol.write_text(scontrol.read_text().replace("JobName=relax", "JobName=a JobState=COMPLETED"))
    said = login.run("burst-when", "12345").stdout
    assert said == "It started at 2026-11-24 10:00 and is ended by Slurm at 2026-11-24 18:00.\n"


def test_what_has_not_started_or_not_ended(login: LoginNode) -> None:
    stays = admin_comment(at_ten(ask(make_job(queue="onprem", comment="no-burst"))))
    login.shows(stays, "CANCELLED", "2026-11-24T12:00:00", "2026-11-24T12:00:00")
    said = login.run("burst-when", "12345").stdout
    assert said == "It was cancelled at 2026-11-24 12:00, before it started.\n"
    login.shows(stays, "SUSPENDED", "2026-11-24T12:00:00", "2026-11-24T18:00:00")
    said = login.run("burst-when", "12345").stdout
    assert said == "It started at 2026-11-24 12:00 and is suspended.\n"


def test_what_a_sooner_end_would_have_cost(login: LoginNode) -> None:
    numbers = {
        "deadline_in": 28800,
        "free_in": 40000,
        "soonest_in": 7200,
        "soonest_costs": 0.4,
        "confidence": 0.95,
    }
    comment = {"burst_advisor": 1, "id": "a", "to": "on-premise", "why": "promise.waits", "n": numbers}
    login.shows(json.dumps(comment))
    said = login.run("burst-when", "12345").stdout
    assert "When it was advised, it was to be done by" in said
    assert "for about 0.40 USD, in 95 of 100 cases." in said


def test_the_interval_is_that_of_the_forecast(login: LoginNode) -> None:
    """One wait and one interval, whichever tool is asked; Slurm's own plan says why it is later."""
    wait = Estimate(seconds=180.0, variance=1e6, lower=0.0, upper=2400.0)
    stays = at_ten(ask(make_job(queue="onprem"), make_estimates(wait=180.0)))
    comment = admin_comment(stays, wait=wait)
    login.shows(comment, start="2026-11-24T10:50:00")
    said = login.run("burst-when", "12345").stdout.replace("2026-11-24 ", "").splitlines()
    assert said[0] == (
        "At its submission it was expected to start here about 10:03, in 90 of 100 cases between "
        "10:00 and 10:40."
    )
    assert said[1] == (
        "Slurm plans its start by 10:50, were all jobs to run to their time limits and none to come "
        "before it."
    )


def test_a_job_that_was_moved_is_not_expected_here(login: LoginNode) -> None:
    login.shows(admin_comment(moved(), wait=Estimate(seconds=7200.0, variance=1.0)))
    said = login.run("burst-when", "12345").stdout
    assert "start here" not in said
    login.shows(
        '{"burst_advisor":1,"to":"burst","mode":"act","n":{"predicted_saving":28,"predicted_cost":0.04}}'
    )
    said = login.run("burst-when", "12345").stdout
    assert "In the cloud, where it was sent, it is expected to be done 28 s sooner than here" in said


def test_times_are_those_of_the_price_list(login: LoginNode) -> None:
    """sbatch said "done by 10:04 ...; 2026-12-24 18:00 is promised", at half a second past ten."""
    values = {"deadline_in": 2_620_799.5, "soonest_in": 225.0, "soonest_costs": 0.076, "confidence": 0.95}
    login.shows(admin_comment(at_ten(ask(make_job(comment="no-burst")), later=0.5), values=values))
    said = login.run("burst-when", "12345").stdout
    assert "it was to be done by 2026-12-24 18:00." in said
    assert "done by 2026-11-24 10:04 for about" in said or "done by 10:04 for about" in said


@pytest.mark.parametrize("hours", [5.0, -3.0])
def test_a_time_counts_from_the_advice(login: LoginNode, hours: float) -> None:
    """The job was moved five hours after its submission; or Slurm shows the time of its requeue."""
    values = {"deadline_in": 8.0 * 3600.0 - 3600.0 * hours}
    login.shows(admin_comment(at_ten(ask(make_job()), later=3600.0 * hours), values=values), "RUNNING")
    assert "it was to be done by 2026-11-24 18:00." in login.run("burst-when", "12345").stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["12345; rm -rf"], 2, "Usage: burst-why JOBID"),
        ([], 2, "Usage: burst-why JOBID"),
        (["99"], 1, "Slurm knows no job 99"),
    ],
)
def test_what_it_cannot_answer(login: LoginNode, words: list[str], code: int, said: str) -> None:
    login.shows("{}")
    done = login.run("burst-why", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_a_slurm_that_does_not_answer_knows_no_job_is_not_said(login: LoginNode) -> None:
    login.shows("{}")
    for complaint, said in (
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "Slurm does not answer",
        ),
        ("slurm_load_jobs error: Invalid job id specified", "Slurm knows no job 99"),
    ):
        login._program("scontrol", f"#!/bin/sh\necho '{complaint}' >&2\nexit 1\n")
        assert said in login.run("burst-why", "99").stderr


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "{}",
        "(null)",
        "{broken",
        '{"burst_advisor":1,"n":7,"why":"\\u001b[2J"}',
        '{"n":{"a":1}}',
        '{"burst_advisor":1,"wait":[1e300,"a",null],"n":{"soonest_in":1e300}}',
        '{"burst_advisor":1,"t":NaN,"n":{"deadline_in":5}}',
    ],
)
def test_a_damaged_comment_shows_nothing_odd(login: LoginNode, comment: str) -> None:
    login.shows(comment)
    for name in ("burst-why", "burst-when"):
        done = login.run(name, "12345")
        assert done.returncode in {0, 1}
        assert "\x1b" not in done.stdout
        assert "Traceback" not in done.stderr
