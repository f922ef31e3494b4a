"""Wait and run time of a job, as distributions, from what was known at its submission."""
