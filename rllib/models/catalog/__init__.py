"""The choice of a network from the `model` settings."""
