"""Readers of files of recorded steps, a module a format."""
