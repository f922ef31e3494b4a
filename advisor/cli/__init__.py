"""Floor 6: ``advisor ...``. Argument parsing and printing only."""
