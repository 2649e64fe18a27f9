"""Recorded data of a run: its settings, and the datasets that they name."""
