"""Run `advisor web`: bind its socket and serve the pages until a signal."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Final

import structlog
import uvicorn

from advisor.config.loading import LoadedSettings
from advisor.model.errors import BadInput
from advisor.model.settings_service import WebSettings
from advisor.service.exchange.socket_file import passed_by_systemd
from advisor.service.running.notify import Notifier
from advisor.web.app import create_app
from advisor.web.site import Site
from advisor.web.whatif_runs import WhatIfRuns

log = structlog.get_logger(__name__)

_CONNECTIONS: Final = 64
_IDLE_SECONDS: Final = 30
_STOP_SECONDS: Final = 5


def run(*, load: Callable[[], LoadedSettings], command: Sequence[str], options: Sequence[str]) -> None:
    """Serve the pages until SIGTERM or SIGINT.

    `load` reads the settings again; `command` and `options` start a what-if
    (:class:`advisor.web.whatif_runs.WhatIfRuns`). Raises BadInput where the address or port cannot be used.
    """
    settings = load().settings
    listening = listen(settings.web)
    passed = passed_by_systemd(os.environ)
    site = Site(settings, load, WhatIfRuns(command, options))
    server = uvicorn.Server(configuration(site))

    def stop(*_: object) -> None:
        server.should_exit = True

    # before uvicorn takes these signals, and at its end, where it raises them again
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    address, port = listening.getsockname()[:2]
    log.info("web.ready", address=address, port=port)
    notifier = Notifier.from_environment(os.environ)
    notifier.ready(f"pages on {address} port {port}")
    sockets = [listening] if passed is None else [listening, passed]
    with listening:
        server.run(sockets=sockets)
    notifier.stopping()


def configuration(site: Site) -> uvicorn.Config:
    """Uvicorn's configuration for a site."""
    return uvicorn.Config(
        create_app(site),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
        ws="none",
    )


def listen(web: WebSettings) -> socket.socket:
    """A listening socket; raises BadInput where the address or port cannot be used."""
    try:
        found = socket.getaddrinfo(web.address, web.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_CONNECTIONS)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise BadInput(
            f"the pages cannot be served there ({error.strerror})",
            where=f"web.address and web.port, {web.address} port {web.port}",
            mend="Set them to an address of this machine and a free port, or stop what uses the port",
            code="web.address",
        ) from None
    return listening
