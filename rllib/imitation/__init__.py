"""Rewards that are learned from demonstrations: what a discriminator reads, its networks, updates and rewards."""
