"""``advisor advise`` against a submit server on a real socket."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.model.errors import BadInput, RetryLater
from advisor.service.exchange.client import SubmitClient
from advisor.service.exchange.protocol import AdviseReply
from tests.commands import app
from tests.decide.cases import ask
from tests.service.submit.test_server import Running

runner = CliRunner()


@pytest.fixture
def site(tmp_path):
    running = Running(tmp_path)
    config = tmp_path / "advisor.toml"
    config.write_text(f'[paths]\nrun = "{tmp_path}/run"\nstate = "{tmp_path}/state"\n')
    yield running, config
    running.stop()


def call(config, *arguments):
    return runner.invoke(app, ["advise", "--config", str(config), *arguments], catch_exceptions=False)


def as_json(config, *arguments):
    result = call(config, "--format", "json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_options_of_sbatch_are_taken(site):
    running, config = site
    found = as_json(config, "--time=2:00:00", "--ntasks", "16", "-N4", "--mail-type=END", "-A", "chem")
    assert found["placement"] == "burst"
    assert found["partition"] == "burst"
    assert found["reason"].startswith("capacity.")
    assert found["numbers"]["predicted_wait"] == 7200.0
    assert found["options_not_looked_at"] == ["mail-type"]
    assert found["time_limit_minutes"] == 140  # s(16) = 1.16
    job, _ = running.estimator.seen[-1]
    assert (job.processors, job.requested_time, job.nodes, job.account) == (16, 7200.0, 4, "chem")


def test_a_script_and_the_command_line_beside_it(site, tmp_path):
    _, config = site
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH -n 4 -t 60 --comment=no-burst\nsrun x\n")
    stays = as_json(config, "--script", str(script), "--user", "nobody-of-that-name")
    assert (stays["placement"], stays["reason"]) == ("on-premise", "rule.opt_out_comment")
    assert stays["sentence"] == "Its comment says no-burst: the user does not want it moved."
    assert stays["submission"]["user"] == "nobody-of-that-name"
    moves = as_json(config, "--script", str(script), "--comment=fine")
    assert moves["placement"] == "burst"
    assert moves["submission"]["num_tasks"] == 4
    text = call(config, "--script", str(script), "--comment=fine", "--mail-type=END").stdout
    assert "Would start in the cloud" in text
    assert "2 h 00 min" in text
    assert "Options without influence: mail-type" in text
    assert "Its time limit would become 1 h 03 min" in text
    assert stays["time_limit_minutes"] is None


def test_the_environment_wins_over_the_script_and_the_command_line_over_it(site, tmp_path, monkeypatch):
    _, config = site
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH -n 4 -t 60 -A chem\nsrun x\n")
    for name, value in (("TIMELIMIT", "2:00:00"), ("ACCOUNT", "physics"), ("NO_REQUEUE", "1"), ("QOS", "")):
        monkeypatch.setenv(f"SBATCH_{name}", value)
    said = as_json(config, "--script", str(script), "--account=math")["submission"]
    asked = {"num_tasks": 4, "time_limit": 120, "account": "math", "requeue": False}
    assert {name: said.get(name) for name in (*asked, "qos")} == asked | {"qos": None}
    assert as_json(config, "--script", str(script), "--user=root")["submission"]["time_limit"] == 60
    monkeypatch.setenv("SBATCH_TIMELIMIT", "soon")
    with pytest.raises(BadInput, match="SBATCH_TIMELIMIT"):
        call(config, "--ntasks=1")


def test_it_shows_the_line_of_sbatch(site):
    _, config = site
    shown = call(config, "--time=60", "--comment=by=18:00,no-burst").stdout
    assert "sbatch would print: Burst Advisor: by= is promised nothing: this site makes no promises" in shown
    assert "sbatch would print" not in call(config, "--time=60", "--comment=no-burst").stdout


def test_the_cost_of_an_array_is_that_of_all_its_tasks(site, monkeypatch):
    _, config = site
    values = {
        "start_there": 60.0,
        "predicted_wait": 7200.0,
        "predicted_saving": 3600.0,
        "predicted_cost": 50.0,
    }
    said = admin_comment(ask(), values=values)
    reply = AdviseReply(
        v=1, seq=1, id="a", placement="burst", mode="act", reason="capacity.spot", admin_comment=said
    )
    monkeypatch.setattr(SubmitClient, "advise", lambda *_, **__: reply)
    assert "for each of its 100 tasks, for 50.00 USD in all" in as_json(config, "--array=1-100")["why"]
    assert "saves about 1 h 00 min for 50.00 USD" in as_json(config, "--ntasks=1")["why"]


def test_nothing_is_submitted_and_nothing_spooled(site):
    running, config = site
    as_json(config, "--ntasks=1")
    running.stop()
    assert list(running.spool_folder.glob("*")) == []


def test_heterogeneous_jobs_stay(site, tmp_path):
    _, config = site
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH -n 4\n#SBATCH hetjob\n#SBATCH -n 2\n")
    found = as_json(config, "--script", str(script))
    assert (found["placement"], found["reason"]) == ("on-premise", "rule.heterogeneous")


def test_bad_input(site, tmp_path):
    _, config = site
    for arguments in ((), ("--script", str(tmp_path / "none.sh")), ("--time=soon",)):
        with pytest.raises(BadInput):
            call(config, *arguments)


def test_nobody_listens(tmp_path):
    config = tmp_path / "advisor.toml"
    config.write_text(f'[paths]\nrun = "{tmp_path}"\n')
    with pytest.raises(RetryLater, match="no answer from the submit server"):
        call(config, "--ntasks=1")


def test_day_one_7_a_job_that_begins_later_or_is_held_stays_as_it_does_live(site):
    _, config = site
    for words in (["--begin=now+1hour"], ["-b", "tomorrow"], ["--hold"], ["-H"]):
        found = as_json(config, "--time=60", "--ntasks=4", *words)
        assert (found["placement"], found["reason"]) == ("on-premise", "rule.deferred")
        assert found["options_not_looked_at"] == []
    assert as_json(config, "--time=60", "--ntasks=4", "--begin=now")["placement"] == "burst"
    with pytest.raises(BadInput, match="now\\+1hour"):
        call(config, "--time=60", "--begin=someday")


def test_day_one_8_what_sbatch_does_not_know_is_warned_about_first(site):
    _, config = site
    done = call(
        config, "--time=60", "--ntaskss=4", "--foo", "job.sh", "--mail-type=END", "--user", "nosuchuser-"
    )
    assert done.exit_code == 0
    warnings = done.stderr.splitlines()
    assert "no option --ntaskss" in warnings[0]
    assert "Did you mean --ntasks?" in warnings[0]
    assert "no option --foo" in warnings[1]
    assert any("has no user nosuchuser-" in line for line in warnings)
    assert not any("mail-type" in line for line in warnings)
    assert "Would start" in done.stdout
    found = json.loads(call(config, "--time=60", "--foo=1", "--format", "json").stdout)
    assert found["options_unknown"] == ["--foo"]
    assert call(config, "--time=60", "--ntasks=4").stderr == ""
    assert "--script job.sh" in call(config, "job.sh").stderr
