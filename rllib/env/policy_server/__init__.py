"""The policy server: it answers clients in other processes, which drive the loop of their environments."""
