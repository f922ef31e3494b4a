"""Matching and acquisition: long jobs go to nodes that are likely to last, shaky nodes are exchanged.

The design is in docs/designs/0015-stability-live.md.
"""
