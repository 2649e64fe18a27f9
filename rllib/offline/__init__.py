"""Recorded steps: files, what they hold as episodes, and their way into replays and batches."""
