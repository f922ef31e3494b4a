"""One root error, and a class for each way in which a caller can react to one.

Errors are told apart by class and code, never by message text (docs/designs/0001, rule 5).
"""

from __future__ import annotations


class AdvisorError(Exception):
    """Root of every error this package raises on purpose.

    ``code`` is a stable short name such as ``"trace.malformed"``, by which metrics and logs count.
    """

    code: str = "advisor.error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class RetryLater(AdvisorError):
    """The same call may succeed later: throttling, a locked database, a controller that restarts."""

    code = "advisor.retry_later"


class UseFallback(AdvisorError):
    """The caller should use its fallback: no capacity in a pool, no estimate, no snapshot."""

    code = "advisor.use_fallback"


class TellAdmin(AdvisorError):
    """Only an admin can mend it: permissions, a quota, a broken configuration."""

    code = "advisor.tell_admin"


class BadInput(TellAdmin):
    """Input or configuration that cannot be used; the command line exits with code 2.

    Args:
        what: What is wrong, in the user's words.
        where: File and line, setting, option or field.
        mend: What the user can do about it, without a full stop at its end.
    """

    code = "input.bad"

    def __init__(self, what: str, *, where: str, mend: str, code: str | None = None) -> None:
        super().__init__(f"{where}: {what}. {mend}", code=code)
        self.what = what
        self.where = where
        self.mend = mend
