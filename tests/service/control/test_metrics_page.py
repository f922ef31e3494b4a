"""/metrics when a scraper leaves too early, and when the numbers cannot be had."""

from __future__ import annotations

import socket
import struct
import threading
import urllib.error
import urllib.request
from http.client import RemoteDisconnected

import pytest
from structlog.testing import capture_logs

from advisor.service.control.metrics_page import MetricsPage


def test_a_scraper_that_leaves_too_early_is_not_news(capfd: pytest.CaptureFixture[str]) -> None:
    has_left = threading.Event()

    def text() -> bytes:
        has_left.wait(5.0)
        return b"x" * 10_000_000

    page = MetricsPage(("127.0.0.1", 0), text)
    page.start()
    with capture_logs() as logged, socket.create_connection(("127.0.0.1", page.port)) as scraper:
        scraper.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        scraper.close()
        has_left.set()
        page.stop()
        for thread in threading.enumerate():
            if "process_request_thread" in thread.name:
                thread.join(5.0)
    assert (logged, capfd.readouterr().err) == ([], "")


def test_numbers_that_cannot_be_had_are_logged_as_everything_else(capfd: pytest.CaptureFixture[str]) -> None:
    def text() -> bytes:
        raise ValueError("a defect")

    page = MetricsPage(("127.0.0.1", 0), text)
    page.start()
    with capture_logs() as logged, pytest.raises((urllib.error.URLError, RemoteDisconnected)):
        urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics", timeout=5.0)
    page.stop()
    assert [event["event"] for event in logged] == ["metrics.not_served"]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_of_either_family(host: str) -> None:
    page = MetricsPage((host, 0), lambda: b"advisor_up 1\n")
    page.start()
    shown = f"[{host}]" if ":" in host else host
    with urllib.request.urlopen(f"http://{shown}:{page.port}/metrics", timeout=5.0) as answer:
        assert answer.read() == b"advisor_up 1\n"
    page.stop()
