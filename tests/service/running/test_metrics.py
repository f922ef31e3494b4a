"""What `advisor control` shows: its own numbers and the submit server's."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from advisor.model.errors import RetryLater
from advisor.model.estimate import Estimate
from advisor.service.running.metrics import ControlMetrics, ServeMetrics
from tests.service.site import Clock, FixedEstimator, ask, make_answerer, make_settings, make_snapshot

BOUNDS = ("0.0001", "0.0002", "0.0003", "0.1", "+Inf")


def value(text: str, line: str) -> float:
    match = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
    assert match, line
    return float(match[1])


def test_prediction_error_bias_and_coverage() -> None:
    metrics = ControlMetrics()
    good = Estimate(seconds=100.0, variance=1.0, lower=50.0, upper=200.0)
    metrics.observe_prediction("wait", good, 130.0)
    metrics.observe_prediction("wait", good, 500.0)
    metrics.observe_prediction("wait", Estimate(seconds=math.nan, variance=math.inf), 5.0)
    metrics.observe_prediction("run", good, math.nan)
    text = metrics.exposition(lambda: "").decode()
    assert value(text, 'advisor_prediction_error_seconds_sum{what="wait"}') == 430.0
    assert value(text, 'advisor_prediction_bias_seconds{what="wait"}') == -430.0
    assert value(text, 'advisor_prediction_inside_interval_total{what="wait"}') == 1.0
    assert value(text, 'advisor_prediction_unusable_total{what="wait"}') == 1.0
    assert value(text, 'advisor_prediction_unusable_total{what="run"}') == 1.0


def test_advice_is_counted_by_decision_and_latency(tmp_path: Path) -> None:
    metrics = ServeMetrics()
    answerer, _ = make_answerer(make_settings(tmp_path), make_snapshot(), FixedEstimator(), Clock())
    for request, seconds in ((ask(), 0.0002), (ask(), 0.00025), (ask(comment="no-burst"), 3.0)):
        metrics.advised(request, answerer.answer(request).reply, seconds)
    text = metrics.text()
    moved = 'advisor_serve_advice_total{mode="act",placement="burst",reason="capacity.spot"}'
    kept = 'advisor_serve_advice_total{mode="act",placement="on-premise",reason="rule.opt_out_comment"}'
    assert (value(text, moved), value(text, kept)) == (2.0, 1.0)
    buckets = {bound: value(text, f'advisor_serve_advice_seconds_bucket{{le="{bound}"}}') for bound in BOUNDS}
    assert buckets == {"0.0001": 0.0, "0.0002": 1.0, "0.0003": 2.0, "0.1": 2.0, "+Inf": 3.0}
    assert value(text, "advisor_serve_advice_seconds_count") == 3.0
    assert value(text, "advisor_serve_advice_seconds_sum") == pytest.approx(3.00045)


def test_both_processes_on_one_page_without_a_name_twice() -> None:
    text = ControlMetrics().exposition(ServeMetrics().text).decode()
    assert value(text, "advisor_serve_up") == 1.0
    names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(names) == len(set(names))


def test_a_submit_server_that_is_down_is_a_value() -> None:
    def down() -> str:
        raise RetryLater("no answer", code="submit.unreachable")

    assert value(ControlMetrics().exposition(down).decode(), "advisor_serve_up") == 0.0
