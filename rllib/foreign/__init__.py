"""Trained models of other libraries, as checkpoints of this one. Pickles in them are read as data, and none is run."""
