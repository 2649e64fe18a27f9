"""Algorithms for recorded data: imitation, and off-policy learning that stays close to the data."""
