"""Check the submit hook: is it installed, alone or in the site's script, and are its settings right?"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
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
"""The hook's values for what its settings file does not set."""
_LUA_SOCKET: Final = ("/usr/share/lua", "/usr/local/share/lua", "/usr/lib64/lua", "/usr/lib/lua")
_SWITCHED_OFF: Final = ("false", "no", "off", "0")
_OURS: Final = "Burst Advisor's job_submit"
"""In the first lines of every release's job_submit.lua."""
_LUA_COMMENT: Final = re.compile(r"--\[(=*)\[.*?\]\1\]|--[^\n]*", re.DOTALL)
_LOADED: Final = re.compile(r"""["']([^"'\n]*advisor_submit(?:\.lua)?)["']""")


def hook(folder: Path, settings: Settings) -> Iterator[Diagnosis]:
    """Check the hook in slurm.conf's folder."""
    yield from _scripts(folder)
    yield from _told_settings(folder / "advisor_hook.conf", settings)
    if not any(list(Path(place).glob("5.*/socket.lua")) for place in _LUA_SOCKET):
        yield error("lua-socket is not installed", "apt-get install lua-socket on slurmctld's host")


def without_hook(folder: Path | None) -> Diagnosis:
    """The finding about slurm.conf's folder on a site without the hook; None: slurmctld loads no Lua."""
    script = None if folder is None else folder / hook_files.HOOK
    if script is None or not loads_module(script):
        return ok("there is none, as cluster.hook says: new jobs are advised from the queue")
    return ok(
        f"{script} advises jobs though cluster.hook is false; none is advised twice. Set it to true, which "
        "saves slurmctld a poll a second"
    )


def loads_module(script: Path) -> bool:
    """Whether a job_submit.lua, ours or the site's own, loads our module; False where it cannot be read."""
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return module_loaded_by(text) is not None


def _scripts(folder: Path) -> Iterator[Diagnosis]:
    """Check the script that slurmctld loads, ours or the site's own, and the module that it loads."""
    script = folder / hook_files.HOOK
    ours = hook_files.is_ours(script, hook_files.HOOK)
    release = hook_files.folder()
    if ours is None:
        yield error(f"{script} cannot be read", f"Copy {release / hook_files.HOOK} and the module there")
        return
    module = folder / hook_files.HOOK_MODULE
    if not ours:
        text = script.read_text(encoding="utf-8", errors="replace")
        loaded = module_loaded_by(text)
        if loaded is None and _OURS in text:
            yield warning(
                f"{script} is not this release's version",
                f"Copy {release / hook_files.HOOK} and {hook_files.HOOK_MODULE} there",
            )
            return
        if loaded is None:
            yield error(
                f"{script} is the site's own and does not load {hook_files.HOOK_MODULE}: no job gets advice",
                "Append the lines of docs/install.md, 'You have a job_submit.lua already'",
            )
            return
        module = folder / loaded
    yield from _module(script, module, is_own=not ours)


def _module(script: Path, module: Path, *, is_own: bool) -> Iterator[Diagnosis]:
    release = hook_files.folder() / hook_files.HOOK_MODULE
    found = hook_files.is_ours(module, hook_files.HOOK_MODULE)
    if found is None:
        yield error(f"{module} cannot be read: no job gets advice", f"Copy {release} there")
    elif not found:
        yield warning(f"{module} is not this release's version", f"Copy {release} there, then touch {script}")
    elif module.stat().st_mtime > script.stat().st_mtime + 1.0:
        yield warning(
            f"{module} is newer than {script}: slurmctld may still run the old one",
            f"touch {script}, after which slurmctld loads both again",
        )
    else:
        who = "the site's own and loads this release's " + module.name if is_own else "this release's"
        yield ok(f"{script} is {who}")


def module_loaded_by(text: str) -> str | None:
    """Path or file name of our module in a job_submit.lua's text; None where it does not load it."""
    loaded = _LOADED.search(_LUA_COMMENT.sub("", text))
    if loaded is None:
        return None
    return loaded[1] if loaded[1].endswith(".lua") else f"{loaded[1]}.lua"


def _told_settings(path: Path, settings: Settings) -> Iterator[Diagnosis]:
    """Compare the hook's own settings file, which is written by hand, with the settings."""
    told = told_by(path)
    for name, wanted in hook_values(settings).items():
        found = told.get(name, HOOK_DEFAULTS[name])
        if name == "socket" and found != wanted:
            yield error(
                f"it connects to {found}, but the server listens on {wanted}",
                f"Set `socket = {wanted}` in {path}",
            )
        elif name != "socket" and not _is_same_number(found, wanted):
            yield warning(
                f"its {name} is {found}, but the settings say {wanted}",
                f"advisor config hook > {path} && touch {path.parent / hook_files.HOOK}",
            )
    if told.get("enabled", "").lower() in _SWITCHED_OFF:
        yield warning(f"{path} switches it off: no job gets advice", "Remove `enabled` from it")
    yield from unknown_keys(path, (*HOOK_DEFAULTS, "enabled"))


def unknown_keys(path: Path, known: Collection[str]) -> Iterator[Diagnosis]:
    """Tell of the keys in a settings file that no program of ours reads, such as misspelt ones."""
    unknown = [key for key in told_by(path) if key not in known]
    if unknown:
        yield warning(
            f"{path} sets {', '.join(unknown[:5])}, which nothing reads",
            f"Correct or remove that; there are {', '.join(sorted(known))}",
        )


def told_by(path: Path) -> dict[str, str]:
    """The ``key = value`` lines of a file, without comments; none where it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {
        key.strip(): value.partition(" #")[0].strip()
        for key, found, value in pairs
        if found and not key.lstrip().startswith("#")
    }


def _is_same_number(one: str, other: str) -> bool:
    try:
        return math.isclose(float(one), float(other))
    except ValueError:
        return False
