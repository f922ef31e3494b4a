"""Floor 8: what we test with and ship: a one-machine Slurm, an EC2 endpoint, clocks, benchmarks."""
