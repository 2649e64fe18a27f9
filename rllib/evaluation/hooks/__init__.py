"""Users' hooks: the running episode that they get, their arguments in every version of RLlib, and plain functions."""
