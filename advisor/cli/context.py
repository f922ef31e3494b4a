"""The settings of a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from advisor.config import LoadedSettings
    from advisor.model.settings import Settings

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file; by default ADVISOR_CONFIG, else /etc/advisor/advisor.toml.",
    ),
]


def loaded_settings(config: Path | None) -> LoadedSettings:
    """Settings in force with their origins; BadInput (exit code 2) when they are wrong."""
    from advisor.config import load

    return load(config, os.environ)


def settings_of(config: Path | None) -> Settings:
    """Settings in force, with those of the policy."""
    from advisor.decide.submission.policy import in_force

    return in_force(loaded_settings(config).settings)
