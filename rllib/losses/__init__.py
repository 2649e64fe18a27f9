"""Pure functions of arrays and numbers: advantage estimates, losses, and their closed-form gradients."""
