"""Checkpoints of Ray RLlib: policy states of 2.0 to 2.60's old API stack, and module states of the new one."""
