"""The commands of the experiments: `advisor replay NAME`."""
