"""Floor 6: what outlives a process: finished jobs, the ledger of advice, models, the loops' small files."""
