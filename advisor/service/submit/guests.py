"""Users who may ask about a job of their own and nothing else: LSF runs an esub as the user who submits.

The kernel says which user asks (SO_PEERCRED). A request about another user's job is refused, and fields that
only the scheduler can know are ignored.
"""

from __future__ import annotations

import pwd
import socket
import threading
from collections import Counter
from typing import Final

from msgspec.structs import replace

from advisor.service.exchange.protocol import NOT_ALLOWED, NOT_OWN_JOB, AdviseRequest, ProtocolError, Request

GUEST_SECONDS: Final = 1.0
"""A guest's connection is closed after this time without a request: an esub asks as soon as it connects."""
_OF_ONE_USER: Final = 8


class Guests:
    """The connections of users who may ask about their own jobs only.

    Args:
        most: The largest number of guests at once, which leaves room for the scheduler; 0: no guest is
            served.
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._uid_of: dict[socket.socket, int] = {}
        self._guard = threading.Lock()

    def __contains__(self, connection: socket.socket) -> bool:
        return connection in self._uid_of

    def why_refused(self, connection: socket.socket, uid: int) -> str:
        """Register a connection as a guest's; return the code of the refusal, or an empty text."""
        if not self._most:
            return NOT_ALLOWED
        with self._guard:
            taken = Counter(self._uid_of.values())
            if len(self._uid_of) >= self._most or taken[uid] >= _OF_ONE_USER:
                return "server.busy"
            self._uid_of[connection] = uid
        return ""

    def leave(self, connection: socket.socket) -> None:
        """Forget a connection; a connection that is not a guest's is not known."""
        with self._guard:
            self._uid_of.pop(connection, None)

    def own_question(self, connection: socket.socket, request: Request) -> Request:
        """Return the request, if it is about a job of the guest's own, with the user that the kernel names.

        The name is asked for on the connection's own thread: a slow name service delays this guest only.

        Raises:
            ProtocolError: It is another question, or about another user (`NOT_OWN_JOB`).
        """
        uid = self._uid_of.get(connection)
        if uid is None or not isinstance(request, AdviseRequest) or request.uid != uid:
            raise ProtocolError("not a question about an own job", code=NOT_OWN_JOB)
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            raise ProtocolError("the asking user has no name", code=NOT_OWN_JOB) from None
        if request.user != user:
            raise ProtocolError("not a question about an own job", code=NOT_OWN_JOB)
        # only a scheduler knows the group, the time of the configuration and a hook's failures
        return replace(request, gid=None, configured_at=None, hook_failed=0, hook_skipped=0)
