"""Attention networks (GTrXL), in numpy and torch."""
