"""Environments of game engines, which run as programs of their own."""
