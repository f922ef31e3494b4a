"""The interruption loop's access to single jobs under LSF, which warns, ends and requeues them itself."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.slurm.running_jobs import JobEnd, NodeConstraints


class JobsUnwarned:
    """LSF requeues the jobs of a host that its resource connector loses, and warns them by ``bsub -wa``."""

    def warn(self, _job_id: int) -> str:
        """No signal is sent."""
        return ""

    def node_constraints(self, _job_id: int) -> NodeConstraints:
        """They are part of what a job asks for; LSF excludes no nodes."""
        return NodeConstraints()

    def end_of(self, _job_id: int) -> JobEnd | None:
        """Not asked: LSF requeues jobs that a lost host has ended."""
        return None

    def failed_on(self, _nodes: Sequence[str]) -> dict[int, tuple[str, ...]]:
        """None is requeued by us."""
        return {}
