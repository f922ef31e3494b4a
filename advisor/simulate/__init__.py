"""Floor 3: simulated clusters with a clock of their own; compiled kernels, oracles that say it plainly."""
