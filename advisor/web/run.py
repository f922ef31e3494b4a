"""The life of `advisor web`: a socket, the pages on it, until a signal."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Final

import structlog
import uvicorn

from advisor.model.errors import BadInput
from advisor.model.settings import Settings, WebSettings
from advisor.service.running.notify import Notifier
from advisor.web.app import create_app
from advisor.web.site import Site
from advisor.web.whatif_runs import WhatIfRuns

log = structlog.get_logger(__name__)

_CONNECTIONS: Final = 64
_IDLE_SECONDS: Final = 30
_STOP_SECONDS: Final = 5


def run(
    settings: Settings, *, load: Callable[[], Settings], command: Sequence[str], options: Sequence[str]
) -> None:
    """Serve the pages until SIGTERM or SIGINT.

    Parameters
    ----------
    settings : Settings
        In force now.
    load : callable
        Reads them again.
    command, options : sequence of str
        How a what-if is started (:class:`advisor.web.whatif_runs.WhatIfRuns`).

    Raises
    ------
    BadInput
        The address or port cannot be had.
    """
    listening = listen(settings.web)
    site = Site(settings, load, WhatIfRuns(command, options))
    server = uvicorn.Server(configuration(site))
    address, port = listening.getsockname()[:2]
    log.info("web.ready", address=address, port=port)
    notifier = Notifier.from_environment(os.environ)
    notifier.ready(f"pages on {address} port {port}")
    # uvicorn stops at these by itself and sends them again at its end, as if nobody had heard them
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    with listening:
        server.run(sockets=[listening])
    notifier.stopping()


def configuration(site: Site) -> uvicorn.Config:
    """How uvicorn serves a site."""
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
    """The socket that pages are served on.

    Raises
    ------
    BadInput
        It cannot be had.
    """
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
            mend="Set them to what is this machine's and free, or end what is there",
            code="web.address",
        ) from None
    return listening
