"""The commands of the papers: `advisor replay NAME` and `advisor plan`."""
