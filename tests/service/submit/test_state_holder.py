"""What is known is swapped as a whole, and the last good value survives what can't be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from advisor.model.cluster import ClusterState
from advisor.model.errors import TellAdmin
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.service.exchange import snapshot
from advisor.service.submit import state_holder
from advisor.service.submit.state_holder import LoadedModel, LoadModel, StateHolder
from tests.service.site import FixedEstimator, make_settings, make_snapshot


def never(_version: str | None) -> LoadedModel | None:
    return None


def test_takes_a_new_snapshot_and_keeps_the_last_good_one(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    holder = StateHolder(settings, load_model=never)
    holder.refresh()
    assert holder.current.snapshot is None
    assert holder.errors == {}
    first = make_snapshot()
    snapshot.write(settings.paths.snapshot, first)
    holder.refresh()
    assert holder.current.snapshot == first
    kept = holder.current
    holder.refresh()
    assert holder.current is kept, "nothing new, nothing swapped"
    settings.paths.snapshot.write_bytes(b"damaged")
    for _ in range(3):
        holder.refresh()
    assert holder.current.snapshot == first
    assert holder.errors == {"snapshot.unreadable": 1}, "reported once, not at every look"
    second = make_snapshot(now=5.0)
    snapshot.write(settings.paths.snapshot, second)
    holder.refresh()
    assert holder.current.snapshot == second


def test_a_snapshot_that_cannot_be_made_ready_is_used_all_the_same(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    holder = StateHolder(settings, load_model=never)
    holder.make_ready = Mock(side_effect=ValueError("a defect"))
    snapshot.write(settings.paths.snapshot, make_snapshot())
    holder.refresh()
    assert holder.current.snapshot is not None
    assert holder.errors == {"snapshot.not_made_ready": 1}


def test_a_model_is_rehearsed_before_it_is_used(tmp_path: Path) -> None:
    used: list[LoadedModel | None] = []
    asked: list[str | None] = []

    class Rehearsed(FixedEstimator):
        def estimate(self, job: Job, state: ClusterState) -> Estimates:
            used.append(holder.current.model)
            return super().estimate(job, state)

    estimator = Rehearsed()

    def load(version: str | None) -> LoadedModel | None:
        asked.append(version)
        return LoadedModel("7", estimator) if version is None else None

    holder = StateHolder(make_settings(tmp_path), load_model=load)
    holder.refresh()
    assert holder.current.model == LoadedModel("7", estimator)
    assert len(used) > 10
    assert set(used) == {None}
    holder.use_settings(make_settings(tmp_path))
    holder.refresh()
    assert asked == [None, "7"]


@pytest.mark.parametrize("broken", ["loading", "rehearsal"])
def test_a_broken_model_is_never_used_and_hurts_nothing_else(tmp_path: Path, broken: str) -> None:
    def load(_version: str | None) -> LoadedModel | None:
        if broken == "loading":
            raise TellAdmin("models: damaged", code="models.damaged")
        return LoadedModel("8", FixedEstimator(fails=True))

    settings = make_settings(tmp_path)
    snapshot.write(settings.paths.snapshot, make_snapshot())
    holder = StateHolder(settings, load_model=load)
    holder.want_group(0)
    holder.refresh()
    assert holder.current.model is None
    assert holder.errors == {"models.damaged" if broken == "loading" else "watcher.failed": 1}
    assert holder.current.snapshot is not None
    assert holder.current.group_names == {0: "root"}


def test_a_group_without_a_name_is_its_number(tmp_path: Path) -> None:
    holder = StateHolder(make_settings(tmp_path), load_model=never)
    holder.want_group(987_654)
    holder.refresh()
    assert holder.current.group_names == {987_654: "987654"}


def test_a_group_whose_name_could_not_be_had_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    holder = StateHolder(make_settings(tmp_path), load_model=never, monotonic=lambda: now[0])
    holder.want_group(987_654)
    holder.refresh()  # sssd is not up yet
    monkeypatch.setattr(state_holder, "group_name", lambda _: "physics")
    holder.refresh()
    assert holder.current.group_names == {987_654: "987654"}
    now[0] += 600.0
    holder.refresh()
    assert holder.current.group_names == {987_654: "physics"}


def test_watches_in_the_background(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    holder = StateHolder(settings, load_model=never)
    holder.start()
    snapshot.write(settings.paths.snapshot, make_snapshot())
    for _ in range(500):
        if holder.current.snapshot is not None:
            break
        holder._stop.wait(0.01)
    holder.stop()
    assert holder.current.snapshot is not None


def test_what_slurm_says_of_requeueing_holds(tmp_path: Path) -> None:
    """A site with JobRequeue=0: nothing is put on spot only because nobody told us."""
    settings = make_settings(tmp_path)
    assert settings.cluster.requeue_default
    holder = StateHolder(settings, load_model=lambda _version: None)
    for said, holds in ((False, False), (None, False), (True, True), (False, False)):
        snapshot.write(settings.paths.snapshot, replace(make_snapshot(), job_requeue=said))
        holder.refresh()
        assert holder.current.settings.cluster.requeue_default is holds
    holder.use_settings(settings)  # a reload changes nothing about slurm.conf
    assert not holder.current.settings.cluster.requeue_default


def test_new_settings_bring_their_own_models(tmp_path: Path) -> None:
    """The same version on disk, but cut elsewhere: `systemctl reload` is enough."""
    asked: list[tuple[str, str | None]] = []

    def loader(name: str) -> LoadModel:
        def load(version: str | None) -> LoadedModel | None:
            asked.append((name, version))
            return LoadedModel("1", FixedEstimator(wait=len(asked))) if version is None else None

        return load

    settings = make_settings(tmp_path)
    holder = StateHolder(settings, load_model=loader("old"))
    holder.refresh()
    before = holder.current.model
    holder.use_settings(settings, loader("new"))
    assert holder.current.model is before  # until the new one is loaded
    holder.refresh()
    assert asked == [("old", None), ("new", None)]
    assert holder.current.model is not before
    holder._next_model_look = 0.0
    holder.refresh()
    assert asked[-1] == ("new", "1")
