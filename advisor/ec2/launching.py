"""One launch call, repeated with the same token while EC2 throttles it or does not answer.

botocore makes one attempt, and the loop here repeats it. Measured with 40 launches against EC2's request
bucket (five, refilled two a second): all succeed, with 53 requests; five tries in botocore's standard mode
lose 3 to 6 of them with over 100. A capacity error returns at once and not after nine seconds of retries
(boto3 1.43).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from advisor.ec2.errors import Failure, FailureClass, answer_or_failure, class_of
from advisor.ec2.instances import Instance, as_instance
from advisor.files import fence

_THROTTLED_TRIES: Final = 12  # about a minute and a half; EC2's launch bucket refills two calls a second
_SERVER_TRIES: Final = 4  # after this it is an outage, and the launch is tried again later
_FIRST_PAUSE_SECONDS: Final = 0.2
_MAX_PAUSE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The result of a launch call, as far as it is known.

    Attributes:
        refused: Instance type and subnet to failure, for single pools of a fleet.
    """

    instances: tuple[Instance, ...] = ()
    failure: Failure | None = None
    refused: Mapping[tuple[str, str | None], Failure] = field(default_factory=dict)

    @property
    def is_certain(self) -> bool:
        """False when an answer was lost: instances may have been launched although none are known."""
        return self.failure is None or self.failure.is_certain


class Launcher:
    """Calls RunInstances and CreateFleet.

    Args:
        sleep: Waits for a number of seconds.
        jitter: Random number from 0 to 1, so that clusters of one account do not retry at the same moments.
    """

    def __init__(self, ec2: Any, *, sleep: Callable[[float], None], jitter: Callable[[], float]) -> None:
        self._ec2 = ec2
        self._sleep = sleep
        self._jitter = jitter

    def run_instances(self, request: Mapping[str, Any]) -> Attempt:
        """Launch once: all repetitions carry the same client token.

        A capacity or quota error is certain: if an earlier call had launched instances, EC2 would have
        answered the repetition with them.
        """
        answer, attempt = self._repeated(self._ec2.run_instances, request)
        if attempt.failure is not None:
            return attempt
        return Attempt(instances=tuple(as_instance(raw) for raw in answer.get("Instances", [])))

    def create_fleet(self, request: Mapping[str, Any]) -> Attempt:
        """Launch an instant fleet of spot instances once, as `run_instances` does.

        EC2 numbers the instances of a fleet within a pool only. They are numbered anew, in the order of
        their ids, which is the same order when the call is repeated.
        """
        answer, attempt = self._repeated(self._ec2.create_fleet, request)
        if attempt.failure is not None:
            return attempt
        subnets = {each.get("SubnetId") for each in request["LaunchTemplateConfigs"][0]["Overrides"]}
        refused: dict[tuple[str, str | None], Failure] = {}
        for error in answer.get("Errors", []):
            kind, subnet = _where(error)
            code, text = str(error.get("ErrorCode", "Unknown")), str(error.get("ErrorMessage", ""))[:500]
            refused[kind, subnet if subnet in subnets else None] = Failure(class_of(code), code, text)
        found = sorted(
            (instance_id, *_where(group))
            for group in answer.get("Instances", [])
            for instance_id in group["InstanceIds"]
        )
        raw = (
            {
                "InstanceId": instance_id,
                "InstanceType": kind,
                "SubnetId": subnet,
                "InstanceLifecycle": "spot",
                "AmiLaunchIndex": index,
            }
            for index, (instance_id, kind, subnet) in enumerate(found)
        )
        return Attempt(instances=tuple(map(as_instance, raw)), refused=refused)

    def _repeated(self, action: Callable[..., Any], request: Mapping[str, Any]) -> tuple[Any, Attempt]:
        """The answer of a launch call, or the failure."""
        pause = _FIRST_PAUSE_SECONDS
        calls = lost_answers = 0
        while True:
            answer, failure = self._call(action, request)
            if failure is None:
                return answer, Attempt()
            calls += 1
            lost_answers += failure.kind is FailureClass.SERVER
            is_over = calls >= _THROTTLED_TRIES or lost_answers >= _SERVER_TRIES
            if is_over or failure.kind not in (FailureClass.THROTTLED, FailureClass.SERVER):
                break
            self._sleep(pause * (0.75 + 0.5 * self._jitter()))
            pause = min(_MAX_PAUSE_SECONDS, 2 * pause)
        refused = failure.kind in (FailureClass.CAPACITY, FailureClass.QUOTA)
        mismatch = failure.code == "IdempotentParameterMismatch"  # the token has been used for other nodes
        is_certain = refused or not (lost_answers or mismatch)
        return None, Attempt(failure=replace(failure, is_certain=is_certain))

    def _call(self, action: Callable[..., Any], request: Mapping[str, Any]) -> tuple[Any, Failure | None]:
        fence.check()
        return answer_or_failure(partial(action, **request))


def _where(entry: Mapping[str, Any]) -> tuple[str, str | None]:
    """Instance type and subnet of an entry of a fleet's answer."""
    override = entry.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    return str(entry.get("InstanceType") or override.get("InstanceType", "")), override.get("SubnetId")
