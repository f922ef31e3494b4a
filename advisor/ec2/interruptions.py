"""Notices of interruptions: events of EventBridge from an SQS queue, and the status of spot requests.

The notice loop reads both.

Events arrive at least once, in any order, and sometimes not at all (AWS promises no more). So a notice is
identified by instance and kind, and the poll of spot requests finds what the queue has lost. A rule of
EventBridge sees the whole account: before acting on a notice, check that the instance is the cluster's own.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

import structlog

from advisor.ec2.clients import client, rows_of
from advisor.ec2.errors import ask
from advisor.ec2.tags import CLUSTER_TAG, has_tags
from advisor.model.errors import AdvisorError
from advisor.model.settings_cloud import Ec2Settings

_LONG_POLL_SECONDS: Final = 5  # short, so that the service stops soon; a message ends the wait at once
_MESSAGES: Final = 10  # SQS's limit
_MAX_BODY: Final = 256 * 1024
_RECEIVES_A_ROUND: Final = 20
_MARKED: Final = "marked-for-termination"
_ENDED: Final = ("instance-terminated-", "instance-stopped-")
_ENDED_BY_US: Final = ("instance-terminated-by-user", "instance-stopped-by-user")

_log = structlog.get_logger("advisor.ec2")


class NoticeKind(enum.StrEnum):
    """The kind of a notice."""

    REBALANCE = "rebalance"  # the instance is more likely than others to be interrupted
    INTERRUPTION = "interruption"  # EC2 ends it within two minutes
    ENDED = "ended"  # it is terminated or stopped


_KINDS: Final = {
    "EC2 Instance Rebalance Recommendation": NoticeKind.REBALANCE,
    "EC2 Spot Instance Interruption Warning": NoticeKind.INTERRUPTION,
    "EC2 Instance State-change Notification": NoticeKind.ENDED,
}
_STATES_OF_THE_END: Final = frozenset({"shutting-down", "terminated", "stopping", "stopped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notice about one instance of the account.

    Attributes:
        time: EC2's time of it, epoch seconds; 0 when unknown.
        source: ``queue`` or ``poll``.
    """

    kind: NoticeKind
    instance_id: str
    time: float
    source: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message of the queue, to be deleted once it was acted upon, and its notice (None: another event)."""

    receipt: str
    notice: Notice | None


def parse(body: str) -> Notice | None:
    """Read an event of EventBridge; None when it is not about the end of an instance.

    Examples:
        >>> detail = '"detail": {"instance-id": "i-1"}'
        >>> parse('{"detail-type": "EC2 Instance Rebalance Recommendation", ' + detail + "}")
        Notice(kind=<NoticeKind.REBALANCE: 'rebalance'>, instance_id='i-1', time=0.0, source='queue')
    """
    if len(body) > _MAX_BODY:
        return None
    try:
        event = json.loads(body)
        detail = event["detail"]
        kind, instance_id = _KINDS.get(event["detail-type"]), detail["instance-id"]
        state = detail.get("state")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if kind is None or not isinstance(instance_id, str):
        return None
    if kind is NoticeKind.ENDED and state not in _STATES_OF_THE_END:
        return None
    return Notice(kind=kind, instance_id=instance_id, time=_epoch(event.get("time")), source="queue")


class Interruptions:
    """Both sources of notices; without ``ec2.interruption_queue_url`` only spot requests. Used by one thread.

    Args:
        cluster: Value of the spot requests' cluster tag.
    """

    def __init__(self, settings: Ec2Settings, cluster: str, *, connect: Callable[..., Any] = client) -> None:
        self._settings = settings
        self._cluster = cluster
        self._ec2, self._sqs = connect("ec2", settings), connect("sqs", settings)

    @property
    def has_queue(self) -> bool:
        """Whether the site has a queue."""
        return bool(self._settings.interruption_queue_url)

    def receive(self) -> list[Received]:
        """Wait at most five seconds for messages; raises AdvisorError when the queue cannot be read."""
        found: list[Received] = []
        wait = _LONG_POLL_SECONDS
        for _ in range(_RECEIVES_A_ROUND):
            call = partial(
                self._sqs.receive_message,
                QueueUrl=self._settings.interruption_queue_url,
                MaxNumberOfMessages=_MESSAGES,
                WaitTimeSeconds=wait,
            )
            try:
                answer = ask(call)
            except AdvisorError:
                if not found:
                    raise
                break  # what was received comes again only after the queue's visibility timeout
            messages = answer.get("Messages", [])
            found += [Received(item["ReceiptHandle"], parse(item.get("Body", ""))) for item in messages]
            if len(messages) < _MESSAGES:
                break
            wait = 0  # there may be more: take them without waiting
        return found

    def delete(self, received: Sequence[Received]) -> None:
        """Delete messages; one that remains arrives again, which is harmless.

        Raises AdvisorError when the queue cannot be reached.
        """
        for start in range(0, len(received), _MESSAGES):
            entries = [
                {"Id": str(number), "ReceiptHandle": item.receipt}
                for number, item in enumerate(received[start : start + _MESSAGES])
            ]
            url = self._settings.interruption_queue_url
            call = partial(self._sqs.delete_message_batch, QueueUrl=url, Entries=entries)
            for failed in ask(call).get("Failed", []):
                then = "the message arrives again, which does no harm"
                _log.warning("queue.not_deleted", queue=url, code=failed.get("Code"), then=then)

    def poll(self) -> list[Notice]:
        """Notices from the status of the cluster's spot requests (docs/faults.md, F24).

        Raises AdvisorError when they cannot be read completely.
        """
        owner = {CLUSTER_TAG: self._cluster}
        filters = [
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]},
            {"Name": "status-code", "Values": [_MARKED, *(f"{begin}*" for begin in _ENDED)]},
        ]
        operation, name = "describe_spot_instance_requests", "SpotInstanceRequests"
        rows = ask(lambda: rows_of(self._ec2, operation, name, Filters=filters))
        ours = (row for row in rows if has_tags(row, owner))
        return [notice for notice in map(_notice_of_request, ours) if notice is not None]


def _notice_of_request(row: Mapping[str, Any]) -> Notice | None:
    status = row.get("Status") or {}
    code, instance_id = status.get("Code", ""), row.get("InstanceId")
    if not instance_id or code in _ENDED_BY_US:
        return None
    if code == _MARKED:
        kind = NoticeKind.INTERRUPTION
    elif code.startswith(_ENDED):
        kind = NoticeKind.ENDED
    else:
        return None
    changed = status.get("UpdateTime")
    time = changed.timestamp() if isinstance(changed, datetime) else 0.0
    return Notice(kind=kind, instance_id=instance_id, time=time, source="poll")


def _epoch(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0
