"""Floor 7: a site's own history is decided again, for what-ifs and backtests."""
