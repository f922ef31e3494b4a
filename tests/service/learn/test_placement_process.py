"""A real `advisor serve` decides by the advisor's own rule as soon as a trained site hands forests over."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from advisor.cli.main import app
from advisor.decide.submission.placement import PUBLISHED_INSTEAD
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.advice import Question
from advisor.model.settings import ClusterSettings, Settings
from advisor.predict.forecast.calibration import GRACE_SECONDS
from advisor.service.exchange import snapshot, status_file
from advisor.service.exchange.spool import complete_files
from advisor.service.learn.placement_loop import PlacementLoop
from advisor.service.running.clock import Clock
from tests.service.placement_world import OPTIONS, QUEUES, look_at, make_log, outcomes_between
from tests.service.processes import ServeProcess
from tests.service.site import make_cluster, make_settings, make_snapshot

_ROW = 300
_PATIENCE_SECONDS = 120.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = make_settings(tmp_path, submit={"snapshot_max_age_seconds": 600.0})
    settings.paths.models.mkdir(mode=0o700)
    return settings.model_copy(
        update={"cluster": ClusterSettings(on_premise_partitions=QUEUES, policy="advisor")}
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "advisor.toml"
    path.write_text(f'[cluster]\non_premise_partitions = {list(QUEUES)}\npolicy = "advisor"\n')
    return path


class ControlSide:
    """What `advisor control` does about placement, with a log for a Slurm."""

    def __init__(self, settings: Settings, store: HistoryStore) -> None:
        self.settings = settings
        table = make_log()
        self.table = replace(table, start_of_log=float(np.floor(time.time() - table.submit[_ROW])))
        self.now = float(self.table.submit[_ROW])
        self.loop = PlacementLoop(
            settings,
            store=store,
            models=ModelStore(folder=settings.paths.models),
            clock=Clock(),
            options=OPTIONS,
            record_jobs=300,
        )
        self.store = store

    def round(self, *, jobs_until: float) -> None:
        self.store.add(outcomes_between(self.table, -1.0, jobs_until), source="slurm")
        for step in self.loop.steps():
            step.run()
        self.loop.saw(look_at(self.table, self.now), make_cluster(total_processors=128))
        found = make_snapshot(now=time.time())
        state = structs.replace(found.state, record=self.loop.record)
        snapshot.write(self.settings.paths.snapshot, replace(found, state=state))
        content = {"time": time.time(), "placement": self.loop.report()}
        status_file.write(self.settings.paths.run, content)


def records(settings: Settings) -> list[AdviceRecord]:
    return [record for file in complete_files(settings.paths.spool) for record in file.records]


def notes_of(capsys: pytest.CaptureFixture[str], config: Path, settings: Settings) -> list[str]:
    import json
    import os
    from unittest.mock import patch

    paths = {"ADVISOR_PATHS__RUN": str(settings.paths.run), "ADVISOR_PATHS__STATE": str(settings.paths.state)}
    with patch.dict(os.environ, paths):
        app(["status", "--config", str(config), "--format", "json"], standalone_mode=False)
    found: list[str] = json.loads(capsys.readouterr().out.splitlines()[-1])["notes"]
    return found


def test_published_at_first_then_the_advisors_own(
    settings: Settings, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        HistoryStore(settings.paths.history_url) as store,
        ServeProcess(settings, config=config) as process,
    ):
        control = ControlSide(settings, store)
        for _ in range(2):
            control.round(jobs_until=float(control.table.submit[40]))
        process.start()
        with process.client() as client:
            client.advise(user="user1", name="name2", min_cpus=4, time_limit=60)
            assert any("published placement rule" in each for each in notes_of(capsys, config, settings))
            for _ in range(2):
                control.round(jobs_until=control.now)
            pause, deadline = threading.Event(), time.monotonic() + _PATIENCE_SECONDS
            while client.advise(user="user1", min_cpus=4, dry=True).reason == "turnaround.wait_unknown":
                assert time.monotonic() < deadline
                pause.wait(0.1)
            for processors in range(1, 41):
                client.advise(user="user1", name="name2", min_cpus=processors, time_limit=60)
        assert not any("published" in each for each in notes_of(capsys, config, settings))
        assert process.stop() == 0
    given = records(settings)
    assert len(given) == 41
    assert PUBLISHED_INSTEAD in {answer.detail for answer in given[0].advice.answers}
    assert not given[0].estimates.run.quantiles
    for record in given[1:]:
        assert len(record.estimates.wait.quantiles) == len(record.estimates.run.quantiles) == 20
        assert record.estimates.run.upper <= 3600.0 + GRACE_SECONDS
        answer = next(each for each in record.advice.answers if each.question is Question.FASTER)
        assert "win_probability" in dict(answer.numbers)
        assert answer.detail != PUBLISHED_INSTEAD
    assert len({record.estimates.wait.seconds for record in given[1:]}) > 5, "each sees the jobs before it"
