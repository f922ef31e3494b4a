"""How LSF orders the waiting jobs of a queue: read at each poll, for forecasts of their starts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAccount:
    """A user, or a group of users, with a share of a queue.

    Attributes:
        path: Names of the groups above it, then its own.
        shares: Its shares among the accounts beside it.
        load: What it uses; shares / load is its dynamic priority.
        run_load: The part of `load` by the run time of its running jobs, which leaves with them.
        users: The users who have it together; empty: the one whose name it has.
    """

    path: tuple[str, ...]
    shares: float
    load: float
    run_load: float = 0.0
    users: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOrder:
    """The order of one queue of LSF.

    Attributes:
        first_priority: ``QueuedJob.priority`` of a new job; in a queue with shares, of the job that is next.
        default_shares: Shares of a user who has no account; None: the queue has no shares, and its jobs start
            by their priorities.
        accounts: Those that are known.
        slot_load: What one slot adds to the load of an account, and the load of an account without any.
    """

    first_priority: int
    default_shares: float | None = None
    accounts: tuple[ShareAccount, ...] = ()
    slot_load: float = 3.0
