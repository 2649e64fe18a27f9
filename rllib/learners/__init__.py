"""Learners: one interface, one implementation in numpy and one in torch."""
