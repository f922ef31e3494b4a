"""Durable state: one record type for each state file, and the classes that keep the longer ones."""
