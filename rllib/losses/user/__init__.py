"""Losses of the user's, in addition to those of an algorithm."""
