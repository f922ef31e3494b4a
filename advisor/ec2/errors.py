"""Classify EC2's errors by their code, never by their text (docs/designs/0001, rule 5).

The codes and their HTTP status were seen on an endpoint emulator and checked against public issues. An
unknown code is reported to the admin, because retrying it blindly costs money.
"""

from __future__ import annotations

import enum
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    MetadataRetrievalError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError

from advisor.model.errors import AdvisorError, RetryLater, TellAdmin, UseFallback


class FailureClass(enum.StrEnum):
    """What to do about a failed call."""

    THROTTLED = "throttled"  # retry with the same token; never marks a pool (F03)
    SERVER = "server"  # retry later with the same token
    CAPACITY = "capacity"  # this pool is empty: try the next pool at once (F01)
    BUDGET = "budget"  # the site's own budget refused; EC2 was not asked
    QUOTA = "quota"  # the whole purchase option is unavailable; tell the admin once (F05)
    TOKEN = "token"  # noqa: S105 - no secret: the client token cannot be used again, so a new one is made
    GONE = "gone"  # the instance does not exist (any more)
    ADMIN = "admin"  # only the admin can mend it


_CODES: Final[dict[FailureClass, frozenset[str]]] = {
    FailureClass.THROTTLED: frozenset(
        {
            "RequestLimitExceeded",
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "TooManyRequestsException",
            "EC2ThrottledException",
            "SlowDown",
            "ConcurrentTagAccess",
        }
    ),
    FailureClass.SERVER: frozenset(
        {
            "InternalError",
            "InternalFailure",
            "ServerInternal",
            "ServiceUnavailable",
            "Unavailable",
            "RequestTimeout",
            "RequestTimeoutException",
        }
    ),
    FailureClass.CAPACITY: frozenset(
        {
            "InsufficientInstanceCapacity",
            "InsufficientHostCapacity",
            "InsufficientReservedInstanceCapacity",
            "InsufficientCapacity",
            "InsufficientCapacityOnOutpost",
            "InsufficientVolumeCapacity",
            "InsufficientFreeAddressesInSubnet",
            "UnfulfillableCapacity",
            "ReservationCapacityExceeded",
            "SpotMaxPriceTooLow",
            "Unsupported",
            "UnsupportedOperation",
        }
    ),
    FailureClass.QUOTA: frozenset(
        {
            "MaxSpotInstanceCountExceeded",
            "MaxFleetCountExceeded",
            "VcpuLimitExceeded",
            "InstanceLimitExceeded",
            "MaxScopedInstanceCountExceeded",
            "MaxIOPSLimitExceeded",
            "VolumeLimitExceeded",
        }
    ),
    FailureClass.TOKEN: frozenset({"IdempotentParameterMismatch", "IdempotentInstanceTerminated"}),
    FailureClass.GONE: frozenset({"InvalidInstanceID.NotFound"}),
}
_CLASS_OF: Final = {code: kind for kind, codes in _CODES.items() for code in codes}

# The first of these classes among several failures decides (F03, F04): a throttled call says nothing about
# capacity, and an admin can raise a quota, whatever the pools after it lacked.
_PRECEDENCE: Final = (
    FailureClass.THROTTLED,
    FailureClass.SERVER,
    FailureClass.ADMIN,
    FailureClass.BUDGET,
    FailureClass.TOKEN,
    FailureClass.QUOTA,
    FailureClass.CAPACITY,
    FailureClass.GONE,
)

# What EC2 does not allow in one pool, it may allow in another: a subnet, a type or spot may be forbidden.
_OF_A_POOL: Final = frozenset({FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.ADMIN})

_MAX_MESSAGE_CHARACTERS: Final = 500
# botocore's own text is not shown: it repeats what `credential_process` printed, possibly the credentials.
_NO_CREDENTIALS: Final = (
    "the AWS credentials cannot be used: they cannot be fetched or have expired. Run the helper that the AWS"
    " configuration names (credential_process) as the advisor's user, and compare this host's clock"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed call.

    Attributes:
        code: EC2's error code, or the exception's name where EC2 did not answer or was not asked.
        message: EC2's message, for people and logs only.
        is_certain: False when an answer was lost before, so that the call may have done its work all the
            same.
    """

    kind: FailureClass
    code: str
    message: str
    is_certain: bool = True

    @property
    def allows_next_pool(self) -> bool:
        """Whether a launch that failed so may be tried in the next pool: nothing was launched in this one."""
        return self.is_certain and self.kind in _OF_A_POOL

    def as_error(self) -> AdvisorError:
        """The same as one of the errors that callers act on."""
        text = f"a call of EC2 failed ({self.code}: {self.message})"
        match self.kind:
            case FailureClass.BUDGET:
                return UseFallback(f"{self.code}: {self.message}", code="ec2.budget")
            case FailureClass.THROTTLED | FailureClass.SERVER | FailureClass.TOKEN:
                return RetryLater(text, code=f"ec2.{self.kind.value}")
            case FailureClass.CAPACITY | FailureClass.QUOTA | FailureClass.GONE:
                return UseFallback(text, code=f"ec2.{self.kind.value}")
            case FailureClass.ADMIN:
                mend = "Compare the policy of this host's role with docs/iam.md, and check the section ec2"
                return TellAdmin(f"{text}. {mend}", code="ec2.admin")


def class_of(code: str) -> FailureClass:
    """Class of an error code; `FailureClass.ADMIN` for an unknown one."""
    return _CLASS_OF.get(code, FailureClass.ADMIN)


def most_careful(failures: Sequence[Failure]) -> Failure:
    """The failure that decides when several pools have failed; of one class, the last."""
    return min(reversed(failures), key=lambda failure: _PRECEDENCE.index(failure.kind))


def failure_of(error: Exception) -> Failure | None:
    """The failure that an exception of botocore means; None where botocore did not raise it."""
    if isinstance(error, ClientError):
        return _answered(error)
    # The service that gives credentials may answer later; having none is an error of the configuration.
    if isinstance(error, CredentialRetrievalError):
        return Failure(FailureClass.SERVER, type(error).__name__, _NO_CREDENTIALS)
    # ResponseParserError is neither ClientError nor BotoCoreError, e.g. a proxy's HTML page with status 500.
    if isinstance(
        error, ResponseParserError | BotoConnectionError | HTTPClientError | MetadataRetrievalError
    ):
        return _unanswered(FailureClass.SERVER, error)
    if isinstance(error, BotoCoreError):
        return _unanswered(FailureClass.ADMIN, error)
    passed = _modules_passed(error)
    if "botocore.credentials" in passed:
        return Failure(FailureClass.ADMIN, type(error).__name__, _NO_CREDENTIALS)
    if any(name.partition(".")[0] == "botocore" for name in passed):
        return _unanswered(FailureClass.ADMIN, error)
    return None


def answer_or_failure(call: Callable[[], Any]) -> tuple[Any, Failure | None]:
    """Call EC2: the answer, or the failure that botocore's exception means."""
    try:
        return call(), None
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        return None, failure


def ask(call: Callable[[], Any]) -> Any:
    """Call EC2, and raise botocore's exceptions as the AdvisorError that a caller acts on."""
    try:
        return call()
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise failure.as_error() from error


def _answered(error: ClientError) -> Failure:
    details = error.response.get("Error", {})
    code = str(details.get("Code", "Unknown"))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    kind = class_of(code)
    if kind is FailureClass.ADMIN and status >= 500 and code not in _CLASS_OF:
        kind = FailureClass.SERVER  # a proxy's error or a new server error: worth another try
    return Failure(kind, code, str(details.get("Message", ""))[:_MAX_MESSAGE_CHARACTERS])


def _unanswered(kind: FailureClass, error: Exception) -> Failure:
    return Failure(kind, type(error).__name__, str(error)[:_MAX_MESSAGE_CHARACTERS])


def _modules_passed(error: Exception) -> set[str]:
    """Names of the modules in the exception's traceback: botocore raises Python's own errors, too.

    Credentials that are expired when they are fetched are a RuntimeError; a `credential_process` that prints
    no JSON is a ValueError, and one that does not exist a FileNotFoundError.
    """
    frames = traceback.walk_tb(error.__traceback__)
    return {str(frame.f_globals.get("__name__", "")) for frame, _ in frames}
