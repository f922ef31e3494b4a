"""Reasons, and their words for users and admins."""
