"""Hedged starts: whether one is offered, its stop, its budget and its price."""
