"""Floor: see docs/designs/0001-the-house.md."""
