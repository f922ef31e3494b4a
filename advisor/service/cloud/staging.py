"""The next step of a job whose data was copied to the cloud before its start, or could not be.

`advisor control` takes it when `prolog_slurmctld` tells it how the copying has ended.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from advisor.decide.submission.cloud_terms import needed_data
from advisor.model.errors import AdvisorError
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.exchange.staged import Staged

log = structlog.get_logger(__name__)


class StageIns:
    """Learns how fast data gets to the cloud, and brings jobs back whose data did not.

    Args:
        give_back: Lets a job be requeued, also one that may not be, and brings it back on-premise once it
            is.
    """

    def __init__(self, context: CloudContext, *, give_back: Callable[[int], None]) -> None:
        self._context = context
        self._give_back = give_back

    def ended(self, staged: Staged) -> bool:
        """Note the end of a job's stage-in.

        Returns:
            Whether that is settled; False while the job is not known or Slurm cannot be reached. A job whose
            stage-in has failed must not be requeued then, for slurmctld would end it if it may not be.
        """
        try:
            jobs = {queued.job.job_id: queued for queued in self._context.view.fresh().jobs}
            queued = jobs.get(staged.job)
            if queued is None:
                return False
            if staged.ok:
                need = needed_data(queued.job, self._context.settings)
                if need is not None and need.gb_in > 0.0 and staged.seconds > 0.0:
                    self._context.cloud.staged(1000.0 * need.gb_in / staged.seconds)
                return True
            self._give_back(staged.job)
        except AdvisorError as error:
            log.warning("job.not_given_back", job=staged.job, why=error.code)
            return False
        log.warning("job.not_staged", job=staged.job, seconds=round(staged.seconds, 1))
        return True
