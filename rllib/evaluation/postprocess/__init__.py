"""Columns computed from sampled fragments: advantages, n-step returns, sequences, hindsight."""
