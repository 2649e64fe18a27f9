"""Values that users log in hooks and losses, and their reduction to numbers of a result."""
