"""Forecasts that do not hold any more: a partition falls back to on-premise, and comes back."""
