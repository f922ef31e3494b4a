"""Alembic's entry: runs on the connection, and inside the transaction, that the store hands over."""

from alembic import context

from advisor.history.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
context.run_migrations()
