"""MariaDB and slurmdbd of a lab: socket only, without fsync, from a template where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from advisor.model.errors import TellAdmin
from advisor.testing.lab_options import LabOptions, slurmdbd_conf
from advisor.testing.lab_processes import stop, wait_until

_START_SECONDS: Final = 120.0
_ACCOUNTS: Final = (
    ("add", "account", "lab", "description=lab", "organization=lab"),
    ("add", "user", "root", "account=lab"),
    ("add", "qos", "urgent", "priority=100"),
    ("add", "qos", "deferrable", "priority=1"),
)


class LabDatabase:
    """The accounting of one lab.

    Args:
        folder: The lab's.
        environment: For Slurm's commands.
    """

    def __init__(
        self, folder: Path, options: LabOptions, base_port: int, environment: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._options = options
        self._base_port = base_port
        self._environment = dict(environment)
        self._data = folder / "db" / "data"
        self._socket = folder / "db" / "sock"
        self._mariadb: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """MariaDB, slurmdbd, a cluster and accounts; fast when there is a template."""
        self._data.parent.mkdir(exist_ok=True)
        template = self._options.database_template
        is_ready = (self._data / "mysql").is_dir()
        if not is_ready and template is not None and (template / "mysql").is_dir():
            shutil.copytree(template, self._data, symlinks=True)
            is_ready = True
        if not is_ready:
            self._install()
        conf = self._folder / "etc" / "slurmdbd.conf"
        conf.write_text(slurmdbd_conf(self._options, self._folder, self._base_port), encoding="utf-8")
        conf.chmod(0o600)
        if self._options.slurm_user:
            shutil.chown(conf, self._options.slurm_user)
        self._start_daemons(new=not is_ready)
        if not is_ready:
            for arguments in (("add", "cluster", self._options.cluster), *_ACCOUNTS):
                self._run("sacctmgr", "-i", "-Q", *arguments)
            if template is not None:
                self._keep_as(template)

    def stop(self) -> None:
        """End slurmdbd, then MariaDB."""
        run = self._folder / "run"
        stop([run / "slurmdbd.pid"], mark=str(self._folder))
        stop([run / "mariadb.pid"], mark=str(self._folder))
        if self._mariadb is not None:
            self._mariadb.wait()  # ended just now: only to be reaped
            self._mariadb = None

    def _install(self) -> None:
        user = ("--user=root",) if os.geteuid() == 0 else ()
        self._run(
            "mariadb-install-db",
            "--no-defaults",
            *user,
            f"--datadir={self._data}",
            # its own: a MariaDB that starts deletes the temporary tables that it finds there
            f"--tmpdir={self._data.parent}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
        )

    def _start_daemons(self, *, new: bool) -> None:
        self._start_mariadb()
        if new:
            # slurmdbd makes a missing database itself, but cannot use that connection with libmariadb 3.4.9
            self._sql(
                "create database if not exists slurm_acct_db; "
                "create user if not exists slurm@localhost identified by 'lab'; "
                "grant all on slurm_acct_db.* to slurm@localhost;"
            )
        self._environment["MYSQL_UNIX_PORT"] = str(self._socket)
        self._run("slurmdbd")
        wait_until(
            lambda: self._succeeds("sacctmgr", "-n", "-i", "list", "cluster"),
            seconds=_START_SECONDS,
            what=f"slurmdbd answers (see {self._folder}/log/slurmdbd.log)",
        )

    def _start_mariadb(self) -> None:
        user = ("--user=root",) if os.geteuid() == 0 else ()
        command = (
            "mariadbd",
            "--no-defaults",
            *user,
            f"--datadir={self._data}",
            f"--tmpdir={self._data.parent}",
            f"--socket={self._socket}",
            f"--pid-file={self._folder}/run/mariadb.pid",
            f"--log-error={self._folder}/log/mariadb.log",
            "--skip-networking",
            "--skip-log-bin",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-lock-wait-timeout=900",
        )
        self._mariadb = subprocess.Popen(  # noqa: S603 - a fixed command, no shell
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(
            lambda: self._succeeds(*self._client(), "-e", "select 1"),
            seconds=_START_SECONDS,
            what=f"MariaDB answers (see {self._folder}/log/mariadb.log)",
        )

    def _keep_as(self, template: Path) -> None:
        """Copy the stopped database aside, atomically, and go on."""
        self.stop()
        template.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".db-", dir=template.parent)) / "data"
        shutil.copytree(self._data, partial, symlinks=True, ignore=shutil.ignore_patterns("*.pid"))
        try:
            partial.rename(template)
        except OSError:  # another lab was faster: its template is as good
            shutil.rmtree(partial.parent, ignore_errors=True)
        else:
            partial.parent.rmdir()
        self._start_daemons(new=False)

    def _client(self) -> tuple[str, ...]:
        return ("mariadb", "--no-defaults", "-uroot", "-S", str(self._socket))

    def _sql(self, statements: str) -> None:
        self._run(*self._client(), "-e", statements)

    def _succeeds(self, *command: str) -> bool:
        return self._call(command).returncode == 0

    def _run(self, *command: str) -> None:
        done = self._call(command)
        if done.returncode:
            raise TellAdmin(f"{command[0]}: {done.stdout}{done.stderr}"[:2000], code="lab.database")

    def _call(self, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - fixed commands, no shell
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
        )
