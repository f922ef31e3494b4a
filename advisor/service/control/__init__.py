"""`advisor control`, put together: its life, the wiring of its loops, the look they share, what it publishes.

Here belongs what has to know several loops at once. A loop itself belongs into the package of what it does.
"""
