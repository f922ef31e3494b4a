"""The submit socket's protocol: one JSON line a request, one line a reply, versioned, both bounded.

A request names its ``op``: ``advise`` (the hook's), ``explain`` (the same question of `advisor advise`),
``again`` (about a job that waits), ``ping`` or ``metrics``. The reply carries the request's ``seq`` back.
``advise`` is answered in fields by place, which a hook reads with one pattern (:func:`encode_hook_reply`);
a refusal has the same form (:func:`refusal`). The other replies are JSON. Unknown fields are ignored
both ways, so that a newer hook works with an older server; another version number is refused.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from advisor.model.errors import AdvisorError
from advisor.model.job import Job

VERSION: Final = 1
"""Protocol version both sides speak."""

REPLY_BYTES: Final = 16_384
"""Longest reply to ``advise`` and ``ping``; the hook reads no further."""

METRICS_BYTES: Final = 1_048_576
"""Longest reply to ``metrics``."""

_UINT53_MAX: Final = 2**53

_MAX_COUNTED: Final = 2**31
"""Processors, nodes or tasks; Slurm has 32 bits for each."""

Number = Annotated[int, msgspec.Meta(ge=0, le=_UINT53_MAX)]
"""A whole number of a request. Slurm has no larger one; 400 digits would fail only where they are used."""


class ProtocolError(AdvisorError):
    """A line that is no request; answered by a refusal, never by closing other connections."""

    code = "protocol.malformed"


class AdviseRequest(msgspec.Struct, frozen=True, tag_field="op", tag="advise", gc=False):
    """One submission as the hook saw it, in Slurm's own units; absent means the user did not say.

    Attributes:
        v, seq: Protocol version; the hook's counter, echoed.
        user, account, qos, name, comment, features, prefer, licenses, reservation, dependency, req_nodes:
            As submitted. Everything a user typed is data.
        generic_resources: GPUs and the like (``--gres``, ``--gpus``).
        default_partition: The partition to which slurmctld assigns a job whose user named none.
        array: Index expression of a job array, such as ``1-100%5``.
        requeue: ``--requeue`` / ``--no-requeue``.
        interactive: True without a batch script (srun, salloc).
        whole_nodes: True with ``--exclusive``.
        layout: True with more than one of ``--sockets-per-node``, ``--cores-per-socket``,
            ``--threads-per-core`` or ``--ntasks-per-socket``.
        whole_cores: True with ``--threads-per-core=1`` (``--hint=nomultithread``).
        time_limit, partition_time_limit: Minutes: what the user asked for; what holds without that.
        min_cpus, num_tasks, cpus_per_task, min_nodes, ntasks_per_node: Size of the job (of one task of an
            array).
        max_nodes, min_cpus_per_node: Most nodes (``--nodes``), and processors of each (``--mincpus``).
        memory_per_cpu, memory_per_node, tmp_disk: MiB; 0 of a node is all of its memory (``--mem=0``).
        begin_time: Earliest start the user asked for, seconds since the epoch.
        held: Submitted held (``--hold``).
        burst_buffer: The user's burst buffer specification.
        dry: True for a question that submits nothing: it is not spooled and not counted as queued.
        configured_at: Since when slurmctld has run with its present configuration, as far as the hook can
            tell; seconds since the epoch, rounded up. A snapshot from before is outdated. None: unknown, or
            no hook asks.
        hook_failed, hook_skipped: Questions that failed, or that the hook did not ask as its circuit breaker
            was open, since the last answer.
    """

    v: Number
    seq: Number = 0
    uid: Number | None = None
    gid: Number | None = None
    user: str | None = None
    account: str | None = None
    qos: str | None = None
    name: str | None = None
    comment: str | None = None
    features: str | None = None
    prefer: str | None = None
    licenses: str | None = None
    reservation: str | None = None
    dependency: str | None = None
    req_nodes: str | None = None
    generic_resources: str | None = None
    partition: str | None = None
    default_partition: str | None = None
    array: str | None = None
    requeue: bool | None = None
    interactive: bool = False
    whole_nodes: bool = False
    layout: bool = False
    whole_cores: bool = False
    time_limit: Number | None = None
    partition_time_limit: Number | None = None
    min_cpus: Number | None = None
    num_tasks: Number | None = None
    cpus_per_task: Number | None = None
    min_nodes: Number | None = None
    ntasks_per_node: Number | None = None
    max_nodes: Number | None = None
    min_cpus_per_node: Number | None = None
    tmp_disk: Number | None = None
    memory_per_cpu: Number | None = None
    memory_per_node: Number | None = None
    begin_time: Number | None = None
    held: bool = False
    burst_buffer: str | None = None
    dry: bool = False
    configured_at: Number | None = None
    hook_failed: Number = 0
    hook_skipped: Number = 0


class ExplainRequest(AdviseRequest, frozen=True, tag_field="op", tag="explain", gc=False):
    """The same question of a program that reads JSON and wants the whole :class:`AdviseReply`."""


class AgainRequest(msgspec.Struct, frozen=True, tag_field="op", tag="again", gc=False):
    """The same question about a job that waits on-premise already; answered as ``explain`` is.

    Attributes:
        job: The job as it is now; ``submit_time`` says since when it has waited. An advice that
            moves it goes into the ledger; the server does not store any other.
        wait_seconds: Forecast wait from now on, by its place in the queue; None: the server forecasts it.
        planned_wait_seconds: The same if jobs ran to their limits; None: it is the same.
        is_new: It was not advised before (``cluster.hook = false``): the answer is the one inside ``sbatch``,
            and its advice goes into the ledger wherever the job goes.
    """

    v: Number
    job: Job
    seq: Number = 0
    wait_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=1e10)] | None = None
    planned_wait_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=1e10)] | None = None
    is_new: bool = False


class PingRequest(msgspec.Struct, frozen=True, tag_field="op", tag="ping", gc=False):
    """A question about the server's health."""

    v: Number
    seq: Number = 0


class MetricsRequest(msgspec.Struct, frozen=True, tag_field="op", tag="metrics", gc=False):
    """The server's metrics in Prometheus text format (``advisor control`` shows them on its own page)."""

    v: Number
    seq: Number = 0


Request = AdviseRequest | ExplainRequest | AgainRequest | PingRequest | MetricsRequest


class AdviseReply(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The fields of a job to set; a field that is absent is not changed.

    Attributes:
        id: The advice's id, as in ``admin_comment``.
        placement, mode, reason: The decision and its decisive reason's code; the hook is not told these.
        partition, features, prefer, admin_comment: Slurm fields. With features or a preference there is a
            partition, also where the job is in it already.
        site_factor: Priority the site gives the job (small jobs first).
        nice: Above 0: how much later the job goes; the hook adds Slurm's NICE_OFFSET.
        message: One line for the user's terminal; only with ``partition``.
        time_limit: Minutes: a moved job's limit once it runs; only with ``partition``. The hook sets none.
    """

    v: int
    seq: int
    id: str = ""
    placement: str = ""
    mode: str = ""
    reason: str = ""
    partition: str | None = None
    features: str | None = None
    prefer: str | None = None
    site_factor: int | None = None
    nice: int | None = None
    admin_comment: str | None = None
    message: str | None = None
    time_limit: int | None = None


NOT_ALLOWED: Final = "peer.not_allowed"
"""Error code of a refusal: the user of the connecting process may not ask."""
NOT_OWN_JOB: Final = "peer.not_own_job"
"""Error code of a refusal: the request is not about a job of the user who asks."""


class PingReply(msgspec.Struct, frozen=True, gc=False):
    """Health: age of the snapshot in seconds (null: none), versions, jobs known to the estimators.

    ``hedges_announced`` and ``hedges_not_announced`` count submissions that start hedged, by whether `advisor
    control` could be told of them.
    """

    v: int
    seq: int
    release: str
    pid: int
    uptime_seconds: float
    snapshot_age_seconds: float | None
    snapshot_usable: bool
    model_version: str | None
    advice_given: int
    spool_dropped: int
    hedges_announced: int = 0
    hedges_not_announced: int = 0


class MetricsReply(msgspec.Struct, frozen=True, gc=False):
    """Prometheus text."""

    v: int
    seq: int
    text: str


_request_decoder: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)
_encoder: Final = msgspec.json.Encoder()


def decode_request(line: bytes) -> Request:
    """Read one request line.

    Bytes that are no UTF-8 (a job name in Latin-1, a name cut inside a character) are replaced, not refused.

    Raises:
        ProtocolError: No JSON object, no known ``op``, a field of the wrong type or out of range, another
            version.
    """
    try:
        request = _request_decoder.decode(line)
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        # msgspec reports bytes that are no UTF-8 as either
        request = _decode_replacing(line)
    if request.v != VERSION:
        raise ProtocolError(f"protocol version {request.v}, not {VERSION}", code="protocol.version")
    if isinstance(request, AgainRequest) and not _is_sane(request.job):
        raise ProtocolError("a number of the job is out of range")
    return request


def _is_sane(job: Job) -> bool:
    """Whether the job's numbers are in range; a `Job` does not check them, as an `AdviseRequest` does."""
    asked = tuple(number for number in (job.nodes, job.most_nodes) if number is not None)
    sizes = (job.processors, job.task_processors, job.array_tasks, *asked)
    amounts = (job.submit_time, job.requested_time, job.memory_mb, job.memory_mb_per_node, job.job_id)
    return all(0 < size <= _MAX_COUNTED for size in sizes) and all(
        amount is None or 0 <= amount <= _UINT53_MAX for amount in amounts
    )


def _decode_replacing(line: bytes) -> Request:
    try:
        return _request_decoder.decode(line.decode("utf-8", "replace"))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError(f"not a request: {error}") from None


def encode_line(message: msgspec.Struct) -> bytes:
    """One message as one line, with its line end."""
    return _encoder.encode(message) + b"\n"


_FIELDS: Final = 11  # of a hook's reply; see encode_hook_reply
_HEAD_BYTES: Final = 6  # "=" and the five digits of the length


def encode_hook_reply(reply: AdviseReply) -> bytes:
    r"""The reply to ``advise``: its length, then fields by place with a tab between two, then a line end.

    The length of the line is "=" and five digits, so that a hook can ask its socket for just so many bytes.
    The fields are the version, ``seq``, ``error``, ``partition``, ``features``, ``prefer``, ``site_factor``,
    ``nice``, ``time_limit``, ``message`` and ``admin_comment``; one that is not to be set is empty. Later
    versions may add fields at the end. If a text has a tab or a line end, the
    reply is a refusal.
    """
    line = (
        f"{reply.v}\t{reply.seq}\t\t{reply.partition or ''}\t{reply.features or ''}\t{reply.prefer or ''}"
        f"\t{'' if reply.site_factor is None else reply.site_factor}"
        f"\t{'' if reply.nice is None else reply.nice}"
        f"\t{'' if reply.time_limit is None else reply.time_limit}"
        f"\t{reply.message or ''}\t{reply.admin_comment or ''}\n"
    )
    if line.count("\t") != _FIELDS - 1 or line.count("\n") != 1:
        return refusal("server.unsayable", reply.seq)
    return _framed(line)


def refusal(error: str, seq: int = 0) -> bytes:
    """Reply that says: no advice, and why, as a code; to any request."""
    return _framed("\t".join((str(VERSION), str(seq), error, *[""] * (_FIELDS - 3))) + "\n")


def _framed(line: str) -> bytes:
    encoded = line.encode()
    return b"=%05d%b" % (len(encoded), encoded)


def fields_of(reply: bytes) -> list[str] | None:
    """Read the fields of a reply to ``advise`` or of a refusal; None for a line of another form."""
    fields = reply[_HEAD_BYTES:-1].decode("utf-8", "replace").split("\t")
    is_whole = reply[:_HEAD_BYTES] == b"=%05d" % (len(reply) - _HEAD_BYTES) and reply.endswith(b"\n")
    return fields if is_whole and len(fields) >= _FIELDS else None
