"""The Ansible role, run for real on this machine under a scratch root: dry, twice, over somebody's hook."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import sysconfig
import tomllib
from dataclasses import dataclass
from grp import getgrgid
from pathlib import Path
from pwd import getpwuid
from typing import Any

import pytest
import yaml

from advisor.slurm import hook_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test waits for three runs of it

PROJECT = Path(__file__).resolve().parents[2]
ANSIBLE = Path(sys.executable).parent / "ansible-playbook"
SLURM_CONF = "ClusterName=scratch\nPartitionName=onprem Nodes=ALL\n"
CREDENTIAL = "wJalrXUtnFEMI-not-a-real-key"
HARD_TO_WRITE: dict[str, Any] = {
    "cluster": {"modes": {"onprem": "act"}, "time_zone": "Europe/Berlin"},
    "rules": {"deny_users": ['o"neil', "zoë", "back\\slash"], "deny_accounts": []},
    "budget": {"accounts": {"chem istry": 12.5}},
    "waiting": {"long_job_seconds": "inf"},
    "ec2": {"key_name": None, "subnet_ids": ["subnet-1", "subnet-2"]},
    "submit": {"budget_seconds": 0.075, "breaker_failures": 7},
    "hedge": {"enabled": True, "helper_socket": "/run/elsewhere.sock"},
    "acquirer": {"kept_nodes": 2},
    "paths": {"slurm_bin": "/nowhere"},  # no slurmctld is asked: the doctor says so at once
}


@dataclass(frozen=True)
class Run:
    code: int
    output: str

    @property
    def recap(self) -> dict[str, int]:
        found = re.search(r"^localhost\s+:(.*)$", self.output, re.MULTILINE)
        assert found, self.output
        return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", found[1])}


class Host:
    """A controller that is a folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.folder = folder
        (self.root / "etc" / "slurm").mkdir(parents=True)
        (self.root / "etc" / "slurm" / "slurm.conf").write_text(SLURM_CONF)
        (folder / "inventory").write_text("[slurm_controllers]\nlocalhost ansible_connection=local\n")

    def files(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*")}

    def make_environment(self) -> None:
        """An environment that finds what the advisor needs in ours: installing it would take minutes."""
        folder = self.root / "opt" / "advisor"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        (site / "theirs.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def play(self, playbook: Path, *arguments: str, **variables: Any) -> Run:
        values = {
            "burst_advisor_root": str(self.root),
            "burst_advisor_user": getpwuid(os.getuid()).pw_name,
            "burst_advisor_group": getgrgid(os.getgid()).gr_name,
            "burst_advisor_pip_arguments": "--no-deps",
            "burst_advisor_settings": HARD_TO_WRITE,
            "burst_advisor_hook_settings": {"enabled": True},
            **variables,
        }
        done = subprocess.run(
            [
                str(ANSIBLE),
                "-i",
                str(self.folder / "inventory"),
                str(playbook),
                "-e",
                json.dumps(values),
                *arguments,
            ],
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder),
                "LC_ALL": "C.UTF-8",
                "AWS_SECRET_ACCESS_KEY": CREDENTIAL,
                "ANSIBLE_LOCAL_TEMP": str(self.folder / "local"),
                "ANSIBLE_REMOTE_TEMP": str(self.folder / "remote"),
                "ANSIBLE_ROLES_PATH": str(PROJECT / "ansible" / "roles"),
                "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
                "ANSIBLE_PIPELINING": "1",
                "ANSIBLE_NOCOLOR": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        return Run(done.returncode, done.stdout)


@dataclass(frozen=True)
class Played:
    host: Host
    before: set[str]
    after_dry: set[str]
    dry: Run
    first: Run
    second: Run


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Dry on a new host (the role builds the wheel itself), then twice for good with one wheel."""
    host = Host(tmp_path_factory.mktemp("ansible"))
    site = PROJECT / "ansible" / "site.yml"
    before = host.files()
    dry = host.play(site, "--check", "--diff")
    after_dry = host.files()
    wheels = host.folder / "wheels"
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(wheels),
        str(PROJECT),
    ]
    subprocess.run(build, check=True)
    (wheel,) = wheels.glob("*.whl")
    host.make_environment()
    first = host.play(site, burst_advisor_wheel=str(wheel))
    second = host.play(site, burst_advisor_wheel=str(wheel))
    return Played(host, before, after_dry, dry, first, second)


def test_dry_run_tells_and_changes_nothing(played: Played) -> None:
    assert played.dry.code == 0, played.dry.output
    assert played.dry.recap["changed"] > 0
    assert played.after_dry == played.before


def test_second_run_changes_nothing(played: Played) -> None:
    assert played.first.code == 0, played.first.output
    assert played.second.code == 0, played.second.output
    assert played.first.recap["changed"] > 0
    assert played.second.recap["changed"] == 0, played.second.output


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("etc/advisor", 0o755),
        ("etc/advisor/advisor.toml", 0o644),
        ("etc/slurm/job_submit.lua", 0o644),
        ("etc/slurm/advisor_submit.lua", 0o644),
        ("etc/slurm/advisor_hook.conf", 0o644),
        ("etc/systemd/system/advisor-serve.service", 0o644),
        ("etc/systemd/system/advisor-serve.socket", 0o644),
        ("etc/systemd/system/advisor-serve.socket.d/site.conf", 0o644),
        ("etc/systemd/system/advisor-retrain.timer", 0o644),
        ("etc/systemd/system/advisor-.service.d/site.conf", 0o644),
        ("etc/systemd/system/advisor-places.socket", 0o644),
        ("etc/systemd/system/advisor-web.socket", 0o644),
        ("etc/systemd/system/advisor-places@.service.d/site.conf", 0o644),
        ("etc/systemd/system/advisor-web.service.d/site.conf", 0o644),
        ("usr/local/lib/advisor/resume", 0o755),
        ("usr/local/lib/advisor/advisor_programs.conf", 0o644),
        ("run/advisor", 0o750),
        ("var/lib/advisor", 0o750),
        ("var/lib/advisor/handover", 0o2770),
        ("var/lib/advisor/web", 0o700),
        ("var/log/advisor", 0o2770),
    ],
)
def test_modes(played: Played, path: str, mode: int) -> None:
    found = (played.host.root / path).stat()
    assert stat.S_IMODE(found.st_mode) == mode
    assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())


def test_settings_are_what_was_asked_for_and_pass_the_check(played: Played) -> None:
    path = played.host.root / "etc" / "advisor" / "advisor.toml"
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    assert written["cluster"]["default_mode"] == "shadow"
    assert written["cluster"]["modes"] == {"onprem": "act"}
    assert written["rules"] == HARD_TO_WRITE["rules"]
    assert written["budget"] == {"accounts": {"chem istry": 12.5}}
    assert written["waiting"] == {"long_job_seconds": float("inf")}
    assert written["ec2"] == {"subnet_ids": ["subnet-1", "subnet-2"]}
    advisor = played.host.root / "usr" / "local" / "bin" / "advisor"
    command = [
        advisor,
        "config",
        "check",
        "--config",
        path,
        "--partitions",
        "onprem,burst",
        "--format",
        "json",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout)["ok"] is True


def test_slurm_conf_is_left_alone_and_its_lines_are_printed(played: Played) -> None:
    assert (played.host.root / "etc" / "slurm" / "slurm.conf").read_text() == SLURM_CONF
    assert "JobSubmitPlugins=lua" in played.first.output
    assert f"ResumeProgram={played.host.root}/usr/local/lib/advisor/resume" in played.first.output
    for words in (
        "Feature=cloud,spot,steady Weight=100",
        " SuspendTime=7200 ",
        "PriorityType=priority/multifactor",
    ):
        assert words in played.first.output


def test_what_the_doctor_finds_is_told(played: Played) -> None:
    assert "every partition is in shadow mode" not in played.first.output  # onprem acts here
    assert "error: submit socket:" in played.first.output


def test_programs_are_this_releases(played: Played) -> None:
    for name in (hook_files.HOOK, hook_files.HOOK_MODULE):
        assert hook_files.is_ours(played.host.root / "etc" / "slurm" / name, name)
    for name in (*hook_files.CLOUD_PROGRAMS, hook_files.PROLOG):
        path = played.host.root / "usr" / "local" / "lib" / "advisor" / name
        assert hook_files.is_ours(path, name)
        assert os.access(path, os.X_OK)


def test_g15_the_size_model_is_trained_after_the_ingest(played: Played) -> None:
    """No slurmctld and no slurmdbd are there: the ingest finds nothing, which is said, and stops nothing."""
    tasks = re.findall(r"^TASK \[(.*?)\]", played.first.output, re.MULTILINE)
    (ingested,) = [at for at, name in enumerate(tasks) if "The last year's jobs become the history" in name]
    (trained,) = [at for at, name in enumerate(tasks) if "What is small and what is large is learned" in name]
    assert ingested < trained
    assert "the history has 0 finished jobs, of 500 that a model needs" in played.first.output


def test_units_start_the_command_that_was_installed(played: Played) -> None:
    units = played.host.root / "etc" / "systemd" / "system"
    for name in ("serve", "control", "retrain", "web"):
        unit = (units / f"advisor-{name}.service").read_text()
        (command,) = re.findall(r"^ExecStart=(\S+) (\w+)$", unit, re.MULTILINE)
        assert command == (f"{played.host.root}/opt/advisor/bin/advisor", name)
        assert os.access(command[0], os.X_OK)
    site = (units / "advisor-.service.d" / "site.conf").read_text()
    assert f"Environment=ADVISOR_CONFIG={played.host.root}/etc/advisor/advisor.toml\n" in site


def test_hook_asks_where_the_server_listens(played: Played) -> None:
    settings = (played.host.root / "etc" / "slurm" / "advisor_hook.conf").read_text()
    assert f"socket = {played.host.root}/run/advisor/submit.sock\n" in settings


def test_systemd_listens_where_the_hook_asks(played: Played) -> None:
    site = played.host.root / "etc" / "systemd" / "system" / "advisor-serve.socket.d" / "site.conf"
    assert f"ListenStream=\nListenStream={played.host.root}/run/advisor/submit.sock\n" in site.read_text()


def test_hook_is_told_what_the_settings_say_of_it_and_what_the_variables_add(played: Played) -> None:
    path = played.host.root / "etc" / "slurm" / "advisor_hook.conf"
    lines = dict(line.split(" = ") for line in path.read_text().splitlines() if not line.startswith("#"))
    assert (lines["budget_ms"], lines["breaker_failures"], lines["enabled"]) == ("75", "7", "true")


def test_the_helper_stays_root_and_only_the_services_user_may_ask(played: Played) -> None:
    """One file for all `advisor-` units says User=; systemd takes the helper's own of that name instead."""
    units = played.host.root / "etc" / "systemd" / "system"
    general = (units / "advisor-.service.d" / "site.conf").read_text()
    helper = (units / "advisor-places@.service.d" / "site.conf").read_text()
    assert "\nUser=" in general
    assert "User=" not in helper.partition("[Service]")[2]
    assert f"Environment=ADVISOR_CONFIG={played.host.root}/etc/advisor/advisor.toml\n" in helper
    command = f"ExecStart={played.host.root}/opt/advisor/bin/advisor place-helper\n"
    assert command in (units / "advisor-places@.service").read_text()
    door = (units / "advisor-places.socket.d" / "site.conf").read_text()
    assert f"SocketUser={getpwuid(os.getuid()).pw_name}\n" in door
    assert "ListenStream=\nListenStream=/run/elsewhere.sock\n" in door


def test_the_pages_may_write_their_own_folder_alone(played: Played) -> None:
    """Wherever the state is: else no link could be used, which is removed then."""
    units = played.host.root / "etc" / "systemd" / "system"
    pages = (units / "advisor-web.service.d" / "site.conf").read_text()
    written = [line for line in pages.partition("[Service]")[2].splitlines() if line.startswith("ReadWrite")]
    assert written == [f"ReadWritePaths={played.host.root}/var/lib/advisor/web"]
    assert f"\nReadOnlyPaths=-{played.host.root}/var/lib/advisor -{played.host.root}/run/advisor\n" in pages
    assert f"Environment=ADVISOR_CONFIG={played.host.root}/etc/advisor/advisor.toml\n" in pages


def test_no_credential_reaches_a_file(played: Played) -> None:
    files = [
        path for path in played.host.root.rglob("*") if path.is_file() and "site-packages" not in path.parts
    ]
    assert len(files) > 10
    assert not [path for path in files if CREDENTIAL.encode() in path.read_bytes()]


def test_a_hook_of_the_sites_own_is_not_replaced(tmp_path: Path) -> None:
    host = Host(tmp_path)
    own = host.root / "etc" / "slurm" / "job_submit.lua"
    own.write_text("function slurm_job_submit() return slurm.SUCCESS end\n")
    playbook = tmp_path / "slurm_only.yml"
    role = "- ansible.builtin.include_role: {name: burst_advisor, tasks_from: slurm.yml}\n"
    playbook.write_text(f"- hosts: slurm_controllers\n  gather_facts: false\n  tasks:\n    {role}")
    run = host.play(playbook)
    assert run.code != 0
    assert "is not the advisor's" in run.output
    assert own.read_text().startswith("function slurm_job_submit()")


def test_what_may_be_enabled_is_by_the_role() -> None:
    """Settings that a timer or socket serves do nothing while it is off; the pages' socket is the proxy's."""
    role = PROJECT / "ansible" / "roles" / "burst_advisor"
    derived = yaml.safe_load((role / "vars" / "main.yml").read_text())
    tasks = yaml.safe_load((role / "tasks" / "services.yml").read_text())
    names = " ".join(str(task) for task in tasks if "ansible.builtin.systemd_service" in task)
    enabled = " ".join(str(value) for name, value in derived.items() if name in names)
    units = [one for one in (PROJECT / "systemd").iterdir() if "[Install]" in one.read_text()]
    assert {unit.name for unit in units if unit.name not in enabled} == {"advisor-web.socket"}


def test_example_inventory_has_only_variables_the_role_knows() -> None:
    role = PROJECT / "ansible" / "roles" / "burst_advisor"
    known = yaml.safe_load((role / "defaults" / "main.yml").read_text())
    example = PROJECT / "ansible" / "inventory" / "group_vars" / "slurm_controllers.yml"
    assert set(yaml.safe_load(example.read_text())) <= set(known)
