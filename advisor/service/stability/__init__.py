"""Matching and acquisition: which cloud nodes will stay, long jobs to them, shaky ones exchanged.

Here belongs what follows from how long nodes last (docs/designs/0015-stability-live.md).
"""
