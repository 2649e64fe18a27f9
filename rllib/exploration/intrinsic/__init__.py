"""Intrinsic rewards: RND and Curiosity, their networks, losses and rewards."""
