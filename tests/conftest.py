"""Fixtures that every test may use."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import hypothesis
import pytest
import structlog

if TYPE_CHECKING:
    from advisor.testing.ec2 import Ec2Emulator

# no timed asserts: a busy machine is not a failure
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

# On a busy machine scikit-learn's threads wait for each other longer than they work, and spin as they do.
# This is read when the first library with OpenMP is loaded, by us or by a process that we start.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

os.umask(0o022)  # users of the labs read what root makes, also where root's own umask is 077

_SLURM_SECONDS = 900  # a slow, busy machine that compiles everything anew
ROOT = Path(__file__).resolve().parent.parent


def trace_folder() -> Path | None:
    """Where the real logs lie: ADVISOR_TRACES, else a folder beside the project."""
    candidates = [os.environ.get("ADVISOR_TRACES"), ROOT.parent / "shared" / "traces"]
    return next((Path(c) for c in candidates if c and Path(c).is_dir()), None)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Tests on real logs are deselected, not skipped, where the logs are not at hand.

    Where pytest-xdist spreads the tests, by whole files, those that start a real Slurm come first: they
    mostly wait, and what needs the processors would make them late. Then come the files that take long, or
    one of them would be the last, alone. This order is made after the shuffle.
    """
    if trace_folder() is None and (gone := [item for item in items if item.get_closest_marker("traces")]):
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in gone]
    for item in items:
        if item.get_closest_marker("slurm") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLURM_SECONDS))
    yield
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("slurm", "slow")])


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may look into.

    Those of pytest cannot be opened for long: each run that starts on this host closes their parent again.
    """
    with tempfile.TemporaryDirectory(prefix="open") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture(scope="session")
def traces() -> Path:
    """Folder of the real workload logs."""
    folder = trace_folder()
    assert folder is not None
    return folder


@pytest.fixture(scope="session")
def running_emulator() -> Iterator[Ec2Emulator]:
    """One EC2 endpoint emulator for the whole run: starting it takes seconds, emptying it does not."""
    from advisor.testing.ec2 import Ec2Emulator

    with Ec2Emulator() as emulator, pytest.MonkeyPatch.context() as patch:
        for name, value in emulator.environment.items():
            if name != "AWS_ENDPOINT_URL":
                patch.setenv(name, value)
        yield emulator


@pytest.fixture
def emulator(running_emulator: Ec2Emulator) -> Ec2Emulator:
    """An empty EC2 account."""
    running_emulator.reset()
    return running_emulator


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], None]:
    """Swap a module's compiled functions for the Python they were compiled from.

    A test that passes both ways shows that numba means the same by them; and coverage, which cannot look into
    compiled code, sees the lines run.
    """

    def swap(module: ModuleType) -> None:
        for name, value in list(vars(module).items()):
            plain = getattr(value, "py_func", None)
            if plain is not None:
                monkeypatch.setattr(module, name, plain)

    return swap


@pytest.fixture(autouse=True)
def logging_of_its_own() -> Iterator[None]:
    """Logging as it was: a command run by a test configures it, and that standard error is closed by then."""
    handlers = list(logging.getLogger().handlers)
    yield
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers
