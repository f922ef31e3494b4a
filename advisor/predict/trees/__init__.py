"""Forests: grown by scikit-learn, kept as flat arrays, read by compiled functions."""
