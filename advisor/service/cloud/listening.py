"""The notice loop: it receives EC2's notices about the end of instances, and stores them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from advisor.ec2.instances import Instance
from advisor.ec2.interruptions import Interruptions, Notice, NoticeKind
from advisor.service.running.clock import Clock
from advisor.service.running.loops import Step
from advisor.service.state.interruption_record import InterruptionRecord

log = structlog.get_logger(__name__)

_PERIOD_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 30.0


class NoticeLoop:
    """Receives notices, in a loop of its own because it mostly waits for messages.

    Args:
        has_listed: Whether it has listed them since the start.
        heard: Called after new notices, to wake the loop that acts on them.
    """

    name = "notices"
    period_seconds = _PERIOD_SECONDS

    def __init__(
        self,
        *,
        source: Interruptions,
        instances: Callable[[], Sequence[Instance]],
        has_listed: Callable[[], bool],
        record: InterruptionRecord,
        heard: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._source = source
        self._instances, self._has_listed = instances, has_listed
        self._record = record
        self._heard = heard
        self._clock = clock
        self._polled: float | None = None

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            Step("receive notices", self.receive),
            Step("poll spot requests", self.poll),
        )

    def receive(self) -> None:
        """Receive notices; a message is deleted once its notice is on disk.

        None is received before the first listing, without which no end is known to be one of ours.
        """
        if not (self._source.has_queue and self._has_listed()):
            return
        received = self._source.receive()
        if received:
            ours = {item.instance_id for item in self._instances()}
            self._note(
                item.notice
                for item in received
                # the queue has the ends of all the account's instances; warnings are rare, and may be about
                # an instance that EC2 does not list yet
                if item.notice is not None
                and (item.notice.kind is not NoticeKind.ENDED or item.notice.instance_id in ours)
            )
            self._source.delete(received)

    def poll(self) -> None:
        """Ask the second source every half minute: messages can be lost (F24)."""
        now = self._clock.monotonic()
        if self._polled is None or now - self._polled >= _POLL_SECONDS:
            self._note(self._source.poll())
            self._polled = now

    def _note(self, notices: Iterable[Notice]) -> None:
        news = self._record.note(notices, self._clock.wall())
        for notice in news:
            log.info("ec2.notice", kind=notice.kind.value, instance=notice.instance_id, source=notice.source)
        if news:
            self._heard()
