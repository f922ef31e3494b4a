"""What `advisor uninstall` finds, what it undoes, and what it never touches."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.model.errors import AdvisorError, TellAdmin
from advisor.model.job import PLACEHOLDER_COMMENT
from advisor.model.settings import PathSettings, Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.admin.marked_text import without_marked_lines
from advisor.service.admin.remnants import Host, Remnant, Remnants
from advisor.service.state.state_files import PORTFOLIO
from advisor.slurm import hook_files
from tests.decide.cases import ask
from tests.service.doubles import make_look, make_queued

MOVED = admin_comment(ask())
SITES = "-- the site's own\nfunction slurm_job_submit(j, p, u)\n  return slurm.SUCCESS\nend\n"
OURS = (
    '-- BEGIN burst-advisor\nlocal l, a = pcall(dofile, "/etc/slurm/advisor_submit.lua")\n'
    "-- END burst-advisor\n"
)
LAST = "return slurm.SUCCESS\n"
CONF = "ClusterName=c1\nJobSubmitPlugins=lua\nNodeName=n1 CPUs=4\nPartitionName=work Nodes=n1\n"


class Slurm:
    def __init__(self, *jobs: QueuedJob) -> None:
        self.jobs = jobs
        self.told: dict[int, dict[str, str]] = {}
        self.is_up = True

    def snapshot(self, now: float) -> Any:
        if not self.is_up:
            raise TellAdmin("slurmctld does not answer", code="x")
        return make_look(now, (), self.jobs)

    def update_jobs(self, changes: Any) -> None:
        self.told |= changes

    def is_administrator(self, _user: str) -> bool:
        return True


class World:
    def __init__(self, folder: Path, *jobs: QueuedJob) -> None:
        self.folder = folder
        for name in ("slurm", "state", "run", "own", "package"):
            (folder / name).mkdir()
        self.slurm = Slurm(*jobs)
        self.ran: list[tuple[str, ...]] = []
        self.instances: Callable[[], list[str]] = list
        self.put("slurm.conf", CONF)

    def put(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.folder / "slurm" / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def found(self) -> list[Remnant]:
        settings = Settings(
            paths=PathSettings(
                state=self.folder / "state",
                run=self.folder / "run",
                slurm_conf=self.folder / "slurm" / "slurm.conf",
            )
        )
        host = Host(
            run=lambda *command: self.ran.append(command),
            instances=self.instances,
            own_units=self.folder / "own",
            package_units=(self.folder / "package",),
            systemd=self.folder / "systemd",
        )
        slurm: Any = self.slurm
        return list(Remnants(settings, slurm, host).all())

    def undo(self) -> list[Remnant]:
        """What is left to the admin."""
        found = self.found()
        for one in found:
            if one.undo is not None:
                one.undo()
        return [one for one in found if one.undo is None]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (SITES + OURS + LAST, SITES + LAST),
        (OURS + SITES + OURS, SITES),
        ("a\n  # BEGIN burst-advisor x\nb\n  # END burst-advisor", "a\n"),
        (SITES, None),
        ("-- END burst-advisor\n-- BEGIN burst-advisor\n", None),
        ("-- BEGIN burst-advisor\nx\n", None),
        ("say('-- BEGIN burst-advisor')\n", None),
    ],
)
def test_only_marked_lines_go(text: str, rest: str | None) -> None:
    assert without_marked_lines(text) == rest


def test_g20_8_a_sites_own_hook_is_as_it_was_found(world: World) -> None:
    script = world.put("job_submit.lua", SITES + OURS + LAST, mode=0o640)
    module = world.put("advisor_submit.lua", "return {}\n")
    settings = world.put("advisor_hook.conf", "socket = /run/x\n")
    world.undo()
    assert script.read_text() == SITES + LAST
    assert script.stat().st_mode & 0o777 == 0o640
    assert (script.parent / "job_submit.lua.before-uninstall").read_text() == SITES + OURS + LAST
    assert not module.exists()
    assert not settings.exists()
    assert (script.parent / "slurm.conf").read_text() == CONF


def test_slurms_user_can_read_its_file_afterwards_also_behind_a_link(world: World, tmp_path: Path) -> None:
    text = (CONF + "# BEGIN burst-advisor\nSuspendTime=-1\n# END burst-advisor\n").replace("\n", "\r\n")
    (tmp_path / "shared").mkdir()
    conf = tmp_path / "shared" / "slurm.conf"
    conf.write_bytes(text.encode())
    conf.chmod(0o600)
    if os.geteuid() == 0:  # only root may give a file away
        os.chown(conf, 1234, 2345)
    link = tmp_path / "slurm" / "slurm.conf"
    link.unlink()
    link.symlink_to(conf)
    before = conf.stat()
    world.undo()
    assert link.readlink() == conf
    assert conf.read_bytes() == CONF.replace("\n", "\r\n").encode()
    copy = conf.with_name("slurm.conf.before-uninstall")
    assert copy.read_bytes() == text.encode()
    for after in (conf.stat(), copy.stat()):
        assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


def test_drop_ins_of_units_are_left_to_the_admin(world: World) -> None:
    (world.folder / "own" / "advisor-web.service.d").mkdir()
    assert any("advisor-web.service.d: drop-ins" in left.what for left in world.undo())


def test_a_site_s_hook_without_marks_is_left_to_its_admin(world: World) -> None:
    script = world.put("job_submit.lua", SITES + OURS.replace("BEGIN burst-advisor", "advice") + LAST)
    before, module = script.read_text(), world.put("advisor_submit.lua", "return {}\n")
    left = world.undo()
    assert (script.read_text(), module.exists()) == (before, True)
    assert any("the site's own" in one.what for one in left)


@pytest.mark.parametrize("has_lua", [True, False])
def test_our_own_script_goes_only_when_slurmctld_loads_it_no_more(world: World, *, has_lua: bool) -> None:
    script = world.put("job_submit.lua", (hook_files.folder() / "job_submit.lua").read_text())
    module = world.put("advisor_submit.lua", "return {}\n")
    if not has_lua:
        world.put("slurm.conf", CONF.replace("JobSubmitPlugins=lua\n", ""))
    left = world.undo()
    assert (script.exists(), module.exists()) == (has_lua, has_lua)
    assert any("JobSubmitPlugins" in one.how for one in left) is has_lua


@pytest.mark.parametrize("how", ["marked, cloud in use", "included", "slurm.conf cannot be written"])
def test_slurmctld_can_start_after_it(world: World, how: str) -> None:
    """It does not start without a job_submit.lua that slurm.conf names: seen under a real systemd."""
    script = world.put("job_submit.lua", (hook_files.folder() / "job_submit.lua").read_text())
    without = CONF.replace("JobSubmitPlugins=lua\n", "")
    marked = "# BEGIN burst-advisor\nJobSubmitPlugins=lua\n# END burst-advisor\n"
    if how == "included":
        world.put("ours.conf", "JobSubmitPlugins=lua\n")
        world.put("slurm.conf", without + "Include ours.conf\n")
    else:
        world.put("slurm.conf", without + marked)
    if how == "marked, cloud in use":
        world.instances = lambda: ["i-1"]
    found = world.found()
    for one in found:
        if one.undo is not None and not (how.endswith("written") and "marked lines" in one.what):
            with suppress(AdvisorError):
                one.undo()
    assert script.exists()


def test_marked_lines_of_slurm_conf_go_when_the_cloud_is_empty(world: World) -> None:
    marked = "# BEGIN burst-advisor\nPartitionName=burst Nodes=b1\n# END burst-advisor\n"
    path = world.put("slurm.conf", CONF + marked)
    world.instances = lambda: ["i-1"]
    left = world.undo()
    assert path.read_text() == CONF + marked
    assert any("i-1" in one.what for one in left)
    world.instances = list
    world.undo()
    assert path.read_text() == CONF


def test_in_doubt_the_cloud_is_in_use(world: World) -> None:
    marked = CONF + "# BEGIN burst-advisor\nPartitionName=burst Nodes=b1\n# END burst-advisor\n"
    path = world.put("slurm.conf", marked)
    world.slurm.is_up = False
    world.undo()
    assert path.read_text() == marked


def test_lines_that_are_not_marked_are_said(world: World) -> None:
    world.put(
        "slurm.conf", CONF + "ResumeProgram=/usr/local/lib/advisor/resume\nPartitionName=burst Nodes=b1\n"
    )
    (line,) = (one.what for one in world.undo() if "not marked" in one.what)
    assert "line 5: ResumeProgram" in line
    assert "line 6: PartitionName=burst" in line


def test_jobs_that_wait_return_and_placeholders_are_cancelled(tmp_path: Path) -> None:
    place = make_queued(9, name="place-of-7", comment=PLACEHOLDER_COMMENT)
    pretender = make_queued(10, name="place-of-7", comment="mine")
    world = World(
        tmp_path,
        make_queued(7, "RUNNING", queue="burst", admin_comment=MOVED),
        make_queued(8, queue="burst", admin_comment=MOVED),
        make_queued(11, queue="burst"),
        place,
        pretender,
    )
    left = world.undo()
    assert world.ran == [("/usr/bin/scancel", "9")]
    assert world.slurm.told == {8: {"partition": "onprem"}}
    assert any("2 other jobs in partition burst: 7, 11" in one.what for one in left)


def test_units_are_stopped_and_those_of_a_package_stay_files(world: World) -> None:
    (world.folder / "own" / "advisor-serve.service").write_text("")
    (world.folder / "package" / "advisor-control.service").write_text("")
    (world.folder / "package" / "advisor-places@.service").write_text("")
    (world.folder / "systemd").mkdir()
    left = world.undo()
    names = ("advisor-serve.service", "advisor-control.service")
    assert world.ran == [
        ("systemctl", "disable", "--now", *names),
        ("systemctl", "stop", "advisor-places@*.service"),
        ("systemctl", "daemon-reload"),
    ]
    assert not (world.folder / "own" / "advisor-serve.service").exists()
    assert (world.folder / "package" / "advisor-control.service").exists()
    assert any("apt-get remove" in one.how for one in left)


def test_what_ends_instances_runs_on_while_there_may_be_some(world: World) -> None:
    for name in ("advisor-serve.service", "advisor-control.service"):
        (world.folder / "own" / name).write_text("")
    (world.folder / "systemd").mkdir()
    world.instances = lambda: ["i-1"]
    left = world.undo()
    assert world.ran[0] == ("systemctl", "disable", "--now", "advisor-serve.service")
    assert (world.folder / "own" / "advisor-control.service").exists()
    assert any(one.what.startswith("advisor-control.service") for one in left)
    world.instances = list
    world.undo()
    assert not (world.folder / "own" / "advisor-control.service").exists()


def test_where_systemd_does_not_run_nothing_is_stopped(world: World) -> None:
    (world.folder / "package" / "advisor-control.service").write_text("")
    world.undo()
    assert world.ran == [("systemctl", "disable", "advisor-control.service")]


def test_what_cannot_be_looked_at_is_said_and_the_history_is_kept(world: World) -> None:
    world.slurm.is_up = False

    def denied() -> list[str]:
        raise TellAdmin("no credentials", code="x")

    world.instances = denied
    left = world.undo()
    assert [one.what for one in left if "could not be looked at" in one.what] == [
        "Slurm's queue could not be looked at: slurmctld does not answer",
        "EC2's instances could not be looked at: no credentials",
    ]
    assert (world.folder / "state").is_dir()
    assert any(str(world.folder / "state") in one.how for one in left)


def test_a_search_leaves_a_damaged_file_where_it_is(world: World) -> None:
    path = PORTFOLIO.at(world.folder / "state").path
    path.write_text("{")
    world.found()
    assert path.read_text() == "{"
