"""Environments that are functions of JAX, compiled for N states at once."""

import os

# JAX reads both when it starts its devices. By default it takes three quarters of a GPU's memory, which torch needs as
# well, and threads on all cores in every worker.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
if "OMP_NUM_THREADS" in os.environ:
    os.environ.setdefault("NPROC", os.environ["OMP_NUM_THREADS"])
