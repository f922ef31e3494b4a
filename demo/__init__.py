"""``make demo``: the main job, on a real one-machine Slurm where one can be had."""
