"""Experiments: of five papers, and of promises, deadlines, budgets and spot pools. Nothing imports it."""
