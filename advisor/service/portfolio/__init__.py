"""Live portfolio scheduling: which policy leads, and what it does to jobs and nodes.

The design is in docs/designs/0014-portfolio-live.md.
"""
