"""Episodes of perturbed weights, for evolution strategies."""
