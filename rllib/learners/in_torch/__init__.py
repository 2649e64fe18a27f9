"""The learner in torch."""
