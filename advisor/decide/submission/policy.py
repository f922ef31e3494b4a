"""The policy in force (``cluster.policy``), and the settings by which each published rule is applied.

A published rule is the same code, with the settings that make it that rule and everything else switched off.
So the daemons, a replay and a rehearsal run a policy by the settings of :func:`in_force`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from advisor.decide.explanation.reasons import Reason
from advisor.model.advice import Answer, Question, Verdict
from advisor.model.settings import Policy, Settings

AMBATI_SHORT_SECONDS: Final = 900.0
"""t of ``ambati2021`` (``waiting.long_job_seconds``) on a site that sets neither t nor b."""
AMBATI_WAIT_SECONDS: Final = 86_400.0
"""b (``waiting.short_wait_seconds``) there; both as in ``advisor replay waiting``."""

Sections = Mapping[str, Mapping[str, Any]]

_NO_GATES: Final = MappingProxyType({"short_wait_seconds": 0.0, "long_job_seconds": math.inf})
_DECIDED_ONCE: Final = MappingProxyType({**_NO_GATES, "ask_again_seconds": 0.0})
_OFF: Final[Sections] = MappingProxyType(
    {
        "waiting": _DECIDED_ONCE,
        "hedge": {"enabled": False},
        "promise": {"enabled": False},
        "size": {"enabled": False},
        "portfolio": {"enabled": False},
        "matching": {"enabled": False},
        "acquirer": {"kept_nodes": 0},
    }
)
_SECTIONS: Final[Mapping[Policy, Sections]] = MappingProxyType(
    {
        "price": {"waiting": _NO_GATES},
        "cunha2017": _OFF,
        "zrigui2022": {**_OFF, "size": {"enabled": True}},
        "deng2013": {**_OFF, "portfolio": {"enabled": True}},
        "agarwal2023": {
            **{name: values for name, values in _OFF.items() if name != "acquirer"},
            "matching": {"enabled": True},
        },
    }
)
_UNDER_LSF: Final[Sections] = MappingProxyType(
    {
        **{name: values for name, values in _OFF.items() if name not in {"waiting", "size", "promise"}},
        "cluster": {"hook": False, "requeue_default": False},
    }
)
"""Under LSF these settings are off, because they need Slurm's hook, placeholders or weights.

There a job may be requeued only where its user or its queue says so, and the history does not know it.
"""
QUEUE_POLICIES: Final[frozenset[Policy]] = frozenset({"price", "ambati2021"})
"""The policies that forecast a job's on-premise start from the queue."""
READ_BY: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        "budget.usd_per_hour_saved": "price",
        "price.loss_weight": "price",
        "price.uncertainty_limit_minutes": "price",
        "hedge.enabled": "price",
        "promise.confidence": "price",
        "promise.usd_per_job": "price",
        "placement.use_cutoff": "cunha2017",
        "placement.cutoff_minutes": "cunha2017",
        "placement.cutoff_decay": "cunha2017",
        "waiting.short_wait_seconds": "ambati2021",
        "waiting.long_job_seconds": "ambati2021",
        "waiting.ask_again_seconds": "ambati2021",
    }
)
"""Settings that only one policy uses."""


def in_force(settings: Settings) -> Settings:
    """The settings with those of the policy."""
    return settings.model_copy(
        update={
            name: getattr(settings, name).model_copy(update=dict(values))
            for name, values in _sections(settings).items()
        }
    )


def fixed(settings: Settings) -> dict[str, Any]:
    """The settings that the policy fixes, by ``section.name``, with their values."""
    return {
        f"{section}.{name}": value
        for section, values in _sections(settings).items()
        for name, value in values.items()
    }


def _sections(settings: Settings) -> Sections:
    policy = settings.cluster.policy
    sections = _of_ambati(settings) if policy == "ambati2021" else _SECTIONS[policy]
    if settings.cluster.scheduler != "lsf":
        return sections
    return {**sections, **_UNDER_LSF, "size": {**sections.get("size", {}), "safeguard": False}}


def _of_ambati(settings: Settings) -> Sections:
    """The settings of Ambati et al. 2021: long jobs wait, short waits wait, and speculation."""
    waiting = settings.waiting
    gates: dict[str, Any] = {}
    if not waiting.short_wait_seconds and math.isinf(waiting.long_job_seconds):
        gates = {"short_wait_seconds": AMBATI_WAIT_SECONDS, "long_job_seconds": AMBATI_SHORT_SECONDS}
    return {**_OFF, "waiting": gates}


def moves_nothing(policy: Policy) -> Answer:
    """Question.FASTER under a policy that moves no job."""
    return Answer(
        question=Question.FASTER, verdict=Verdict.NO, reason=Reason.POLICY_MOVES_NOTHING, detail=policy
    )


def not_asked(policy: Policy) -> Answer:
    """Question.FASTER under a policy that does not ask it."""
    return Answer(
        question=Question.FASTER, verdict=Verdict.SKIPPED, reason=Reason.POLICY_DOES_NOT_ASK, detail=policy
    )
