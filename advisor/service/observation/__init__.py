"""What a poll of Slurm shows, and what of it is ours."""
