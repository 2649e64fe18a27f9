"""Networks in the form of RLlib's new API stack, and policies that act and learn by them."""
