"""Zrigui et al., section 4.3."""
