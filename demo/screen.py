"""The demo's screen: EC2's nodes on top, the queue's curve, then the newest submissions, one line a job."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

_OTHER_ROWS: Final = 13
"""Lines of both panels, of the table's heading and of the cursor's line."""
_MIN_ROWS: Final = 3
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_CURVE_CHARACTERS: Final = 40
_STATE_WORDS: Final = {"~": "powered down", "#": "booting", "%": "powering down", "!": "powering down"}
"""The marks that sinfo puts behind the state of a cloud node, in words."""
_WHERE: Final = {None: Text(""), True: Text("cloud", "bold magenta"), False: Text("here")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One submission: where it goes (`moved` is None until that is known) and why."""

    job_id: int
    user: str
    processors: int
    state: str
    moved: bool | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the screen shows at one moment.

    Attributes:
        title, compression, processors: The log; its seconds in one of ours; size of the on-premise cluster.
        seconds, planned_seconds: Since the first submission; until the last one.
        planned, submitted, waiting, running, ended: Jobs.
        queue: Waiting jobs at each poll, oldest first.
        nodes: Cloud nodes with Slurm's state.
        instances, spot_instances, booting: Instances so far, those of them on spot, and those that boot now.
        rows: Submissions, newest first.
    """

    title: str
    compression: float
    processors: int
    seconds: float
    planned_seconds: float
    planned: int
    submitted: int
    waiting: int
    running: int
    ended: int
    queue: tuple[int, ...]
    nodes: tuple[tuple[str, str], ...]
    instances: int
    spot_instances: int
    booting: int
    rows: tuple[Row, ...]


def screen(view: View, height: int) -> Group:
    """Lay the view out so that nothing is cut off in a terminal of so many lines."""
    return Group(_head(view), _cloud(view), _jobs(view, max(_MIN_ROWS, height - _OTHER_ROWS)))


def as_line(view: View) -> str:
    """Say the same in one line, where the output is no terminal."""
    return (
        f"{view.seconds:4.0f} s: {_counts(view)}; {view.instances} instances so far, {view.booting} booting"
    )


def _counts(view: View) -> str:
    return (
        f"{view.submitted} of {view.planned} jobs submitted, {view.waiting} waiting, {view.running} running, "
        f"{view.ended} ended"
    )


def _head(view: View) -> Panel:
    left = max(0.0, view.planned_seconds - view.seconds)
    when = f"last submission in {left:.0f} s" if left else "waiting for the last jobs to end"
    lines = (
        f"{view.seconds:.0f} s, {when}",
        _counts(view),
        f"waiting jobs  {curve(view.queue, _CURVE_CHARACTERS)}  at most {max(view.queue, default=0)}",
        f"on-premise: {view.processors} processors; 1 s here is {view.compression:.0f} s of {view.title}",
    )
    text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
    return Panel(text, title="Burst Advisor on a real Slurm", title_align="left")


def _cloud(view: View) -> Panel:
    words = Counter(_STATE_WORDS.get(state[-1:], state.rstrip("*+-$@^")) for _, state in view.nodes)
    nodes = ", ".join(f"{number} {word}" for word, number in sorted(words.items()))
    text = Text(f"nodes: {nodes or 'none yet'}", no_wrap=True, overflow="ellipsis")
    text.append(
        f"\n{view.instances} instances so far, {view.spot_instances} on spot; {view.booting} booting now"
    )
    return Panel(text, title="EC2 (emulated)", title_align="left")


def _jobs(view: View, rows: int) -> Table:
    table = Table(expand=True, box=None, pad_edge=False, header_style="bold")
    for name, justify in (("job", "right"), ("user", "left"), ("cpus", "right"), ("state", "left")):
        table.add_column(name, no_wrap=True, justify="right" if justify == "right" else "left")
    table.add_column("where", no_wrap=True)
    table.add_column("why (newest submission first)", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in view.rows[:rows]:
        table.add_row(
            str(row.job_id), row.user, str(row.processors), row.state, _WHERE[row.moved], Text(row.why)
        )
    return table


def curve(values: tuple[int, ...], characters: int) -> str:
    """Draw numbers as one line of blocks, the newest at the right; each block is the largest of its share."""
    if not values:
        return ""
    most = max(*values, 1)
    width = min(characters, len(values))
    shares = [values[i * len(values) // width : (i + 1) * len(values) // width] for i in range(width)]
    return "".join(_BLOCKS[round(max(share) / most * (len(_BLOCKS) - 1))] for share in shares)
