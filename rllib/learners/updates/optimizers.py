"""Optimizers and gradient clipping on one flat float32 vector, in numpy."""

import math
from dataclasses import dataclass

import numpy as np

from rllib.models.arithmetic import kernels

NAMES = ("adam", "adamw", "radam", "rmsprop", "sgd")


@dataclass(frozen=True)
class OptimizerSettings:
    """Name and constants of an optimizer. The learning rate may change, and comes with each update.

    Args:
        name: one of NAMES.
        adam_epsilon: added to the denominator of Adam and RAdam.
        adam_beta1: share of the mean gradient that Adam and RAdam keep in a step.
        decay: share of the mean squared gradient that RMSprop keeps in a step (torch calls it alpha).
        momentum: momentum of RMSprop's steps; 0 switches it off.
        rmsprop_epsilon: added to the root of the mean squared gradient.
        weight_decay: share of the learning rate by which AdamW shortens the weights in each step; the others add that
            multiple of the weights to the gradient, as torch does.
    """

    name: str = "adam"
    adam_epsilon: float = 1e-8
    decay: float = 0.99
    momentum: float = 0.0
    rmsprop_epsilon: float = 1e-5
    adam_beta1: float = 0.9
    weight_decay: float = 0.0

    def __post_init__(self):
        if self.name not in NAMES:
            raise ValueError(f"optimizer must be one of {NAMES}, but got {self.name!r}")

    def make(self, size: int) -> "Adam | RAdam | RMSprop | SGD | WithDecay":
        """The optimizer in numpy, for a flat vector of this size."""
        optimizer = self._without_decay(size)
        return WithDecay(optimizer, size, self.weight_decay, self.name == "adamw") if self.weight_decay else optimizer

    def _without_decay(self, size: int) -> "Adam | RAdam | RMSprop | SGD":
        if self.name in ("adam", "adamw"):
            return Adam(size, beta1=self.adam_beta1, epsilon=self.adam_epsilon)
        if self.name == "radam":
            return RAdam(size, beta1=self.adam_beta1, epsilon=self.adam_epsilon)
        if self.name == "rmsprop":
            return RMSprop(size, decay=self.decay, momentum=self.momentum, epsilon=self.rmsprop_epsilon)
        return SGD(size)


# The mean gradient of a unit that never fires again halves every seven steps, and its mean square every 700. Numbers
# below 1e-38 are denormal, and processors compute ten times as slowly with them. Adding this number, which is lost in
# rounding, keeps both above. A fall from here takes 150 steps, so it need not be added in every step.
TINY = np.float32(1e-31)
TINY_EVERY = 16  # steps


class Adam:
    """Adam (Kingma and Ba, arXiv:1412.6980, algorithm 1), arithmetically as torch.optim.Adam does it.

    Attributes:
        state: arrays that make up the optimizer's memory; they are updated in place.
    """

    name = "adam"

    def __init__(self, size: int, *, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8):
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self._m, self._v = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self._count = np.zeros((), np.int64)
        self.state = {f"{self.name}.m": self._m, f"{self.name}.v": self._v, f"{self.name}.step": self._count}
        self._scratch = np.empty(size, np.float32)

    def step(self, weights: np.ndarray, gradient: np.ndarray, lr: float) -> None:
        """Moves weights in place, against gradient."""
        self._count += 1
        count = int(self._count)
        # weights -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon), corrections moved to the scalars.
        correction = math.sqrt(1 - self.beta2**count)
        self._move(weights, gradient, lr * correction / (1 - self.beta1**count), self.epsilon * correction)

    def _move(self, weights: np.ndarray, gradient: np.ndarray, step_size: float, epsilon: float | None) -> None:
        """Updates m and v, then weights -= step_size * m / (sqrt(v) + epsilon); without the division for None."""
        if self._count % TINY_EVERY == 0:
            self._m += TINY
            self._v += TINY
        betas = self.beta1, self.beta2
        kernels.adam(
            weights, self._m, self._v, gradient, self._scratch, betas=betas, step_size=step_size, epsilon=epsilon
        )


class RAdam(Adam):
    """Adam with rectified variance (Liu et al., arXiv:1908.03265, algorithm 2), arithmetically as torch.optim.RAdam.

    Steps use momentum alone while the mean of squares has too few gradients to be trusted. Like torch
    this one divides where the paper's rho exceeds 5, and adds epsilon to the root before its bias is corrected.
    """

    name = "radam"

    def step(self, weights: np.ndarray, gradient: np.ndarray, lr: float) -> None:
        self._count += 1
        count = int(self._count)
        step_size = lr / (1 - self.beta1**count)
        # rho: number of gradients whose plain mean would be as certain as v.
        rest = 1 - self.beta2**count
        most = 2 / (1 - self.beta2) - 1
        rho = most - 2 * count * self.beta2**count / rest
        if rho <= 5:
            self._move(weights, gradient, step_size, None)
            return
        rectification = math.sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))
        self._move(weights, gradient, step_size * rectification * math.sqrt(rest), self.epsilon)


class RMSprop:
    """RMSprop (Tieleman and Hinton 2012, lecture 6.5), arithmetically as torch.optim.RMSprop does it.

    TensorFlow's adds epsilon before it takes the root, and starts with a mean of ones; this one adds it afterwards, and
    starts with zeros.

    Attributes:
        state: arrays that make up the optimizer's memory; they are updated in place.
    """

    def __init__(self, size: int, *, decay: float = 0.99, momentum: float = 0.0, epsilon: float = 1e-5):
        self.decay, self.momentum, self.epsilon = np.float32(decay), np.float32(momentum), np.float32(epsilon)
        self._rest = np.float32(1 - decay)
        self.state = {"rmsprop.v": np.zeros(size, np.float32)}
        if momentum:
            self.state["rmsprop.momentum"] = np.zeros(size, np.float32)
        self._scratch = np.empty(size, np.float32)

    def step(self, weights: np.ndarray, gradient: np.ndarray, lr: float) -> None:
        v, scratch = self.state["rmsprop.v"], self._scratch
        # v = decay v + (1 - decay) g^2;  b = momentum b + g / (sqrt(v) + epsilon);  weights -= lr b
        np.multiply(gradient, gradient, out=scratch)
        scratch *= self._rest
        v *= self.decay
        v += scratch
        np.sqrt(v, out=scratch)
        scratch += self.epsilon
        np.divide(gradient, scratch, out=scratch)
        if self.momentum:
            moving = self.state["rmsprop.momentum"]
            moving *= self.momentum
            moving += scratch
            np.multiply(moving, np.float32(lr), out=scratch)
        else:
            scratch *= np.float32(lr)
        weights -= scratch


class SGD:
    """Plain gradient descent, without a memory."""

    def __init__(self, size: int):
        self.state: dict[str, np.ndarray] = {}
        self._scratch = np.empty(size, np.float32)

    def step(self, weights: np.ndarray, gradient: np.ndarray, lr: float) -> None:
        np.multiply(gradient, np.float32(lr), out=self._scratch)
        weights -= self._scratch


class WithDecay:
    """An optimizer with weight decay.

    Args:
        optimizer: takes the steps; its state is shared.
        size: number of weights.
        decay: see OptimizerSettings.weight_decay.
        decoupled: shorten the weights themselves (Loshchilov and Hutter, arXiv:1711.05101, algorithm 2) instead of
            adding decay * weights to the gradient.
    """

    def __init__(self, optimizer: Adam | RAdam | RMSprop | SGD, size: int, decay: float, decoupled: bool):
        self.state = optimizer.state
        self._optimizer, self._decay, self._decoupled = optimizer, decay, decoupled
        self._scratch = np.empty(size, np.float32)

    def step(self, weights: np.ndarray, gradient: np.ndarray, lr: float) -> None:
        if self._decoupled:
            weights *= np.float32(1 - lr * self._decay)
        else:
            np.multiply(weights, np.float32(self._decay), out=self._scratch)
            self._scratch += gradient
            gradient = self._scratch
        self._optimizer.step(weights, gradient, lr)


def global_norm(gradient: np.ndarray) -> float:
    """The Euclidean length of a flat vector."""
    return math.sqrt(np.dot(gradient, gradient))


def clip_gradient(
    gradient: np.ndarray, parameters: list[np.ndarray], norm: float, limit: float | None, by: str
) -> None:
    """Clips a flat gradient in place.

    Args:
        gradient: flat vector.
        parameters: views of it, one for each parameter.
        norm: the length of gradient.
        limit: None clips nothing.
        by: "global_norm" scales all of it to at most `limit` long, "norm" each parameter's part on its own, "value"
            clips each number to -limit ... limit.
    """
    if limit is None:
        return
    if by == "value":
        np.clip(gradient, np.float32(-limit), np.float32(limit), out=gradient)
    elif by == "norm":
        for part in parameters:
            _scale_to(part, float(np.linalg.norm(part)), limit)
    else:
        _scale_to(gradient, norm, limit)


def _scale_to(vector: np.ndarray, norm: float, limit: float) -> None:
    # The constant of torch.nn.utils.clip_grad_norm_.
    if norm > limit:
        vector *= np.float32(limit / (norm + 1e-6))
