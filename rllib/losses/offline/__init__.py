"""Losses on recorded data."""
