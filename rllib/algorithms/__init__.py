"""The algorithms, one readable file each, and what they share."""
