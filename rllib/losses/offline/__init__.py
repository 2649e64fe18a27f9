"""Losses on recorded data: of imitation, and of values that stay close to the data."""
