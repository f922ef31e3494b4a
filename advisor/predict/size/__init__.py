"""Small or large: the weekly retrained forest (Zrigui et al.)."""
