"""Losses of the user's, beside those of an algorithm."""
