"""Ambati et al.: waiting policies and the reserved cores to buy."""
