"""Cunha et al., section V."""
