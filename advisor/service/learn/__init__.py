"""What ended jobs teach: history, knowledge base, size model, the placement rule's forests, a hedge's price.

Here belongs what learns off the hot path and saves what `advisor serve` reads.
"""
