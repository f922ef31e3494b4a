"""What Slurm shows, and what of it is ours: the view all loops share, what jobs and nodes say of themselves.

Here belongs what is read out of a look at Slurm or out of its accounting, by whoever decides.
"""
