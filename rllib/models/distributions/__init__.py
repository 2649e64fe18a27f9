"""Action distributions and action values."""
