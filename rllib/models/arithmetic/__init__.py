"""Numeric kernels and activations."""
