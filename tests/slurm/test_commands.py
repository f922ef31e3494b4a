"""Commands that fail, hang, talk too much or are not there; and what is handed to scontrol."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from advisor.model.errors import BadInput, RetryLater
from advisor.slurm import commands as commands_module
from advisor.slurm.cli import CliBackend, prompt_line
from advisor.slurm.commands import Commands


def install(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def backend(folder: Path, timeout: float = 5.0) -> CliBackend:
    return CliBackend(Commands(folder, None, timeout=timeout))


def arguments_of(folder: Path) -> list[list[str]]:
    return [call.split("\x1f")[:-1] for call in (folder / "calls").read_text().split("\x1e")[:-1]]


@pytest.fixture
def recorder(tmp_path: Path) -> Path:
    install(tmp_path, "squeue", "true")
    install(
        tmp_path,
        "scontrol",
        f"printf '%s\\037' \"$@\" >> {tmp_path}/calls; printf '\\036' >> {tmp_path}/calls",
    )
    return tmp_path


@pytest.mark.parametrize(
    ("said", "is_silent"),
    [("Unable to contact slurm controller", True), ("", True), ("Job is no longer pending execution", False)],
)
def test_a_command_that_fails(tmp_path: Path, said: str, *, is_silent: bool) -> None:
    install(tmp_path, "squeue", f"printf '{said}' >&2; exit 1")
    with pytest.raises(RetryLater, match=said or "no message") as caught:
        backend(tmp_path).snapshot(0.0)
    assert caught.value.code == "slurm.command_failed"
    assert ("scontrol ping" in str(caught.value)) == is_silent


def test_a_failed_change_names_what_was_to_be_changed(recorder: Path) -> None:
    """slurmctld says "Invalid user id", of whichever of a thousand jobs."""
    install(recorder, "scontrol", "echo 'Invalid user id' >&2; exit 1")
    with pytest.raises(RetryLater) as caught:
        Commands(recorder, None).text("scontrol", "--quiet", "update", "jobid=7", "comment=" + 80 * "x")
    assert str(caught.value).startswith("scontrol update jobid=7 comment=xxx")
    assert str(caught.value).endswith("xx ended with 1: Invalid user id")
    assert len(str(caught.value)) < 130  # no more of a long change


def test_a_command_that_hangs_is_killed(tmp_path: Path) -> None:
    install(tmp_path, "squeue", "exec sleep 60")
    with pytest.raises(RetryLater) as caught:
        backend(tmp_path, timeout=0.2).snapshot(0.0)
    assert caught.value.code == "slurm.timeout"


def test_nothing_is_changed_before_it_is_known_whether_a_job_is_the_last_task_of_an_array(
    recorder: Path,
) -> None:
    """By the id of that one slurmctld changes all tasks."""
    install(recorder, "squeue", "exec sleep 60")
    with pytest.raises(RetryLater) as caught:
        backend(recorder, timeout=0.2).update_job([7], {"timelimit": "66"})
    assert caught.value.code == "slurm.timeout"
    assert not (recorder / "calls").exists()


@pytest.mark.parametrize("name", ["sacct", "scontrol", "sinfo", "squeue"])
def test_the_other_clusters_of_a_federation_are_not_ours(tmp_path: Path, name: str) -> None:
    """With fed_display in slurm.conf the commands show all clusters, unless this variable is set."""
    install(tmp_path, name, f"echo ${name.upper()}_LOCAL")
    assert Commands(tmp_path, None).text(name).strip()


@pytest.mark.parametrize("script", ["exec sleep 60", "exit 1"])
def test_a_command_that_fails_for_want_of_a_slurm_conf(tmp_path: Path, script: str) -> None:
    install(tmp_path, "squeue", script)
    conf = tmp_path / "slurm.conf"
    commands = Commands(tmp_path, conf, timeout=0.2)
    with pytest.raises(BadInput, match="SLURM_CONF") as caught:
        commands.text("squeue")
    assert caught.value.code == "slurm.no_conf"
    assert str(conf) in str(caught.value)
    conf.touch()
    with pytest.raises(RetryLater):
        commands.text("squeue")


def test_a_command_that_finds_a_slurm_conf_elsewhere(tmp_path: Path) -> None:
    install(tmp_path, "squeue", "echo fine")
    assert Commands(tmp_path, tmp_path / "slurm.conf").text("squeue") == "fine\n"


def test_day_one_15_a_slurm_conf_that_is_not_there_is_not_waited_for(tmp_path: Path) -> None:
    """Slurm itself looks for the file that SLURM_CONF names once a second, for a minute."""
    install(tmp_path, "squeue", 'echo "${SLURM_CONF-unset} $RES_OPTIONS"')
    conf = tmp_path / "slurm.conf"
    commands = Commands(tmp_path, conf)
    assert commands.text("squeue") == "unset timeout:1 attempts:1\n"
    conf.touch()
    assert commands.text("squeue") == f"{conf} \n"


def test_a_command_that_talks_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands_module, "MAX_BYTES", 10_000)
    install(tmp_path, "squeue", "exec yes")
    with pytest.raises(RetryLater) as caught:
        backend(tmp_path).snapshot(0.0)
    assert caught.value.code == "slurm.too_long"


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="slurm_bin") as caught:
        backend(tmp_path).snapshot(0.0)
    assert caught.value.code == "slurm.no_command"


def test_an_empty_answer_is_no_cluster(tmp_path: Path) -> None:
    install(tmp_path, "squeue", "true")
    install(tmp_path, "sinfo", "true")
    with pytest.raises(RetryLater) as caught:
        backend(tmp_path).snapshot(0.0)
    assert caught.value.code == "slurm.unreadable"


def test_binary_garbage_is_no_cluster(tmp_path: Path) -> None:
    install(tmp_path, "squeue", "head -c 5000 /dev/urandom")
    install(tmp_path, "sinfo", "head -c 5000 /dev/urandom")
    with pytest.raises(RetryLater) as caught:
        backend(tmp_path).snapshot(0.0)
    assert caught.value.code == "slurm.unreadable"


def test_no_controller_means_no_ping(tmp_path: Path) -> None:
    install(tmp_path, "scontrol", "echo 'Slurmctld(primary) at x is DOWN'; exit 1")
    assert backend(tmp_path).ping() is False


def test_node_updates_are_folded_into_one_call(recorder: Path) -> None:
    backend(recorder).update_node(
        ["burst2", "burst1"], address="10.0.0.1", hostname="burst1", reason="a\nb=c"
    )
    assert arguments_of(recorder) == [
        ["update", "nodename=burst[1-2]", "nodeaddr=10.0.0.1,10.0.0.1", "reason=a b=c", "nodehostname=burst1"]
    ]


def test_job_updates_go_in_comma_lists(recorder: Path) -> None:
    backend(recorder).update_job(range(1, 1002), {"partition": "burst", "starttime": "now"})
    calls = arguments_of(recorder)
    assert [len(call[1].split(",")) for call in calls] == [500, 500, 1]
    assert all(call[2:] == ["partition=burst", "starttime=now"] for call in calls)


def test_requeue_and_release(recorder: Path) -> None:
    slurm = backend(recorder)
    slurm.requeue([6])
    slurm.requeue_ended([6])
    slurm.release([7, 8])
    assert arguments_of(recorder) == [
        ["requeue", "Incomplete", "6"],
        ["requeue", "6"],
        ["release", "7,8"],
    ]


@pytest.mark.parametrize("changes", [{"bad name": "x"}, {"": "x"}])
def test_field_names_are_checked(recorder: Path, changes: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        backend(recorder).update_job([1], changes)


@pytest.mark.parametrize(
    "changes", [{"state": "idle reason=x"}, {"address": "a b"}, {"hostname": "x;y"}, {"features": ("a,b",)}]
)
def test_node_values_are_checked(recorder: Path, changes: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        backend(recorder).update_node(["burst1"], **changes)


@pytest.mark.parametrize("needed", [3, 17])
def test_a_pending_job_is_asked_to_move_again(tmp_path: Path, needed: int) -> None:
    """slurmctld refuses some, 26.05 nine of ten, if the job has no association, and has changed nothing."""
    calls = tmp_path / "calls"
    install(tmp_path, "squeue", "echo 7")
    install(
        tmp_path,
        "scontrol",
        f"echo x >> {calls}; [ $(wc -l < {calls}) -ge {needed} ] || {{ echo EAGAIN >&2; exit 1; }}",
    )
    backend(tmp_path).update_job([7], {"partition": "burst"})
    assert len(calls.read_text().split()) == needed


@pytest.mark.parametrize("squeue", ["true", "echo 'Invalid job id' >&2; exit 1"])
def test_a_job_that_no_longer_waits_is_not_asked_to_move_more_than_six_times(
    tmp_path: Path, squeue: str
) -> None:
    install(tmp_path, "squeue", squeue)
    install(tmp_path, "scontrol", f"echo x >> {tmp_path}/calls; echo Invalid >&2; exit 1")
    with pytest.raises(RetryLater, match="Invalid"):
        backend(tmp_path).update_job([7], {"partition": "burst"})
    assert len((tmp_path / "calls").read_text().split()) == 6


def test_another_change_is_not_tried_again(tmp_path: Path) -> None:
    install(tmp_path, "squeue", "true")
    install(tmp_path, "scontrol", f"echo x >> {tmp_path}/calls; exit 1")
    with pytest.raises(RetryLater):
        backend(tmp_path).update_job([7], {"starttime": "now"})
    assert len((tmp_path / "calls").read_text().split()) == 1


def test_a_command_reads_what_it_is_given(tmp_path: Path) -> None:
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\ncat\n")
    program.chmod(0o755)
    commands = Commands(tmp_path, None)
    assert commands.text("scontrol", given="update jobid=7\n") == "update jobid=7\n"
    assert commands.text("scontrol") == ""


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("100", "100"),
        ('{"d":"it\'s \\"a b\\" \\\\"}', '{"d":"it\\u0027s\\u0020\\u0022a\\u0020b\\u0022\\u0020\\u005c"}'),
        ('{"d": 1}', None),
        ("two words", None),
        ('"quoted', None),
        ("naïve", None),
        ("{broken", None),
        ("line\nend", None),
    ],
)
def test_scontrols_prompt_is_given_only_what_it_reads_as_one_word(value: str, written: str | None) -> None:
    line = None if written is None else f"update jobid=7 admincomment={written}\n"
    assert prompt_line(7, {"admincomment": value}) == line


def test_one_scontrol_reads_many_changes_and_others_get_a_call_of_their_own(tmp_path: Path) -> None:
    said = tmp_path / "said"
    install(tmp_path, "squeue", "true")
    install(tmp_path, "scontrol", f'echo "$*" >> {said}; cat >> {said}; [ -n "$1" ] || exit 1')
    with pytest.raises(RetryLater):
        backend(tmp_path).update_jobs({7: {"nice": "1"}, 8: {"comment": "two words"}, 9: {"nice": "2"}})
    assert said.read_text().splitlines() == [
        "",
        "update jobid=7 nice=1",
        "update jobid=9 nice=2",
        "update jobid=8 comment=two words",
    ]


def test_many_changes_of_partitions_are_tried_again_when_slurmctld_refuses_one_at_random(
    tmp_path: Path,
) -> None:
    said = tmp_path / "said"
    install(tmp_path, "squeue", "true")
    install(
        tmp_path,
        "scontrol",
        f'[ -z "$*" ] || echo "$*" >> {said}; cat >> {said}; [ $(wc -l < {said}) -ge 5 ]',
    )
    backend(tmp_path).update_jobs({7: {"partition": "burst"}, 8: {"partition": "burst"}})
    both = "update jobid=7 partition=burst\nupdate jobid=8 partition=burst\n"
    assert said.read_text() == both + 3 * "update jobid=7 partition=burst\n" + both.splitlines()[1] + "\n"
    said.unlink()
    with pytest.raises(RetryLater):
        backend(tmp_path).update_jobs({7: {"nice": "1"}})
    assert said.read_text() == "update jobid=7 nice=1\n"


def test_the_release_is_asked_once_and_again_when_squeue_is_replaced(tmp_path: Path) -> None:
    commands = Commands(tmp_path, None)
    assert commands.release() == ()  # no command is there
    install(tmp_path, "squeue", f"echo slurm 24.11.5; echo x >> {tmp_path}/asked")
    assert commands.release() == commands.release() == (24, 11, 5)
    assert (tmp_path / "asked").read_text() == "x\n"
    install(tmp_path, "squeue", "echo slurm 26.05.5")
    os.utime(tmp_path / "squeue", (5.0, 5.0))
    assert commands.release() == (26, 5, 5)
    install(tmp_path, "squeue", "exit 1")
    with pytest.raises(RetryLater):
        commands.release()


@pytest.mark.parametrize(("level", "may"), [("Administrator", True), ("Operator", False), ("None", False)])
def test_an_operator_is_no_administrator(tmp_path: Path, level: str, *, may: bool) -> None:
    """slurmctld answers "Invalid user id" to an Operator who changes a node."""
    install(tmp_path, "sacctmgr", f"echo {level}")
    assert backend(tmp_path).is_administrator("advisor") is may


@pytest.mark.parametrize("release", ["22.05.8", "24.11.5"])
def test_a_partitions_list_holds_for_accounts_below_from_23_02_on(tmp_path: Path, release: str) -> None:
    install(tmp_path, "squeue", f"echo slurm {release}")
    shown = "PartitionName=burst AllowAccounts=Physics State=UP"
    install(tmp_path, "scontrol", f'[ "$2" = config ] && echo ClusterName = lab || echo {shown}')
    install(
        tmp_path, "sacctmgr", "printf 'root|\\nphysics|root\\noptics|physics\\nlasers|optics\\nart|root\\n'"
    )
    slurm = backend(tmp_path)
    (burst,) = slurm.partitions()
    below = {"optics", "lasers"} if release != "22.05.8" else set[str]()
    assert burst.allowed["accounts"] == {"physics"} | below
    install(tmp_path, "sacctmgr", "exit 1")
    assert slurm.partitions() == (burst,), "slurmdbd is away"
