"""Hedged starts: placeholders, the return of jobs on-premise, the safeguard of small jobs.

All code that requeues or holds users' jobs is here (docs/designs/0013-hedged-start.md).
"""
