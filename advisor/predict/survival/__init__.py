"""How long nodes last (Agarwal et al.)."""
