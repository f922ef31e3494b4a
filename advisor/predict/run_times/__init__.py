"""Run times as distributions, learned online as jobs end."""
