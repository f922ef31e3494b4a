"""`/metrics` of `advisor control`: its own numbers and, through its socket, the submit server's."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import structlog
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from advisor.model.errors import BadInput
from advisor.service.running.loops import LoopHealth

log = structlog.get_logger(__name__)

_REQUEST_SECONDS: Final = 10.0


class LoopCollector(Collector):
    """The loops' health, read at each scrape.

    Args:
        gauges: Further values of the moment: name without prefix to (value, help text).
    """

    def __init__(
        self,
        health: Callable[[], Mapping[str, LoopHealth]],
        gauges: Callable[[], Mapping[str, tuple[float, str]]],
    ) -> None:
        self._health = health
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        rounds = CounterMetricFamily("advisor_loop_rounds", "Rounds begun.", labels=("loop",))
        seconds = GaugeMetricFamily("advisor_loop_seconds", "Length of the last round.", labels=("loop",))
        good = GaugeMetricFamily(
            "advisor_loop_last_good_time_seconds",
            "End of the last round without a failure.",
            labels=("loop",),
        )
        failing = GaugeMetricFamily(
            "advisor_loop_open_failures", "Steps that failed in the last round.", labels=("loop",)
        )
        failures = CounterMetricFamily(
            "advisor_loop_failures", "Steps that failed, by code.", labels=("loop", "step", "code")
        )
        for name, health in self._health().items():
            rounds.add_metric((name,), health.rounds)
            seconds.add_metric((name,), health.seconds)
            good.add_metric((name,), health.last_good_round or 0.0)
            failing.add_metric((name,), len(health.open_failures))
            for (step, code), count in health.failures.items():
                failures.add_metric((name, step, code), count)
        yield from (rounds, seconds, good, failing, failures)
        for name, (value, text) in self._gauges().items():
            yield GaugeMetricFamily(f"advisor_{name}", text, value=value)


class _Server(ThreadingHTTPServer):
    """Logs what goes wrong as everything else is logged; that a scraper has left is not news."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, *_: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            log.error("metrics.not_served", exc_info=sys.exception())


class MetricsPage:
    """A small HTTP server with one page.

    Args:
        address: Host and port to listen on; port 0 takes any free one.
        text: Gives the page, at each request and in its thread.
    """

    def __init__(self, address: tuple[str, int], text: Callable[[], bytes]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_SECONDS

            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404)
                    return
                page = text()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE_LATEST)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_: Any) -> None:
                """Scrapes are not news."""

        try:
            self._server = _Server(address, Handler)
        except OSError as error:
            raise BadInput(
                f"/metrics cannot be served ({error.strerror})",
                where=f"{address[0]}:{address[1]}",
                mend="Set loops.metrics_address to an address of this host and loops.metrics_port to a "
                "free port, or to 0 for no page",
                code="metrics.address",
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Answer in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5.0)
        self._server.server_close()
