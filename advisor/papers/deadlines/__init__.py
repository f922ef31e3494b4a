"""Jobs with a deadline on spot traces: published rules, the clairvoyant, and ours."""
