"""Run one of LSF's commands, with the limits of :class:`advisor.slurm.commands.Commands`."""

from __future__ import annotations

from typing import Final

import structlog

from advisor.lsf.installation import Installation
from advisor.model.errors import BadInput, RetryLater
from advisor.slurm.commands import Commands

log = structlog.get_logger(__name__)

LATE: Final = "lsf.timeout"
"""The code of no answer in time: whether the command is carried out is not known."""
_TIMEOUT: Final = "slurm.timeout"


class LsfCommands:
    """Runs commands of one LSF."""

    def __init__(self, installation: Installation) -> None:
        folder = installation.environment_folder
        self._folder = installation.commands
        self._commands = Commands(self._folder, None, more={"LSF_ENVDIR": str(folder), "LC_ALL": "C"})

    def has(self, name: str) -> bool:
        """Whether there is such a command: bpost is not in every release."""
        return (self._folder / name).exists()

    def optional(self, name: str, *arguments: str) -> str:
        """What forecasts can do without: empty where LSF does not say it, as with no group or no job."""
        try:
            return self.text(name, *arguments) if self.has(name) else ""
        except RetryLater as error:
            log.debug("lsf.not_said", command=name, why=str(error))
            return ""

    def text(self, name: str, *arguments: str) -> str:
        """Standard output of a command.

        Raises:
            RetryLater: It failed (``lsf.command_failed``), took too long, as it does while no mbatchd answers
                (``lsf.timeout``), or wrote too much (``lsf.too_long``).
            BadInput: There is no such command (``lsf.no_command``).
        """
        try:
            return self._commands.text(name, *arguments)
        except RetryLater as error:
            said = f"{name}: no answer. `bqueues` says whether mbatchd answers"
            message = said if error.code == _TIMEOUT else str(error).replace("scontrol ping", "bqueues")
            raise RetryLater(message, code=error.code.replace("slurm.", "lsf.")) from None
        except BadInput as error:
            raise BadInput(
                error.what,
                where=error.where,
                mend="Set LSF_BINDIR in lsf.conf to the folder of LSF's commands",
                code="lsf.no_command",
            ) from None
