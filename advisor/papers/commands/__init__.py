"""The commands of the papers: `advisor replay NAME`."""
