"""Forests of two papers' replays: wait and run time of a job as distributions, from what was known."""
