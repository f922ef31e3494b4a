"""The on-premise processors under EASY backfilling, one event at a time, and the forecast of its queue."""
