"""A cluster that may rent: jobs wait for fixed cores, leave for on-demand, or are tried out on spot."""
