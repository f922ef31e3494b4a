"""Tasks from a file: a CSV of tasks, or a workload log."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from advisor.model.errors import BadInput
from advisor.papers.stability.world.tasks import Tasks
from advisor.replay.sources import load_table
from advisor.replay.spot_traces import csv_rows

COLUMNS = ("job", "submit", "duration", "cores")
_MAX_TASKS = 200_000
_MAX_CORES = 1_000_000


def load_tasks(path: str, *, most_cores: int) -> Tasks:
    """Tasks of a file, in order of submission.

    Args:
        path: A CSV file with the columns ``job,submit,duration,cores`` and optionally ``estimate`` (seconds),
            or a log (``.swf``, ``.swf.gz``), of which each job is one task with its requested time as the
            estimate (its run time where it has none); the first is submitted at the nodes' time 0, as a log's
            times may be those of a clock.
        most_cores: Tasks that need more are left out: no node could ever run them.

    Raises:
        BadInput: Unreadable, malformed, or nothing left.
    """
    is_log = path.endswith((".swf", ".swf.gz"))
    tasks = _from_log(path) if is_log else _from_csv(Path(path))
    kept = np.flatnonzero((tasks.cores <= most_cores) & (tasks.duration > 0))
    if not len(kept):
        raise _bad(f"no task in it fits {most_cores} cores", path, "Give smaller tasks or larger nodes")
    if len(kept) > _MAX_TASKS:
        raise _bad(f"it has {len(kept):,} tasks", path, f"Give at most {_MAX_TASKS:,} tasks")
    kept = kept[np.argsort(tasks.submit[kept], kind="stable")]
    _, job = np.unique(tasks.job[kept], return_inverse=True)
    submit = tasks.submit[kept]
    return Tasks(
        job=job.astype(np.int64),
        submit=submit - min(0.0, submit[0]),
        duration=tasks.duration[kept],
        estimate=tasks.estimate[kept],
        cores=tasks.cores[kept],
    )


def _bad(what: str, where: str, mend: str) -> BadInput:
    return BadInput(what, where=where, mend=mend, code="tasks.malformed")


def _from_log(path: str) -> Tasks:
    table = load_table(path)
    asked = np.where(table.requested_time > 0, table.requested_time, table.run)  # NaN is not above 0
    return Tasks(
        job=np.arange(len(table)),
        submit=(table.submit - table.submit[0]).astype(np.float64),
        duration=table.run.astype(np.float64),
        estimate=np.maximum(asked, 1.0),
        cores=table.processors,
    )


def _from_csv(path: Path) -> Tasks:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise _bad(
            f"cannot read it ({reason})", str(path), "Choose uniform, gaussian, pareto, or give a file"
        ) from None
    names: dict[str, int] = {}
    found: list[tuple[float, ...]] = []
    for line, row in csv_rows(text, path, COLUMNS):
        try:
            numbers = [float(row[name]) for name in COLUMNS[1:]]
            estimate = float(row.get("estimate") or numbers[1])
            good = np.all(np.isfinite([*numbers, estimate])) and min(*numbers, estimate) >= 0
            if not good or not (1 <= numbers[2] <= _MAX_CORES and numbers[2].is_integer()):
                raise ValueError  # noqa: TRY301 - the message below serves both
            found.append((names.setdefault(row["job"], len(names)), *numbers, max(estimate, 1.0)))
        except (ValueError, TypeError):
            raise _bad(
                f"not {','.join(COLUMNS)}", f"{path}, line {line}", f"Cores are whole, 1 to {_MAX_CORES:,}"
            ) from None
    columns = np.array(found, np.float64).reshape(-1, 5).T
    return Tasks(
        job=columns[0].astype(np.int64),
        submit=columns[1],
        duration=columns[2],
        estimate=columns[4],
        cores=columns[3].astype(np.int64),
    )
