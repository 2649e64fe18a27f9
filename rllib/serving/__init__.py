"""Trained policies in use: exported, and behind a server."""
