"""Settings of what is told to the admins without being asked."""

from __future__ import annotations

from pathlib import Path

from advisor.model.settings_section import Section, setting


class NoticeSettings(Section):
    """Where `advisor notify`, which a timer runs each minute, tells of troubles and of the budget."""

    webhook_file: Path | None = setting(
        None,
        "A file with the URL of a webhook, which gets each notice as JSON (`text`, `key`, `is_over`, "
        "`cluster`). The URL often is a secret, so it is not a setting; only the service's user should "
        "read the file.",
        why="Only the site has a webhook.",
        expert=True,
    )
    mail_to: tuple[str, ...] = setting(
        (),
        "The addresses that get each notice by mail.",
        why="Only the site knows who is to be told.",
        expert=True,
    )
    mail_server: str = setting(
        "localhost:25",
        "The mail server, which takes mail from this host without a password, and its port.",
        why="Most hosts of a cluster have a mail server that passes mail on.",
        form="a host's name, a colon and a port",
        pattern=r"^[A-Za-z0-9._\[\]-]+:[0-9]{1,5}$",
        expert=True,
    )
    repeat_hours: float = setting(
        24.0,
        "The time after which the notice of a problem that lasts is sent again.",
        why="A notice once a day is not forgotten, and does not annoy.",
        unit="h",
        ge=1.0,
        le=8760.0,
        expert=True,
    )

    @property
    def is_set(self) -> bool:
        """Whether there is anybody to tell."""
        return self.webhook_file is not None or bool(self.mail_to)
