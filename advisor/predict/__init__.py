"""Floor 2: history in, estimates out. No I/O, no clock: what is known is passed in."""
