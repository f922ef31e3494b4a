"""What `advisor control` shows: its own numbers and the submit server's."""

from __future__ import annotations

import math
import re

from advisor.model import Estimate, RetryLater
from advisor.service.metrics import ControlMetrics, ServeMetrics


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


def test_both_processes_on_one_page_without_a_name_twice() -> None:
    text = ControlMetrics().exposition(ServeMetrics().text).decode()
    assert value(text, "advisor_serve_up") == 1.0
    names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(names) == len(set(names))


def test_a_submit_server_that_is_down_is_a_value() -> None:
    def down() -> str:
        raise RetryLater("no answer", code="submit.unreachable")

    assert value(ControlMetrics().exposition(down).decode(), "advisor_serve_up") == 0.0
