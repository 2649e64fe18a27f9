"""Trained policies at work, without the parts that train: in a program, as a file for others, or behind HTTP."""
