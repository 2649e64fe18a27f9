"""Factories of environments, and the wrappers that they apply."""
