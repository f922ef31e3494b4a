"""Every benchmark, run from the tree: ``python -m benchmarks`` or ``python -m benchmarks.NAME``.

What is measured is in ``advisor.testing.bench``, so that ``advisor bench NAME`` measures the same.
"""
