"""A real PostgreSQL, jobs to store, and a way to be nobody."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from advisor.history import schema
from advisor.history.store import HistoryStore
from advisor.model.job import Job, JobOutcome, JobState

NOBODY = 65534


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """URL of a PostgreSQL server of our own, on a Unix socket only; it refuses to run as root."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    assert programs, "no PostgreSQL here: tools/install_system_packages installs it"
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    data = folder / "data"
    initdb = [*as_user, programs[-1], "-D", data, "-U", "advisor", "-A", "trust", "--no-sync", "-E", "UTF8"]
    subprocess.run(initdb, check=True, capture_output=True, cwd=folder)
    options = f"-c listen_addresses='' -c fsync=off -c unix_socket_directories={folder}"
    control = [*as_user, programs[-1].with_name("pg_ctl"), "-D", data, "-w", "-t", "60"]
    start = [*control, "-o", options, "-l", folder / "log", "start"]
    subprocess.run(start, check=True, capture_output=True, cwd=folder)
    try:
        yield f"postgresql://advisor@/postgres?host={folder}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True, cwd=folder)
        shutil.rmtree(folder)


@pytest.fixture
def postgresql_url(postgresql: str) -> Iterator[str]:
    """URL of an empty PostgreSQL database."""
    name = f"test_{uuid.uuid4().hex}"
    server = sa.create_engine(
        postgresql.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    with server.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    yield postgresql.replace("/postgres?", f"/{name}?")
    with server.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    server.dispose()


@pytest.fixture(scope="session")
def postgresql_history(postgresql: str) -> Iterator[HistoryStore]:
    with HistoryStore(postgresql) as store:
        yield store


@pytest.fixture
def postgresql_store(postgresql_history: HistoryStore) -> HistoryStore:
    """An empty history: emptied rather than made anew, which takes ten times as long."""
    with postgresql_history._database.writing() as connection:
        tables = ", ".join(schema.metadata.tables)
        connection.exec_driver_sql(f"TRUNCATE {tables} RESTART IDENTITY")
    return postgresql_history


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[HistoryStore]:
    with HistoryStore(sqlite_url) as store:
        yield store


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'history.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> HistoryStore:
    """An empty history in each kind of database."""
    opened: HistoryStore = request.getfixturevalue(f"{request.param}_store")
    return opened


@pytest.fixture
def make_outcome() -> Callable[..., JobOutcome]:
    """A finished job with the given numbers; everything else is usual."""

    def make(
        job_id: int = 1, submit: float = 1000.0, wait: float = 10.0, run: float = 100.0, **rest: object
    ) -> JobOutcome:
        names = set(JobOutcome.__struct_fields__) - {"job"}
        outcome = {name: value for name, value in rest.items() if name in names}
        job = {name: value for name, value in rest.items() if name not in names}
        return JobOutcome(
            job=Job(**{"job_id": job_id, "submit_time": submit, "processors": 4, "user": "ann"} | job),
            **{
                "start_time": submit + wait,
                "end_time": submit + wait + run,
                "state": JobState.COMPLETED,
                "processors_used": 4,
            }
            | outcome,
        )

    return make


@contextmanager
def as_nobody() -> Iterator[None]:
    """Give up root's rights for file access: root may write everything."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def without_rights() -> Callable[[], object]:
    """``with without_rights():`` file access as a user who owns nothing here."""
    return as_nobody
