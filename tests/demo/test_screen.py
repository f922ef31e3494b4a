"""What the demo shows: nothing is cut off, whatever the terminal's size."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from demo.screen import Row, View, as_line, curve, screen

VIEW = View(
    title="8000 synthetic jobs",
    compression=2400.0,
    processors=128,
    seconds=31.0,
    planned_seconds=60.0,
    planned=93,
    submitted=60,
    waiting=12,
    running=9,
    ended=39,
    queue=(0, 1, 5, 12, 9, 12),
    nodes=tuple((f"burst{i}", "idle~" if i > 3 else "alloc") for i in range(1, 7)),
    instances=4,
    spot_instances=3,
    booting=1,
    rows=tuple(
        Row(
            job_id=100 - i,
            user="backup",
            processors=64,
            state="completed",
            moved=(None, True, False)[i % 3],
            why="It would wait 3 h 07 min (±1 h 02 min) here and be done 3 h 00 min sooner in the cloud",
        )
        for i in range(60)
    ),
)


def shown(width: int, height: int) -> list[str]:
    output = io.StringIO()
    console = Console(file=output, width=width, height=height, force_terminal=True, color_system=None)
    console.print(screen(VIEW, height))
    return output.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 40), (120, 50), (200, 60)])
def test_day_one_20_the_screen_fits_and_shows_ec2_and_the_newest_jobs(width: int, height: int) -> None:
    lines = shown(width, height)
    assert len(lines) < height, "the last line is the cursor's"
    assert all(len(line.rstrip()) <= width for line in lines)
    text = "\n".join(lines)
    assert "EC2" in text
    assert "booting now" in text
    jobs = [int(line.split()[0]) for line in lines if line.strip()[:2].isdigit() or line.startswith("100")]
    assert jobs[0] == 100, "the newest submission comes first"
    assert jobs == list(range(100, 100 - len(jobs), -1)), "one line a job"
    assert len(jobs) >= min(60, height - 14)


def test_day_one_20_the_curve_of_the_queue() -> None:
    assert curve((), 40) == ""
    assert curve((0, 0), 40) == "▁▁"
    assert curve((0, 4, 8), 40) == "▁▅█"
    assert curve(tuple(range(1000)), 40)[-1] == "█"
    assert len(curve(tuple(range(1000)), 40)) == 40


def test_where_there_is_no_terminal_a_line_says_the_same() -> None:
    assert as_line(VIEW).startswith("  31 s: 60 of 93 jobs submitted, 12 waiting")
