"""Variants of SAC's losses: TQC, CrossQ and categorical critics."""
