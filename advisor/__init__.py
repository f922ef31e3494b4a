"""Burst Advisor: wait on the cluster, or pay to start in EC2? Decided inside ``sbatch``."""

__version__ = "0.2.0"
