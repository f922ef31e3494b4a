"""Question 1 of the four about each job: may it move to the cloud at all?

The user's explicit request comes first, then the site's rules, then the size of the burst partition. A job
that may not be requeued (``--no-requeue``) may move; question 4 keeps it off spot. The module also says which
jobs may come back: those that a policy may start in the cloud while they keep their place here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

from advisor.decide.explanation.reasons import Reason
from advisor.model.advice import Answer, Mode, Quantity, Question, Verdict
from advisor.model.burst_limits import BurstLimits
from advisor.model.cluster import Limit
from advisor.model.data_words import HOW_TO_WRITE, data_of
from advisor.model.deadline import deadline_of
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import ANY_QOS, CloudState
from advisor.model.submit_limits import SubmitKey, submit_keys

Rule: TypeAlias = Callable[[Job, CloudState, Settings], Answer | None]

_WORD: Final = re.compile(r"[^\s,;:]+")
_PARTITION_SEPARATOR: Final = ","
_MAY_MOVE: Final = Answer(question=Question.MAY_MOVE, verdict=Verdict.YES, reason=Reason.MAY_MOVE)


def may_move(job: Job, cloud: CloudState, settings: Settings) -> Answer:
    """Apply each rule in turn: NO with the reason of the first that objects, else YES with ``rule.may_move``.

    The job's texts come from outside: they are compared, never interpreted. Sizes of 0 in ``cloud`` are
    unknown and forbid nothing.
    """
    for rule in RULES if is_special(job, settings) else RULES_FOR_ALL:
        objection = rule(job, cloud, settings)
        if objection is not None:
            return objection
    return _MAY_MOVE


def not_fallen_back(job: Job, fallen_back: Mapping[str, str], settings: Settings) -> Answer:
    """Question 1 of a job that no rule keeps: it stays if the forecasts of a partition of it do not hold."""
    names = partitions_of(job) or settings.cluster.on_premise_partitions[:1]
    why = next((fallen_back[name] for name in names if name in fallen_back), None)
    return _MAY_MOVE if why is None else _no(Reason.FALLEN_BACK, why)


def not_limited(job: Job, limits: Iterable[Limit]) -> Answer:
    """Question 1 of a job that no rule keeps: it stays if a limit holds jobs of its user, account or QOS.

    Slurm counts jobs of all partitions, so it would wait in the burst partition as well.
    """
    held = next((limit.reason for limit in limits if limit.counts(job)), None)
    return _MAY_MOVE if held is None else _no(Reason.LIMITED, held)


def let_in(job: Job, kept_out: Collection[tuple[str, str]]) -> Answer:
    """Question 1 of a job that no rule keeps: it stays if its user has no association there."""
    user, account = job.user or "", job.account or ""
    return _no(Reason.NO_ASSOCIATION, account) if (user, account) in kept_out else _MAY_MOVE


def within_limits(job: Job, limits: BurstLimits) -> Answer:
    """Question 1 of a job that no rule keeps: it stays if it is over a limit of the two partitions.

    slurmctld would refuse it in ``sbatch``, or hold it there, or here once it has come home, for ever.
    """
    limit = limits.keeps_out(job)
    return _no(Reason.BURST_LIMITS, limit) if limit else _MAY_MOVE


def not_preempting(job: Job, preemptable: Mapping[str, Mapping[str, int]], settings: Settings) -> Answer:
    """Question 1 of a job that no rule keeps: it stays if it may take its processors from running jobs."""
    names = partitions_of(job) or settings.cluster.on_premise_partitions[:1]
    own = (preemptable.get(name, {}) for name in names)
    room = max(max(one.get(ANY_QOS, 0), one.get(job.qos or ANY_QOS, 0)) for one in own)
    if job.processors * job.array_tasks > room:
        return _MAY_MOVE
    return _no(Reason.PREEMPTS, preemptable=Quantity(float(room), "cores"))


def is_special(job: Job, settings: Settings) -> bool:
    """Whether a job has anything that the rules outside `RULES_FOR_ALL` check; few jobs have."""
    return bool(
        job.queue not in settings.cluster.on_premise_partitions
        or job.comment
        or job.features
        or job.prefer
        or job.explicit_partition
        or job.node_list
        or job.reservation
        or job.licenses
        or job.gres
        or job.burst_buffer
        or job.tmp_disk
        or job.layout
        or job.dependency
        or job.interactive
        or job.heterogeneous
        or (job.deferred and not settings.rules.move_deferred)
        or job.placeholder_for is not None
    )


def _no(reason: Reason, detail: str | None = "", **numbers: Quantity) -> Answer:
    return Answer(
        question=Question.MAY_MOVE,
        verdict=Verdict.NO,
        reason=reason,
        detail=detail or "",
        numbers=tuple(numbers.items()),
    )


def partitions_of(job: Job) -> tuple[str, ...]:
    """Partitions named by a submission; empty for none."""
    queue = (job.queue or "").strip()
    if _PARTITION_SEPARATOR not in queue:
        return (queue,) if queue else ()
    names = (name.strip() for name in queue.split(_PARTITION_SEPARATOR))
    return tuple(name for name in names if name)


def comment_words(comment: str | None) -> frozenset[str]:
    """Words of a job's comment, in lower case: ``advisor:no-hedge`` has two."""
    return frozenset(found.casefold() for found in _WORD.findall(comment or ""))


def requeueable(job: Job, settings: Settings) -> bool:
    """Whether the job may be requeued: as submitted, else the site's default."""
    return settings.cluster.requeue_default if job.requeue is None else job.requeue


def may_be_brought_back(job: Job, settings: Settings) -> bool:
    """Whether the job can be stopped and started again elsewhere without known harm.

    A job with a shape that a placeholder cannot have (devices, licences, a reservation, named nodes) cannot.
    """
    shape = job.gres or job.licenses or job.reservation or job.node_list
    return (
        requeueable(job, settings)
        and job.array_tasks == 1
        and not (job.interactive or job.dependency or job.heterogeneous or shape)
        and settings.hedge.opt_out_comment.casefold() not in comment_words(job.comment)
    )


def keeps_place(job: Job, settings: Settings, full: Collection[SubmitKey] = ()) -> bool:
    """Whether the job keeps its place here while it runs in the cloud; not if a limit of `full` counts it."""
    may = settings.hedge.enabled and may_be_brought_back(job, settings)
    return may and not (full and any(key in full for key in submit_keys(job)))


def deadline_for(job: Job, settings: Settings) -> float | None:
    """When a job is to be done, epoch seconds; None if its user names no time, or none can be promised."""
    if not settings.promise.enabled or not job.comment or job.array_tasks > 1:
        return None
    deadline = deadline_of(job.comment, job.submit_time, settings.cluster.zone)
    return deadline if deadline is not None and math.isfinite(deadline) else None


def _opt_out(job: Job, _cloud: CloudState, settings: Settings) -> Answer | None:
    """The user opted out: ``--comment=no-burst`` or ``--constraint=onprem``, or as the site names them."""
    rules = settings.rules
    word = rules.opt_out_comment.casefold()
    if word and job.comment and word in comment_words(job.comment):
        return _no(Reason.OPT_OUT_COMMENT, rules.opt_out_comment)
    feature = rules.opt_out_feature.casefold()
    if feature and job.features and any(asked.casefold() == feature for asked in job.features):
        return _no(Reason.OPT_OUT_FEATURE, rules.opt_out_feature)
    return None


def _explicit_words(job: Job, _cloud: CloudState, settings: Settings) -> Answer | None:
    """The user named a partition, nodes or a reservation."""
    partitions = partitions_of(job)
    burst = settings.cluster.burst_partition
    if partitions == (burst,):
        return _no(Reason.EXPLICIT_BURST, burst)
    if job.placeholder_for is not None:
        return _no(Reason.KEEPS_A_PLACE, job.name)
    if job.explicit_partition and not settings.rules.move_explicit_partition:
        return _no(Reason.EXPLICIT_PARTITION, job.queue)
    if job.node_list:
        return _no(Reason.NODE_LIST, job.node_list)
    if job.reservation:
        return _no(Reason.RESERVATION, job.reservation)
    return None


def _drawn_to_reservation(job: Job, cloud: CloudState, _settings: Settings) -> Answer | None:
    """Nodes on-premise are reserved for jobs of its user or account, also for those that do not say so."""
    if not cloud.drawn:
        return None
    name = next((cloud.drawn[payer] for payer in job.payers if payer in cloud.drawn), None)
    return None if name is None else _no(Reason.RESERVATION, name)


def _unknown_data(job: Job, _cloud: CloudState, _settings: Settings) -> Answer | None:
    """The user said that the job brings data, and not how much, so its cost is not known."""
    need = data_of(job.comment) if job.comment else None
    return None if need is None or need.is_known else _no(Reason.DATA_UNKNOWN, HOW_TO_WRITE)


def _switched_off(job: Job, _cloud: CloudState, settings: Settings) -> Answer | None:
    """The site has switched the advisor off for the job's partition."""
    if settings.cluster.mode_of(job.queue) is Mode.OFF:
        return _no(Reason.PARTITION_OFF, job.queue or settings.cluster.on_premise_partitions[0])
    return None


def _managed_partition(job: Job, _cloud: CloudState, settings: Settings) -> Answer | None:
    """The job is in a partition that the advisor does not manage (no partition: the site's default)."""
    managed = settings.cluster.on_premise_partitions
    if set(partitions_of(job)).issubset(managed):
        return None
    return _no(Reason.PARTITION_NOT_MANAGED, job.queue)


def _bound_to_the_site(job: Job, cloud: CloudState, settings: Settings) -> Answer | None:
    """The job needs licences, devices, other jobs or a terminal, which are only on-premise."""
    rules = settings.rules
    if job.licenses:
        return _no(Reason.LICENSES, job.licenses)
    if job.gres and not (rules.move_gpu and cloud.node_class is not None and cloud.node_class.has_gpus(job)):
        return _no(Reason.GRES, job.gres)
    if job.burst_buffer:
        return _no(Reason.BURST_BUFFER, job.burst_buffer)
    if job.dependency and not rules.move_dependent:
        return _no(Reason.DEPENDENCY, job.dependency)
    if job.interactive and not rules.move_interactive:
        return _no(Reason.INTERACTIVE)
    if job.heterogeneous:
        return _no(Reason.HETEROGENEOUS)
    if job.deferred and not rules.move_deferred:
        return _no(Reason.DEFERRED)
    return None


def _node_as_here(job: Job, _cloud: CloudState, _settings: Settings) -> Answer | None:
    """The job asks for what is not known of cloud nodes: where they have less, slurmctld refuses it."""
    if job.layout:
        return _no(Reason.NODE_LAYOUT)
    return _no(Reason.TMP_DISK, tmp_disk=Quantity(float(job.tmp_disk), "MiB")) if job.tmp_disk else None


def _lists(job: Job, cloud: CloudState, settings: Settings) -> Answer | None:
    """The admin's lists: deny takes precedence over allow, and an unknown name is on no allow list."""
    rules = settings.rules
    if cloud.denied_accounts and (job.account or "").lower() in cloud.denied_accounts:
        return _no(Reason.ACCOUNT_DENIED, job.account)
    if job.user in rules.deny_users:
        return _no(Reason.USER_DENIED, job.user)
    if rules.allow_users and job.user not in rules.allow_users:
        return _no(Reason.USER_NOT_ALLOWED, job.user)
    if job.account in rules.deny_accounts:
        return _no(Reason.ACCOUNT_DENIED, job.account)
    if rules.allow_accounts and job.account not in rules.allow_accounts:
        return _no(Reason.ACCOUNT_NOT_ALLOWED, job.account)
    if job.qos in rules.deny_qos:
        return _no(Reason.QOS_DENIED, job.qos)
    return None


def _size(job: Job, cloud: CloudState, settings: Settings) -> Answer | None:
    """The job is too large for the burst partition, where it would wait for ever."""
    limit = settings.rules.max_processors
    if limit and job.processors > limit:
        return _no(
            Reason.TOO_MANY_PROCESSORS,
            processors=Quantity(float(job.processors), "cores"),
            max_processors=Quantity(float(limit), "cores"),
        )
    nodes = cloud.nodes_needed(job)
    if cloud.nodes_total and nodes is not None and nodes > cloud.nodes_total:
        return _no(
            Reason.LARGER_THAN_BURST,
            processors=Quantity(float(job.processors), "cores"),
            nodes_needed=Quantity(float(nodes), "nodes"),
            burst_nodes=Quantity(float(cloud.nodes_total), "nodes"),
        )
    if cloud.processors_per_node and job.processors_of_one > cloud.processors_per_node:
        return _no(
            Reason.WIDER_THAN_NODES,
            processors=Quantity(float(job.processors_of_one), "cores"),
            node_cores=Quantity(float(cloud.processors_per_node), "cores"),
        )
    return _memory(job, cloud, nodes or 1) if cloud.memory_mb_per_node else None


def _memory(job: Job, cloud: CloudState, nodes: int) -> Answer | None:
    """The job needs more memory than its nodes have, in sum or on each node."""
    node = cloud.memory_mb_per_node
    of_one = job.node_memory_mb(cloud.processors_per_node)
    for asked, available in ((of_one, node), (job.memory_mb, nodes * node)):
        if asked and asked > available:
            return _no(
                Reason.MORE_MEMORY_THAN_BURST,
                memory=Quantity(float(asked), "MiB"),
                burst_memory=Quantity(float(available), "MiB"),
            )
    return None


def _features(job: Job, cloud: CloudState, _settings: Settings) -> Answer | None:
    """The job asks for, or prefers, a feature that not every cloud node has (``a|b`` counts as both)."""
    asked = (*job.features, *job.prefer)
    missing = [feature for feature in asked if feature not in cloud.features]
    return _no(Reason.FEATURE_NOT_IN_BURST, missing[0]) if missing else None


# In this order: the user's own request comes first, so that users read it as the reason.
RULES: Final[tuple[Rule, ...]] = (
    _explicit_words,
    _drawn_to_reservation,
    _opt_out,
    _unknown_data,
    _switched_off,
    _managed_partition,
    _bound_to_the_site,
    _node_as_here,
    _lists,
    _size,
    _features,
)

# The rules that may concern any job. The others need something that a special job has (`is_special`);
# skipping them changes no answer and saves a tenth of the time of a decision.
RULES_FOR_ALL: Final[tuple[Rule, ...]] = (_drawn_to_reservation, _switched_off, _lists, _size)
