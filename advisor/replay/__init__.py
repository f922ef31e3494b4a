"""Floor 6: logs through decide and simulate: the papers' tables, what-ifs, backtests, plans."""
