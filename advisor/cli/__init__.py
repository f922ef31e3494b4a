"""Floor 11: ``advisor ...``. Argument parsing and printing only."""
