"""Hedged starts: whether a job gets one, its stop-loss, the budget and the price."""
