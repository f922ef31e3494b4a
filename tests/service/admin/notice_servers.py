"""A real mail server and a real web server, which take notices."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


class Mailbox(socketserver.StreamRequestHandler):
    """As much of SMTP as takes mail."""

    def handle(self) -> None:
        def say(line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        say("220 mail")
        content: list[str] = []
        is_data = False
        for raw in self.rfile:
            line = raw.decode().rstrip("\r\n")
            if is_data and line == ".":
                is_data = False
                self.server.mails.append("\n".join(content))  # type: ignore[attr-defined]
                say("250 taken")
            elif is_data:
                content.append(line)
            elif line.upper() == "DATA":
                is_data = True
                say("354 go on")
            elif line.upper() == "QUIT":
                say("221 bye")
                return
            else:
                say("250 ok")


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def mails() -> Iterator[tuple[int, list[str]]]:
    """Port of a mail server, and the mails it has taken."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mailbox) as server:
        server.mails = []  # type: ignore[attr-defined]
        with serving(server) as port:
            yield port, server.mails  # type: ignore[attr-defined]


@pytest.fixture
def posts() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Port of a web server, and what was posted to it; ``/no`` is refused."""
    taken: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/no":
                taken.append(content)
            self.send_response(500 if self.path == "/no" else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Hook)) as port:
        yield port, taken


def hook_file(folder: Path, url: str) -> Path:
    path = folder / "webhook"
    path.write_text(f"{url}\n")
    return path
