"""How a process of ours runs: clock, loops, faults kept apart, metrics, systemd, memory.

Here belongs what any loop or server needs and that knows neither jobs nor nodes.
"""
