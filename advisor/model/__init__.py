"""Floor 2: frozen records with units. No I/O, no clock."""

from advisor.model.advice import (
    Advice,
    Answer,
    Capacity,
    Mode,
    Placement,
    Quantity,
    Question,
    TimeLimit,
    Verdict,
)
from advisor.model.cluster import ClusterState, Node, NodePower
from advisor.model.errors import AdvisorError, BadInput, RetryLater, TellAdmin, UseFallback
from advisor.model.estimate import NO_ESTIMATE, NO_SIZE, Estimate, Estimates, SizeEstimate
from advisor.model.job import Job, JobOutcome, JobState
from advisor.model.site import CloudState, SiteState
from advisor.model.table import UNKNOWN_CODE, JobTable

__all__ = [
    "NO_ESTIMATE",
    "NO_SIZE",
    "UNKNOWN_CODE",
    "Advice",
    "AdvisorError",
    "Answer",
    "BadInput",
    "Capacity",
    "CloudState",
    "ClusterState",
    "Estimate",
    "Estimates",
    "Job",
    "JobOutcome",
    "JobState",
    "JobTable",
    "Mode",
    "Node",
    "NodePower",
    "Placement",
    "Quantity",
    "Question",
    "RetryLater",
    "SiteState",
    "SizeEstimate",
    "TellAdmin",
    "TimeLimit",
    "UseFallback",
    "Verdict",
]
