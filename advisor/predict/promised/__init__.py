"""The knowledge behind promises: the spread of waits around their plan, and the share of promises kept."""
