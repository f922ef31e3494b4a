"""Error answers in EC2's shape."""

from __future__ import annotations

import uuid
from typing import NoReturn
from xml.sax.saxutils import escape

from moto.ec2.exceptions import EC2ClientError

from advisor.testing.ec2.faults import STATUS_OF


class ServerFault(Exception):
    """An error EC2 answers with a 5xx status, so that SDKs retry it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def fail(code: str, message: str) -> NoReturn:
    """Raise what makes moto answer with this code and the status EC2 gives it."""
    if code in STATUS_OF:
        raise ServerFault(code, message)
    raise EC2ClientError(code, message)


def xml_error(code: str, message: str) -> bytes:
    """Write the body of an error answer."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Response><Errors><Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error></Errors>"
        f"<RequestID>{uuid.uuid4()}</RequestID></Response>"
    ).encode()
