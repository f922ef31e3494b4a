"""Floor 10: ``advisor ...``. Argument parsing and printing only."""
