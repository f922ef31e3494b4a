"""Alembic migrations of the history, run by ``advisor.history.database`` when a store is opened."""
