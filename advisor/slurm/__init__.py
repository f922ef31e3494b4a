"""Talk to Slurm: one protocol, back ends behind it."""

from advisor.slurm.cli import CliBackend
from advisor.slurm.protocol import (
    AccountingExport,
    Partition,
    QueuedJob,
    SlurmBackend,
    SlurmSnapshot,
)

__all__ = [
    "AccountingExport",
    "CliBackend",
    "Partition",
    "QueuedJob",
    "SlurmBackend",
    "SlurmSnapshot",
]
