"""One root error and the three things a caller can do about one.

Errors are told apart by class and code, never by message text (docs/designs/0001, rule 5).
"""

from __future__ import annotations


class AdvisorError(Exception):
    """Root of every error this package raises on purpose.

    Attributes
    ----------
    code : str
        Stable short name of what went wrong, e.g. ``"trace.malformed"``. Metrics and logs count by it.
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
    """One way is closed, another one is open: no capacity in a pool, no estimate, no snapshot."""

    code = "advisor.use_fallback"


class TellAdmin(AdvisorError):
    """Only a person can mend it: permissions, quota, a broken configuration."""

    code = "advisor.tell_admin"


class BadInput(TellAdmin):
    """What came in cannot be used; the command line exits with code 2.

    Parameters
    ----------
    what : str
        What is wrong, in the user's words.
    where : str
        File and line, setting, option or field.
    mend : str
        What to do about it.
    """

    code = "input.bad"

    def __init__(self, what: str, *, where: str, mend: str, code: str | None = None) -> None:
        super().__init__(f"{where}: {what}. {mend}", code=code)
        self.what = what
        self.where = where
        self.mend = mend
