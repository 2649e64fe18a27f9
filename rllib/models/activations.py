"""Activation functions and their derivatives, in place, for the numpy network."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rllib.models import kernels

ONE = np.float32(1)


@dataclass(frozen=True)
class Activation:
    """An elementwise function of z with output h.

    Attributes:
        apply: (z, out) writes h into out.
        multiply_derivative: (gradient, h, z, scratch) multiplies gradient by dh/dz in place. All have z's shape.
        keeps_input: the derivative reads z; otherwise z's memory may hold the gradient by then.
    """

    apply: Callable[[np.ndarray, np.ndarray], object]
    multiply_derivative: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], object]
    keeps_input: bool = False


def _tanh_derivative(gradient, h, z, scratch):
    np.multiply(h, h, out=scratch)
    np.subtract(ONE, scratch, out=scratch)
    np.multiply(gradient, scratch, out=gradient)


def sigmoid(z, out):
    """1 / (1 + exp(-z)), written with tanh because that never overflows."""
    np.multiply(z, np.float32(0.5), out=out)
    np.tanh(out, out=out)
    np.add(out, ONE, out=out)
    np.multiply(out, np.float32(0.5), out=out)


def _swish(z, out):
    sigmoid(z, out)
    np.multiply(out, z, out=out)


def _swish_derivative(gradient, h, z, scratch):
    # d(z s)/dz = s + h (1 - s), with s the sigmoid of z.
    sigmoid(z, scratch)
    np.multiply(gradient, scratch + h * (ONE - scratch), out=gradient)


ACTIVATIONS = {
    "tanh": Activation(lambda z, out: np.tanh(z, out=out), _tanh_derivative),
    "relu": Activation(kernels.relu, lambda gradient, h, z, scratch: kernels.relu_derivative(gradient, h)),
    "swish": Activation(_swish, _swish_derivative, keeps_input=True),
    "linear": Activation(lambda z, out: np.copyto(out, z), lambda gradient, h, z, scratch: None),
}
