"""Jobs in the cloud that keep a place on-premise: places kept, jobs brought back, small jobs that are none.

Here belongs what requeues or holds users' jobs (docs/designs/0013-hedged-start.md).
"""
