"""Disturbances of a simulator, from which policies learn to act in the world: noise, delays, drawn parameters."""
