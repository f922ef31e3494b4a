"""Runs that are independent of each other, side by side: in processes of this machine, or on a dask cluster.

Everything goes through joblib. Where `ADVISOR_DASK` names a scheduler (``tcp://host:8786``), its workers do
the runs of all commands; they need the same release of this package. A run gives the same result wherever it
is done, and results come back in the order of their tasks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self, TypeVar

import numpy as np

from advisor.model.errors import BadInput, RetryLater

DASK_VARIABLE: Final = "ADVISOR_DASK"
"""Environment variable with the address of a dask scheduler."""
_TELLING_SECONDS: Final = 0.5
_REACH_SECONDS: Final = 10
_LONG_LOG: Final = 20_000
Asked = TypeVar("Asked")
Found = TypeVar("Found")

Tick = Callable[[str, int, int], None]
"""``tick(what, done, total)``."""


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def usual_processes(jobs: int) -> int:
    """Processes for a log of so many jobs: starting them takes longer than to replay a short one."""
    return cores() if jobs >= _LONG_LOG else 1


def side_by_side(
    run: Callable[[Asked, Tick | None], Found],
    tasks: Sequence[Asked],
    sizes: Sequence[int],
    *,
    processes: int,
    tick: Tick | None = None,
    what: str = "jobs of all simulations",
) -> list[Found]:
    """Do runs, so many at the same time as there are processes; on a dask cluster, as it has workers.

    Args:
        run: A function of a module, so that another process can import it. It may report its progress.
        sizes: Size of each task, the number that its last progress report has.
        what: Those sizes count, for the progress.

    Returns:
        Results in the order of the tasks.

    Raises:
        BadInput: `ADVISOR_DASK` is set, and dask is not installed (``parallel.dask``).
        RetryLater: The scheduler does not answer (``parallel.dask``).
    """
    address = os.environ.get(DASK_VARIABLE, "")
    if not address and min(processes, len(tasks)) <= 1:
        return [run(task, tick) for task in tasks]
    from joblib import Parallel, delayed  # noqa: PLC0415 (only where processes are started)

    if address:
        with _dask(address):
            done = 0
            results: dict[int, Found] = {}
            calls = (delayed(_numbered)(run, task, at) for at, task in enumerate(tasks))
            for at, found in Parallel(return_as="generator_unordered")(calls):
                results[at] = found
                done += sizes[at]
                if tick is not None:
                    tick(what, done, sum(sizes))
            return [results[at] for at in range(len(tasks))]
    with _Counts(sizes, tick, what) as counts:
        parallel = Parallel(n_jobs=min(processes, len(tasks)))
        pairs = enumerate(zip(tasks, sizes, strict=True))
        found_here: list[Found] = parallel(
            delayed(_counted)(run, task, size, counts.path, at) for at, (task, size) in pairs
        )
    return found_here


@contextmanager
def _dask(address: str) -> Iterator[None]:
    """Let the workers of a dask scheduler be joblib's backend."""
    from joblib import parallel_config  # noqa: PLC0415 (only where it is asked for)

    try:
        from distributed import Client  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise BadInput(
            "runs on a dask cluster need the package distributed",
            where=DASK_VARIABLE,
            mend=f"Install burst-advisor[dask], or unset {DASK_VARIABLE}",
            code="parallel.dask",
        ) from error
    try:
        client: Any = Client(  # type: ignore[no-untyped-call]
            address, timeout=_REACH_SECONDS, set_as_default=True
        )
    except (OSError, ValueError) as error:
        raise RetryLater(
            f"no dask scheduler answers at {address} ({error}). Start it and its workers, "
            f"or unset {DASK_VARIABLE}",
            code="parallel.dask",
        ) from error
    with client, parallel_config(backend="dask", wait_for_workers_timeout=_REACH_SECONDS):
        yield


class _Counts:
    """How far each task is, in a file that the processes share; a thread tells the sum.

    Args:
        tick: Called with the sum of all tasks' progress, a few times a second.
        what: Is counted.
    """

    def __init__(self, sizes: Sequence[int], tick: Tick | None, what: str) -> None:
        self._total, self._tick, self._what = sum(sizes), tick, what
        self._folder = TemporaryDirectory(prefix="advisor-parallel-")
        self.path = Path(self._folder.name) / "done"
        self._counts = np.memmap(self.path, np.int64, "w+", shape=(len(sizes),))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        del self._counts
        self._folder.cleanup()

    def _tell(self) -> None:
        is_over = False
        while self._tick is not None and not is_over:
            is_over = self._over.wait(_TELLING_SECONDS)
            self._tick(self._what, int(self._counts.sum()), self._total)


def _counted(
    run: Callable[[Asked, Tick | None], Found], task: Asked, size: int, path: Path, at: int
) -> Found:
    """Do a run in a process of its own."""
    counts = np.memmap(path, np.int64, "r+")

    def count(_what: str, done: int, _total: int) -> None:
        counts[at] = done

    found = run(task, count)
    counts[at] = size
    return found


def _numbered(run: Callable[[Asked, Tick | None], Found], task: Asked, at: int) -> tuple[int, Found]:
    """Do a run on a worker, and say which it was."""
    return at, run(task, None)
