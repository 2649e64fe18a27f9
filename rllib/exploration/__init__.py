"""Exploration: explorers, noise on parameters, intrinsic rewards."""
