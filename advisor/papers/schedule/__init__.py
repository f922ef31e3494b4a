"""EASY backfilling of a whole log under several policies."""
