"""Floor 2: frozen records with units. No I/O, no clock."""
