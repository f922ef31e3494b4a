"""Measurements, each beside a peer that is measured in the same run. They are in the source tree only.

Each measurement is a module with ``run(...) -> dict``, which ``advisor bench NAME --format json`` prints,
and a command in ``commands.py``. ``python -m benchmarks`` (``make bench``) runs all and keeps the results.
"""
