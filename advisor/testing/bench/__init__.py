"""Measurements behind ``advisor bench`` and the folder ``benchmarks/``.

Each module has ``run(...) -> dict``: what ``advisor bench NAME --format json`` prints. It lives here, in the
installed package, so that the command works on a site without the source tree; ``benchmarks/NAME.py`` calls
the same function from the tree. To add one: a module here, a command in ``advisor/cli/bench.py``, a file of
three lines in ``benchmarks/``.
"""
