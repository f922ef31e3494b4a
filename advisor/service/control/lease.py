"""The lease: which of two control processes acts, where both share one folder of state.

The holder counts up in a file every two seconds. The other process takes over when it has not seen the count
change for fifteen seconds of its own monotonic clock, or at once when the holder has released the lease.
A lock keeps two processes apart that want to take over at the same time; it is held for that moment only.
What keeps a holder that was stopped and wakes up later from doing harm is the fence (`advisor.files.fence`).
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import structlog

from advisor.files import fence
from advisor.files.fence import MAX_LEASE_BYTES, Fence
from advisor.files.whole_file import read_plain_file, replace_file
from advisor.model.errors import AdvisorError
from advisor.service.exchange.lease_file import BEAT, LEASE, Beat, Holder, decoded
from advisor.service.running.clock import Clock

log = structlog.get_logger(__name__)

BEAT_SECONDS: Final = 2.0
SILENCE_SECONDS: Final = 15.0
_LOST: Final = 75  # EX_TEMPFAIL: systemd starts it anew, and it stands by


class Lease:
    """The lease of one control process.

    Args:
        folder: ``paths.state``, which both hosts mount. It must hold the file ``lease.json``, empty at first:
            a folder without it is taken for a mount point whose file system is missing.
    """

    def __init__(
        self, folder: Path, clock: Clock, *, host: str = os.uname().nodename, pid: int | None = None
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._host = host
        self._pid = os.getpid() if pid is None else pid
        self._seen: tuple[bytes, Beat | None] | None = None
        self._seen_at = 0.0  # monotonic seconds
        self._count = 0
        self.holder = Holder()

    def try_take(self) -> Fence | None:
        """Look at the lease once, and take it if it is free.

        Raises:
            OSError: The folder cannot be read or written: this process does not act. Where the lease names it
                already, the next process takes it after 15 s.
            AdvisorError: The lease cannot be read.
        """
        now = self._clock.monotonic()
        seen = self._look()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        content, beat = seen
        self.holder = decoded(content, Holder)
        is_free = not content or (beat is not None and beat.released)
        if not is_free and now - self._seen_at < SILENCE_SECONDS:
            return None
        with self._locked() as is_locked:
            if not is_locked or self._look() != seen:
                return None
            return self._take()

    def _take(self) -> Fence:
        beat = decoded(self._read(BEAT), Beat)
        number = max(self.holder.fence, beat.fence) + 1
        holder = Holder(fence=number, host=self._host, pid=self._pid, time=self._clock.wall())
        content = msgspec.json.encode(holder)
        replace_file(self._folder / LEASE, content, durable=True)
        # after the lease, before the state is read: see advisor.files.fence
        for partial in self._folder.glob(".*.partial"):
            partial.unlink(missing_ok=True)
        log.info("lease.taken", fence=number, before=self.holder.host or None)
        self.holder, self._seen = holder, None
        taken = Fence(self._folder / LEASE, number, content)
        self.beat(taken)
        return taken

    def beat(self, held: Fence, *, released: bool = False) -> None:
        """Say that the holder lives, or that it gives the lease back.

        Raises:
            OSError: The file cannot be written.
            AdvisorError: Another process has the lease (``lease.lost``), or it cannot be read.
        """
        self._count += 1
        beat = Beat(fence=held.number, count=self._count, released=released)
        replace_file(self._folder / BEAT, msgspec.json.encode(beat), check=held.check)

    def _look(self) -> tuple[bytes, Beat | None]:
        """The lease, and its holder's last beat."""
        content = read_plain_file(self._folder / LEASE, MAX_LEASE_BYTES)
        beat = decoded(self._read(BEAT), Beat)
        return content, beat if beat.fence == decoded(content, Holder).fence else None

    def _read(self, name: str) -> bytes:
        try:
            return read_plain_file(self._folder / name, MAX_LEASE_BYTES)
        except FileNotFoundError:
            return b""

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Keep others from taking the lease; False when another process is about to."""
        with (self._folder / "lease.lock").open("wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


class LeaseKeeper:
    """Keeps a lease in a thread, and ends the process when another one has taken it.

    Args:
        held: What `Lease.try_take` returned; it is put in force here.
    """

    def __init__(self, lease: Lease, held: Fence) -> None:
        self._lease = lease
        self._held = held
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        fence.put_in_force(held)
        self._thread.start()

    def release(self) -> None:
        """Give the lease back: the other process takes over at once."""
        self._stop.set()
        self._thread.join(BEAT_SECONDS)
        try:
            self._lease.beat(self._held, released=True)
        except (OSError, AdvisorError) as error:
            log.warning("lease.not_released", why=str(error))
        fence.put_in_force(None)

    def _keep(self) -> None:
        is_failing = False
        while not self._stop.wait(BEAT_SECONDS):
            try:
                self._lease.beat(self._held)
            except AdvisorError as error:
                if error.code == "lease.lost":
                    log.warning("lease.lost", why=str(error))
                    sys.stdout.flush()
                    os._exit(_LOST)  # nothing may be written any more, also not while loops end
                problem = str(error)
            except OSError as error:
                problem = str(error)
            else:
                is_failing = False
                continue
            if not is_failing:
                log.error("lease.not_renewed", why=problem, then="another controller may take over")
            is_failing = True
