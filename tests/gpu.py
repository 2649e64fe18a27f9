"""The marker of tests that need a GPU; `make gpu` runs them."""

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
NO_GPU = f"torch {torch.__version__} finds no CUDA device on this machine"


def needs_gpu(test):
    """Skips a test where there is no CUDA device."""
    return pytest.mark.gpu(pytest.mark.skipif(not HAS_GPU, reason=NO_GPU)(test))


# For tests that run on both.
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not HAS_GPU, reason=NO_GPU)])]
