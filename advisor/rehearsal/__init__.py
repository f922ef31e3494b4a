"""The shipped submit server and control loops on a virtual clock, against a simulated site."""
