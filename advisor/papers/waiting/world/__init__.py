"""The simulated cluster whose jobs may leave for rented cores."""
