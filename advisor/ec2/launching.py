"""One launch call, repeated with the same token while EC2 says "not now" or says nothing.

One attempt of botocore's, and this loop above it. Measured with 40 launches against EC2's request bucket
(five, refilled two a second): none is lost in 53 requests; five tries in botocore's standard mode lose 3 to 6
in over 100. A capacity error comes back at once instead of after nine seconds of repeating it (boto3 1.43).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from advisor.ec2.errors import Failure, FailureClass, failure_of
from advisor.ec2.instances import Instance, as_instance

_THROTTLED_TRIES: Final = 12  # about a minute and a half; EC2's launch bucket refills two calls a second
_SERVER_TRIES: Final = 4  # then it's an outage: the hand-over is tried again later, others are not held up
_FIRST_PAUSE_SECONDS: Final = 0.2
_MAX_PAUSE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is known after a launch call.

    Attributes
    ----------
    instances : tuple of Instance
        What EC2 answered with.
    failure : Failure or None
        The last call's failure.
    is_certain : bool
        False when instances may have been launched all the same: an answer was lost on the way.
    """

    instances: tuple[Instance, ...] = ()
    failure: Failure | None = None
    is_certain: bool = True


class Launcher:
    """Calls RunInstances.

    Parameters
    ----------
    ec2 : botocore client
        With one attempt (`advisor.ec2.clients.LAUNCH_CONFIG`).
    sleep : callable
        Waits so many seconds.
    jitter : callable
        A random number from 0 to 1: several clusters of one account must not knock in step.
    """

    def __init__(self, ec2: Any, *, sleep: Callable[[float], None], jitter: Callable[[], float]) -> None:
        self._ec2 = ec2
        self._sleep = sleep
        self._jitter = jitter

    def run_instances(self, request: Mapping[str, Any]) -> Attempt:
        """Launch, at most once for all repetitions: they carry the same client token.

        A capacity or quota error of a repetition is certain: had an earlier one launched, EC2 would have
        answered with its instances.
        """
        pause = _FIRST_PAUSE_SECONDS
        calls = lost_answers = 0
        while True:
            answer, failure = self._call(request)
            if failure is None:
                return Attempt(instances=tuple(as_instance(raw) for raw in answer.get("Instances", [])))
            calls += 1
            lost_answers += failure.kind is FailureClass.SERVER
            is_over = calls >= _THROTTLED_TRIES or lost_answers >= _SERVER_TRIES
            if is_over or failure.kind not in (FailureClass.THROTTLED, FailureClass.SERVER):
                break
            self._sleep(pause * (0.75 + 0.5 * self._jitter()))
            pause = min(_MAX_PAUSE_SECONDS, 2 * pause)
        refused = failure.kind in (FailureClass.CAPACITY, FailureClass.QUOTA)
        mismatch = failure.code == "IdempotentParameterMismatch"  # the token has been used: look what for
        return Attempt(failure=failure, is_certain=refused or not (lost_answers or mismatch))

    def _call(self, request: Mapping[str, Any]) -> tuple[Mapping[str, Any], Failure | None]:
        try:
            return self._ec2.run_instances(**request), None
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            return {}, failure
