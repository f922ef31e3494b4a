"""Portfolio scheduling: policies, the cluster that rents nodes, the online simulator (Deng et al.)."""
