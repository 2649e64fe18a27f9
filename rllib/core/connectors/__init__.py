"""Connectors of RLlib's new API stack: pieces that change observations on their way to the policy, and actions."""
