"""Losses of imitation, and of critics and actors that learn from recorded data."""
