"""Every reason an answer can have: stable codes that logs, metrics and the ledger count by."""

from __future__ import annotations

import enum

from advisor.model.periods import payer_words


class Reason(enum.StrEnum):
    """Code of an answer; ``advisor.decide.explanation.wording`` has a sentence for each."""

    # Question 1: may it move? The user's own words first.
    MAY_MOVE = "rule.may_move"
    PARTITION_OFF = "rule.partition_off"
    FALLEN_BACK = "rule.fallen_back"
    LIMITED = "rule.limited"
    PREEMPTS = "rule.preempts"
    NO_ASSOCIATION = "rule.no_association"
    BURST_LIMITS = "rule.burst_limits"
    EXPLICIT_PARTITION = "rule.explicit_partition"
    KEEPS_A_PLACE = "rule.keeps_a_place"
    EXPLICIT_BURST = "rule.explicit_burst"
    OPT_OUT_COMMENT = "rule.opt_out_comment"
    OPT_OUT_FEATURE = "rule.opt_out_feature"
    NODE_LIST = "rule.node_list"
    RESERVATION = "rule.reservation"
    PARTITION_NOT_MANAGED = "rule.partition_not_managed"
    DATA_UNKNOWN = "rule.data_unknown"
    LICENSES = "rule.licenses"
    GRES = "rule.gres"
    DEPENDENCY = "rule.dependency"
    INTERACTIVE = "rule.interactive"
    HETEROGENEOUS = "rule.heterogeneous"
    DEFERRED = "rule.deferred"
    BURST_BUFFER = "rule.burst_buffer"
    TMP_DISK = "rule.tmp_disk"
    NODE_LAYOUT = "rule.node_layout"
    USER_DENIED = "rule.user_denied"
    USER_NOT_ALLOWED = "rule.user_not_allowed"
    ACCOUNT_DENIED = "rule.account_denied"
    ACCOUNT_NOT_ALLOWED = "rule.account_not_allowed"
    QOS_DENIED = "rule.qos_denied"
    TOO_MANY_PROCESSORS = "rule.too_many_processors"
    LARGER_THAN_BURST = "rule.larger_than_burst"
    WIDER_THAN_NODES = "rule.wider_than_nodes"
    MORE_MEMORY_THAN_BURST = "rule.more_memory_than_burst"
    FEATURE_NOT_IN_BURST = "rule.feature_not_in_burst"

    # Question 2: is the cloud faster, and are we sure?
    CLOUD_FASTER = "turnaround.cloud_faster"
    CLOUD_NOT_FASTER = "turnaround.cloud_not_faster"
    ROOM_HERE = "turnaround.room_here"
    NO_ROOM_THERE = "turnaround.no_room_there"
    STATE_UNKNOWN = "turnaround.state_unknown"
    WAIT_UNKNOWN = "turnaround.wait_unknown"
    RUN_UNKNOWN = "turnaround.run_unknown"
    TOO_UNCERTAIN = "turnaround.too_uncertain"
    SAVES_TIME = "turnaround.saves_time"
    SAVES_NO_TIME = "turnaround.saves_no_time"
    POLICY_MOVES_NOTHING = "turnaround.policy_moves_nothing"
    POLICY_DOES_NOT_ASK = "turnaround.policy_does_not_ask"

    PROMISE_WAITS = "promise.waits"
    PROMISE_HERE = "promise.here"
    PROMISE_GOES = "promise.goes"
    PROMISE_PASSED = "promise.passed"

    # Question 3: is it worth paying for?
    PROMISE_PAID = "promise.paid"
    PROMISE_ON_SPOT = "promise.on_spot"
    PROMISE_TOO_DEAR = "promise.too_dear"
    WORTH_PAYING = "waiting.worth_paying"
    NO_GATE = "waiting.no_gate"
    SHORT_WAIT = "waiting.short_wait"
    LONG_JOB = "waiting.long_job"
    LONG_JOB_IN_TIME = "waiting.long_job_in_time"
    LENGTH_UNKNOWN = "waiting.length_unknown"
    COST_UNKNOWN = "waiting.cost_unknown"
    BUDGET_SPENT = "budget.spent"
    ACCOUNT_BUDGET_SPENT = "budget.account_spent"
    WORTH_ITS_PRICE = "price.worth_it"
    PAID_FOR = "price.paid_for"
    TOO_DEAR = "price.too_dear"
    NO_BUDGET = "price.no_budget"
    PRICE_UNKNOWN = "price.unknown"
    NO_TIME_LIMIT = "price.no_time_limit"
    BUDGET_USED_UP = "price.budget_used_up"
    PAYER_BUDGET_USED_UP = "price.payer_budget_used_up"

    # In doubt at question 2 or 3: start in the cloud, keep the place here.
    SPECULATED = "hedge.speculated"

    # Question 4: which capacity?
    RESERVED = "capacity.reserved"
    SPOT = "capacity.spot"
    ON_DEMAND = "capacity.on_demand"
    NONE_OPEN = "capacity.none_open"
    SPOT_NOT_EXCLUDED = "capacity.spot_not_excluded"
    PROTECTED = "capacity.protected"
    BURST_RESERVED = "capacity.burst_reserved"


def used_up(payer: str) -> tuple[Reason, str]:
    """Why a job stays that the budget of a payer (``""``: the site) does not cover, and whose it is."""
    return (Reason.PAYER_BUDGET_USED_UP, payer_words(payer)) if payer else (Reason.BUDGET_USED_UP, "")
