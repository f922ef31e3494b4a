"""The history's database, SQLite or PostgreSQL: connections, migrations, and its errors by code."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, Engine

from advisor.history import schema
from advisor.history.database_url import parse
from advisor.model.errors import AdvisorError, BadInput, RetryLater, TellAdmin

_MIGRATION_LOCK = 0x42757273744164  # PostgreSQL advisory lock: one process migrates, the others wait
_SQLITE_PRAGMAS = (
    # a power cut may lose the last transactions, but not damage the file; each transaction stores how far its
    # source was read, so what was lost is read again
    "PRAGMA synchronous=NORMAL",
    "PRAGMA foreign_keys=ON",
)

# SQLite's primary result codes, PostgreSQL's SQLSTATE classes
_SQLITE_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_AS_SERVICE = "Run the command as the service's user, who owns the file and its folder"
_SQLITE_MEND = {
    sqlite3.SQLITE_READONLY: ("read-only", f"{_AS_SERVICE}, or give that user write access to it"),
    sqlite3.SQLITE_PERM: ("access denied", f"{_AS_SERVICE}, or give that user access to it"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "Check that the folder exists and may be written"),
    sqlite3.SQLITE_NOTADB: (
        "not an SQLite database",
        "Check the path. If it is the history, it is damaged: restore a copy, or move it away",
    ),
}
_SQLITE_ADMIN = {
    sqlite3.SQLITE_CORRUPT: (
        "damaged: restore a copy, or move it away with its -wal and -shm files and ingest again"
    ),
    sqlite3.SQLITE_FULL: "the disk is full: make room, nothing was lost",
    sqlite3.SQLITE_IOERR: "the disk reports errors: see the kernel's log, and move the file to a sound disk",
}
_POSTGRESQL_RETRY = ("08", "40", "53", "55P03", "57P")
_POSTGRESQL_MEND = {
    "42501": ("the database's user lacks a privilege", "Grant it the cluster's schema and tables"),
    "25006": ("the server or session is read-only", "Give the URL of the primary server"),
}


def insert_into(connection: Connection, table: sa.Table) -> Any:
    """An INSERT with ON CONFLICT in the database's dialect."""
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


class Database:
    """Connections to the history, with short transactions and limited waits.

    Args:
        url: ``sqlite:///path`` or ``postgresql://user@host/name``, which may end in ``?schema=name``.
        busy_seconds: Longest wait for another writer before :class:`RetryLater`.
        read_only: Do not create, migrate or write the database.
        later: Open it at its first use, which then raises the errors below, and again at each use until it
            succeeds.

    Attributes:
        was_replaced: Whether another file has replaced the one that was opened first, so that earlier
            positions are void.

    Raises:
        BadInput: The URL is not valid, the folder missing, the file not accessible or no database of this
            release.
        RetryLater: It is locked for longer than ``busy_seconds``, or the server cannot be reached.
    """

    def __init__(
        self, url: str, *, busy_seconds: float = 10.0, read_only: bool = False, later: bool = False
    ) -> None:
        self._given = url
        self.where = "history database"
        self._busy_seconds = busy_seconds
        self._read_only = read_only
        self._engine: Engine | None = None
        self._file: tuple[int, int] | None = None  # device and number of SQLite's file
        self._opening = threading.Lock()
        self.was_replaced = False
        if not later:
            self._opened()

    def close(self) -> None:
        """Close all connections."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for reading."""
        with self._reading(self._opened()) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A write transaction: committed at the end, rolled back on any error.

        It takes SQLite's write lock at its start, so a locked database is noticed before any work.
        """
        with self._writing(self._opened()) as connection:
            yield connection

    @contextmanager
    def _reading(self, engine: Engine) -> Iterator[Connection]:
        with self._translated(), engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self, engine: Engine) -> Iterator[Connection]:
        writer = engine.execution_options(advisor_writes=True)
        with self._translated(), writer.begin() as connection:
            yield connection

    def _opened(self) -> Engine:
        """The connections; opened anew after an error that an admin must mend, or for another file."""
        with self._opening:
            if self._engine is not None and self._file is not None and self._file != self._file_now():
                self.close()
            if self._engine is None:
                before, self._engine = self._file, self._open()
                self._file = self._file_now()
                self.was_replaced |= before is not None and before != self._file
            return self._engine

    def _file_now(self) -> tuple[int, int] | None:
        path = self._url.database or ""
        if self._read_only or self._url.get_backend_name() != "sqlite" or path.startswith("file:"):
            return None
        try:
            found = Path(path).stat()
        except OSError:
            return (0, 0)
        return found.st_dev, found.st_ino

    def _open(self) -> Engine:
        self._url, self._schema = parse(self._given)
        self.where = self._url.render_as_string(hide_password=True)
        if self._schema:
            self.where += f", schema {self._schema}"
        if self._schema and not self._read_only:
            self._make_schema(self._schema)
        engine = self._make_reader() if self._read_only else self._make_engine()
        try:
            if self._read_only:
                self._check_version(engine)
            else:
                self._bring_up_to_date(engine)
        except AdvisorError:
            engine.dispose()
            raise
        except BaseException as error:
            engine.dispose()
            if not isinstance(error, Exception):
                raise
            text = (
                f"{self.where}: it cannot be brought up to date ({type(error).__name__}: {error}). Keep a "
                "copy, make room on the disk and see that the service's user may change the tables; then "
                "start again, or begin an empty history: name another `paths.state` or `paths.database_url`"
            )
            raise TellAdmin(text, code="history.migration") from error
        return engine

    def _make_engine(self) -> Engine:
        if self._url.get_backend_name() != "sqlite":
            return self._make_postgresql_engine()
        self._create_file()
        engine = sa.create_engine(self._url, connect_args={"timeout": self._busy_seconds})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _make_postgresql_engine(self, *options: str) -> Engine:
        timeout = max(1, round(self._busy_seconds))
        path = (f'-c search_path="{self._schema}"',) if self._schema else ()
        words = (f"-c lock_timeout={round(self._busy_seconds * 1000)}", *path, *options)
        return sa.create_engine(
            self._url,
            pool_pre_ping=True,
            connect_args={"connect_timeout": timeout, "options": " ".join(words)},
        )

    def _make_schema(self, name: str) -> None:
        """Make a cluster's schema in PostgreSQL.

        Raises:
            BadInput: It is not there, and the schema ``public``, where an earlier release kept the history
                of a database's only cluster, has a history.
        """
        engine = sa.create_engine(self._url)
        try:
            with self._translated(), engine.begin() as connection:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
                found = sa.inspect(connection)
                if name in found.get_schema_names():
                    return
                quoted = connection.dialect.identifier_preparer.quote_identifier(name)
                if found.has_table("alembic_version", schema="public"):
                    raise BadInput(
                        "the schema public has the history of one cluster, of an earlier release",
                        where=self.where,
                        mend=f"If it is this cluster's, run: ALTER SCHEMA public RENAME TO {quoted}; "
                        f"else run: CREATE SCHEMA {quoted}",
                        code="history.schema",
                    )
                connection.exec_driver_sql(f"CREATE SCHEMA {quoted}")
        finally:
            engine.dispose()

    def _make_reader(self) -> Engine:
        """Connections to an existing database that cannot write."""
        if self._url.get_backend_name() != "sqlite":
            return self._make_postgresql_engine("-c default_transaction_read_only=on")
        path = self._url.database or ""
        if not Path(path).is_file():
            raise BadInput(
                "there is no history yet",
                where=self.where,
                mend="Start `advisor control`, which creates it; `advisor ingest` fills it",
                code="history.missing",
            )
        # without the right to write in the folder SQLite cannot share memory with a writer; if there is no
        # write-ahead log there is no writer, and the file can be read alone
        may_share = os.access(Path(path).parent, os.W_OK, effective_ids=True)
        alone = not (may_share or Path(f"{path}-wal").exists())
        query = {"uri": "true", "mode": "ro"} | ({"immutable": "1"} if alone else {})
        url = URL.create("sqlite", database=f"file:{quote(path)}", query=query)
        engine = sa.create_engine(url, connect_args={"timeout": self._busy_seconds})
        event.listen(engine, "connect", _prepare_reader)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _check_version(self, engine: Engine) -> None:
        found = self._version(engine)
        if found != schema.SCHEMA_VERSION:
            is_newer = found is not None and found > schema.SCHEMA_VERSION
            raise BadInput(
                f"it is of another release (schema {found}, this release reads {schema.SCHEMA_VERSION})",
                where=self.where,
                mend="Upgrade the advisor" if is_newer else "Restart advisor control, which migrates it",
                code="history.version",
            )

    def _create_file(self) -> None:
        """Create an SQLite file that only the service and its group can read: it names users and jobs."""
        path = self._url.database
        if not path or path == ":memory:":
            raise BadInput(
                "the history needs a file",
                where="paths.database_url",
                mend="Use sqlite:////folder/history.db (four slashes)",
                code="history.url",
            )
        if path.startswith("file:"):
            return
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o640))
        except OSError as error:
            raise BadInput(
                error.strerror or type(error).__name__,
                where=self.where,
                mend=f"Check that the folder exists. {_AS_SERVICE}",
                code="history.unreadable",
            ) from error

    def _bring_up_to_date(self, engine: Engine) -> None:
        if self._version(engine) == schema.SCHEMA_VERSION:
            return
        with self._writing(engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            # another process may have migrated it while this one waited for the lock
            if _version_in(connection) != schema.SCHEMA_VERSION:
                self._migrate(connection)

    def _version(self, engine: Engine) -> str | None:
        with self._reading(engine) as connection:
            return _version_in(connection)

    def _migrate(self, connection: Connection) -> None:
        from alembic import command  # noqa: PLC0415 - needed once in the life of a schema
        from alembic.config import Config  # noqa: PLC0415 - as above
        from alembic.script import ScriptDirectory  # noqa: PLC0415 - as above

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        current = _version_in(connection)
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        if current is not None and current not in known:
            raise BadInput(
                f"made by a newer release (schema {current}, this release knows {schema.SCHEMA_VERSION})",
                where=self.where,
                mend="Upgrade the advisor; nothing was changed",
                code="history.newer",
            )
        command.upgrade(config, "head")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            explained = self._explain(error)
            if not isinstance(explained, RetryLater):
                self.close()  # the next use opens it anew
            raise explained from error

    def _explain(self, error: sa.exc.DBAPIError) -> AdvisorError:
        original: Any = error.orig
        if self._url.get_backend_name() == "sqlite":
            code = getattr(original, "sqlite_errorcode", None) or 0
            is_full = code == sqlite3.SQLITE_IOERR_SHMSIZE  # no room for the file beside it, on a sound disk
            return self._explain_sqlite(sqlite3.SQLITE_FULL if is_full else code & 0xFF, original)
        state = getattr(original, "sqlstate", None) or ""
        text = f"{self.where}: {str(original).strip()}"
        if state in _POSTGRESQL_MEND:
            what, mend = _POSTGRESQL_MEND[state]
            return BadInput(what, where=self.where, mend=mend, code="history.refused")
        # without a state there was no connection; libpq gives no code for the reason, only a message
        if state.startswith(_POSTGRESQL_RETRY) or (not state and isinstance(error, sa.exc.OperationalError)):
            return RetryLater(f"{text}. Check that the server runs", code="history.unreachable")
        return TellAdmin(f"{text}. The log of PostgreSQL may say more", code="history.database")

    def _explain_sqlite(self, code: int, original: Exception) -> AdvisorError:
        if code in _SQLITE_BUSY:
            return RetryLater(
                f"{self.where}: another process has been writing for more than {self._busy_seconds:g} s. "
                "Nothing was lost: try again",
                code="history.locked",
            )
        if code in _SQLITE_MEND:
            what, mend = _SQLITE_MEND[code]
            return BadInput(f"the database is {what}", where=self.where, mend=mend, code="history.unreadable")
        detail = _SQLITE_ADMIN.get(code, str(original))
        return TellAdmin(f"{self.where}: {detail}", code="history.database")


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun below, not by the driver
    for pragma in _SQLITE_PRAGMAS:
        connection.execute(pragma)


def _prepare_reader(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("advisor_writes")
    if writes:
        (mode,) = connection.exec_driver_sql("PRAGMA journal_mode").one()
        if mode != "wal":
            _switch_to_wal(connection)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _switch_to_wal(connection: Connection) -> None:
    """Let readers and the writer not wait for each other; the file keeps the mode."""
    try:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    except sa.exc.OperationalError as error:
        # the switch does not wait for locks: if two processes open a new file at once, the next writer
        # switches it; the transaction that follows does wait
        if (getattr(error.orig, "sqlite_errorcode", 0) & 0xFF) not in _SQLITE_BUSY:
            raise


def _version_in(connection: Connection) -> str | None:
    """The database's schema revision; None for an empty one."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return version
