"""``advisor why``, ``decisions`` and ``ledger`` on a real database."""

from __future__ import annotations

import json
import time

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from advisor.cli.context import settings_of
from advisor.cli.main import run
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.bill import NodeUse, PaidTime
from advisor.model.errors import BadInput
from advisor.model.job import JobOutcome
from advisor.service.admin.since import clock_text, moment_text, parse_since
from tests.commands import app
from tests.decide.cases import ask, make_estimates, make_job, make_settings

runner = CliRunner()
NOW = float(int(time.time())) - 600.0


@pytest.fixture
def config(tmp_path):
    """Three jobs: moved, kept, and kept against a shadow advice; the first two have ended."""
    url = f"sqlite:///{tmp_path}/history.db"
    shadow = make_settings(cluster={"default_mode": "shadow"})
    given = [
        (11, ask(), make_estimates()),
        (12, ask(make_job(comment="no-burst")), make_estimates(wait=100.0)),
        (13, ask(settings=shadow), make_estimates()),
    ]
    with HistoryStore(url) as store:
        for number, (job_id, advice, estimates) in enumerate(given):
            advice_id, at = f"advice-{job_id}", NOW + number
            job = make_job(submit_time=at, user="ann\x1b[31m", name="run\n1")
            record = AdviceRecord(
                advice=replace(advice, advice_id=advice_id, time=at), job=job, estimates=estimates
            )
            store.add_advice([record])
            if job_id == 13:
                continue
            ran = replace(job, job_id=job_id)
            start = at + (130.0 if job_id == 11 else 150.0)
            store.add([JobOutcome(job=ran, start_time=start, end_time=start + 60.0)], source="slurm")
            assert store.link(advice_id, job_id)
    path = tmp_path / "advisor.toml"
    path.write_text(f'[paths]\ndatabase_url = "{url}"\n')
    return path


def call(config, command, *arguments):
    result = runner.invoke(app, [command, "--config", str(config), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_why_says_each_question_and_number(config):
    text = call(config, "why", "11")
    assert "Job 11 (run 1) of ann [31m" in text
    assert "2. Is the cloud faster, and are we sure? YES" in text
    assert "advice-11" in text
    assert "\x1b" not in text
    found = json.loads(call(config, "why", "12", "--format", "json"))
    assert found["headline"] == "Starts in the on-premise cluster."
    assert found["advice"]["answers"][0]["reason"] == "rule.opt_out_comment"
    assert found["estimates"]["wait"]["seconds"] == 100.0


@pytest.mark.parametrize(("partition", "said"), [("burst", False), ("onprem", True)])
def test_why_says_that_a_moved_job_has_come_back(config, partition, said):
    with HistoryStore(f"sqlite:///{config.parent}/history.db") as store:
        store.add_advice(
            [replace(store.advice_of(11), advice=replace(ask(), advice_id="advice-20", time=NOW))]
        )
        ended = replace(store.of_job(11).job, job_id=20)
        outcome = JobOutcome(job=ended, start_time=NOW + 9.0, end_time=NOW + 60.0, partition=partition)
        store.add([outcome], source="slurm")
        assert store.link("advice-20", 20)
    assert ("it has ended in partition onprem" in call(config, "why", "20")) is said


def test_why_says_that_a_moved_job_waits_here_again(config, tmp_path, monkeypatch):
    with HistoryStore(settings_of(config).history_url) as store:
        store.add_advice(
            [replace(store.advice_of(11), advice=replace(ask(), advice_id="advice-22", time=NOW))]
        )
        assert store.link("advice-22", 22)
    for name, value in commands(tmp_path, squeue=admin_comment(ask()), submitted=int(NOW)).items():
        monkeypatch.setenv(name, value)
    assert "its partition is onprem now" in call(config, "why", "22")


def test_an_element_of_an_array_of_lsf_has_its_name(config):
    with config.open("a") as file:
        file.write('[cluster]\nscheduler = "lsf"\n')
    with HistoryStore(settings_of(config).history_url) as store:
        assert store.link("advice-13", 3 * 2**32 + 14)
        assert store.link("advice-12", 15)
    assert "Job 14[3] (run 1)" in call(config, "why", "14[3]")
    assert "14[3]" in call(config, "decisions")
    assert "advice-12" in call(config, "why", "15[2]")  # of an array that was advised as a whole
    refused = runner.invoke(app, ["why", "--config", str(config), "16[1]"])
    assert isinstance(refused.exception, BadInput)
    assert "Slurm" not in str(refused.exception)


def test_why_of_an_unknown_job_ends_with_2(config, tmp_path, monkeypatch, capsys):
    for name, value in commands(tmp_path, squeue="someone's own words").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["advisor", "why", "--config", str(config), "99"])
    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == 2
    assert "scontrol show job 99" in " ".join(capsys.readouterr().err.split())


def test_decisions(config):
    found = json.loads(call(config, "decisions", "--format", "json"))
    assert found["total"] == 3
    assert found["placements"] == {"burst": 2, "on-premise": 1}
    assert [row["advice_id"] for row in found["decisions"]] == ["advice-11", "advice-12", "advice-13"]
    assert [row["job_ids"] for row in found["decisions"]] == [[11], [12], []]
    assert found["decisions"][0]["predicted_wait_deviation_seconds"] == 10.0
    newest = json.loads(call(config, "decisions", "--limit", "1", "--format", "json"))
    assert [row["advice_id"] for row in newest["decisions"]] == ["advice-13"]
    assert newest["total"] == 3
    text = call(config, "decisions")
    assert "3 decisions (2 burst, 1 on-premise)" in " ".join(text.split())
    assert "\x1b" not in text
    assert "--since says how far back" in call(config, "decisions", "--since", "1s")


@pytest.mark.parametrize("mode", ["act", "shadow"])
def test_hedged_starts_are_told_from_others(config, mode):
    """Their decisive reason is the capacity; in shadow mode the advice itself has no hedge."""
    settings = make_settings(cluster={"default_mode": mode, "policy": "ambati2021"})
    in_doubt = make_estimates(run=300.0)
    advice = replace(ask(estimates=in_doubt, settings=settings), advice_id="advice-14", time=NOW + 9.0)
    with HistoryStore(settings_of(config).history_url) as store:
        store.add_advice([AdviceRecord(advice=advice, job=make_job(), estimates=in_doubt)])
    found = json.loads(call(config, "decisions", "--format", "json"))
    assert [row["hedge"] for row in found["decisions"]] == [None, None, None, "speculation"]
    assert "burst (spot, speculation" in " ".join(call(config, "decisions").split())


def test_ledger(config):
    found = json.loads(call(config, "ledger", "--format", "json"))
    assert [row["job_id"] for row in found["rows"]] == [11, 12]
    summary = found["summary"]
    assert (summary["jobs"], summary["moved"]) == (2, 1)
    assert summary["saved_seconds_estimate"] == pytest.approx(7200.0 - 130.0)
    assert summary["wait_mae_seconds"] == pytest.approx(50.0)  # the kept job: 100 s predicted, 150 s
    assert summary["run_mae_seconds"] == pytest.approx(3540.0)
    assert summary["cost_usd"] is None
    moved, kept = found["rows"]
    assert moved["predicted_start_seconds"] == 120.0  # a boot
    late = moved["actual_start_seconds"] - 120.0
    assert (summary["cloud_starts"], summary["cloud_start_late_seconds"]) == (1, pytest.approx(late))
    assert summary["cloud_start_mae_seconds"] == pytest.approx(abs(late))
    assert kept["predicted_start_seconds"] is None
    text = " ".join(call(config, "ledger").split())
    assert "2 jobs, 1 moved; wait avoided about 1 h 58 min; cost unknown" in text
    empty = json.loads(call(config, "ledger", "--since", "1s", "--format", "json"))
    assert empty["summary"]["wait_mae_seconds"] is None
    assert empty["summary"]["cloud_start_mae_seconds"] is None


def test_a_job_its_user_put_there_is_counted_by_itself(config):
    explicit = make_job(submit_time=NOW, queue="burst", explicit_partition=True)
    with HistoryStore(settings_of(config).history_url) as store:
        advice = replace(ask(explicit), advice_id="advice-14", time=NOW)
        assert advice.decisive.reason == "rule.explicit_burst"
        store.add_advice([AdviceRecord(advice=advice, job=explicit, estimates=make_estimates())])
        ended = JobOutcome(job=replace(explicit, job_id=14), start_time=NOW + 9.0, end_time=NOW + 99.0)
        store.add([ended], source="slurm")
        assert store.link("advice-14", 14)
        store.set_costs({14: 0.5})
    summary = json.loads(call(config, "ledger", "--format", "json"))["summary"]
    assert (summary["jobs"], summary["moved"], summary["placed_by_users"]) == (2, 1, 1)
    assert summary["saved_seconds_estimate"] == pytest.approx(7200.0 - 130.0)
    assert (summary["cost_usd"], summary["users_cost_usd"]) == (None, 0.5)
    text = " ".join(call(config, "ledger").split())
    assert "1 more were put into the burst partition by their users; cost 0.50 USD" in text


def test_day_one_10_the_ledger_says_what_nodes_have_cost_and_who_used_them(config, tmp_path):
    stretch = {"instance_id": "i-1", "node": "burst1", "since": NOW - 3600.0, "until": NOW}
    used = {"node": "burst1", "end": NOW, "processors": 1.0}
    with HistoryStore(settings_of(config).history_url) as store:
        store.add_paid([PaidTime(usd_per_hour=4.0, **stretch)])
        store.add_uses([NodeUse(job_id=21, start=NOW - 1800.0, account="law", **used)])
        store.add_uses([NodeUse(job_id=22, start=NOW - 900.0, **used)])
    money = json.loads(call(config, "ledger", "--format", "json"))["money"]
    assert money["spent_usd"] == 4.0
    assert money["by_account"] == {"law": pytest.approx(1.5)}
    assert (money["no_account_usd"], money["idle_usd"]) == (pytest.approx(0.5), pytest.approx(2.0))
    said = (
        "Cloud nodes have cost 4.00 USD: 1.50 USD for jobs with an account, 0.50 USD for jobs without one, "
        "2.00 USD while idle."
    )
    assert said in " ".join(call(config, "ledger").split())
    page = tmp_path / "page.html"
    told = " ".join(call(config, "report", "--out", str(page)).split())
    assert said in told
    assert "no account" in page.read_text()
    report = json.loads(call(config, "report", "--out", str(page), "--format", "json"))
    assert report["money"] == money


def commands(folder, *, raw=False, submitted="N/A", **answers):
    """Programs in place of Slurm's: each prints its text, or fails."""
    for name in ("squeue", "sacct"):
        path = folder / name
        text = answers.get(name)
        if (
            text is not None and not raw
        ):  # squeue's first columns are 64 wide, sacct's columns have bars between them
            text = "\n".join(
                f"{'N/A':<64}{submitted:<64}{0:<64}{'onprem':<64}{line}" if name == "squeue" else f"99|{line}"
                for line in text.split("\n")
            )
        path.write_text("#!/bin/sh\nexit 1\n" if text is None else f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        path.chmod(0o755)
    (folder / "slurm.conf").touch()
    return {"ADVISOR_PATHS__SLURM_BIN": str(folder), "ADVISOR_PATHS__SLURM_CONF": str(folder / "slurm.conf")}


def test_why_reads_the_job_itself_where_the_ledger_cannot_be_reached(config, tmp_path, monkeypatch):
    monkeypatch.setenv("ADVISOR_PATHS__DATABASE_URL", f"sqlite:///{tmp_path}/not/there/history.db")
    for name, value in commands(tmp_path, squeue=f"(null)\n{admin_comment(ask(make_job()))}   ").items():
        monkeypatch.setenv(name, value)
    assert "Job 99, from its AdminComment" in call(config, "why", "99")


@pytest.mark.parametrize("known_to", ["squeue", "sacct"])
def test_why_reads_the_job_itself_where_the_ledger_knows_nothing(config, tmp_path, monkeypatch, known_to):
    job = make_job(processors=10, requested_time=3600.0, explicit_time_limit=True)
    comment = admin_comment(ask(job))
    for name, value in commands(tmp_path, **{known_to: f"(null)\n{comment}   "}).items():
        monkeypatch.setenv(name, value)
    text = call(config, "why", "99")
    assert "Job 99, from its AdminComment" in text
    assert "Starts in the cloud" in text
    assert "predicted wait" in text
    assert "2 h 00 min" in text
    assert "Time limit raised from 1 h 00 min to 1 h 06 min" in text
    found = json.loads(call(config, "why", "99", "--format", "json"))
    assert (found["source"], found["recorded"]["placement"]) == ("admin-comment", "burst")
    assert json.loads(call(config, "why", "11", "--format", "json"))["source"] == "ledger"


def test_the_advice_of_an_older_job_with_the_same_number_is_not_a_jobs(config, tmp_path, monkeypatch):
    """slurmctld begins its ids anew without its state, or after MaxJobId."""
    later = int(NOW) + 400
    for comment, found in ((admin_comment(ask(make_job())), "Job 11, from its AdminComment"), ("", None)):
        for name, value in commands(tmp_path, squeue=f"{comment}   ", submitted=later).items():
            monkeypatch.setenv(name, value)
        if found:
            assert found in call(config, "why", "11")
            continue
        with pytest.raises(BadInput, match=r"no advice for job 11; Slurm knows.* An older job 11, submitted"):
            call(config, "why", "11")
    # it was requeued by its user: squeue shows the requeue's time, and its AdminComment names the advice
    recorded = admin_comment(replace(ask(), advice_id="advice-11"))
    for name, value in commands(tmp_path, squeue=recorded, submitted=later).items():
        monkeypatch.setenv(name, value)
    assert "advice-11" in call(config, "why", "11")


def test_an_older_job_with_the_same_number_is_named(config):
    with HistoryStore(settings_of(config).history_url) as store:
        old = store.advice_of(11)
        at = NOW + 5000.0
        job = replace(old.job, submit_time=at)
        store.add_advice([replace(old, job=job, advice=replace(old.advice, advice_id="advice-21", time=at))])
        store.link("advice-21", 11)
    text = call(config, "why", "11")
    assert "advice-21" in text
    assert f"An older job 11, submitted {clock_text(NOW)}, had this number before" in " ".join(text.split())
    assert "it has ended" not in text  # the older one has
    assert "An older job" not in call(config, "why", "12")
    with HistoryStore(settings_of(config).history_url) as store:  # the newest was never advised
        ran = replace(job, job_id=11, submit_time=at + 5000.0)
        store.add([JobOutcome(job=ran, start_time=at + 6000.0, end_time=at + 6001.0)], source="slurm")
    with pytest.raises(BadInput, match="An older job 11"):
        call(config, "why", "11")


def test_why_needs_no_ledger_where_the_job_says_it(config, tmp_path, monkeypatch):
    for name, value in commands(tmp_path, squeue=admin_comment(ask())).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ADVISOR_PATHS__DATABASE_URL", f"sqlite:///{tmp_path}/no/such/folder/history.db")
    assert "from its AdminComment" in call(config, "why", "99")


@pytest.mark.parametrize(
    ("text", "ago"), [("90s", 90), ("90m", 5400), ("12h", 43_200), ("30d", 2_592_000), ("1w", 604_800)]
)
def test_since_so_long_ago(text, ago):
    assert parse_since(text, 1e9) == 1e9 - ago


def test_since_a_date():
    assert moment_text(parse_since("2026-11-21T06:00", 0.0)) == "2026-11-21 06:00:00"
    assert clock_text(parse_since("2026-11-21", 0.0)).startswith("2026-11-21 00:00")


@pytest.mark.parametrize("text", ["999999w", "", "soon", "5 fortnights", "2026-13-01"])
def test_since_nonsense(text):
    with pytest.raises(BadInput, match="is not a time"):
        parse_since(text, 0.0)


def test_day_one_4_why_takes_a_task_a_part_and_a_step(config):
    """Python reads 1_1 as 11, which is another job: the task 1 of array 1 is meant."""
    for text in ("11", "11_2", "11_[1-4]", "11.0", "11.batch"):
        found = json.loads(call(config, "why", text, "--format", "json"))
        assert (found["job_id"], found["advice"]["advice_id"]) == (11, "advice-11")
    assert json.loads(call(config, "why", "11_2", "--format", "json"))["asked"] == "11_2"
    assert "Job 11_2 (" in call(config, "why", "11_2")
    told = " ".join(call(config, "why", "11_99").split())
    assert "the whole of job 11 (1 task)" in told
    assert "cannot tell whether there is a task 99: `sacct -j 11` lists them" in told
    assert "the whole of job" not in call(config, "why", "11")
    for text in ("1_1", "x11", "11_", "1e1"):
        with pytest.raises(BadInput) as caught:
            runner.invoke(app, ["why", text, "--config", str(config)], catch_exceptions=False)
        assert caught.value.code == ("ledger.no_advice" if text == "1_1" else "job.id")


def test_day_one_6_a_part_of_a_heterogeneous_job_is_told_as_one(config, tmp_path, monkeypatch):
    for folder, answers in (("q", {"squeue": f"{97:<256}"}), ("s", {"sacct": "97+1|"})):
        (tmp_path / folder).mkdir()
        for name, value in commands(tmp_path / folder, raw=True, **answers).items():
            monkeypatch.setenv(name, value)
        found = json.loads(call(config, "why", "98", "--format", "json"))
        assert found["reason"] == "rule.heterogeneous"
        assert found["heterogeneous_job_id"] == 97
        assert "heterogeneous job 97" in call(config, "why", "97+1")


def test_day_one_5_lists_say_why_a_job_moved(config):
    rows = json.loads(call(config, "decisions", "--format", "json"))["decisions"]
    assert rows[0]["placement"] == "burst"
    assert rows[0]["reason"].startswith("capacity.")  # the decisive code stays what it was
    assert rows[0]["why_reason"] == "turnaround.cloud_faster"
    assert "It would wait 2 h 00 min" in rows[0]["why"]
    assert "sooner" in rows[0]["why"]
    assert rows[1]["why"] == rows[1]["sentence"]  # a job that stayed: the deciding question's
    text = call(config, "decisions")
    assert "burst (spot)" in text
    assert rows[0]["why"] in text
    assert "USD per core hour" not in text


def test_day_one_4_lists_of_one_job(config):
    found = json.loads(call(config, "decisions", "--job", "11_2", "--format", "json"))
    assert [row["job_ids"] for row in found["decisions"]] == [[11]]
    found = json.loads(call(config, "ledger", "--job", "12.batch", "--format", "json"))
    assert [row["job_id"] for row in found["rows"]] == [12]
    assert json.loads(call(config, "ledger", "--job", "99", "--format", "json"))["rows"] == []
    with pytest.raises(BadInput, match="95_2"):
        runner.invoke(app, ["ledger", "--job", "x", "--config", str(config)], catch_exceptions=False)


def test_day_one_6_a_heterogeneous_job_that_slurm_has_forgotten_is_in_the_history(
    config, tmp_path, monkeypatch
):
    for name, value in commands(tmp_path).items():  # both commands fail
        monkeypatch.setenv(name, value)
    job = replace(make_job(), job_id=97, submit_time=NOW, heterogeneous=True)
    with HistoryStore(settings_of(config).history_url) as store:
        store.add([JobOutcome(job=job, start_time=NOW + 1.0, end_time=NOW + 2.0)])
    found = json.loads(call(config, "why", "97+1", "--format", "json"))
    assert (found["reason"], found["source"]) == ("rule.heterogeneous", "history")
