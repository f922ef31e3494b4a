"""Prometheus metrics of both processes.

`advisor serve` has no HTTP of its own: nothing but the hook's question may take its time. It answers
``{"op":"metrics"}`` on its socket, and `advisor control` shows that text beside its own on ``/metrics``
(:func:`exposition`). The names of the two never overlap: those of
`advisor serve` begin with ``advisor_serve_``, those of `advisor control` with ``advisor_`` and another word.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from advisor.model.errors import AdvisorError
from advisor.model.estimate import Estimate, holds
from advisor.service.exchange.protocol import AdviseReply, AdviseRequest

LATENCY_BUCKETS: Final = (
    0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
)  # fmt: skip
"""Seconds; the bars are 0.3 ms and 1 ms, the hook gives up at 50 ms."""

ERROR_BUCKETS: Final = (30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0)
"""Error of a prediction, seconds."""


class ServeMetrics:
    """The submit server's counters. They are updated after the reply was sent, never before."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._tally = _AdviceTally()
        self.registry.register(self._tally)
        self._protocol_errors = Counter(
            "advisor_serve_protocol_errors",
            "Lines that were no request, by code.",
            ("code",),
            registry=self.registry,
        )
        self._hook_failed = Counter(
            "advisor_serve_hook_failed",
            "Questions of the hook that failed (its own count, sent with its next good one).",
            registry=self.registry,
        )
        self._hook_skipped = Counter(
            "advisor_serve_hook_skipped",
            "Submissions the hook did not ask about because its breaker was open.",
            registry=self.registry,
        )
        ProcessCollector(namespace="advisor_serve", registry=self.registry)

    def watch(self, read: Callable[[], ServeReadings]) -> None:
        """Show values that are read at each scrape."""
        self.registry.register(_ReadingsCollector(read))

    def advised(self, request: AdviseRequest, reply: AdviseReply, seconds: float) -> None:
        """Count one advice."""
        self._tally.add((reply.placement, reply.reason, reply.mode), seconds)
        if request.dry:  # the hook repeats its number of failures with the next request for which it waits
            return
        if request.hook_failed > 0:
            self._hook_failed.inc(request.hook_failed)
        if request.hook_skipped > 0:
            self._hook_skipped.inc(request.hook_skipped)

    def protocol_error(self, code: str) -> None:
        """Count one line, or one peer, that was refused."""
        self._protocol_errors.labels(code).inc()

    def text(self) -> str:
        """Prometheus text format."""
        return generate_latest(self.registry).decode()


class _AdviceTally(Collector):
    """Advice by decision and by latency, in plain numbers: prometheus_client's own cost 10 µs an advice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_decision: dict[tuple[str, str, str], int] = {}
        self._by_bucket = [0] * (len(LATENCY_BUCKETS) + 1)
        self._seconds = 0.0

    def add(self, decision: tuple[str, str, str], seconds: float) -> None:
        """Count one advice: placement, reason and mode, and how long it took."""
        with self._lock:
            self._by_decision[decision] = self._by_decision.get(decision, 0) + 1
            self._by_bucket[bisect_left(LATENCY_BUCKETS, seconds)] += 1
            self._seconds += seconds

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            decisions, buckets = dict(self._by_decision), list(self._by_bucket)
            total_seconds = self._seconds
        labels = ("placement", "reason", "mode")
        advice = CounterMetricFamily("advisor_serve_advice", "Advice given, by decision.", labels=labels)
        for decision, count in decisions.items():
            advice.add_metric([str(word) for word in decision], count)
        yield advice
        bounds = [str(floatToGoString(bound)) for bound in (*LATENCY_BUCKETS, math.inf)]  # type: ignore[no-untyped-call]
        yield HistogramMetricFamily(
            "advisor_serve_advice_seconds",
            "From the request's last byte to the reply's, seconds.",
            buckets=list(zip(bounds, accumulate(buckets), strict=True)),
            sum_value=total_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeReadings:
    """The present values.

    Attributes:
        gauges, counters: Name without ``advisor_serve_`` to value and help text.
        state_errors: Number of failed refreshes of the watcher, by code.
        model_version: Versions of the models in use, as ``predictor+size``, under policy "price" that of the
            run times; empty without a model.
    """

    gauges: Mapping[str, tuple[float, str]]
    counters: Mapping[str, tuple[float, str]]
    state_errors: Mapping[str, int]
    model_version: str


class _ReadingsCollector(Collector):
    def __init__(self, read: Callable[[], ServeReadings]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        readings = self._read()
        for name, (value, text) in readings.gauges.items():
            yield GaugeMetricFamily(f"advisor_serve_{name}", text, value=value)
        for name, (value, text) in readings.counters.items():
            yield CounterMetricFamily(f"advisor_serve_{name}", text, value=value)
        errors = CounterMetricFamily(
            "advisor_serve_state_errors", "Refreshes that failed, by code.", labels=("code",)
        )
        for code, count in readings.state_errors.items():
            errors.add_metric((code,), count)
        yield errors
        # versions count up, so they are values: as labels each would begin a series of its own
        model = GaugeMetricFamily("advisor_serve_model_version", "Version in use.", labels=("kind",))
        for kind, version in zip(("predictor", "size"), readings.model_version.split("+"), strict=False):
            if version.isdigit():
                model.add_metric((kind,), float(version))
        yield model


class ControlMetrics:
    """`advisor control`'s metrics of predictions; its loops add their own to :attr:`registry`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._error = Histogram(
            "advisor_prediction_error_seconds",
            "Absolute difference of a predicted and an actual time, seconds.",
            ("what",),
            buckets=ERROR_BUCKETS,
            registry=self.registry,
        )
        self._bias = Gauge(
            "advisor_prediction_bias_seconds",
            "Sum of predicted minus actual, seconds; over the count of errors it is the mean bias.",
            ("what",),
            registry=self.registry,
        )
        self._inside = Counter(
            "advisor_prediction_inside_interval",
            "Actual times that fell inside the predicted interval.",
            ("what",),
            registry=self.registry,
        )
        self._unusable = Counter(
            "advisor_prediction_unusable",
            "Finished jobs for which nothing could be predicted.",
            ("what",),
            registry=self.registry,
        )
        self._serve_up = Gauge(
            "advisor_serve_up", "1 when the submit server answered this scrape.", registry=self.registry
        )
        ProcessCollector(namespace="advisor_control", registry=self.registry)

    def observe_prediction(self, what: str, predicted: Estimate, actual_seconds: float) -> None:
        """Compare a prediction with the actual value.

        Args:
            what: ``"wait"`` or ``"run"``.
        """
        if not predicted.is_usable or not math.isfinite(actual_seconds):
            self._unusable.labels(what).inc()
            return
        self._error.labels(what).observe(abs(predicted.seconds - actual_seconds))
        self._bias.labels(what).inc(predicted.seconds - actual_seconds)
        if holds(predicted.lower, actual_seconds, predicted.upper):
            self._inside.labels(what).inc()

    def exposition(self, ask_serve: Callable[[], str]) -> bytes:
        """Both processes' metrics, Prometheus text format.

        Args:
            ask_serve: Usually ``SubmitClient(socket).metrics``; an error means the submit server is down,
                which is a value (``advisor_serve_up 0``) and no failed scrape.
        """
        try:
            serve_text = ask_serve()
        except AdvisorError:
            serve_text = ""
        self._serve_up.set(1.0 if serve_text else 0.0)
        return generate_latest(self.registry) + serve_text.encode()
