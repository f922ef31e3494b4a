"""The hot path, `advisor serve`: a submission becomes a job, an advice, a reply. From memory only.

Here belongs what an answer may touch, and how models, state and the stream of the queue get into memory. What
is slow belongs into a loop (docs/designs/0005-submit-path.md).
"""
