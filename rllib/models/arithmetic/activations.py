"""Activation functions and their derivatives, in place, for the numpy network."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rllib.models.arithmetic import kernels

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
    """Writes 1 / (1 + exp(-z)) into out, by tanh because that never overflows."""
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


def _sigmoid_derivative(gradient, h, z, scratch):
    np.subtract(ONE, h, out=scratch)
    np.multiply(scratch, h, out=scratch)
    np.multiply(gradient, scratch, out=gradient)


def _elu(z, out):
    """Writes z above 0, exp(z) - 1 below: the greater of the two on each side."""
    np.minimum(z, np.float32(0), out=out)
    np.expm1(out, out=out)
    np.maximum(z, out, out=out)


def _elu_derivative(gradient, h, z, scratch):
    np.minimum(h, np.float32(0), out=scratch)
    np.add(scratch, ONE, out=scratch)
    np.multiply(gradient, scratch, out=gradient)


LEAK = np.float32(0.01)  # torch's


def _leaky_relu(z, out):
    np.multiply(z, LEAK, out=out)
    np.maximum(z, out, out=out)


def _leaky_relu_derivative(gradient, h, z, scratch):
    np.multiply(gradient, np.where(h > 0, ONE, LEAK), out=gradient)


# erf(x) within 1.5e-7 for x >= 0: 1 - exp(-x^2) (a1 t + ... + a5 t^5), t = 1 / (1 + p x); Abramowitz, Stegun, 7.1.26.
_ERF_P = np.float32(0.3275911)
_ERF_A = tuple(map(np.float32, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)))  # a5 first


def _normal(z, out):
    """Writes the normal distribution function of z into out; returns exp(-z^2 / 2)."""
    x = np.abs(z) * np.float32(math.sqrt(0.5))
    np.minimum(x, np.float32(9), out=x)  # beyond it both tails are 0 in float32, and squares stay finite
    density = np.exp(-x * x)
    t = ONE / (ONE + _ERF_P * x)
    out.fill(0)
    for coefficient in _ERF_A:
        out += coefficient
        out *= t
    out *= density
    out *= np.float32(0.5)  # the smaller tail
    np.subtract(ONE, out, out=out, where=z > 0)
    return density


def _gelu(z, out):
    _normal(z, out)
    np.multiply(out, z, out=out)


def _gelu_derivative(gradient, h, z, scratch):
    # d(z Phi(z))/dz = Phi(z) + z phi(z)
    density = _normal(z, scratch)
    density *= np.clip(z, np.float32(-13), np.float32(13))  # where phi is 0 in float32, but z may be any number
    density *= np.float32(1 / math.sqrt(2 * math.pi))
    scratch += density
    np.multiply(gradient, scratch, out=gradient)


ACTIVATIONS = {
    "tanh": Activation(lambda z, out: np.tanh(z, out=out), _tanh_derivative),
    "relu": Activation(kernels.relu, lambda gradient, h, z, scratch: kernels.relu_derivative(gradient, h)),
    "swish": Activation(_swish, _swish_derivative, keeps_input=True),
    "sigmoid": Activation(sigmoid, _sigmoid_derivative),
    "elu": Activation(_elu, _elu_derivative),
    "leaky_relu": Activation(_leaky_relu, _leaky_relu_derivative),
    "gelu": Activation(_gelu, _gelu_derivative, keeps_input=True),
    "linear": Activation(lambda z, out: np.copyto(out, z), lambda gradient, h, z, scratch: None),
}

# Names in the `model` settings -> names here.
ACTIVATION_NAMES = {
    "tanh": "tanh",
    "relu": "relu",
    "swish": "swish",
    "silu": "swish",
    **{name: name for name in ("sigmoid", "elu", "leaky_relu", "gelu", "linear")},
    None: "linear",
}
