"""The status of `advisor control`, a small JSON file, so that `advisor status` needs no poll."""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final

import msgspec

from advisor.files import fence
from advisor.files.whole_file import read_replaced, replace_file
from advisor.model.errors import UseFallback
from advisor.service.exchange.access import denied

NAME: Final = "control-status.json"
MISSING: Final = "status.missing"
HOW_TO_START: Final = "`systemctl status advisor-control` says whether it runs"
_MAX_BYTES: Final = 64 * 1024 * 1024
"""The status of ten thousand cloud nodes takes a few MiB. No more than this is read of a larger file."""


def write(folder: Path, content: Mapping[str, Any]) -> None:
    """Replace the file.

    Raises:
        OSError: The folder is missing, full or not writable.
    """
    replace_file(folder / NAME, _encoder.encode(content), check=fence.check)


def read(folder: Path) -> dict[str, Any]:
    """Read the file.

    Raises:
        UseFallback: There is none (``status.missing``) or it cannot be used (``status.unreadable``).
        TellAdmin: This login may not read it (``access.denied``).
    """
    path = folder / NAME
    try:
        content = json.loads(read_replaced(path, _MAX_BYTES))
    except FileNotFoundError:
        raise UseFallback(f"{path}: advisor control has not run yet. {HOW_TO_START}", code=MISSING) from None
    except PermissionError as error:
        raise denied(path) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UseFallback(
            f"{path} cannot be read: {error}. `advisor control` writes a new one every few seconds",
            code="status.unreadable",
        ) from error
    if not isinstance(content, dict):
        raise UseFallback(
            f"{path}: not a status file of this release. Start `advisor control`, which writes a new one",
            code="status.unreadable",
        )
    return content


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet | tuple):
        return list(value)
    raise NotImplementedError(type(value).__name__)


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)
