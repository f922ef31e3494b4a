"""Delivery of the notices of `advisor notify` by webhook and by mail."""

from __future__ import annotations

import http.client
import json
import smtplib
import socket
import urllib.error
import urllib.request
from collections.abc import Sequence
from email.message import EmailMessage
from pathlib import Path
from typing import Final

from advisor.model.errors import BadInput, RetryLater
from advisor.model.settings_notices import NoticeSettings
from advisor.service.admin.notices import Notice

_TIMEOUT_SECONDS: Final = 10.0
_MAX_URL: Final = 4096
_NOT_SENT: Final = (OSError, http.client.HTTPException, ValueError)
"""Also an answer that is not HTTP, and a URL whose port or letters cannot be used."""


def deliver(notices: Sequence[Notice], settings: NoticeSettings, cluster: str) -> list[str]:
    """Send notices by each channel that the settings name: webhook, mail or both.

    Returns:
        Why a channel has failed, if the other one has not.

    Raises:
        BadInput: The webhook's file has no URL, or cannot be read (``notices.webhook``); and no mail is set.
        RetryLater: All channels have failed (``notices.not_told``); the webhook may have got some notices.
    """
    refused: list[str] = []
    if not notices:
        return refused
    if settings.webhook_file is not None:
        try:
            url = _url_in(settings.webhook_file)
            for notice in notices:
                _post(url, notice, cluster)
        except BadInput as error:
            if not settings.mail_to:
                raise
            refused.append(str(error))
        except _NOT_SENT as error:  # its text may name the URL, which is a secret
            status = f" with status {error.code}" if isinstance(error, urllib.error.HTTPError) else ""
            refused.append(
                f"the webhook of {settings.webhook_file} has refused{status} ({type(error).__name__})"
            )
    if settings.mail_to:
        try:
            _mail(notices, settings, cluster)
        except (OSError, smtplib.SMTPException) as error:
            refused.append(f"the mail server {settings.mail_server} has refused: {error}")
    channels = (settings.webhook_file is not None) + bool(settings.mail_to)
    if len(refused) == channels:
        raise RetryLater(
            f"{'; '.join(refused)}. The next run of `advisor notify` tries again; `advisor notify --test` "
            "tells whether it works",
            code="notices.not_told",
        )
    return refused


def _url_in(path: Path) -> str:
    try:
        url = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or type(error).__name__
        raise _bad_file(path, f"the file of the webhook cannot be read: {why}") from error
    if not url.startswith(("https://", "http://")) or len(url.split()) != 1 or len(url) > _MAX_URL:
        raise _bad_file(path, "the file of the webhook has no URL")
    return url


def _bad_file(path: Path, what: str) -> BadInput:
    mend = "Write one line into it, https://..., readable for the service's user only"
    return BadInput(what, where=str(path), mend=mend, code="notices.webhook")


def _post(url: str, notice: Notice, cluster: str) -> None:
    content = {
        "text": f"Burst Advisor, {cluster}: {notice.text}",
        "key": notice.key,
        "is_over": notice.is_over,
        "cluster": cluster,
    }
    request = urllib.request.Request(  # noqa: S310 - http and https only, see _url_in
        url, data=json.dumps(content).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - as above
        answer.read(1)


def _mail(notices: Sequence[Notice], settings: NoticeSettings, cluster: str) -> None:
    message = EmailMessage()
    message["Subject"] = f"Burst Advisor, {cluster}: {_subject(notices)}"
    message["From"] = f"advisor@{socket.getfqdn()}"
    message["To"] = ", ".join(settings.mail_to)
    message.set_content("\n\n".join(notice.text for notice in notices) + "\n")
    host, _, port = settings.mail_server.rpartition(":")
    with smtplib.SMTP(host.strip("[]"), int(port), timeout=_TIMEOUT_SECONDS) as server:
        server.send_message(message)


def _subject(notices: Sequence[Notice]) -> str:
    first = notices[0].text.split(". ")[0].split(": ")[0]
    return first if len(notices) == 1 else f"{first}, and {len(notices) - 1} more"
