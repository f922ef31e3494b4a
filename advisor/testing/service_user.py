"""The users of an installed site, in a lab: slurmctld's own one, and the daemons', which is in its group."""

from __future__ import annotations

import pwd
import shutil
import sysconfig
from pathlib import Path

from advisor.testing.lab_processes import public_python

ROOT = Path(__file__).resolve().parent.parent.parent
_MODES = {"run": 0o750, "advisor": 0o750, "advisor/handover": 0o2770, "programs.log": 0o660}
"""What the daemons' user has in a site's folder, as docs/install.md says."""


def group_of(slurm_user: str) -> int:
    """The id of slurmctld's group."""
    return pwd.getpwnam(slurm_user or "root").pw_gid


def python_as(user: str, group: int, state: Path) -> list[str]:
    """A command that runs our interpreter as systemd runs it for the daemons; they may write to ``state``."""
    return [
        *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"),
        *("--bounding-set=-all", "--inh-caps=-all"),
        *("env", f"NUMBA_CACHE_DIR={state}/numba", f"HOME={state}"),
        f"PYTHONPATH={ROOT}:{sysconfig.get_path('purelib')}",
        *("sh", "-c", 'umask 027; exec "$@"', "sh", public_python()),
    ]


def give_to(user: str, group: int, folder: Path) -> None:
    """Give a site's folders, which exist, to the daemons' user."""
    (folder / "programs.log").touch()
    for name, mode in _MODES.items():
        shutil.chown(folder / name, user, group)
        (folder / name).chmod(mode)
