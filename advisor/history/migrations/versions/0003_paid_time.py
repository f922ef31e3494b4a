"""What cloud nodes have cost and which jobs were on them: what every view of money adds up."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "paid_time",
        sa.Column("instance_id", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
        sa.Column("usd_per_hour", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("instance_id", "since", name="paid_time_once"),
    )
    op.create_index("paid_time_by_end", "paid_time", ["until"])
    op.create_table(
        "node_use",
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("job_id", sa.BigInteger, nullable=False),
        sa.Column("start_time", sa.Double, nullable=False),
        sa.Column("end_time", sa.Double, nullable=False),
        sa.Column("processors", sa.Double, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("is_final", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("node", "job_id", "start_time", name="node_use_once"),
    )
    op.create_index("node_use_by_end", "node_use", ["end_time"])
    op.create_index("node_use_by_job", "node_use", ["job_id"])
