"""Clusters that share one PostgreSQL: each has a schema of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from advisor.config import load
from advisor.history.store import HistoryStore
from advisor.model.errors import BadInput
from advisor.model.job import JobOutcome

Make = Callable[..., JobOutcome]


def url_of(database: str, cluster: str) -> str:
    settings = load(
        None, {"ADVISOR_CLUSTER__NAME": cluster, "ADVISOR_PATHS__DATABASE_URL": database}
    ).settings
    return settings.history_url


def test_two_clusters_in_one_postgresql_never_see_each_other(postgresql_url: str, make_outcome: Make) -> None:
    urls = [url_of(postgresql_url, name) for name in ("c1", "C-2.north")]
    with ThreadPoolExecutor(2) as pool:  # both begin at the same time
        first, second = pool.map(HistoryStore, urls)
    with first, second:
        first.add([make_outcome(1), make_outcome(2)])
        second.add([make_outcome(2, user="other")])
        first.set_cursor("slurm", "of the first")
        assert (first.count(), second.count()) == (2, 1)
        found = second.of_job(2)
        assert found is not None
        assert found.job.user == "other"
        assert (second.of_job(1), second.cursor("slurm")) == (None, None)
        with HistoryStore(urls[1], read_only=True) as reader:
            assert len(list(reader.outcomes())) == 1
    with (
        pytest.raises(BadInput, match="schema None"),
        HistoryStore(url_of(postgresql_url, "c3"), read_only=True),
    ):
        pass


def test_the_only_cluster_of_an_earlier_release_takes_its_history_along(
    postgresql_url: str, make_outcome: Make
) -> None:
    with HistoryStore(postgresql_url) as store:  # as it was: in the schema public
        store.add([make_outcome(1)])
    with pytest.raises(BadInput, match="of an earlier release") as refused:
        HistoryStore(url_of(postgresql_url, "c1"))
    statement = re.findall(r"run: (.*?)(?:;|$)", refused.value.mend)
    run_sql(postgresql_url, statement[0])
    with HistoryStore(url_of(postgresql_url, "c1")) as store:
        assert store.of_job(1) is not None
    with HistoryStore(url_of(postgresql_url, "c2")) as store:
        assert store.count() == 0


def test_another_cluster_leaves_the_history_of_an_earlier_release_alone(
    postgresql_url: str, make_outcome: Make
) -> None:
    with HistoryStore(postgresql_url) as store:
        store.add([make_outcome(1)])
    with pytest.raises(BadInput) as refused:
        HistoryStore(url_of(postgresql_url, "c2"))
    run_sql(postgresql_url, re.findall(r"run: (.*?)(?:;|$)", refused.value.mend)[1])
    with HistoryStore(url_of(postgresql_url, "c2")) as store:
        assert store.count() == 0


@pytest.mark.parametrize("name", ["a b", 'a"b', "x" * 64])
def test_a_schema_s_name_is_checked(postgresql_url: str, name: str) -> None:
    with pytest.raises(BadInput, match="name of a schema"):
        HistoryStore(f"{postgresql_url}&schema={name}")


def run_sql(url: str, statement: str) -> None:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()
