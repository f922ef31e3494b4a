"""Hedged starts: whether a job that runs in the cloud stays there when its slot or its stop comes."""
