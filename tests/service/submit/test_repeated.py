"""Kept answers are those that would be worked out anew: as a whole, and for a loop of any length."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.decide.explanation.admin_comment import ADMIN_COMMENT_LIMIT
from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.record import record_of
from advisor.model import Earned
from advisor.model.settings import PlacementSettings, Settings
from advisor.model.settings_section import for_reading
from advisor.predict.forecast.forecast_rows import forecast_rows
from advisor.predict.forecast.rolling import RollingForests
from advisor.service.exchange.protocol import AdviseRequest
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.submit.answering import Answerer
from advisor.service.submit.repeated import Answered, RepeatedMoves
from tests.service.placement_world import OPTIONS, Site, job_of, make_log
from tests.service.site import Clock, FixedEstimator, ask, make_answerer, make_settings, make_snapshot


@pytest.fixture(scope="module")
def forests() -> RollingForests:
    table, rolling = make_log(), RollingForests(OPTIONS)
    forecast_rows(table, np.arange(len(table)), OPTIONS, rolling=rolling)
    return rolling


class Asked:
    """An answerer of a live site, and the same that works each answer out anew."""

    def __init__(self, forests: RollingForests, settings: Settings, snapshot: Snapshot) -> None:
        self.clock = Clock(snapshot.state.time)
        self.kept, self.anew = (self._answerer(forests, settings, snapshot) for _ in range(2))
        self.anew._id_prefix = self.kept._id_prefix
        self.again = 0

    def _answerer(self, forests: RollingForests, settings: Settings, snapshot: Snapshot) -> Answerer:
        site = Site(make_log(), forests)
        site.look(float(site.table.submit[300]))
        site.follow()
        self.site = site
        answerer, holder = make_answerer(settings, snapshot, FixedEstimator(), self.clock)
        holder.placement.current = site.live
        return answerer

    def answer(self, request: AdviseRequest) -> Answered:
        self.anew._repeated = RepeatedMoves()
        before = self.kept._repeated._kept.copy()
        answered, expected = self.kept.answer(request), self.anew.answer(request)
        assert repr(answered) == repr(expected)  # NaN is unlike itself
        known = before.get(id(answered.record.estimates))
        self.again += known is not None and answered.record.advice.answers is known.moved.advice.answers
        return answered


def settings_of(folder: Path, **sections: Any) -> Settings:
    settings = make_settings(folder, **sections)
    return settings.model_copy(
        update={"placement": PlacementSettings(rule="advisor", boot_seconds=1.0, exposure_share=0.5)}
    )


def snapshot_of(time: float, settings: Settings, **cloud: Any) -> Snapshot:
    snapshot = make_snapshot(time, on_demand_usd_per_core_hour=0.1, **cloud)
    record = record_of(Earned(saved_seconds=1e7), settings.placement)
    return dataclasses.replace(snapshot, state=replace(snapshot.state, record=record))


@pytest.fixture
def time(forests: RollingForests) -> float:
    site = Site(make_log(), forests)
    return site.table.start_of_log + float(site.table.submit[300])


@pytest.mark.parametrize(
    ("sections", "cloud", "least_kept"),
    [
        ({}, {}, 500),
        ({"waiting": {"daily_cap_usd": 400.0}}, {"reserved_free_nodes": 40}, 200),
        ({"hedge": {"enabled": True, "by_default": True}}, {}, 0),
    ],
)
def test_they_are_those_worked_out_anew(
    forests: RollingForests,
    tmp_path: Path,
    time: float,
    sections: dict[str, Any],
    cloud: dict[str, Any],
    least_kept: int,
) -> None:
    settings = settings_of(tmp_path, **sections)
    asked = Asked(forests, settings, snapshot_of(time, settings, **cloud))
    draw, said = random.Random(4), Counter[str]()
    user = job_of(asked.site.table, 250).user
    for loop in range(60):
        words = {
            "user": draw.choice((user, "somebody new")),
            "min_cpus": draw.choice((1, 2, 8)),
            "time_limit": draw.choice((30, 600)),
            "requeue": draw.choice((True, None)),
            "features": draw.choice((None, None, "x86")),
            "account": draw.choice((None, "physics")),
        }
        for number in range(draw.choice((1, 5, 50))):
            asked.clock.now += draw.choice((0.0, 0.004))
            name = draw.choice(("wrap", f"run_{loop}_{number}"))
            request = ask(**words, name=name, seq=number, dry=draw.random() < 0.05)
            if draw.random() < 0.1:  # somebody else in between
                asked.answer(ask(user="another", name="alone", comment=draw.choice((None, "no-burst"))))
            said[asked.answer(request).reply.reason] += 1
    assert asked.again > least_kept if least_kept else asked.again == 0
    assert (said[Reason.DAILY_CAP] > 50) is ("waiting" in sections)
    assert len(said) >= 3


def test_they_end_with_what_is_known(forests: RollingForests, tmp_path: Path, time: float) -> None:
    settings = settings_of(tmp_path)
    asked = Asked(forests, settings, snapshot_of(time, settings))
    for _ in range(3):
        assert asked.answer(ask()).reply.prefer == "spot"
    assert asked.again == 1, "the third: two in a row say that it is a loop"
    closed = snapshot_of(time, settings, spot_open=False)
    for answerer in (asked.kept, asked.anew):
        holder = answerer._holder
        holder.current = dataclasses.replace(holder.current, snapshot=closed)
    for _ in range(3):
        assert asked.answer(ask()).reply.prefer == "on-demand"
    silent = make_settings(tmp_path, submit={"tell_user": False}).submit
    for answerer in (asked.kept, asked.anew):
        holder = answerer._holder
        changed = settings.model_copy(update={"submit": silent})
        holder.current = dataclasses.replace(holder.current, settings=for_reading(changed))
    for _ in range(3):
        assert asked.answer(ask()).reply.message is None
    assert asked.again == 1 + 2 + 2, "the estimates are the same ones, and two in a row had asked already"


def test_a_constraint_of_the_same_words_is_repeated_as_its_user_wrote_it(
    forests: RollingForests, tmp_path: Path, time: float
) -> None:
    settings = settings_of(tmp_path)
    asked = Asked(forests, settings, snapshot_of(time, settings))
    for features in ("x86", "x86", "x86", "x86&"):
        assert asked.answer(ask(features=features)).reply.prefer == f"{features}&spot"
    assert asked.again == 1


def test_an_admin_comment_is_worked_out_anew_where_the_id_grows(
    forests: RollingForests, tmp_path: Path, time: float
) -> None:
    """One that is as long as may be: of a longer id it leaves a number out."""

    def answers(name: str) -> list[str]:
        settings = settings_of(tmp_path)
        cluster = settings.cluster.model_copy(update={"on_premise_partitions": ("onprem", name)})
        settings = settings.model_copy(update={"cluster": cluster})
        asked = Asked(forests, settings, snapshot_of(time, settings))
        for answerer in (asked.kept, asked.anew):
            answerer._ids = itertools.count(13)
        return [
            asked.answer(ask(default_partition=name)).reply.admin_comment or "" for _ in range(4)
        ]  # d, e, f, 10

    short = answers("l" * 100)
    longest = answers("l" * (100 + ADMIN_COMMENT_LIMIT - 1 - len(short[0])))
    assert [len(comment) for comment in short] == [len(short[0])] * 3 + [len(short[0]) + 1]
    assert len(longest[2]) == ADMIN_COMMENT_LIMIT - 1
    assert len(longest[3]) < ADMIN_COMMENT_LIMIT - 1
