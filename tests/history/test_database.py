"""Opening, migrating, and everything that can be wrong with a database: each a clear error, nothing lost."""

from __future__ import annotations

import multiprocessing
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import advisor.history
from advisor.history import schema
from advisor.history.database import Database
from advisor.history.store import HistoryStore
from advisor.model.bill import PaidTime
from advisor.model.errors import BadInput, RetryLater, TellAdmin
from advisor.model.job import JobOutcome
from tests.full_disk import room_for

Make = Callable[..., JobOutcome]
MIGRATIONS = Path(advisor.history.__file__).parent / "migrations"


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def test_the_migrations_give_the_schema_of_the_code(url: str) -> None:
    database = Database(url)
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, schema.metadata) == []
    database.close()


def test_the_newest_migration_is_the_codes_version() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_current_head() == schema.SCHEMA_VERSION


def test_a_database_of_the_first_release_is_taken_up(url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(sa.text("INSERT INTO job_attempt VALUES ('slurm', 7, 10.0, 12.0, 20.0, 10.0, 0)"))
    engine.dispose()
    with HistoryStore(url) as store:
        (attempt,) = store.attempts([7])
    assert (attempt.job_id, attempt.start_time, attempt.partition) == (7, 12.0, None)


def test_day_one_10_a_database_without_paid_time_is_taken_up(url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        connection.execute(
            sa.text(
                "INSERT INTO job (source, job_id, submit_time, start_time, end_time, state, processors,"
                " processors_used, restarts, cost_usd) VALUES ('slurm', 7, 1.0, 2.0, 3.0, 'COMPLETED', 1, 1,"
                " 0, 0.5)"
            )
        )
    engine.dispose()
    paid = PaidTime(instance_id="i-1", node="burst1", since=0.0, until=3600.0, usd_per_hour=2.0)
    with HistoryStore(url) as store:
        assert (store.count(), store.bill().spent_usd) == (1, 0.0)
        for _ in range(2):  # told twice, as after a crash
            store.add_paid([paid])
        assert store.bill().idle_usd == 2.0


def test_opening_again_changes_nothing(url: str, make_outcome: Make) -> None:
    with HistoryStore(url) as store:
        store.add([make_outcome()])
    with HistoryStore(url) as store:
        assert store.count() == 1


def _open(url: str, barrier: object, answers: object) -> None:
    barrier.wait()
    try:
        HistoryStore(url).close()
        answers.put("opened")
    except BaseException as error:  # noqa: BLE001 - told to the parent process
        answers.put(repr(error))


def test_processes_that_open_a_new_database_at_once(url: str) -> None:
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(4), context.Queue()
    processes = [context.Process(target=_open, args=(url, barrier, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    assert [answers.get(timeout=60) for _ in processes] == ["opened"] * 4
    for process in processes:
        process.join()
    HistoryStore(url).close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(self: Database, connection: sa.Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE half_done (x INTEGER)")
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(Database, "_migrate", breaks)
        with pytest.raises(TellAdmin, match="ConnectionError") as caught:
            HistoryStore(url)
    assert caught.value.code == "history.migration"
    database = Database(url)
    with database.reading() as connection:
        assert not sa.inspect(connection).has_table("half_done")
    database.close()


def test_a_database_of_a_newer_release_is_left_alone(url: str) -> None:
    database = Database(url)
    with database.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(BadInput, match="newer release") as caught:
        HistoryStore(url)
    assert caught.value.code == "history.newer"
    with database.reading() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == "9999"
    database.close()


def test_an_error_inside_a_transaction_undoes_it(url: str) -> None:
    database = Database(url)

    def half_a_change() -> None:
        with database.writing() as connection:
            connection.execute(sa.insert(schema.ingest_cursor).values(source="a", value="b"))
            connection.exec_driver_sql("SELECT * FROM no_such_table")

    with pytest.raises(TellAdmin) as caught:
        half_a_change()
    assert caught.value.code == "history.database"
    with database.reading() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(schema.ingest_cursor)).scalar() == 0
    database.close()


def test_sqlite_is_set_up_for_many_processes(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    with database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 10_000
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    database.close()
    assert stat.S_IMODE(path_of(sqlite_url).stat().st_mode) & stat.S_IRWXO == 0


def test_a_locked_sqlite_file_is_waited_for_and_then_said(sqlite_url: str, make_outcome: Make) -> None:
    with HistoryStore(sqlite_url, busy_seconds=0.1) as store:
        store.add([make_outcome(1)])
        other = sqlite3.connect(path_of(sqlite_url), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RetryLater, match="another process") as caught:
            store.add([make_outcome(2)], cursor="later")
        assert caught.value.code == "history.locked"
        assert store.count() == 1  # reading goes on
        other.execute("ROLLBACK")
        other.close()
        assert store.add([make_outcome(2)]) == 1
        assert store.cursor("slurm") is None


def test_a_file_locked_while_it_is_new(sqlite_url: str) -> None:
    other = sqlite3.connect(path_of(sqlite_url), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(RetryLater) as caught:
        HistoryStore(sqlite_url, busy_seconds=0.05)
    assert caught.value.code == "history.locked"
    other.close()
    HistoryStore(sqlite_url).close()


def test_a_locked_postgresql_table_is_waited_for_and_then_said(
    postgresql_url: str, make_outcome: Make
) -> None:
    with HistoryStore(postgresql_url, busy_seconds=0.1) as store:
        blocker = Database(postgresql_url)
        with blocker.writing() as connection:
            connection.exec_driver_sql("LOCK TABLE job IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(RetryLater):
                store.add([make_outcome(1)])
        blocker.close()
        assert store.add([make_outcome(1)]) == 1


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file or directory") as caught:
        HistoryStore(f"sqlite:///{tmp_path}/missing/history.db")
    assert caught.value.code == "history.unreadable"
    assert "folder" in caught.value.mend


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        HistoryStore(f"sqlite:///{tmp_path}")
    assert caught.value.code == "history.unreadable"


def test_another_file_of_that_name(sqlite_url: str) -> None:
    path_of(sqlite_url).write_text("this is no database, whatever its name says" * 100)
    with pytest.raises(BadInput, match="not an SQLite database"):
        HistoryStore(sqlite_url)
    assert path_of(sqlite_url).read_text().startswith("this is no database")


def test_a_damaged_file(sqlite_url: str, make_outcome: Make) -> None:
    with HistoryStore(sqlite_url) as store:
        store.add([make_outcome(i) for i in range(1000)])
    content = bytearray(path_of(sqlite_url).read_bytes())
    content[4096 * 3 :] = b"\xee" * (len(content) - 4096 * 3)
    path_of(sqlite_url).write_bytes(content)
    with pytest.raises(TellAdmin) as caught, HistoryStore(sqlite_url) as store:
        list(store.outcomes())
    assert caught.value.code == "history.database"
    assert "damaged" in str(caught.value)


def test_no_right_to_the_file(open_folder: Path, without_rights) -> None:
    url = f"sqlite:///{open_folder / 'history.db'}"
    HistoryStore(url).close()
    with without_rights(), pytest.raises(BadInput, match="Permission denied"):
        HistoryStore(url)
    with without_rights(), pytest.raises(BadInput, match="Permission denied"):
        HistoryStore(f"sqlite:///{open_folder / 'new.db'}")


def test_a_file_that_may_only_be_read(open_folder: Path, without_rights, make_outcome: Make) -> None:
    path = open_folder / "history.db"
    with HistoryStore(f"sqlite:///{path}") as store:
        store.add([make_outcome(1)])
    path.chmod(0o444)
    with without_rights(), pytest.raises(BadInput) as caught, HistoryStore(f"sqlite:///{path}") as store:
        store.add([make_outcome(2)])
    assert caught.value.code == "history.unreadable"
    assert "Run the command as the service's user" in caught.value.mend
    with HistoryStore(f"sqlite:///{path}") as store:
        assert [outcome.job.job_id for outcome in store.outcomes()] == [1]


def test_a_read_only_connection(sqlite_url: str, make_outcome: Make) -> None:
    with HistoryStore(sqlite_url) as store:
        store.add([make_outcome(1)])
    read_only = f"sqlite:///file:{path_of(sqlite_url)}?mode=ro&uri=true"
    with HistoryStore(read_only) as store:
        assert store.count() == 1
        with pytest.raises(BadInput, match="read-only"):
            store.add([make_outcome(2)])


def test_a_full_disk_loses_nothing(sqlite_url: str, make_outcome: Make) -> None:
    with HistoryStore(sqlite_url) as store:
        store.add([make_outcome(1)])
        pages = 0
        with store._database.reading() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

        def limit(connection: sqlite3.Connection, *_: object) -> None:
            connection.execute(f"PRAGMA max_page_count={pages + 2}")

        engine = store._database._opened()
        engine.dispose()
        sa.event.listen(engine, "connect", limit)
        with pytest.raises(TellAdmin, match="disk is full"):
            store.add([make_outcome(i, name="x" * 2000) for i in range(500)])
        assert store.count() == 1


def test_a_history_that_is_opened_on_a_full_disk_is_on_no_broken_one(
    sqlite_url: str, make_outcome: Make
) -> None:
    """SQLite finds no room for the file beside it: the admin was sent for another disk."""
    with HistoryStore(sqlite_url) as store:
        store.add([make_outcome(1)])
    with room_for(1000), pytest.raises(TellAdmin, match="disk is full"), HistoryStore(sqlite_url) as store:
        store.count()


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "mysql://host/name", "sqlite://", "sqlite:///:memory:", "oracle://secret:word@host/x"],
)
def test_urls_that_are_not_understood(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        HistoryStore(url)
    assert "secret" not in str(caught.value)
    assert "word" not in str(caught.value)


def test_postgresql_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RetryLater) as caught:
        HistoryStore(f"postgresql://advisor:secret@/x?host={tmp_path}", busy_seconds=1)
    assert caught.value.code == "history.unreachable"
    assert "secret" not in str(caught.value)


def test_postgresql_without_that_database(postgresql: str) -> None:
    with pytest.raises(RetryLater, match="does not exist"):
        HistoryStore(postgresql.replace("/postgres?", "/missing?"))


def test_postgresql_that_only_reads(postgresql_url: str) -> None:
    database = Database(postgresql_url)
    with database.writing() as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    database.close()
    with HistoryStore(postgresql_url) as store, pytest.raises(BadInput, match="read-only") as caught:
        store.set_cursor("a", "b")
    assert caught.value.mend == "Give the URL of the primary server"


def test_a_relative_path_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    HistoryStore("sqlite:///here.db").close()
    assert Path("here.db").exists()


def cut_page(path: Path) -> None:
    """The file begins well: it is found to be damaged when it is read."""
    with HistoryStore(f"sqlite:///{path}") as store:
        store.set_cursor("a", "b")
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 20_000)


def locked_down(path: Path) -> None:
    path.mkdir()


def a_newer_release(path: Path) -> None:
    with HistoryStore(f"sqlite:///{path}"):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"garbage" * 10_000),
        lambda path: path.symlink_to("/nonexistent/history.db"),
        cut_page,
        locked_down,
        a_newer_release,
    ],
)
def test_d4_a_history_that_is_broken_is_tried_again_until_it_is_mended(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "history.db"
    damage(path)
    store = HistoryStore(f"sqlite:///{path}", later=True)
    for _ in range(3):
        with pytest.raises(TellAdmin) as caught:
            store.count()
        assert caught.value.code.startswith("history.")
    path.rename(tmp_path / "aside")
    assert store.count() == 0  # the first that could be opened
    assert not store.was_replaced
    store.set_cursor("x", "y")
    store.close()


def test_d4_a_history_that_is_moved_away_while_it_is_open_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    store = HistoryStore(f"sqlite:///{path}", later=True)
    store.set_cursor("x", "1")
    assert not store.was_replaced
    path.rename(tmp_path / "aside")
    assert store.cursor("x") is None
    assert store.was_replaced
    store.close()


def test_d4_an_address_that_makes_no_sense_is_said_at_the_first_use() -> None:
    store = HistoryStore("mysql://somewhere", later=True)
    with pytest.raises(BadInput) as caught:
        store.count()
    assert caught.value.code == "history.url"
    store.close()
