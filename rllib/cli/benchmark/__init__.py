"""`rllib benchmark`: which runs a benchmark has, and their training."""
