"""The machine: CPUs, GPUs and memory that this process may use."""
