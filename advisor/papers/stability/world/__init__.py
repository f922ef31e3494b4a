"""The simulated cluster whose nodes change."""
