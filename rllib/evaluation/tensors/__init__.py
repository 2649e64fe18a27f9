"""Rollouts that stay on the device of environments made of torch tensors."""
