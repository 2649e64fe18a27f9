"""The sections of AlgorithmConfig that are long, each with what it checks and what follows from it."""
