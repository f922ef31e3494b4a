"""The tables of the history, as the newest migration leaves them.

Times are epoch seconds (double), names and ids as the scheduler gave them.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA_VERSION = "0003"
"""Revision of the newest migration."""

SAME_MOMENT_SECONDS = 300.0
"""Longest time between a submission and its advice, which slurmctld requests during the submission."""

metadata = MetaData()

# SQLite numbers rows by itself only in a column of the exact type INTEGER
_row_number = BigInteger().with_variant(Integer, "sqlite")

job = Table(
    "job",
    metadata,
    Column("position", _row_number, primary_key=True, autoincrement=True),
    Column("source", Text, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("submit_time", Double, nullable=False),
    Column("start_time", Double, nullable=False),
    Column("end_time", Double, nullable=False),
    Column("state", Text, nullable=False),
    Column("processors", BigInteger, nullable=False),
    Column("processors_used", BigInteger, nullable=False),
    Column("restarts", Integer, nullable=False),
    Column("user_name", Text),
    Column("group_name", Text),
    Column("queue", Text),
    Column("partition_name", Text),
    Column("node_list", Text),
    Column("requested_time", Double),
    Column("nodes", BigInteger),
    Column("memory_mb", BigInteger),
    Column("name", Text),
    Column("account", Text),
    Column("qos", Text),
    Column("details", Text),
    Column("advice_id", Text),
    Column("cost_usd", Double),
    UniqueConstraint("source", "job_id", "submit_time", name="job_once"),
    Index("job_by_end", "end_time", "position"),
    Index("job_by_id", "job_id"),
    Index("job_by_advice", "advice_id"),
)
"""Finished jobs; source, id and *first* submission identify a job.

A requeue changes Slurm's SubmitTime, and ids wrap around. ``details`` is JSON with the fields of the
submission that no query uses.
"""

job_attempt = Table(
    "job_attempt",
    metadata,
    Column("source", Text, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("submit_time", Double, nullable=False),
    Column("start_time", Double),
    Column("end_time", Double, nullable=False),
    Column("first_submit_time", Double, nullable=False),
    Column("restarts", Integer, nullable=False),
    Column("partition_name", Text),
    Column("node_list", Text),
    PrimaryKeyConstraint("source", "job_id", "submit_time", name="job_attempt_once"),
)
"""Ended runs that another run may follow; they give a requeued job's first submission and earlier costs.

Partition and nodes are those of the run (null: stored by an earlier release).
"""

advice = Table(
    "advice",
    metadata,
    Column("advice_id", Text, primary_key=True),
    Column("time", Double, nullable=False),
    Column("user_name", Text),
    Column("partition_name", Text),
    Column("placement", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("size_class", Text, nullable=False),
    Column("predicted_wait_seconds", Double),
    Column("predicted_wait_variance", Double),
    Column("predicted_run_seconds", Double),
    Column("predicted_run_variance", Double),
    Column("record", Text, nullable=False),
    Index("advice_by_time", "time", "advice_id"),
)
"""The ledger: ``record`` is the whole decision as JSON, the other columns are for queries."""

advice_job = Table(
    "advice_job",
    metadata,
    Column("advice_id", Text, ForeignKey("advice.advice_id"), nullable=False),
    Column("source", Text, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    PrimaryKeyConstraint("advice_id", "source", "job_id", name="advice_job_once"),
    Index("advice_job_by_job", "job_id", "source"),
)
"""The jobs of each advice; the tasks of an array share one."""

paid_time = Table(
    "paid_time",
    metadata,
    Column("instance_id", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("since", Double, nullable=False),
    Column("until", Double, nullable=False),
    Column("usd_per_hour", Double, nullable=False),
    PrimaryKeyConstraint("instance_id", "since", name="paid_time_once"),
    Index("paid_time_by_end", "until"),
)
"""Cost of cloud nodes: periods of an instance at one price (`advisor.model.bill`)."""

node_use = Table(
    "node_use",
    metadata,
    Column("node", Text, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("start_time", Double, nullable=False),
    Column("end_time", Double, nullable=False),
    Column("processors", Double, nullable=False),
    Column("account", Text, nullable=False),
    Column("is_final", Boolean, nullable=False),
    PrimaryKeyConstraint("node", "job_id", "start_time", name="node_use_once"),
    Index("node_use_by_end", "end_time"),
    Index("node_use_by_job", "job_id"),
)
"""Which jobs were on cloud nodes, run by run: as the queue shows them, and in the end as accounting does."""

ingest_cursor = Table(
    "ingest_cursor",
    metadata,
    Column("source", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""How far each source has been read; what the text means is the source's own affair."""
