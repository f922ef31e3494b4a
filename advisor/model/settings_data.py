"""Settings of the data that jobs bring to the cloud: how fast it gets there, and what its transfer costs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from advisor.model.data_words import size_gb
from advisor.model.settings_section import Dollars, Section, setting


def _a_size(text: str) -> str:
    if math.isnan(size_gb(text)):
        msg = f"{text!r} is no size: write 20GB, 1.5TB or 512MiB"
        raise ValueError(msg)
    return text


Size = Annotated[str, AfterValidator(_a_size)]
"""An amount of data with its unit."""


class DataSettings(Section):
    """Data that a job brings to the cloud: ``sbatch --comment=data=20GB`` (docs/users.md)."""

    bandwidth_mb_per_second: float = setting(
        100.0,
        "How fast the data of one job gets to the cloud and back. Once the stage-in command has been "
        "measured three times, what was measured holds for the way there.",
        why="It is what a line of 1 Gbit/s carries.",
        unit="MB/s",
        gt=0.0,
        expert=True,
    )
    usd_per_gb_in: Dollars = setting(
        0.0,
        "What it costs to bring a GB (1e9 bytes) to the cloud.",
        why="AWS does not charge for inbound transfer.",
        unit="USD",
        expert=True,
    )
    usd_per_gb_out: Dollars = setting(
        0.09,
        "What it costs to take a GB (1e9 bytes) back from the cloud.",
        why="AWS takes 0.09 USD for most of the first 10 TB of a month.",
        unit="USD",
        expert=True,
    )
    accounts: dict[str, Size] = setting(
        {},
        'What each job of a Slurm account brings to the cloud, such as `{ climate = "20GB" }`; the time '
        "and price of the transfer count in each decision. Nothing is counted for the way back. A job whose "
        "comment has `data=` or `data-out=` counts what that says instead.",
        why="The table is empty because only the site knows its projects' data.",
        expert=True,
    )
    stage_in: Path | None = setting(
        None,
        "The command that `prolog_slurmctld` runs before each job of the burst partition while its nodes "
        "boot, to bring its data. That program reads advisor_programs.conf: set `stage_in` there to the same "
        "command. Without it a job is expected to copy its data itself, after the boot.",
        why="How data gets to the cloud is the site's own.",
        expert=True,
    )
