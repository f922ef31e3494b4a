"""What the tests, the demo and the benchmarks run on: a one-machine Slurm, an EC2 endpoint, clocks."""
