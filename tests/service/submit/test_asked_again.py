"""A waiting job is asked again: the same `advise`, the wait behind it, itself not in the queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.model.advice import Mode, Placement
from advisor.model.job import Job
from advisor.service.exchange.protocol import (
    VERSION,
    AgainRequest,
    ProtocolError,
    decode_request,
    encode_line,
)
from tests.service.site import (
    NOW,
    Clock,
    FixedEstimator,
    make_answerer,
    make_cluster,
    make_settings,
    make_snapshot,
)

DAY = 86_400.0


def waiting(**fields: Any) -> AgainRequest:
    said = {
        "job_id": 7,
        "submit_time": NOW - 3600.0,
        "processors": 2,
        "queue": "onprem",
        "requested_time": 600.0,
    }
    return AgainRequest(v=VERSION, seq=3, job=Job(**(said | fields)))


def test_g17_12_a_job_that_stayed_goes_when_the_queue_has_got_worse(tmp_path: Path) -> None:
    estimator = FixedEstimator(wait=600.0, run=7200.0)
    settings = make_settings(
        tmp_path,
        policy="ambati2021",
        waiting={"short_wait_seconds": 4 * 3600.0, "long_job_seconds": 900.0},
    )
    answerer, _ = make_answerer(settings, make_snapshot(), estimator, Clock())
    stays = answerer.again(waiting())
    assert (stays.reply.seq, stays.reply.placement, stays.reply.partition) == (3, "on-premise", None)
    assert stays.reply.reason == "waiting.long_job_in_time"
    estimator.wait = 3 * 3600.0 + 1.0  # of four hours one is over
    goes = answerer.again(waiting())
    assert (goes.reply.placement, goes.reply.partition) == ("burst", "burst")
    recorded = parse_admin_comment(goes.reply.admin_comment)
    assert recorded is not None
    assert recorded.advice_id == goes.record.advice.advice_id == goes.reply.id
    assert recorded.numbers["waited"] == 3600.0
    assert goes.record.job == waiting().job


def test_it_does_not_wait_for_itself_and_is_forecast_as_of_now(tmp_path: Path) -> None:
    estimator = FixedEstimator()
    cluster = make_cluster(queue_size=1, queued_work_core_seconds=1200.0)
    answerer, _ = make_answerer(make_settings(tmp_path), make_snapshot(cluster=cluster), estimator, Clock())
    answerer.again(waiting())
    ((job, state),) = estimator.seen
    assert (state.queue_size, state.queued_work_core_seconds) == (0, 0.0)
    assert job.submit_time == NOW


def test_money_that_it_will_take_is_promised(tmp_path: Path) -> None:
    """Of two that fit the day's cap one by one the second stays; who stays promises nothing."""
    settings = make_settings(tmp_path, budget={"usd": 0.01}, waiting={"short_wait_seconds": DAY})
    prices = {"spot_usd_per_core_hour": 0.01, "on_demand_usd_per_core_hour": 0.01}
    estimator = FixedEstimator(wait=2 * DAY)
    answerer, _ = make_answerer(settings, make_snapshot(**prices), estimator, Clock())
    assert answerer.again(waiting()).record.advice.placement is Placement.BURST
    again = answerer.again(waiting(job_id=8))
    assert (again.record.advice.placement, again.reply.reason) == (Placement.ON_PREMISE, "budget.spent")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"explicit_partition": True}, "rule.explicit_partition"),
        ({"comment": "no-burst"}, "rule.opt_out_comment"),
        ({"interactive": True}, "rule.interactive"),
    ],
)
def test_question_1_holds_again(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    settings = make_settings(tmp_path, waiting={"short_wait_seconds": 60.0})
    answerer, _ = make_answerer(settings, make_snapshot(), FixedEstimator(), Clock())
    assert answerer.again(waiting(**fields)).reply.reason == reason


def test_in_shadow_mode_nothing_is_to_be_changed(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, mode=Mode.SHADOW, waiting={"short_wait_seconds": 60.0})
    answerer, _ = make_answerer(settings, make_snapshot(), FixedEstimator(), Clock())
    reply = answerer.again(waiting()).reply
    assert (reply.placement, reply.partition, reply.mode) == ("burst", None, "shadow")


def test_a_constraint_is_repeated_in_what_is_required(tmp_path: Path) -> None:
    """A job that may not be requeued is kept off spot, and keeps what its user asked for."""
    settings = make_settings(tmp_path, waiting={"short_wait_seconds": 60.0})
    answerer, _ = make_answerer(settings, make_snapshot(), FixedEstimator(), Clock())
    reply = answerer.again(waiting(features=("x86",), requeue=False)).reply
    assert (reply.partition, reply.features) == ("burst", "x86&on-demand")


def test_the_question_survives_the_socket() -> None:
    request = waiting(features=("x86",), comment="naïve", requested_time=None)
    assert decode_request(encode_line(request)) == request


@pytest.mark.parametrize(
    "fields",
    [
        {"processors": 0},
        {"processors": -5},
        {"processors": 10**30},
        {"array_tasks": 0},
        {"task_processors": 0},
        {"nodes": 0},
        {"most_nodes": 2**60},
        {"submit_time": -1.0},
        {"submit_time": 1e308},
        {"requested_time": -600.0},
        {"memory_mb": -1},
    ],
)
def test_g17_12_a_job_without_sense_is_refused_and_promises_nothing(fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="out of range"):
        decode_request(encode_line(waiting(**fields)))
