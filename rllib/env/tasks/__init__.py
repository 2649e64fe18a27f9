"""Environments of the library, for tests, examples and benchmarks."""
