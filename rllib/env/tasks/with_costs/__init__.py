"""Environments whose steps have costs beside rewards."""
