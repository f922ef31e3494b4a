"""Promises made and kept on a log."""
