"""The last poll of Slurm, shared: one query for all loops (docs/faults.md, F29)."""

from __future__ import annotations

import threading

from advisor.model.cluster import ClusterState
from advisor.model.errors import RetryLater
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.observation.site_view import StateLog
from advisor.service.running.clock import Clock


class SharedView:
    """The last snapshot and the states of the last days. Thread-safe.

    Ages are monotonic, so that setting the clock makes no snapshot old or young. A snapshot older than
    ``max_gap_seconds`` is not acted upon, and a state is not taken for what a later submission met.
    """

    def __init__(self, clock: Clock, max_gap_seconds: float) -> None:
        self._clock = clock
        self._max_gap = max_gap_seconds
        self._lock = threading.Lock()
        self._snapshot: ClusterSnapshot | None = None
        self._seen = 0.0
        self._states = StateLog(max_gap_seconds)

    def update(self, snapshot: ClusterSnapshot, state: ClusterState) -> None:
        """Replace the snapshot; remember the state."""
        with self._lock:
            self._snapshot = snapshot
            self._seen = self._clock.monotonic()
            self._states.add(state)

    def fresh(self) -> ClusterSnapshot:
        """The last snapshot.

        Raises:
            RetryLater: There is none, or it is too old to act upon (``view.stale``).
        """
        snapshot = self.if_fresh()
        if snapshot is None:
            raise RetryLater(
                "the last successful poll of Slurm is too old. `advisor status` says why polls fail",
                code="view.stale",
            )
        return snapshot

    def if_fresh(self) -> ClusterSnapshot | None:
        """The same; None where :meth:`fresh` raises."""
        with self._lock:
            is_stale = self._clock.monotonic() - self._seen > self._max_gap
            return None if is_stale else self._snapshot

    def fresh_poll(self) -> tuple[ClusterSnapshot, float]:
        """The last snapshot, and when its poll began at the latest: see :meth:`fresh`, :attr:`poll_began`."""
        began = self.poll_began  # first: the snapshot may be a newer one
        return self.fresh(), began

    @property
    def poll_began(self) -> float:
        """When the last poll of Slurm began, monotonic seconds; it may not show what happened later."""
        with self._lock:
            return self._seen - (self._snapshot.seconds if self._snapshot is not None else 0.0)

    def state_at(self, time: float) -> ClusterState | None:
        """The cluster's state at a moment (epoch seconds); None without a poll at that time."""
        with self._lock:
            return self._states.at(time)
