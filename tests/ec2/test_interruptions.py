"""EC2's word about the end of instances: from EventBridge's queue, from spot requests when that is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from advisor.ec2.fleet import Fleet
from advisor.ec2.interruptions import Interruptions, Notice, NoticeKind, parse
from advisor.model.advice import Capacity
from advisor.model.errors import AdvisorError, RetryLater
from advisor.model.settings_cloud import Ec2Settings
from advisor.testing.ec2 import Ec2Emulator

SPOT = {"burst1": Capacity.SPOT, "burst2": Capacity.SPOT}


def event(kind: str, **detail: Any) -> str:
    return json.dumps(
        {
            "id": "7bf73129-1428-4cd3-a780-95db273d1602",
            "source": "aws.ec2",
            "detail-type": kind,
            "time": "2026-11-21T10:00:00Z",
            "resources": ["arn:aws:ec2:us-east-1a:instance/i-1"],
            "detail": {"instance-id": "i-1", **detail},
        }
    )


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (event("EC2 Spot Instance Interruption Warning"), NoticeKind.INTERRUPTION),
        (event("EC2 Instance Rebalance Recommendation"), NoticeKind.REBALANCE),
        (event("EC2 Instance State-change Notification", state="terminated"), NoticeKind.ENDED),
        (event("EC2 Instance State-change Notification", state="stopping"), NoticeKind.ENDED),
    ],
)
def test_events_of_eventbridge_are_read(body: str, kind: NoticeKind) -> None:
    assert parse(body) == Notice(kind=kind, instance_id="i-1", time=1795255200.0, source="queue")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "nonsense",
        '{"detail-type": "EC2 Spot Instance Interruption Warning", "detail": {"instance-id": 7}}',
        '{"detail-type": ["x"], "detail": {"instance-id": "i-1"}}',
        event("EC2 Instance State-change Notification", state="running"),
        event("Something New"),
        "[" * 100_000,
        event("EC2 Spot Instance Interruption Warning", more="x" * 300_000),
    ],
)
def test_what_is_no_news_is_none(body: str) -> None:
    assert parse(body) is None


@given(
    st.text() | st.recursive(st.none() | st.text(), lambda s: st.dictionaries(st.text(), s)).map(json.dumps)
)
def test_no_text_breaks_it(body: str) -> None:
    parse(body)


@pytest.mark.ec2
def test_a_reclaim_is_heard_from_the_queue(emulator: Ec2Emulator, fleet: Fleet) -> None:
    source = Interruptions(emulator.settings(interruption_queue_url=emulator.interruption_queue()), "c1")
    (launched,) = fleet.resume(["burst1"], capacity_of=SPOT).launched
    emulator.config(time_scale=0.01)
    emulator.reclaim(launched.instance_id, notice_s=120, rebalance_lead_s=5)
    heard: list[NoticeKind] = []
    while NoticeKind.ENDED not in heard:
        received = source.receive()
        source.delete(received)
        heard += [item.notice.kind for item in received if item.notice is not None]
    assert heard[:2] == [NoticeKind.REBALANCE, NoticeKind.INTERRUPTION]


@pytest.mark.ec2
def test_f24_a_lost_message_is_found_by_asking(
    emulator: Ec2Emulator, start_fleet: Callable[..., Fleet]
) -> None:
    ours, theirs = start_fleet(), start_fleet(cluster="c2")
    (launched,) = ours.resume(["burst1"], capacity_of=SPOT).launched
    (foreign,) = theirs.resume(["burst1"], capacity_of=SPOT).launched
    source = Interruptions(emulator.settings(), "c1")
    assert not source.has_queue
    assert source.poll() == []
    for instance in (launched, foreign):
        emulator.reclaim(instance.instance_id, notice_s=0.3)
    (marked,) = source.poll()
    assert (marked.kind, marked.instance_id) == (NoticeKind.INTERRUPTION, launched.instance_id)
    while (notices := source.poll())[0].kind is not NoticeKind.ENDED:
        assert [notice.kind for notice in notices] == [NoticeKind.INTERRUPTION]
    assert [(notice.instance_id, notice.source) for notice in notices] == [(launched.instance_id, "poll")]


@pytest.mark.ec2
def test_d7_a_name_with_wildcards_hears_nothing_of_others(emulator: Ec2Emulator, fleet: Fleet) -> None:
    (launched,) = fleet.resume(["burst1"], capacity_of=SPOT).launched
    emulator.reclaim(launched.instance_id, notice_s=0.3)
    assert len(Interruptions(emulator.settings(), "c1").poll()) == 1
    assert Interruptions(emulator.settings(), "c?").poll() == []


@pytest.mark.ec2
def test_what_we_ended_ourselves_is_no_news(emulator: Ec2Emulator, fleet: Fleet) -> None:
    fleet.resume(["burst1"], capacity_of=SPOT)
    fleet.suspend(["burst1"])
    assert Interruptions(emulator.settings(), "c1").poll() == []


def test_what_was_received_before_the_queue_failed_is_not_lost() -> None:
    """SQS hides it for its visibility timeout, a part of the two minutes until the instances end."""
    messages = [{"ReceiptHandle": f"r{number}", "Body": "x"} for number in range(10)]
    sqs, failed = Mock(), EndpointConnectionError(endpoint_url="https://sqs")
    sqs.receive_message.side_effect = [{"Messages": messages}, failed]
    settings = Ec2Settings(interruption_queue_url="https://sqs/queue")
    source = Interruptions(settings, "c1", connect=lambda _service, _settings: sqs)
    assert [item.receipt for item in source.receive()] == [f"r{number}" for number in range(10)]
    sqs.receive_message.side_effect = failed
    with pytest.raises(RetryLater):
        source.receive()


@pytest.mark.ec2
def test_a_queue_that_cannot_be_read_is_for_later(emulator: Ec2Emulator) -> None:
    url = emulator.interruption_queue()
    source = Interruptions(emulator.settings(interruption_queue_url=url), "c1")
    emulator.faults([{"service": "sqs", "error": {"code": "ServiceUnavailable", "status": 503}}])
    with pytest.raises(RetryLater):
        source.receive()
    emulator.faults([{"service": "sqs", "error": {"code": "AccessDenied", "status": 403}}])
    with pytest.raises(AdvisorError):
        source.receive()
