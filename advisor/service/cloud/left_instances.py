"""Refuse settings, at a start or reload, under which running instances would be neither ended nor counted."""

from __future__ import annotations

import structlog

from advisor.ec2.listing import instances_that_may_cost
from advisor.model.errors import AdvisorError, BadInput
from advisor.model.settings import Settings
from advisor.service.state.state_files import BOOTS

log = structlog.get_logger(__name__)


def refuse_to_leave_instances(settings: Settings) -> None:
    """Check that no instance runs under a former ``cluster.name`` or in a former ``ec2.region``.

    An instance is found by its region and the tag of ``cluster.name`` alone. Where EC2 cannot be asked, that
    is logged, and the settings hold.

    Raises:
        BadInput: Some run.
    """
    try:
        seen = BOOTS.at(settings.paths.state).load()
    except AdvisorError:  # damaged: told when the record of boots is read
        return
    if seen is None or not seen.cluster or not _is_left(settings, seen.cluster, seen.region):
        return
    try:
        former = settings.ec2.model_copy(update={"region": seen.region})
        running = instances_that_may_cost(former, seen.cluster)
    except AdvisorError as error:
        log.warning("cloud.former_not_listed", cluster=seen.cluster, region=seen.region, why=str(error))
        return
    if running:
        raise BadInput(
            f"{len(running)} instances with the tag of cluster.name {seen.cluster!r} run in {seen.region} "
            f"({min(running)} among them), which these settings would leave behind: none would be ended or "
            "counted",
            where=f"cluster.name = {settings.cluster.name!r}, ec2.region = {settings.ec2.region!r}, "
            f"ec2.image_id = {settings.ec2.image_id!r}",
            mend="Change them back until the cloud is empty (power its nodes down), or terminate the "
            "instances",
            code="cloud.instances_left",
        )


def _is_left(settings: Settings, cluster: str, region: str) -> bool:
    return not settings.ec2.image_id or (settings.cluster.name, settings.ec2.region) != (cluster, region)
