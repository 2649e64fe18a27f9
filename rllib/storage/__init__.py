"""Values in files: JSON with its types, tensors, and checkpoints made of both."""
