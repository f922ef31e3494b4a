"""Budgets of calendar periods, of a site and of its users, on a log."""
