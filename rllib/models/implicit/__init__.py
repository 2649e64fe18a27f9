"""Implicit quantile networks: description, and their numpy and torch forms."""
