"""What ended jobs teach: the history, run and wait times, sizes, a hedge's price.

Everything that learns off the hot path and saves what `advisor serve` reads is here.
"""
