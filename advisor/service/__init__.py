"""The two daemons, by responsibility: docs/designs/0001-the-house.md says which package is for what."""
