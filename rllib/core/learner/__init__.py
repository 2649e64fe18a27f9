"""Losses in the form of RLlib's Learner classes."""
