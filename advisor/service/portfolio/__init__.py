"""The portfolio loop: which policy is in charge of the burst partition, and what it does to jobs and nodes.

Here belongs portfolio scheduling, live (docs/designs/0014-portfolio-live.md).
"""
