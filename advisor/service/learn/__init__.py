"""Learning from jobs that have ended: the history, run times, waits, sizes, a hedge's price.

Everything that learns off the hot path and saves what `advisor serve` reads is here.
"""
