"""``advisor config`` as a user types it."""

from __future__ import annotations

import json
import os
import pwd
import re
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from advisor.cli.main import run
from advisor.model.errors import BadInput
from tests.commands import app
from tests.conftest import ROOT

runner = CliRunner()


def call(*arguments: str) -> str:
    result = runner.invoke(app, ["config", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def words(text: str) -> str:
    """Text without the line breaks of a narrow terminal."""
    return " ".join(text.split())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "advisor.toml"
    path.write_text("[placement]\nboot_seconds = 90\n")
    return path


def test_show_says_where_values_come_from(file):
    found = json.loads(call("show", "--config", str(file), "--format", "json"))
    rows = {row["key"]: row for row in found["settings"]}
    assert rows["placement.boot_seconds"] == {
        "key": "placement.boot_seconds",
        "value": 90.0,
        "unit": "s",
        "default": 120.0,
        "source": "file",
        "origin": f"{file}:2",
        "expert": False,
    }
    assert rows["waiting.long_job_seconds"]["value"] == "inf"
    assert rows["cluster.name"]["origin"] == "default"
    text = call("show", "--config", str(file), "--origin")
    assert "placement.boot_seconds" in text
    assert "default" in text
    assert "from" not in call("show", "--config", str(file)).splitlines()[0]


def test_check_ends_with_2_on_an_unknown_partition(file):
    good = call("check", "--config", str(file), "--partitions", "onprem,burst")
    assert "no mistakes" in words(good)
    bad = runner.invoke(app, ["config", "check", "--config", str(file), "--partitions", "onprm,burst"])
    assert bad.exit_code == 2
    assert "Did you mean onprm?" in words(bad.stdout)
    as_json = runner.invoke(
        app, ["config", "check", "--config", str(file), "--partitions", "x", "--format", "json"]
    )
    assert as_json.exit_code == 2
    found = json.loads(as_json.stdout)
    assert not found["ok"]
    assert {finding["key"] for finding in found["findings"]} == {
        "cluster.on_premise_partitions",
        "cluster.burst_partition",
    }


def test_check_reads_the_partitions_of_slurm_conf(tmp_path):
    (tmp_path / "slurm.conf").write_text("PartitionName=onprem\n")
    path = tmp_path / "advisor.toml"
    path.write_text(f'[cluster]\nburst_partition = "cloud"\n[paths]\nslurm_conf = "{tmp_path}/slurm.conf"\n')
    result = runner.invoke(app, ["config", "check", "--config", str(path)])
    assert result.exit_code == 2
    assert "cluster.burst_partition" in result.stdout
    (tmp_path / "slurm.conf").unlink()
    assert "were not checked" in words(call("check", "--config", str(path)))
    path.write_text('[cluster]\nscheduler = "lsf"\n')
    said = words(call("check", "--config", str(path)))
    assert "asks LSF for its queues" in said
    assert "slurm.conf" not in said


def test_reference_and_sample_are_printed(file, tmp_path):
    assert call("reference") == (ROOT / "docs" / "settings.md").read_text("utf-8")
    sample = tmp_path / "sample.toml"
    sample.write_text(call("sample"))
    call("set", "--config", str(sample), "placement.boot_seconds=33")
    assert '"placement.boot_seconds", "value": 33.0' in call(
        "show", "--config", str(sample), "--format", "json"
    )


def test_a_wrong_file_ends_with_2_and_says_how_to_mend_it(file, monkeypatch, capsys):
    file.write_text("[placement]\nboot_second = 90\n")
    monkeypatch.setattr("sys.argv", ["advisor", "config", "show", "--config", str(file)])
    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == 2
    message = words(capsys.readouterr().err)
    assert "boot_second" in message
    assert "Did you mean" in message


def test_a_password_is_not_shown_and_warned_of(file):
    url = "postgresql+psycopg://advisor:s3cr:t@db.example/history?password=also"
    file.write_text(f'[paths]\ndatabase_url = "{url}"\n')
    for arguments in (("show",), ("show", "--origin"), ("show", "--format", "json")):
        shown = words(call(*arguments, "--config", str(file))).replace(" ", "")
        assert "s3cr" not in shown
        assert "also" not in shown
    assert "postgresql+psycopg://advisor:***@db.example/history?password=***" in shown
    (warned,) = [
        row
        for row in json.loads(
            call("check", "--config", str(file), "--partitions", "onprem,burst", "--format", "json")
        )["findings"]
        if row["key"] == "paths.database_url"
    ]
    assert warned["severity"] == "warning"
    assert "s3cr" not in json.dumps(warned)
    file.write_text('[paths]\ndatabase_url = "postgresql+psycopg://advisor@db.example/history"\n')
    assert "advisor@db.example" in call("show", "--config", str(file), "--format", "json")


def test_day_one_17_a_section_and_a_setting_are_explained(file):
    text = words(call("show", "placement.boot_seconds", "--config", str(file)))
    assert f"90.0 s ({file}:2; default 120.0)" in text
    assert "The time from the launch of an instance until its node accepts a job." in text
    found = json.loads(call("show", "placement", "--config", str(file), "--format", "json"))
    assert {row["key"].partition(".")[0] for row in found["settings"]} == {"placement"}
    assert all(row["meaning"] and row["reason"] for row in found["settings"])
    with pytest.raises(BadInput, match="Did you mean placement"):
        call("show", "placment", "--config", str(file))


def test_day_one_17_set_says_what_it_wrote_where_and_what_makes_it_count(file, monkeypatch):
    text = call("set", "placement.boot_seconds=33", "web.port=9999", "--config", str(file))
    assert "placement.boot_seconds = 33 (was 90.0)" in text
    assert str(file) in text
    assert "systemctl reload advisor-serve advisor-control" in text
    assert "systemctl restart advisor-web" in text
    found = json.loads(call("set", "paths.run='/x'", "--config", str(file), "--format", "json"))
    assert found["to_take_effect"][0] == "systemctl restart advisor-serve advisor-control"
    assert any("advisor config hook" in line for line in found["to_take_effect"])
    assert any("advisor_programs.conf" in line for line in found["to_take_effect"])
    monkeypatch.setenv("ADVISOR_PLACEMENT__BOOT_SECONDS", "5")
    assert "overrides the file" in call("set", "placement.boot_seconds=34", "--config", str(file))
    assert '"placement.boot_seconds = 35' not in call("show", "--config", str(file))


def test_set_stands_in_the_history_with_who_and_why_and_can_be_undone(file, tmp_path, monkeypatch):
    from advisor.service.state.applied import SettingsHistory

    state = tmp_path / "state"
    state.mkdir()
    file.write_text(f'{file.read_text()}[paths]\nstate = "{state}"\n')
    before = file.read_text()
    monkeypatch.delenv("SUDO_USER", raising=False)
    text = words(call("set", "placement.boot_seconds=33", "--reason", "new image", "--config", str(file)))
    assert "as change 1, which running daemons take up by themselves." in text
    assert "systemctl" not in text
    history = SettingsHistory(file, state)
    (entry,) = history.entries()
    assert (entry.author, entry.reason) == (pwd.getpwuid(os.geteuid()).pw_name, "new image")
    assert [(one.key, one.before, one.after) for one in entry.changes] == [
        ("placement.boot_seconds", "90", "33")
    ]
    call("set", "placement.boot_seconds=33", "--config", str(file))  # nothing changes, and that is no error
    assert len(history.entries()) == 1
    history.apply(history.to_undo(1), author="kim", reason="undo", now=1.0, undoes=1)
    assert file.read_text() == before


def test_set_says_what_check_finds_and_that_daemons_do_not_take_up_all(file, tmp_path):
    (tmp_path / "state").mkdir()
    file.write_text(f'[paths]\nstate = "{tmp_path / "state"}"\n')
    text = words(call("set", "paths.database_url='postgresql://u:secret@h/d'", "--config", str(file)))
    assert "it contains a password, and every user may read the settings" in text
    assert "secret" not in text
    assert "by themselves" not in text
    assert "systemctl restart advisor-serve advisor-control" in text


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["config", "set", "placement.boot_seconds=33"], "placement.boot_seconds = 33 (was 60.0)"),
        (["config", "undo", "1"], "placement.boot_seconds was changed after it"),
        (
            ["budget", "set", "5", "--account", "bio"],
            "budget.accounts = {chem = 7.0, bio = 5.0} (was {chem = 7.0})",
        ),
    ],
)
def test_a_change_is_made_to_what_another_command_has_written_meanwhile(file, tmp_path, command, said):
    from advisor.service.state.applied import SettingsHistory

    (tmp_path / "state").mkdir()
    file.write_text(f'[placement]\nboot_seconds = 90\n[paths]\nstate = "{tmp_path / "state"}"\n')
    history = SettingsHistory(file, tmp_path / "state")
    history.apply({"placement.boot_seconds": 120.0}, author="ann", reason="a try", now=1.0)
    found = []
    thread = threading.Thread(
        target=lambda: found.append(runner.invoke(app, [*command, "--config", str(file)]))
    )
    with history.alone():
        thread.start()
        time.sleep(1.0)  # enough to read what the file has now
        changes = {"placement.boot_seconds": 60.0, "budget.accounts": {"chem": 7.0}}
        history.apply(changes, author="kim", reason="a try", now=2.0)
    thread.join(20.0)
    assert said in words(f"{found[0].output} {found[0].exception}")


def test_changes_are_listed_and_taken_back_in_a_terminal(file, tmp_path):
    (tmp_path / "state").mkdir()
    file.write_text(f'[placement]\nboot_seconds = 90\n[paths]\nstate = "{tmp_path / "state"}"\n')
    before = file.read_text()
    call("set", "--config", str(file), "--reason", "slow disks", "placement.boot_seconds=150")
    call("set", "--config", str(file), "--reason", "a try", "placement.baseline=1.5")
    listed = words(call("history", "--config", str(file)))
    assert "slow disks placement.boot_seconds: 90 to 150" in listed
    assert listed.index("a try placement.baseline: default to 1.5") < listed.index("slow disks")
    told = words(call("undo", "2", "--config", str(file)))
    assert "placement.baseline = 1.0 (was 1.5)" in told
    file.write_text(file.read_text().replace("= 150", "= 160"))  # by hand
    with pytest.raises(BadInput, match=r"placement\.boot_seconds was changed after it"):
        call("undo", "1", "--config", str(file))
    file.write_text(file.read_text().replace("= 160", "= 150"))
    call("undo", "1", "--config", str(file), "--reason", "new disks")
    assert file.read_text() == before
    (newest, *_) = json.loads(call("history", "--config", str(file), "--format", "json"))["changes"]
    assert (newest["undoes"], newest["reason"]) == (1, "new disks")
    assert "undoes 1" in call("history", "--config", str(file))


@pytest.mark.parametrize("name", ["budget_seconds", "breaker_failures", "breaker_seconds"])
def test_the_hook_takes_every_value_that_the_settings_allow(name):
    """What it does not take it replaces by its default, which slurmctld's log alone says."""
    from advisor.config.definitions import by_key
    from advisor.slurm import hook_files

    script = (hook_files.folder() / hook_files.HOOK_MODULE).read_text()
    told, factor = ("budget_ms", 1000.0) if name == "budget_seconds" else (name, 1.0)
    taken = re.search(rf"LIMITS = .*{told} = {{(.+?), (.+?)}}", script)
    allowed = re.fullmatch(r"at least (.+), at most (.+)", by_key()[f"submit.{name}"].limits)
    assert [factor * float(limit.replace(",", "")) for limit in allowed.groups()] == [
        *map(float, taken.groups())
    ]


def test_what_the_hook_is_told_needs_its_file_written_anew():
    """Each setting that changes what the hook is told is known to `config set`."""
    from advisor.config.editing import to_take_effect
    from advisor.config.hook import hook_values
    from advisor.model.settings import Settings
    from advisor.model.settings_service import SubmitSettings

    told = hook_values(Settings())
    values = {
        "budget_seconds": 0.03,
        "breaker_failures": 7,
        "breaker_seconds": 77.0,
        "snapshot_max_age_seconds": 9,
    }
    for name, value in values.items():
        changes = hook_values(Settings(submit=SubmitSettings(**{name: value}))) != told
        lines = to_take_effect([f"submit.{name}"], Path("/etc/slurm"))
        assert changes == any("advisor config hook" in line for line in lines), name


def test_slurm_prints_the_lines_of_the_classes(file):
    with pytest.raises(BadInput, match="there is no class of nodes"):
        runner.invoke(app, ["config", "slurm", "--config", str(file)], catch_exceptions=False)
    file.write_text(
        '[ec2.classes.mid]\nnodes = "mid[1-2]"\ninstance_types = ["c5.xlarge"]\ncores = 4\n'
        "memory_mb = 7000\non_demand_usd_per_hour = 0.2\n"
    )
    assert call("slurm", "--config", str(file)).splitlines()[0].startswith("NodeName=mid[1-2] CPUs=4 ")
