"""Writing of recorded steps: a function or class a format, and files that follow one another while a run continues.

It knows columns and metadata alone, and nothing of datasets; those of rllib.offline are written by it.
"""
