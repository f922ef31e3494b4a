"""The parts of the advisor on a host and in its cluster, and how each is undone (`advisor uninstall`)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from advisor.config.slurm_conf import value_in
from advisor.files.whole_file import replacing, resemble
from advisor.model.errors import AdvisorError, TellAdmin
from advisor.model.job import PLACEHOLDER_COMMENT
from advisor.model.settings import Settings
from advisor.model.snapshot import PENDING, QueuedJob
from advisor.service.admin.doctor_hook import loads_module
from advisor.service.admin.marked_text import without_marked_lines
from advisor.service.observation.advice_of_jobs import changes_to_return, moved_by_us
from advisor.service.state.state_files import PORTFOLIO
from advisor.slurm import hook_files
from advisor.slurm.protocol import SlurmBackend

OWN_UNITS: Final = Path("/etc/systemd/system")
PACKAGE_UNITS: Final = (Path("/usr/lib/systemd/system"), Path("/lib/systemd/system"))
_ENDS_INSTANCES: Final = "advisor-control.service"
_MAX_SHOWN: Final = 20
_OUR_CONF_FILES: Final = ("advisor_hook.conf", "advisor_programs.conf")
_PROGRAM: Final = re.compile(
    r"^\s*(ResumeProgram|SuspendProgram|ResumeFailProgram|PrologSlurmctld)\s*=.*advisor", re.IGNORECASE
)
_PLUGINS: Final = re.compile(r"^\s*JobSubmitPlugins\s*=(.*)", re.MULTILINE | re.IGNORECASE)
_INCLUDE: Final = re.compile(r"^\s*Include\s+(\S+)", re.MULTILINE | re.IGNORECASE)

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Remnant:
    """One part of the advisor that was found.

    Attributes:
        how: The steps that undo it: the command does them if ``undo`` is set, else the admin.
        undo: Function that undoes it; None: a person has to decide.
    """

    what: str
    how: str
    undo: Undo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Access to the host's commands and folders, which no setting names.

    Attributes:
        run: Runs a command; raises an `AdvisorError` if it fails.
        instances: Returns the ids of the running EC2 instances; it may raise.
        own_units, package_units: Folders of systemd's units.
        systemd: A folder that exists while systemd runs; in a container without systemd no service is
            stopped.
    """

    run: Callable[..., object]
    instances: Callable[[], list[str]]
    own_units: Path = OWN_UNITS
    package_units: tuple[Path, ...] = PACKAGE_UNITS
    systemd: Path = Path("/run/systemd/system")


@dataclass(slots=True)
class Remnants:
    """Finds the remnants, in the order in which they are undone."""

    settings: Settings
    slurm: SlurmBackend
    host: Host
    _empty: set[str] = field(default_factory=set, init=False)

    def all(self) -> Iterator[Remnant]:
        """All remnants; a part that cannot be examined is among them."""
        how = "Look at `squeue --partition` of the burst partition"
        jobs = tuple(_told(self._jobs, "Slurm's queue", how))
        instances = tuple(
            _told(self._instances, "EC2's instances", "List them by their tag (docs/operate.md)")
        )
        yield from self._units()
        yield from (*jobs, *instances)
        yield from self._portfolio()
        yield from _told(self._slurm_files, "slurm.conf and the hook", "Run the command as root there")
        yield from self._left()

    @property
    def is_in_use(self) -> bool:
        """Whether a job or an instance is in the cloud, or may be because Slurm or EC2 could not be asked."""
        return self._empty != {"jobs", "instances"}

    def _units(self) -> Iterator[Remnant]:
        own = sorted(self.host.own_units.glob("advisor-*"))
        packaged = sorted({p.name for folder in self.host.package_units for p in folder.glob("advisor-*")})
        names = [path.name for path in own if path.is_file()] + packaged
        names = [name for name in dict.fromkeys(names) if "@" not in name]
        if self.is_in_use and _ENDS_INSTANCES in names:
            names.remove(_ENDS_INSTANCES)
            own = [path for path in own if path.name != _ENDS_INSTANCES]
            how = "once the cloud is empty, run `advisor uninstall` again"
            yield Remnant(f"{_ENDS_INSTANCES}, which ends the instances that jobs need no more", how)
        if not names:
            return

        def undo() -> None:
            runs = self.host.systemd.is_dir()
            self.host.run("systemctl", "disable", *(["--now"] if runs else []), *names)
            if runs:  # root's helper waits half an hour for the next question
                self.host.run("systemctl", "stop", "advisor-places@*.service")
            for path in own:
                if path.is_file():
                    path.unlink()
            if runs:
                self.host.run("systemctl", "daemon-reload")

        yield Remnant(f"units: {', '.join(names)}", f"systemctl disable --now {' '.join(names)}", undo)
        if packaged:
            yield Remnant(
                "the package burst-advisor", "apt-get remove burst-advisor, or dnf remove burst-advisor"
            )

    def _jobs(self) -> Iterator[Remnant]:
        snapshot = self.slurm.snapshot(0.0)
        burst = self.settings.cluster.burst_partition
        places = [queued.job.job_id for queued in snapshot.jobs if _is_placeholder(queued)]
        if places:

            def cancel() -> None:
                self.host.run(str(self.settings.paths.slurm_bin / "scancel"), *map(str, places))

            yield Remnant(
                f"{len(places)} placeholders of hedged jobs: {_some(places)}",
                "scancel them; the jobs that they stand for run on in the cloud",
                cancel,
            )
        in_burst = [queued for queued in snapshot.jobs if burst in queued.partitions]
        waiting = {
            queued.job.job_id: changes_to_return(queued, moved, self.settings)
            for queued in in_burst
            if queued.state == PENDING and (moved := moved_by_us(queued)) is not None
        }
        if waiting:

            def back() -> None:
                self.slurm.update_jobs(waiting)

            yield Remnant(
                f"{len(waiting)} pending jobs that the advisor moved: {_some(waiting)}",
                "return them to their on-premise partition",
                back,
            )
        others = [queued.job.job_id for queued in in_burst if queued.job.job_id not in waiting]
        if not others:
            self._empty.add("jobs")
        else:
            yield Remnant(
                f"{len(others)} other jobs in partition {burst}: {_some(others)}",
                "let those that run end, and ask the users of the others to move them",
            )

    def _instances(self) -> Iterator[Remnant]:
        running = self.host.instances()
        if not running:
            self._empty.add("instances")
            return
        yield Remnant(
            f"{len(running)} EC2 instances run: {', '.join(running[:_MAX_SHOWN])}",
            f"scontrol update partition={self.settings.cluster.burst_partition} state=down; wait until sinfo "
            "shows every node powered down; end what is left with `aws ec2 terminate-instances`",
        )

    def _portfolio(self) -> Iterator[Remnant]:
        try:
            acts = PORTFOLIO.at(self.settings.paths.state).read(sets_aside=False).acts
        except AdvisorError:
            return
        if acts:
            yield Remnant("the portfolio has closed nodes or ordered jobs", "advisor portfolio undo")

    # ------------------------------------------------------------------ slurm.conf and the hook

    def _slurm_files(self) -> Iterator[Remnant]:
        conf = self.settings.paths.slurm_conf
        text = _read(conf)
        yield from self._slurm_conf(conf, text)
        left = text if self.is_in_use else without_marked_lines(text) or text
        yield from self._hook(conf, has_lua=_has_lua(conf, left))

    def _slurm_conf(self, conf: Path, text: str) -> Iterator[Remnant]:
        rest = without_marked_lines(text)
        if rest is not None:
            how = "remove them, then restart slurmctld"
            undo = None if self.is_in_use else _rewriting(conf, text, rest)
            why = "once the cloud is empty: " if self.is_in_use else ""
            yield Remnant(f"our marked lines in {conf}", f"{why}{how}", undo)
        lines = [
            f"line {number}: {line.strip()[:100]}"
            for number, line in enumerate((text if rest is None else rest).splitlines(), 1)
            if _PROGRAM.match(line) or self._is_burst_line(line)
        ]
        if lines:
            yield Remnant(f"lines in {conf} that are not marked: {'; '.join(lines)}", "remove them by hand")

    def _is_burst_line(self, line: str) -> bool:
        name = re.escape(self.settings.cluster.burst_partition)
        return bool(re.match(rf"\s*PartitionName\s*=\s*{name}\b", line, re.IGNORECASE))

    def _hook(self, conf: Path, *, has_lua: bool) -> Iterator[Remnant]:
        folder = conf.parent
        script, module = folder / hook_files.HOOK, folder / hook_files.HOOK_MODULE
        text = _read(script)
        rest = without_marked_lines(text)
        is_ours = "Burst Advisor's job_submit" in text
        if rest is not None:
            yield Remnant(f"our marked lines in {script}", "remove them", _rewriting(script, text, rest))
        elif is_ours and not has_lua:
            yield Remnant(f"{script}, ours alone", "remove it", lambda: _remove_script(script, conf))
        elif is_ours:
            how = f"take lua out of JobSubmitPlugins, restart slurmctld, then remove {script} and {module}"
            yield Remnant(f"{script}, ours alone, is loaded by slurmctld", how)
        elif loads_module(script):
            yield Remnant(
                f"{script} is the site's own and loads {module.name}",
                f"remove what calls it (docs/install.md), then {module}",
            )
        files = [
            folder / name for name in (hook_files.HOOK_MODULE, *_OUR_CONF_FILES) if (folder / name).is_file()
        ]
        is_free = rest is not None or not (loads_module(script) and (has_lua or not is_ours))
        if files and is_free and not self.is_in_use:
            names = ", ".join(map(str, files))
            yield Remnant(names, "remove them", lambda: _remove(files, script))
        elif files:
            yield Remnant(", ".join(map(str, files)), "remove them once slurmctld uses them no more")

    # ------------------------------------------------------------------ what an admin may want to keep

    def _left(self) -> Iterator[Remnant]:
        paths = self.settings.paths
        for path, what in (
            (paths.state, "history, ledger and models"),
            (paths.run, "sockets"),
            (Path("/etc/advisor"), "settings"),
            *((folder, "drop-ins of a unit") for folder in sorted(self.host.own_units.glob("advisor-*.d"))),
        ):
            if path.exists():
                yield Remnant(f"{path}: {what}", f"rm -r {path}, if you will not come back")
        try:
            is_admin = self.slurm.is_administrator("advisor")
        except AdvisorError:
            return
        if is_admin:
            yield Remnant("the administrator `advisor` in slurmdbd", "sacctmgr -i delete user advisor")


def _told(find: Callable[[], Iterable[Remnant]], what: str, how: str) -> Iterator[Remnant]:
    try:
        yield from find()
    except (AdvisorError, OSError) as problem:
        yield Remnant(f"{what} could not be looked at: {problem}", how)


def _is_placeholder(queued: QueuedJob) -> bool:
    return queued.job.placeholder_for is not None and queued.job.comment == PLACEHOLDER_COMMENT


def _some(job_ids: Iterable[int]) -> str:
    ids = list(job_ids)
    return ", ".join(map(str, ids[:_MAX_SHOWN])) + (", ..." if len(ids) > _MAX_SHOWN else "")


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""


def _has_lua(conf: Path, text: str) -> bool:
    """Whether slurmctld loads job_submit.lua by this text of slurm.conf, or by a file that it includes."""
    values = _PLUGINS.findall(text)
    values += [value_in(conf.parent / name, "JobSubmitPlugins") or "" for name in _INCLUDE.findall(text)]
    return any(re.search(r"\blua\b", value) for value in values)


def _remove_script(script: Path, conf: Path) -> None:
    """Remove job_submit.lua, unless the lines that load it could not be taken out of slurm.conf before."""
    if _has_lua(conf, _read(conf)):
        text = f"{conf} still names lua in JobSubmitPlugins: slurmctld would not start without {script}"
        raise TellAdmin(text, code="uninstall.hook_in_use")
    script.unlink()


def _rewriting(path: Path, text: str, rest: str) -> Undo:
    def undo() -> None:
        """The site's text stays byte by byte, with owner, mode and link, and the former file beside it."""
        file = Path(os.path.realpath(path))
        former = file.stat()
        copy = file.with_name(f"{file.name}.before-uninstall")
        for target, content in ((copy, text), (file, rest)):
            with replacing(target, durable=True, mode=0o600) as new:
                new.write(content.encode("utf-8", "surrogateescape"))
                resemble(new, former)

    return undo


def _remove(files: Iterable[Path], script: Path) -> None:
    """Remove files, but not the module while a script still loads it."""
    still = loads_module(script)
    for path in files:
        if not (still and path.name == hook_files.HOOK_MODULE):
            path.unlink(missing_ok=True)
