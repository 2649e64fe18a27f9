"""Trainables: classes, functions and algorithms that a trial runs."""
