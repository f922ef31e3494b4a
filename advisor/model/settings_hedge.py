"""Settings of the hedged start: a job starts in the cloud and keeps its place in the on-premise queue."""

from __future__ import annotations

from pathlib import Path

from advisor.model.settings_section import Section, setting


class HedgeSettings(Section):
    """The hedged start: a job starts in the cloud and keeps its place on-premise (docs/designs/0013)."""

    enabled: bool = setting(
        False,
        "Whether jobs that may be requeued start hedged: they get a limited time in the cloud, while a "
        "placeholder keeps their place in the on-premise queue. It needs `advisor-places.socket`, through "
        "which placeholders are submitted for users.",
        why="It requeues jobs and runs a small helper as root; the site should decide for both.",
        expert=True,
    )
    opt_out_comment: str = setting(
        "no-hedge",
        "A job whose `--comment` contains this word never keeps a place: it moves whole, or not at all.",
        why="docs/users.md tells users about this word.",
        expert=True,
    )
    slot_held_seconds: float = setting(
        180.0,
        "The longest time for which an on-premise slot is held while its job is brought back. Then the slot "
        "is given up.",
        why="A requeue takes seconds, or KillWait for a job that ignores SIGTERM; three minutes cover a "
        "restart of `advisor control`, too. The slot is idle meanwhile.",
        unit="s",
        ge=10.0,
        le=3600.0,
        expert=True,
    )
    helper_socket: Path = setting(
        Path("/run/advisor-places.sock"),
        "The socket of the helper that submits placeholders as root.",
        why="The unit `advisor-places.socket` opens it there.",
        expert=True,
    )
