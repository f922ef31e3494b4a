"""Time many single calls and say how long they took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def microseconds_each(call: Callable[[T], object], arguments: Iterable[T]) -> list[float]:
    """Wall-clock time of each call."""
    spent = []
    for argument in arguments:
        began = time.perf_counter_ns()
        call(argument)
        spent.append((time.perf_counter_ns() - began) / 1e3)
    return spent


def percentiles(values: list[float]) -> dict[str, float]:
    """Median, 99th percentile and the largest."""
    return {
        "p50": float(np.percentile(values, 50)),
        "p99": float(np.percentile(values, 99)),
        "max": float(np.max(values)),
    }


def processor_seconds(pid: int) -> float:
    """Processor time a process has used so far, its ended threads included, to the nanosecond (Linux)."""
    clock = (
        ~pid << 3
    ) | 2  # the kernel's number of a process's CPUCLOCK_SCHED, as clock_getcpuclockid makes it
    return time.clock_gettime(clock)
