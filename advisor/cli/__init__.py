"""Floor 9: ``advisor ...``. Argument parsing and printing only."""
