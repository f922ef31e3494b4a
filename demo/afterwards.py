"""What is left to look at when the demo has been played: the site itself, its web pages, a report."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from rich.console import Console

from advisor.testing.site import Site

REPORT: Final = Path("build", "demo", "report.html")
"""Where the report stays when the demo's own folder is gone; `build` is not under version control."""
_TRY: Final = (
    "sbatch --wrap 'sleep 30' -n 4 -t 5",
    "advisor status",
    "advisor decisions",
    "advisor why JOBID",
    "advisor doctor",
)


def write_report(site: Site) -> Path | None:
    """Write the page for those who pay; None where the command fails."""
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    done = site.advisor("report", "--out", str(REPORT), check=False)
    return None if done.returncode else REPORT.resolve()


def say_what_is_left(console: Console, report: Path | None, web: str | None) -> None:
    """Name what can be opened, one line each."""
    if report is not None:
        _line(console, f"Report to open: {report}")
    if web is not None:
        _line(console, f"Pages to open:  {web}")
    else:
        _line(console, "Pages to open:  make demo DEMO=--keep leaves the cluster and its web pages up")


def keep_up(console: Console, site: Site) -> None:
    """Leave the cluster up until Enter is pressed or, without a terminal, until a signal comes."""
    _line(console, "\nThe cluster stays up. In another terminal:\n")
    for name, value in shell_environment(site).items():
        _line(console, f"export {name}={value}")
    for command in _TRY:
        _line(console, command)
    _line(console, f"\nLogs are in {site.folder}.")
    if sys.stdin.isatty():
        _line(console, "Press Enter to stop everything.")
        sys.stdin.readline()
        return
    _line(console, "Standard input is no terminal: Ctrl-C or SIGTERM stops everything.")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    while not ended.wait(1.0):
        pass


def shell_environment(site: Site) -> dict[str, str]:
    """What a shell needs for `advisor` and Slurm's commands to speak with this site, quoted for it."""
    folder = shlex.quote(str(Path(sys.executable).parent))
    quoted = {name: shlex.quote(value) for name, value in (site.environment | site.credentials()).items()}
    return {**quoted, "PATH": f"{folder}:$PATH"}


def _line(console: Console, text: str) -> None:
    """Print a line as it is: nobody can paste one that was wrapped."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
