"""The esub, run as LSF runs it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "lsf_hooks" / "esub.advisor"

ATTEMPTS = 40
"""A machine under load may miss half a second now and then."""


def parameters(**options: str) -> str:
    """What bsub writes: strings in quotes, quotes in them escaped, numbers and Y bare."""
    lines = []
    for name, value in options.items():
        bare = value in {"Y", "SUB_RESET"} or value.isdigit()
        written = value if bare else '"' + value.replace('"', '\\"') + '"'
        lines.append(f"LSB_SUB_{name}={written}\n")
    return "".join(lines)


USUAL = {"NUM_PROCESSORS": "4", "MAX_NUM_PROCESSORS": "4", "RLIMIT_RUN": "7200", "OUT_FILE": "%J.out"}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script's functions."""
    loader = importlib.machinery.SourceFileLoader("esub_advisor", str(SCRIPT))
    spec = importlib.util.spec_from_loader("esub_advisor", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
