"""Where the earlier runs of a requeued job were: what they cost in the cloud is the job's cost, too."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job_attempt", sa.Column("partition_name", sa.Text))
    op.add_column("job_attempt", sa.Column("node_list", sa.Text))
