"""Nearest neighbours by HEOM, their features and their tuning (Cunha et al.)."""
