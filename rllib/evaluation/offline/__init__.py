"""Samples from recorded data: rows as workers would have made them, and the source that hands them over."""
