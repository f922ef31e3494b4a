"""Money of moved jobs that wait for a node is not forgotten between the answer and the launch."""

from __future__ import annotations

import dataclasses
import math

import pytest
from msgspec.structs import replace

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.model.advice import Capacity, Hedge, HedgeKind
from advisor.model.site import CloudState
from advisor.model.snapshot import QueuedJob
from advisor.service.observation.committed import with_committed
from tests.decide.cases import ask, make_job, make_settings
from tests.service.doubles import make_queued

SETTINGS = make_settings(cluster={"default_mode": "act"})
CLOUD = CloudState(
    boot_seconds=600.0,
    spot_usd_per_core_hour=0.1,
    on_demand_usd_per_core_hour=0.3,
    processors_per_node=4,
    reserved_free_nodes=5,
    spent_usd=2.0,
)


def waits(job_id: int, capacity: Capacity = Capacity.SPOT, **changes: object) -> QueuedJob:
    advice = replace(ask(), capacity=capacity)
    assert advice.partition == "burst"
    fields = {"queue": "burst", "processors": 4, "account": "law", "admin_comment": admin_comment(advice)}
    return make_queued(job_id, **(fields | changes))


def test_what_waits_counts_until_its_node_is_launched() -> None:
    run = ask().number("predicted_cloud_run")
    assert run is not None
    usd = 4 * (600.0 + run) / 3600.0 * 0.1
    found = with_committed(CLOUD, [waits(1), waits(2, array_tasks=3, account=None)], SETTINGS)
    assert (found.spent_usd, found.promised_usd) == (2.0, pytest.approx(4 * usd, rel=1e-3))
    assert found.promised_by_account["law"] == pytest.approx(usd, rel=1e-3)
    assert found.reserved_free_nodes == 5


def test_reserved_nodes_are_taken_by_who_waits_for_them() -> None:
    found = with_committed(CLOUD, [waits(1, Capacity.RESERVED, processors=8)], SETTINGS)
    assert (found.reserved_free_nodes, found.promised_usd) == (3, 0.0)


def test_a_job_that_needs_nodes_for_its_memory_is_counted_with_all_of_them() -> None:
    cloud = replace(CLOUD, memory_mb_per_node=4_000)
    queued = dataclasses.replace(waits(1, Capacity.RESERVED), memory_mb=6_000)
    found = with_committed(cloud, [queued], SETTINGS)
    assert found.reserved_free_nodes == 3


@pytest.mark.parametrize(
    "other",
    [
        {"state": "CONFIGURING"},  # its node is promised its money
        {"queue": "onprem", "partitions": ("onprem",)},
        {"admin_comment": ""},
        {"reason": "AssocGrpCpuLimit"},  # it does not start yet
        {"admin_comment": admin_comment(ask(make_job(queue="burst", explicit_partition=True)))},
    ],
)
def test_nobody_else_counts(other: dict[str, object]) -> None:
    assert with_committed(CLOUD, [waits(1, **other)], SETTINGS) is CLOUD


def test_a_second_run_counts_to_its_own_stop() -> None:
    """The AdminComment has the stop of the first one."""
    settings = make_settings(cluster={"default_mode": "act"}, budget={"usd": 10.0})
    hedge = Hedge(kind=HedgeKind.SLICE, stop_seconds=240.0)
    comment = admin_comment(replace(ask(), capacity=Capacity.ON_DEMAND, hedge=hedge))
    again = waits(1, admin_comment=comment, requested_time=7200.0, restarts=1)
    for stop, seconds in ((None, 300.0), (1140.0, 1200.0), (math.inf, 7200.0)):
        found = with_committed(CLOUD, [again], settings, lambda _job_id, stop=stop: stop)
        assert found.promised_usd == pytest.approx(4 * (600.0 + seconds) / 3600.0 * 0.3)


def test_under_a_budget_spot_counts_as_its_launch_will_be_asked_for_it() -> None:
    """Jobs were moved whose launch the budget refused, and they came back."""
    settings = make_settings(cluster={"default_mode": "act"}, budget={"usd": 10.0})
    found = with_committed(CLOUD, [waits(1, requested_time=3600.0)], settings)
    assert found.promised_usd == pytest.approx(4 * (600.0 + 3600.0) / 3600.0 * 0.3)
