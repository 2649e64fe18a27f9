"""Networks of residual blocks: SimBa and SimbaV2."""
