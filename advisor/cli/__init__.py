"""Floor 11: ``advisor ...``. Argument parsing and printing only.

Commands import what they need inside their functions, so that `advisor` starts quickly.
"""
