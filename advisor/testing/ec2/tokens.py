"""Client tokens: the same request again gets the same answer, another request is refused."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from advisor.testing.ec2.answers import fail
from advisor.testing.ec2.state import EmulatorState

_TERMINATED_CODE: Final = 48
_NOT_COMPARED: Final = frozenset({"ClientToken", "DryRun"})


class Repetition:
    """The client token of one call.

    Args:
        state: Remembers tokens.
        response: The call.
        action: Tokens of different actions have nothing to do with each other.
    """

    def __init__(self, state: EmulatorState, response: Any, action: str) -> None:
        self._state = state
        token = response.params.get("ClientToken")
        self._key = (response.current_account, response.region, action, token) if token else None
        rest = {name: value for name, value in response.params.items() if name not in _NOT_COMPARED}
        self._digest = hashlib.sha256(json.dumps(rest, sort_keys=True, default=str).encode()).hexdigest()

    def answer(self) -> Any:
        """What was answered the first time; None for a new token.

        Raises:
            EC2ClientError: The token came with other parameters before, or all its instances have ended.
        """
        if self._key is None or self._key not in self._state.tokens:
            return None
        digest, answer = self._state.tokens[self._key]
        if digest != self._digest:
            text = "Arguments on this idempotent request are inconsistent with an earlier request's."
            fail("IdempotentParameterMismatch", text)
        instances = getattr(answer, "instances", [])
        if instances and all(item._state.code == _TERMINATED_CODE for item in instances):  # noqa: SLF001
            text = "The client token you have provided is associated with a terminated instance."
            fail("IdempotentInstanceTerminated", text)
        return answer

    def remember(self, answer: Any) -> None:
        """The call was carried out."""
        if self._key is not None:
            self._state.tokens[self._key] = (self._digest, answer)
