"""What the control process last wrote about the cloud side, for the commands that show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from advisor.cli.context import settings_of


def cloud_report(config: Path | None) -> tuple[dict[str, Any], float]:
    """The report, and when it was written, epoch seconds.

    Raises
    ------
    BadInput
        No cloud is configured.
    UseFallback
        The control process has not written one (yet).
    """
    from advisor.model.errors import BadInput, UseFallback
    from advisor.service.status_file import read

    content = read(settings_of(config).paths.run)
    report, written = content.get("cloud_report"), content.get("time")
    if content.get("cloud_configured") is False:
        raise BadInput(
            "no cloud is configured",
            where="ec2.image_id",
            mend="Set it to the image of your nodes and restart advisor control",
            code="cloud.not_configured",
        )
    if not isinstance(report, dict) or not isinstance(written, int | float):
        raise UseFallback("advisor control has written nothing about the cloud yet", code="status.unreadable")
    return report, float(written)
