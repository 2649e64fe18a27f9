"""Fitted Q evaluation (Le, Voloshin & Yue, arXiv:1903.08738): a network of action values, fitted to recorded steps.

Each pass over the data fits the network to r + gamma V'(s'), with V' of a copy from before the pass:

    minimise mean (Q(s, a) - r - gamma sum_a' pi(a' | s') Q'(s', a'))^2

The sum is over all choices of a Discrete space; of other spaces it is a mean over actions drawn from the policy.

Departures from RLlib, whose name for it the class has:

- the network is computed in numpy, which is faster for so small a one;
- it learns (Q - mean) / deviation of the returns in the data, so that their size does not matter to the learning rate,
  and that Q begins at what was recorded;
- as many passes are made as reduce an error at the beginning to 1 %, not one;
- targets are clipped to what rewards like the recorded ones can sum up to, since bootstrapping from actions that the
  data does not have may diverge.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rllib.evaluation.estimators.q_model import QModel
from rllib.evaluation.estimators.recorded_steps import RecordedSteps, recorded_steps
from rllib.evaluation.estimators.target_policy import action_rows
from rllib.evaluation.offline.episode_sums import linear_sums
from rllib.learners.updates.optimizers import Adam, global_norm
from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.models.dense.layers_in_numpy import NumpyLayers
from rllib.models.modules import FullyConnected
from rllib.policy import Policy

MODEL_DEFAULTS = {"fcnet_hiddens": [32, 32, 32], "fcnet_activation": "relu"}
# Share of an error at the beginning that is left after the passes.
_LEFT = 0.01
_MOST_PASSES = 1000
# Steps of the optimizer in a pass, and rows of one, by default.
_STEPS_IN_PASS, _FEWEST_ROWS, _MOST_ROWS = 50, 32, 1024
_ROWS_AT_ONCE = 1 << 14


class FQETorchModel(QModel):
    """A fully connected network of action values, fitted to recorded steps.

    Args:
        policy, gamma, epsilon_greedy: as for QModel.
        model_config: fcnet_hiddens ([32, 32, 32]) and fcnet_activation ("relu").
        n_iters: passes over the data of one `train`; None: as many as reduce an error at the beginning to 1 %,
            ln 0.01 / ln gamma (459 for gamma 0.99), at most 1000.
        lr: learning rate of Adam.
        min_loss_threshold: `train` ends after a pass with a lower mean squared error, in rewards squared.
        clip_grad_norm: bound of the gradient's length.
        minibatch_size: rows of a step; None: a fiftieth of the data, within 32 ... 1024.
        polyak_coef: how far each pass moves the copy that is bootstrapped from to the network; 1: copied.
        n_action_samples: actions that an expectation is the mean of, where they cannot be summed over.
        seed: seed of weights, orders and drawn actions.

    Raises:
        ValueError: for a number out of range or an unknown key.
    """

    def __init__(
        self,
        policy: Policy,
        gamma: float,
        model_config: Mapping[str, Any] | None = None,
        n_iters: int | None = None,
        lr: float = 1e-3,
        min_loss_threshold: float = 1e-4,
        clip_grad_norm: float = 100.0,
        minibatch_size: int | None = None,
        polyak_coef: float = 1.0,
        epsilon_greedy: float = 0.0,
        n_action_samples: int = 10,
        seed: int = 0,
    ):
        super().__init__(policy, gamma, epsilon_greedy)
        _refuse_wrong(
            n_iters=n_iters,
            lr=lr,
            min_loss_threshold=min_loss_threshold,
            clip_grad_norm=clip_grad_norm,
            minibatch_size=minibatch_size,
            polyak_coef=polyak_coef,
            n_action_samples=n_action_samples,
            seed=seed,
        )
        self.n_iters, self.lr, self.min_loss_threshold = n_iters, lr, min_loss_threshold
        self.clip_grad_norm, self.minibatch_size, self.polyak_coef = clip_grad_norm, minibatch_size, polyak_coef
        self._num_draws, self._rng = n_action_samples, np.random.default_rng(seed)
        self._network, self._copy = self._make_networks({**MODEL_DEFAULTS, **(model_config or {})})
        self._optimizer = Adam(self._network.weights.size)
        # Q = mean + deviation * output, with outputs within bounds; set by the first data.
        self._mean, self._deviation = 0.0, 1.0
        self._low, self._high = -math.inf, math.inf
        self._is_scaled = False

    def _make_networks(self, model: Mapping[str, Any]) -> tuple[NumpyLayers, NumpyLayers]:
        """The network, and the copy that is bootstrapped from."""
        if unknown := model.keys() - MODEL_DEFAULTS.keys():
            raise ValueError(f"model_config takes {', '.join(MODEL_DEFAULTS)}, not {', '.join(sorted(unknown))}")
        if model["fcnet_activation"] not in ACTIVATION_NAMES:
            raise ValueError(
                f"model_config: fcnet_activation={model['fcnet_activation']!r} must be one of "
                f"{', '.join(ACTIVATION_NAMES)}"
            )
        if not _are_sizes(model["fcnet_hiddens"]):
            raise ValueError(
                f"model_config: fcnet_hiddens={model['fcnet_hiddens']!r:.60} must be a list of whole numbers above 0"
            )
        encoder, distribution = self.policy.spec.encoder, self.policy.distribution
        widths = {"rows": math.prod(encoder.shape) if encoder.as_stored else encoder.size}
        outputs = None
        if self.target.is_choice:
            outputs = distribution.num_actions
        else:
            nothing = np.zeros((1, *distribution.action_shape), distribution.action_dtype)
            widths["action"] = action_rows(distribution, nothing).shape[1]
        hiddens, activation = tuple(model["fcnet_hiddens"]), ACTIVATION_NAMES[model["fcnet_activation"]]
        network = FullyConnected(tuple(widths), hiddens, outputs, activation=activation)
        layout = network.layout(widths)
        weights = np.zeros(layout.size, np.float32)
        network.initialize(layout, weights, self._rng)
        return network.numpy(layout, weights), network.numpy(layout, weights.copy())

    # ------------------------------------------------------------------ fitting

    def train(self, batch: Any) -> list[float]:
        """Fits the network; a further call continues from its weights, for the present policy.

        Args:
            batch: as for OffPolicyEstimator.estimate. Steps after which it is unknown what followed are left out.

        Returns:
            mean squared error of each pass, in rewards squared.

        Raises:
            ValueError: if no step is left.
        """
        steps = recorded_steps(batch, self.policy)
        rows = np.flatnonzero(steps.is_transition)
        if not len(rows):
            raise ValueError(f"of no step of {steps.source} is it known what followed, so that no model can be fitted")
        if not self._is_scaled:
            self._scale(steps)
        size = self.minibatch_size or int(np.clip(len(rows) // _STEPS_IN_PASS, _FEWEST_ROWS, _MOST_ROWS))
        data = self._columns(steps, rows)
        losses: list[float] = []
        while len(losses) < self._num_passes and not (losses and losses[-1] < self.min_loss_threshold):
            losses.append(self._pass(data, size))
        return losses

    @property
    def _num_passes(self) -> int:
        if self.n_iters is not None:
            return self.n_iters
        if self.gamma in (0, 1):
            return _MOST_PASSES if self.gamma else 1
        return min(math.ceil(math.log(_LEFT) / math.log(self.gamma)), _MOST_PASSES)

    def _scale(self, steps: RecordedSteps) -> None:
        after = np.zeros(steps.num_episodes)
        returns = linear_sums(steps.rewards, np.full(len(steps), self.gamma), steps.starts, after)
        self._mean, self._deviation = float(returns.mean()), float(returns.std()) or 1.0
        if self.gamma < 1:
            # An episode may end at any step, with 0 for the rest.
            sums = np.array([min(steps.rewards.min(), 0), max(steps.rewards.max(), 0)]) / (1 - self.gamma)
            self._low, self._high = (sums - self._mean) / self._deviation
        self._is_scaled = True

    def _columns(self, steps: RecordedSteps, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Columns of the rows: encoded observations, actions, rewards, discounts, next observations, what pi does."""
        terminated = steps.terminated[rows]
        of_rows = terminated.reshape(len(rows), *[1] * (steps.obs.ndim - 1))
        following = np.where(of_rows, steps.obs[rows], steps.new_obs[rows])  # after a termination nothing is read
        actions = steps.actions[rows]
        if not self.target.is_choice:
            actions = action_rows(self.policy.distribution, actions)
        discounts = np.where(terminated, 0.0, self.gamma)
        # (r + gamma V' - mean) / deviation, with V' = mean + deviation * output
        summands = (steps.rewards[rows] + discounts * self._mean - self._mean) / self._deviation
        numbers = summands.astype(np.float32), discounts.astype(np.float32)
        return self._encoded(steps.obs[rows]), actions, *numbers, self._encoded(following), self._after(following)

    def _pass(self, data: tuple[np.ndarray, ...], size: int) -> float:
        """Fits to the copy's values, and moves the copy; returns the mean squared error, in rewards squared."""
        order = self._rng.permutation(len(data[0]))
        squares = 0.0
        for first in range(0, len(order), size):
            rows = order[first : first + size]
            squares += self._step(*(column[rows] for column in data))
        self._copy.weights += np.float32(self.polyak_coef) * (self._network.weights - self._copy.weights)
        return squares / len(order) * self._deviation**2

    def _step(self, obs, actions, summands, discounts, following, after) -> float:
        """One step of the optimizer; returns the sum of squared errors."""
        targets = summands + discounts * self._expected(self._copy, following, after)
        np.clip(targets, self._low, self._high, out=targets)
        count = len(targets)
        if self.target.is_choice:
            outputs, rows = self._network.forward(obs), np.arange(count)
            errors = outputs[rows, actions] - targets
            gradient = np.zeros((count, outputs.shape[1]), np.float32)
            gradient[rows, actions] = errors * np.float32(2 / count)
        else:
            errors = self._network.forward(obs, actions) - targets
            gradient = errors * np.float32(2 / count)
        self._network.backward(gradient)
        norm = global_norm(self._network.gradient)
        if norm > self.clip_grad_norm:
            self._network.gradient *= np.float32(self.clip_grad_norm / norm)
        self._optimizer.step(self._network.weights, self._network.gradient, self.lr)
        return float(np.dot(errors, errors))

    # ------------------------------------------------------------------ values

    def _expected(self, network: NumpyLayers, encoded: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Mean of a network's outputs over the policy's actions, float32 [B].

        Args:
            network: the network, or its copy.
            encoded: [B, width] observations.
            after: [B, actions] probabilities of choices, or inputs of the policy's distribution.
        """
        if self.target.is_choice:
            return np.einsum("ba,ba->b", network.forward(encoded), after)
        inputs = np.repeat(after, self._num_draws, axis=0)
        drawn = action_rows(self.policy.distribution, self.target.draw(inputs, self._rng))
        outputs = network.forward(np.repeat(encoded, self._num_draws, axis=0), drawn)
        return outputs.reshape(-1, self._num_draws).mean(1)

    def _after(self, observations: np.ndarray) -> np.ndarray:
        """Probabilities of choices, or inputs of the policy's distribution, float32 [N, ...]."""
        inputs = self.target.dist_inputs(observations)
        return self.target.probabilities(inputs).astype(np.float32) if self.target.is_choice else inputs

    def values(self, observations: np.ndarray) -> np.ndarray:
        return self._of_rows(
            lambda some: self._expected(self._network, self._encoded(some), self._after(some)), observations
        )

    def action_values(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        def of_choices(some, chosen):
            return self._network.forward(self._encoded(some))[np.arange(len(some)), chosen]

        def of_numbers(some, taken):
            return self._network.forward(self._encoded(some), action_rows(self.policy.distribution, taken))

        return self._of_rows(of_choices if self.target.is_choice else of_numbers, observations, actions)

    def _of_rows(self, outputs: Callable[..., np.ndarray], *columns: np.ndarray) -> np.ndarray:
        """Values [N] by the outputs of some rows of the columns at a time, float64."""
        found = np.empty(len(columns[0]))
        for first in range(0, len(found), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            found[some] = outputs(*(column[some] for column in columns))
        return self._mean + self._deviation * found

    def _encoded(self, observations: np.ndarray) -> np.ndarray:
        """Observations as rows of numbers, float32 [N, size]; pixels from 0 to 1."""
        encoder = self.policy.spec.encoder
        if not encoder.as_stored:
            inputs = self.policy.encode(observations, self.policy.new_inputs(len(observations)))
            return np.ascontiguousarray(inputs[:, : encoder.size])
        rows = observations.reshape(len(observations), -1).astype(np.float32)
        return rows / np.float32(255) if observations.dtype == np.uint8 else rows


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(_is_whole(size) and size >= 1 for size in value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or isinstance(value, float | np.floating)


_COUNT = "a whole number of at least 1", lambda value: _is_whole(value) and value >= 1
_COUNT_OR_NONE = f"{_COUNT[0]}, or None", lambda value: value is None or _COUNT[1](value)
_ABOVE_0 = "a number above 0", lambda value: _is_number(value) and value > 0
# Argument -> (what it must be, whether a value is that).
_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "n_iters": _COUNT_OR_NONE,
    "lr": _ABOVE_0,
    "min_loss_threshold": ("a number", lambda value: _is_number(value) and not math.isnan(value)),
    "clip_grad_norm": _ABOVE_0,
    "minibatch_size": _COUNT_OR_NONE,
    "polyak_coef": ("above 0 and at most 1", lambda value: _is_number(value) and 0 < value <= 1),
    "n_action_samples": _COUNT,
    "seed": ("a whole number of at least 0", lambda value: _is_whole(value) and value >= 0),
}


def _refuse_wrong(**given: Any) -> None:
    """Raises a ValueError that names the arguments that are not what _RULES says."""
    wrong = [
        f"{name}={value!r:.40} must be {_RULES[name][0]}" for name, value in given.items() if not _RULES[name][1](value)
    ]
    if wrong:
        raise ValueError(f"q_model_config: {'; '.join(wrong)}")
