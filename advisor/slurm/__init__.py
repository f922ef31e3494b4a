"""Talk to Slurm: one protocol, back ends behind it."""
