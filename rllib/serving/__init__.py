"""Trained policies without the parts that train: in a program, as a file for other programs, or behind HTTP."""
