"""Finished jobs, interrupted attempts, the ledger of advice, cursors."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_row_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "job",
        sa.Column("position", _row_number, primary_key=True, autoincrement=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("job_id", sa.BigInteger, nullable=False),
        sa.Column("submit_time", sa.Double, nullable=False),
        sa.Column("start_time", sa.Double, nullable=False),
        sa.Column("end_time", sa.Double, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("processors", sa.BigInteger, nullable=False),
        sa.Column("processors_used", sa.BigInteger, nullable=False),
        sa.Column("restarts", sa.Integer, nullable=False),
        *(
            sa.Column(name, sa.Text)
            for name in ("user_name", "group_name", "queue", "partition_name", "node_list")
        ),
        sa.Column("requested_time", sa.Double),
        sa.Column("nodes", sa.BigInteger),
        sa.Column("memory_mb", sa.BigInteger),
        *(sa.Column(name, sa.Text) for name in ("name", "account", "qos", "details")),
        sa.Column("advice_id", sa.Text),
        sa.Column("cost_usd", sa.Double),
        sa.UniqueConstraint("source", "job_id", "submit_time", name="job_once"),
    )
    op.create_index("job_by_end", "job", ["end_time", "position"])
    op.create_index("job_by_id", "job", ["job_id"])
    op.create_index("job_by_advice", "job", ["advice_id"])
    op.create_table(
        "job_attempt",
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("job_id", sa.BigInteger, nullable=False),
        sa.Column("submit_time", sa.Double, nullable=False),
        sa.Column("start_time", sa.Double),
        sa.Column("end_time", sa.Double, nullable=False),
        sa.Column("first_submit_time", sa.Double, nullable=False),
        sa.Column("restarts", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("source", "job_id", "submit_time", name="job_attempt_once"),
    )
    op.create_table(
        "advice",
        sa.Column("advice_id", sa.Text, primary_key=True),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("user_name", sa.Text),
        sa.Column("partition_name", sa.Text),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("placement", "mode", "reason", "size_class")),
        sa.Column("predicted_wait_seconds", sa.Double),
        sa.Column("predicted_wait_variance", sa.Double),
        sa.Column("predicted_run_seconds", sa.Double),
        sa.Column("predicted_run_variance", sa.Double),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("advice_by_time", "advice", ["time", "advice_id"])
    op.create_table(
        "advice_job",
        sa.Column("advice_id", sa.Text, sa.ForeignKey("advice.advice_id"), nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("job_id", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("advice_id", "source", "job_id", name="advice_job_once"),
    )
    op.create_index("advice_job_by_job", "advice_job", ["job_id", "source"])
    op.create_table(
        "ingest_cursor",
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
