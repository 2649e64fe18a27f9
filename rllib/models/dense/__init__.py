"""Fully connected networks, in numpy and torch."""
