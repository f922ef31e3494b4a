"""A sentence for every reason and a name for every number, as users and admins read them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from advisor.decide.explanation.reasons import Reason
from advisor.model.advice import Question

HEADINGS: Final[Mapping[Question, str]] = MappingProxyType(
    {
        Question.MAY_MOVE: "1. May it move?",
        Question.FASTER: "2. Is the cloud faster, and are we sure?",
        Question.WORTH_PAYING: "3. Is it worth paying for?",
        Question.CAPACITY: "4. Which capacity?",
    }
)

UNKNOWN_PHRASE: Final = "This release does not know the reason {reason}."

PHRASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        Reason.MAY_MOVE: "Neither the user nor a rule of the site keeps it on-premise.",
        Reason.PARTITION_OFF: "The advisor is switched off for the partition {detail}.",
        Reason.LIMITED: (
            "A limit ({detail}) holds other jobs of its user, account or QOS, and it counts jobs in "
            "the cloud as well."
        ),
        Reason.PREEMPTS: "It may preempt running jobs: {preemptable} are free to it, and it needs no cloud.",
        Reason.NO_ASSOCIATION: "Its user's associations in account {detail} leave out the burst partition.",
        Reason.BURST_LIMITS: "It is over a limit of the burst partition, or of its own: {detail}.",
        Reason.FALLEN_BACK: "The forecasts for its partition have not held for a week: {detail}.",
        Reason.EXPLICIT_PARTITION: "The user named the partition {detail}; it is not changed.",
        Reason.KEEPS_A_PLACE: "By its name it is the placeholder of another job: {detail}.",
        Reason.EXPLICIT_BURST: "It is in the burst partition {detail} already; it is not changed.",
        Reason.OPT_OUT_COMMENT: "Its comment says {detail}: the user does not want it moved.",
        Reason.OPT_OUT_FEATURE: "It asks for the feature {detail}: the user does not want it moved.",
        Reason.NODE_LIST: "The user named nodes: {detail}.",
        Reason.RESERVATION: "It uses the reservation {detail}, which is on-premise.",
        Reason.PARTITION_NOT_MANAGED: "Partition {detail} is not one the advisor may move jobs from.",
        Reason.DATA_UNKNOWN: "What its comment says of its data is no size; write {detail}.",
        Reason.LICENSES: "It needs licences that are on-premise: {detail}.",
        Reason.GRES: "It asks for generic resources ({detail}) the cloud is not known to have.",
        Reason.DEPENDENCY: "It depends on other jobs ({detail}), whose data is on-premise.",
        Reason.INTERACTIVE: "It is interactive: its user waits at a terminal.",
        Reason.HETEROGENEOUS: "It is part of a heterogeneous job, whose parts stay together.",
        Reason.DEFERRED: "It is held or begins later: what is predicted now would not hold then.",
        Reason.BURST_BUFFER: "It uses a burst buffer ({detail}), which is on-premise.",
        Reason.NODE_LAYOUT: "It asks how its nodes are built; of cloud nodes that is not known.",
        Reason.TMP_DISK: "It asks for {tmp_disk} of temporary disk; how much cloud nodes have is not known.",
        Reason.USER_DENIED: "The site does not move jobs of user {detail}.",
        Reason.USER_NOT_ALLOWED: "The site moves only jobs of listed users; {detail} is not one.",
        Reason.ACCOUNT_DENIED: "The site does not move jobs of account {detail}.",
        Reason.ACCOUNT_NOT_ALLOWED: "The site moves only jobs of listed accounts; {detail} is not one.",
        Reason.QOS_DENIED: "The site does not move jobs of QOS {detail}.",
        Reason.TOO_MANY_PROCESSORS: "It asks for {processors}; the site moves at most {max_processors}.",
        Reason.LARGER_THAN_BURST: "It needs {nodes_needed}; the burst partition has {burst_nodes}.",
        Reason.WIDER_THAN_NODES: "It needs {processors} on one node; its cloud nodes have {node_cores}.",
        Reason.MORE_MEMORY_THAN_BURST: "It needs {memory}; its cloud nodes would have {burst_memory}.",
        Reason.FEATURE_NOT_IN_BURST: "It wants the feature {detail}, which not all cloud nodes have.",
        Reason.CLOUD_FASTER: (
            "It would wait {predicted_wait} (±{wait_deviation}) here and run {predicted_run} "
            "(±{run_deviation}); in the cloud it boots {boot} and runs {performance_ratio} times as long, "
            "done {predicted_saving} sooner."
        ),
        Reason.CLOUD_NOT_FASTER: (
            "It would wait {predicted_wait} (±{wait_deviation}) here and run {predicted_run} "
            "(±{run_deviation}); booting {boot} and running {performance_ratio} times as long in the cloud "
            "would not finish it sooner."
        ),
        Reason.ROOM_HERE: "It is expected to start here at once.",
        Reason.NO_ROOM_THERE: (
            "It is not known when the cloud would have room for it: its nodes are down or drained, too few "
            "are of the kind it needs, or its tasks would take turns of unknown length."
        ),
        Reason.STATE_UNKNOWN: (
            "There is no recent snapshot of the cluster that is newer than its configuration, so it stays "
            "on-premise."
        ),
        Reason.WAIT_UNKNOWN: "Its wait here is not known, so it stays on-premise.",
        Reason.RUN_UNKNOWN: "The history does not tell its run time, so it stays on-premise.",
        Reason.TOO_UNCERTAIN: (
            "The cloud is expected to be {predicted_saving} faster, but that is too uncertain: its standard "
            "deviation is {saving_deviation}, the limit {uncertainty_limit}."
        ),
        Reason.PROMISE_WAITS: (
            "It is to be done within {deadline_in}: a start in the cloud within {last_start_in} still keeps "
            "that, so it waits here, where it is in time with a chance of {chance_here}."
        ),
        Reason.PROMISE_HERE: (
            "It is to be done within {deadline_in}: it is in time with a chance of {chance_here} here, and "
            "of {chance_there} in the cloud, so a start there is not worth its money."
        ),
        Reason.PROMISE_GOES: (
            "It is to be done within {deadline_in}: it would be in time with a chance of {chance_here} here, "
            "and of {chance_there} in the cloud."
        ),
        Reason.PROMISE_PASSED: "The time by which it was to be done has passed: it stays here.",
        Reason.PROMISE_PAID: "Its promise may cost {predicted_cost}, {worst_cost} at most.",
        Reason.PROMISE_ON_SPOT: (
            "It starts on spot, where its promise may cost about {predicted_cost}, and {worst_cost} at most: "
            "if EC2 takes the instance back, it begins anew on-demand. That is too late with a chance of "
            "{late_by_loss}."
        ),
        Reason.PROMISE_TOO_DEAR: (
            "Its promise could cost {worst_cost}, and a job may cost {job_may_cost} (`promise.usd_per_job`)."
        ),
        Reason.SAVES_TIME: (
            "It would wait about {predicted_wait} here; in the cloud it starts after {start_there} and is "
            "expected to end {predicted_saving} sooner."
        ),
        Reason.SAVES_NO_TIME: (
            "It would wait about {predicted_wait} here; in the cloud it would start after {start_there} and "
            "run {performance_ratio} times as long, which is not expected to save time."
        ),
        Reason.POLICY_MOVES_NOTHING: "The policy {detail} moves no job.",
        Reason.POLICY_DOES_NOT_ASK: "The policy {detail} does not ask whether the cloud is faster.",
        Reason.WORTH_ITS_PRICE: (
            "An hour saved costs about {hour_costs} and may cost {hour_may_cost} now; the job costs about "
            "{predicted_cost}, {worst_cost} at most."
        ),
        Reason.PAID_FOR: "The nodes are paid for already: it costs nothing more.",
        Reason.TOO_DEAR: (
            "An hour saved would cost about {hour_costs}, and may cost {hour_may_cost} now: the budget is "
            "kept for jobs that gain more by it."
        ),
        Reason.NO_BUDGET: (
            "No budget is set, so no job moves: `budget.usd` sets one. It would cost about {predicted_cost}."
        ),
        Reason.PRICE_UNKNOWN: "No price is known at the moment; `advisor status` says why.",
        Reason.NO_TIME_LIMIT: (
            "It has no time limit, so nothing says what it costs at most, and {budget_left} of the budget "
            "are free at the moment. With `--time` it may move."
        ),
        Reason.BUDGET_USED_UP: (
            "It could cost {worst_cost}, and {budget_left} of the budget are free at the moment."
        ),
        Reason.PAYER_BUDGET_USED_UP: (
            "It could cost {worst_cost}, and {budget_left} of the budget of {detail} are free at the moment."
        ),
        Reason.WORTH_PAYING: (
            "The waiting policy and the budget allow it; it would cost about {predicted_cost}."
        ),
        Reason.NO_GATE: "Neither a waiting policy nor a budget is set; it would cost about {predicted_cost}.",
        Reason.SHORT_WAIT: (
            "A wait of {predicted_wait} is expected, and jobs that likely start here within {short_wait} "
            "wait."
        ),
        Reason.LONG_JOB_IN_TIME: (
            "It likely runs longer than {long_job} and likely starts here within {short_wait}, so it waits, "
            "at most that long."
        ),
        Reason.LONG_JOB: "A run of {predicted_run} is over {long_job}: long jobs wait.",
        Reason.LENGTH_UNKNOWN: (
            "Jobs over {long_job} wait, and the run time of this one is unknown, so it stays on-premise."
        ),
        Reason.COST_UNKNOWN: "A budget of {budget} is set, and the cost of this job is unknown.",
        Reason.BUDGET_SPENT: (
            "Of the budget of {budget}, {spent} are spent and {promised} promised; about {predicted_cost} "
            "more would be too much."
        ),
        Reason.ACCOUNT_BUDGET_SPENT: (
            "Of the budget of {detail}, {budget}, {spent} are spent and {promised} promised; about "
            "{predicted_cost} more would be too much."
        ),
        Reason.SPECULATED: (
            "It may be short: it gets {stop_loss} in the cloud to end, else it returns to its place in the "
            "queue here. That would cost about {predicted_cost}."
        ),
        Reason.RESERVED: "Reserved nodes that are already paid for are free: {reserved_free}.",
        Reason.SPOT: "It may be requeued and is short enough ({predicted_cloud_run}) for spot, at {price}.",
        Reason.ON_DEMAND: "On-demand at {price}, because {detail}.",
        Reason.NONE_OPEN: "No capacity is open: on-demand pools are closed, and {detail}.",
        Reason.SPOT_NOT_EXCLUDED: "It may not be requeued, and nothing could keep it off spot: {detail}.",
        Reason.BURST_RESERVED: (
            "A reservation that begins in {closes_in} leaves too few cloud nodes, and it might run then."
        ),
        Reason.PROTECTED: "Nothing is sent to the cloud at the moment: {detail}.",
    }
)

PHRASES_WITH: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        Reason.CLOUD_FASTER: {
            "staging": (
                "It would wait {predicted_wait} (±{wait_deviation}) here and run {predicted_run} "
                "(±{run_deviation}); in the cloud it boots {boot}, its data takes {staging} more, and it "
                "runs {performance_ratio} times as long, done {predicted_saving} sooner."
            ),
            "cloud_wait": (
                "It would wait {predicted_wait} (±{wait_deviation}) here and run {predicted_run} "
                "(±{run_deviation}); in the cloud all nodes for it are taken, it waits about {cloud_wait} "
                "for one and runs {performance_ratio} times as long, done {predicted_saving} sooner."
            ),
        },
        Reason.PROMISE_ON_SPOT: {
            "checkpoint": (
                "It starts on spot, where its promise may cost about {predicted_cost}, and {worst_cost} at "
                "most: if EC2 takes the instance back, it goes on from its last checkpoint, on spot again "
                "where that leaves time. That is too late with a chance of {late_by_loss}."
            ),
        },
        Reason.CLOUD_NOT_FASTER: {
            "staging": (
                "It would wait {predicted_wait} (±{wait_deviation}) here and run {predicted_run} "
                "(±{run_deviation}); booting {boot}, {staging} more for its data, and running "
                "{performance_ratio} times as long in the cloud would not finish it sooner."
            ),
            "cloud_wait": (
                "It would wait {predicted_wait} (±{wait_deviation}) here and run {predicted_run} "
                "(±{run_deviation}); in the cloud all nodes for it are taken: waiting about {cloud_wait} for "
                "one and running {performance_ratio} times as long would not finish it sooner."
            ),
        },
        Reason.SAVES_TIME: {
            "staging": (
                "It would wait about {predicted_wait} here; in the cloud it starts after {start_there}, of "
                "which its data ({data}) takes {staging}, and is expected to end {predicted_saving} sooner."
            ),
        },
        Reason.SAVES_NO_TIME: {
            "staging": (
                "It would wait about {predicted_wait} here; in the cloud it would start after {start_there}, "
                "of which its data ({data}) takes {staging}, and run {performance_ratio} times as long, "
                "which is not expected to save time."
            ),
        },
        Reason.WORTH_ITS_PRICE: {
            "transfer_cost": (
                "An hour saved costs about {hour_costs} and may cost {hour_may_cost} now; the job costs "
                "about {predicted_cost}, {worst_cost} at most, and {transfer_cost} of it is for its data."
            ),
        },
        Reason.TOO_DEAR: {
            "transfer_cost": (
                "An hour saved would cost about {hour_costs}, and may cost {hour_may_cost} now, and "
                "{transfer_cost} of the cost is for its data: the budget is kept for jobs that gain more by "
                "it."
            ),
        },
        Reason.SPOT: {
            "node_cores": (
                "It may be requeued and is short enough ({predicted_cloud_run}) for spot, at {price}. The "
                "cheapest nodes that it fits have {node_cores} and {node_memory}: {detail}."
            ),
        },
        Reason.BUDGET_USED_UP: {
            "enough_in": (
                "It could cost {worst_cost}, and {budget_left} of the budget are free at the moment: there "
                "is enough in {enough_in} at the latest, if nothing else is spent."
            ),
            "budget": (
                "It could cost {worst_cost}, and the budget of a whole period is {budget}: there is never "
                "enough for it at once."
            ),
        },
        Reason.NONE_OPEN: {
            "closed_for": (
                "No capacity is open: on-demand pools are closed for another {closed_for}, and {detail}."
            ),
        },
        Reason.RESERVED: {
            "node_cores": (
                "Nodes of its {detail} that are already paid for are free: {reserved_free}, each of "
                "{node_cores} and {node_memory}."
            ),
        },
        Reason.ON_DEMAND: {
            "node_cores": (
                "On-demand at {price}, on the cheapest nodes that it fits ({node_cores} and {node_memory}), "
                "because {detail}."
            ),
        },
        Reason.TOO_UNCERTAIN: {
            "uncertainty_limit": PHRASES[Reason.TOO_UNCERTAIN],
            "tolerated_deviation": (
                "The cloud is expected to be {predicted_saving} faster, but the wait ({predicted_wait}, "
                "±{wait_deviation}) is too uncertain: the published rule's cutoff tolerates "
                "±{tolerated_deviation}."
            ),
        },
    }
)
"""Instead of a reason's sentence: the first one here whose number the answer carries."""

UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("performance_ratio", "ratio_deviation", "is_promised"), ""),
        **dict.fromkeys(
            (
                "short_probability",
                "in_time_probability",
                "slice_chance",
                "chance_here",
                "chance_there",
                "late_by_loss",
                "confidence",
            ),
            "chance",
        ),
        **dict.fromkeys(("ratio_jobs",), "jobs"),
        **dict.fromkeys(
            (
                "predicted_cost",
                "worst_cost",
                "hour_costs",
                "hour_may_cost",
                "soonest_costs",
                "job_may_cost",
                "transfer_cost",
                "budget_left",
                "spent",
                "promised",
                "budget",
            ),
            "USD",
        ),
        **dict.fromkeys(("data",), "GB"),
        **dict.fromkeys(("price",), "USD/core-h"),
        **dict.fromkeys(("processors", "max_processors", "node_cores", "preemptable"), "cores"),
        **dict.fromkeys(("nodes_needed", "burst_nodes", "reserved_free"), "nodes"),
        **dict.fromkeys(("memory", "burst_memory", "node_memory", "tmp_disk"), "MiB"),
    }
)
"""Units of the numbers that are not seconds: an AdminComment has no room for them."""

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "predicted_wait": "predicted wait",
        "wait_deviation": "its standard deviation",
        "predicted_run": "predicted run time",
        "run_deviation": "its standard deviation",
        "performance_ratio": "cloud run time / on-premise run time",
        "ratio_deviation": "its standard deviation",
        "ratio_jobs": "cloud runs it was learned from",
        "boot": "boot time",
        "cloud_wait": "wait for a node in the cloud",
        "data": "data that it brings and takes back",
        "staging": "what its data adds to its start",
        "start_there": "start in the cloud after",
        "predicted_saving": "predicted saving",
        "slice": "run in the cloud until it is decided again",
        "slice_chance": "probability that it ends by then",
        "tolerated_deviation": "tolerated by the published rule's cutoff",
        "saving_deviation": "standard deviation of the saving",
        "uncertainty_limit": "most that is allowed",
        "short_wait": "longest wait",
        "long_job": "run time over which jobs wait",
        "short_probability": "probability that it runs no longer than that",
        "in_time_probability": "probability that it starts here within the longest wait",
        "waited": "waited so far",
        "stop_loss": "longest stay in the cloud before it comes back",
        "deadline_in": "time until it is to be done",
        "is_promised": "a promise was made (1) or not (0)",
        "confidence": "share of promises to be kept",
        "chance_here": "chance to be in time here",
        "chance_there": "chance to be in time in the cloud",
        "late_by_loss": "chance to be too late by the loss of a spot instance",
        "checkpoint": "work that a new start loses at most",
        "free_in": "done without cost within",
        "soonest_in": "done at the soonest within",
        "soonest_costs": "what that costs",
        "last_start_in": "last start in the cloud within",
        "job_may_cost": "what one job's promise may cost",
        "predicted_cost": "predicted cost",
        "worst_cost": "cost at most",
        "transfer_cost": "price of its data's transfer",
        "hour_costs": "cost of an hour saved",
        "hour_may_cost": "what an hour saved may cost now",
        "budget_left": "free in the budget now",
        "enough_in": "enough in the budget within",
        "spent": "spent of the budget",
        "promised": "promised to launched nodes and moved jobs",
        "budget": "budget",
        "predicted_cloud_run": "predicted run time in the cloud",
        "spot_max_run": "longest run on spot",
        "reserved_free": "free reserved nodes",
        "closed_for": "on-demand pools are closed for",
        "closes_in": "until the cloud nodes are reserved",
        "price": "price",
        "processors": "processors asked for",
        "preemptable": "idle, or of jobs that it may preempt",
        "max_processors": "most that may move",
        "nodes_needed": "nodes needed",
        "burst_nodes": "nodes of the burst partition",
        "memory": "memory asked for",
        "burst_memory": "memory it would get",
        "tmp_disk": "temporary disk asked for",
        "node_cores": "cores of its nodes",
        "node_memory": "memory of its nodes",
    }
)
