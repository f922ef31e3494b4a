"""Pure readings of a poll of Slurm: the site's state, the advisor's own jobs, room in the cloud."""
