"""The doctor's look at the hook: is it installed, alone or in the site's own script, and told what we say?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from advisor.config.hook import hook_values
from advisor.model.settings import Settings
from advisor.service.admin.doctor import Diagnosis, error, ok, warning
from advisor.slurm import hook_files

HOOK_DEFAULTS: Final = {
    "socket": "/run/advisor/submit.sock",
    "budget_ms": "50",
    "breaker_failures": "2",
    "breaker_seconds": "10",
}
"""The hook's own, where its file says nothing."""
_LUA_SOCKET: Final = ("/usr/share/lua", "/usr/local/share/lua", "/usr/lib64/lua", "/usr/lib/lua")
_SWITCHED_OFF: Final = ("false", "no", "0")
_OURS: Final = "Burst Advisor's job_submit"
"""In the first lines of every release's job_submit.lua."""
_LUA_COMMENT: Final = re.compile(r"--\[(=*)\[.*?\]\1\]|--[^\n]*", re.DOTALL)
_LOADED: Final = re.compile(r"""["']([^"'\n]*advisor_submit(?:\.lua)?)["']""")


def hook(folder: Path, settings: Settings) -> Iterator[Diagnosis]:
    """Look at the hook.

    Parameters
    ----------
    folder : Path
        Of slurm.conf.
    settings : Settings
        In force.
    """
    yield from _scripts(folder)
    yield from _told_settings(folder / "advisor_hook.conf", settings)
    if not any(list(Path(place).glob("5.*/socket.lua")) for place in _LUA_SOCKET):
        yield error("hook", "lua-socket is not installed", "apt-get install lua-socket (on slurmctld's host)")


def _scripts(folder: Path) -> Iterator[Diagnosis]:
    """The script that slurmctld loads, ours or the site's own, and our module, which either loads."""
    script = folder / hook_files.HOOK
    ours = hook_files.is_ours(script, hook_files.HOOK)
    release = hook_files.folder()
    if ours is None:
        yield error(
            "hook", f"{script} cannot be read", f"Copy {release / hook_files.HOOK} and the module there"
        )
        return
    module = folder / hook_files.HOOK_MODULE
    if not ours:
        text = script.read_text(encoding="utf-8", errors="replace")
        loaded = module_loaded_by(text)
        if loaded is None and _OURS in text:
            yield warning(
                "hook",
                f"{script} is another version",
                f"Copy {release / hook_files.HOOK} and {hook_files.HOOK_MODULE} there",
            )
            return
        elif loaded is None:
            yield error(
                "hook",
                f"{script} is the site's own and does not load {hook_files.HOOK_MODULE}: nobody is advised",
                "End it with the lines of docs/install.md, 'You have a job_submit.lua already'",
            )
            return
        else:
            module = folder / loaded
    yield from _module(script, module, is_own=not ours)


def _module(script: Path, module: Path, *, is_own: bool) -> Iterator[Diagnosis]:
    release = hook_files.folder() / hook_files.HOOK_MODULE
    found = hook_files.is_ours(module, hook_files.HOOK_MODULE)
    if found is None:
        yield error("hook", f"{module} cannot be read: nobody is advised", f"Copy {release} there")
    elif not found:
        yield warning("hook", f"{module} is another version", f"Copy {release} there, then touch {script}")
    elif module.stat().st_mtime > script.stat().st_mtime + 1.0:
        yield warning(
            "hook", f"{module} is newer than {script}: slurmctld may run the one before", f"touch {script}"
        )
    else:
        who = "the site's own and loads this release's " + module.name if is_own else "this release's"
        yield ok("hook", f"{script} is {who}")


def module_loaded_by(script: str) -> str | None:
    """Path, or name beside it, of our module as a site's job_submit.lua loads it; None where it does not."""
    loaded = _LOADED.search(_LUA_COMMENT.sub("", script))
    if loaded is None:
        return None
    return loaded[1] if loaded[1].endswith(".lua") else f"{loaded[1]}.lua"


def _told_settings(path: Path, settings: Settings) -> Iterator[Diagnosis]:
    """Whether the hook's own file says what the settings say: it is written by hand, once."""
    told = told_by(path)
    for name, wanted in hook_values(settings).items():
        found = told.get(name, HOOK_DEFAULTS[name])
        if name == "socket" and found != wanted:
            yield error(
                "hook",
                f"it asks {found}, the server listens on {wanted}",
                f"Set `socket = {wanted}` in {path}",
            )
        elif name != "socket" and not _is_same_number(found, wanted):
            yield warning(
                "hook",
                f"its {name} is {found}, by the settings {wanted}",
                f"advisor config hook > {path} && touch {path.parent / hook_files.HOOK}",
            )
    if told.get("enabled") in _SWITCHED_OFF:
        yield warning("hook", f"{path} switches it off: nobody is advised", "Take `enabled` out of it")


def told_by(path: Path) -> dict[str, str]:
    """What a file of ``key = value`` lines tells a program; nothing where there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {key.strip(): value.strip() for key, found, value in pairs if found}


def _is_same_number(one: str, other: str) -> bool:
    try:
        return math.isclose(float(one), float(other))
    except ValueError:
        return False
