"""Trained policies at work, without the parts that train: loaded into a program, or behind HTTP."""
