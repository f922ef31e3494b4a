"""What tests of the exchange share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose name leaves room for a socket's: 108 bytes are all that Linux takes."""
    with TemporaryDirectory(prefix="ho-") as folder:
        yield Path(folder)
