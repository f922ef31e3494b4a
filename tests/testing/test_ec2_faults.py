"""Faults by rule: what unmodified boto3 sees of them."""

from __future__ import annotations

import time

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError
from botocore.parsers import ResponseParserError

pytestmark = pytest.mark.ec2

RUN = {"service": "ec2", "action": "RunInstances"}


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("InsufficientInstanceCapacity", 500),
        ("RequestLimitExceeded", 503),
        ("InternalError", 500),
        ("VcpuLimitExceeded", 400),
        ("MaxSpotInstanceCountExceeded", 400),
        ("UnfulfillableCapacity", 400),
    ],
)
def test_errors_have_the_status_ec2_gives_them(emulator, run, code, status):
    emulator.faults([{**RUN, "error": {"code": code}}])
    with pytest.raises(ClientError) as caught:
        run()
    assert caught.value.response["Error"]["Code"] == code
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert emulator.instances() == []


def test_rules_choose_by_parameter_and_count(emulator, run):
    emulator.faults(
        [
            {**RUN, "params": {"InstanceType": r"m5\..*"}, "error": {"code": "Unsupported"}},
            {**RUN, "params": {"KeyName": None}, "skip": 1, "times": 1, "error": {"code": "InternalError"}},
        ]
    )
    with pytest.raises(ClientError, match="Unsupported"):
        run(InstanceType="m5.large")
    run()
    with pytest.raises(ClientError, match="InternalError"):
        run()
    run()
    assert [call["fault"] for call in emulator.calls("RunInstances")] == [True, False, True, False]


def test_a_share_of_calls_fails_the_same_way_every_time(emulator, run):
    def outcome():
        emulator.faults([{**RUN, "prob": 0.5, "seed": 3, "error": {"code": "Unavailable"}}])
        answers = []
        for _ in range(12):
            try:
                answers.append(bool(run()))
            except ClientError:
                answers.append(False)
        return answers

    first = outcome()
    assert set(first) == {True, False}
    assert outcome() == first


@pytest.mark.parametrize(
    ("rule", "error", "launched"),
    [
        ({"reset": "before"}, ConnectionClosedError, 0),
        ({"reset": "after"}, ConnectionClosedError, 1),
        ({"hang": 1.0}, ReadTimeoutError, None),
        ({"http": {"status": 500, "body": "<!doctype html>\n<html lang=en>\n<p>x"}}, ResponseParserError, 0),
        ({"http": {"status": 502, "body": "<html>bad gateway</html>"}}, ClientError, 0),
        ({"http": {"status": 503, "body": ""}}, ClientError, 0),
    ],
)
def test_faults_on_the_wire(emulator, client, rule, error, launched):
    emulator.faults([{**RUN, **rule}])
    impatient = client("ec2", read_timeout=0.5 if "hang" in rule else 20, retries={"total_max_attempts": 1})
    with pytest.raises(error):
        impatient.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, InstanceType="c5.large")
    if launched is not None:
        assert len(emulator.instances()) == launched


def test_a_call_that_hung_while_the_account_was_emptied_launches_nothing(emulator, client, run):
    run()  # from now on a launch takes no time
    emulator.faults([{**RUN, "hang": 0.6}])
    impatient = client("ec2", read_timeout=0.2, retries={"total_max_attempts": 1})
    with pytest.raises(ReadTimeoutError):
        impatient.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, InstanceType="c5.large")
    end = time.monotonic() + 60.0
    while not emulator.calls("RunInstances"):  # not before it has arrived
        assert time.monotonic() < end
    emulator.reset()
    time.sleep(0.8)
    assert emulator.instances() == []


def test_a_bucket_throttles(emulator, run):
    emulator.faults([{**RUN, "throttle": {"burst": 2, "rate": 1}}])

    def is_refused():
        try:
            run()
        except ClientError as error:
            return error.response["Error"]["Code"] == "RequestLimitExceeded"
        return False

    assert any(is_refused() for _ in range(20))  # faster than one a second, surely
    end = time.monotonic() + 60.0
    while is_refused():  # a second later there is room again
        assert time.monotonic() < end
        time.sleep(0.2)


def test_services_of_the_json_protocol_fail_too(emulator, client):
    queue = client("sqs")
    url = queue.create_queue(QueueName="q")["QueueUrl"]
    emulator.faults(
        [{"service": "sqs", "action": "ReceiveMessage", "error": {"code": "ThrottlingException"}}]
    )
    with pytest.raises(ClientError, match="ThrottlingException"):
        queue.receive_message(QueueUrl=url)


def test_mistakes_of_a_test_are_told(emulator):
    with pytest.raises(ValueError, match="unknown key in a fault rule: eror"):
        emulator.faults([{"eror": {"code": "X"}}])
    with pytest.raises(ValueError, match="no verb 'nonsense'"):
        emulator.control("nonsense")
    with pytest.raises(ValueError, match="unknown: pendng_s"):
        emulator.config(pendng_s=1)
