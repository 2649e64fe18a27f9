"""Environments that take and return torch tensors."""
