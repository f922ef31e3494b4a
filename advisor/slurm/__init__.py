"""Talk to Slurm: one protocol, back ends behind it."""

from advisor.slurm.cli import CliBackend
from advisor.slurm.protocol import AccountingExport, SlurmBackend

__all__ = ["AccountingExport", "CliBackend", "SlurmBackend"]
