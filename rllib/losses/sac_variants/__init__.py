"""Losses of soft actor-critic with other critics: of several quantiles, and without target copies."""
