"""Which renting policy is in force (Deng et al.)."""
