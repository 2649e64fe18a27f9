"""Losses of algorithms with a limit on costs, which a Lagrange multiplier prices."""
