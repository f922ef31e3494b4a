"""Floor 3: history in, estimates out. No I/O, no clock: what is known is passed in."""
