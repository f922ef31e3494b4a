"""Burst Advisor: wait on the cluster, or pay to start in EC2? Decided inside ``sbatch``."""

import os

__version__ = "0.2.0"

# numpy would start a thread for each processor of a head node, and they spin: our matrices are small.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
