"""Fitted Q evaluation (Le, Voloshin & Yue, arXiv:1903.08738): a network of a policy's action values, from recorded steps.

Each pass over the data fits the network to r + gamma V'(s'), with V' of a copy from before the pass:

    minimise mean (Q(s, a) - r - gamma sum_a' pi(a' | s') Q'(s', a'))^2

The sum is over all choices of a Discrete space; of other spaces it is a mean over actions drawn from the policy.

Departures from RLlib: the network learns (Q - mean) / deviation of the returns in the data, so that their size does not
matter to the learning rate, and that Q begins at what was recorded. As many passes are made as reduce an error at the
beginning to 1 %, not one.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rllib.evaluation.estimators.q_model import QModel
from rllib.evaluation.estimators.recorded_steps import RecordedSteps, recorded_steps
from rllib.evaluation.estimators.target_policy import action_rows
from rllib.evaluation.offline.episode_sums import linear_sums
from rllib.models.dense.in_torch import ACTIVATIONS
from rllib.models.model_settings import ACTIVATION_NAMES
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
        seed: of weights, orders and drawn actions.

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
            n_iters=(n_iters, n_iters is None or n_iters >= 1),
            lr=(lr, lr > 0),
            clip_grad_norm=(clip_grad_norm, clip_grad_norm > 0),
            minibatch_size=(minibatch_size, minibatch_size is None or minibatch_size >= 1),
            polyak_coef=(polyak_coef, 0 < polyak_coef <= 1),
            n_action_samples=(n_action_samples, n_action_samples >= 1),
        )
        self.n_iters, self.min_loss_threshold, self.clip_grad_norm = n_iters, min_loss_threshold, clip_grad_norm
        self.minibatch_size, self.polyak_coef, self._num_draws = minibatch_size, polyak_coef, n_action_samples
        self._rng = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):  # the program's own numbers stay as they are
            torch.manual_seed(seed)
            self._network = self._make_network({**MODEL_DEFAULTS, **(model_config or {})})
        self._copy = copy.deepcopy(self._network)
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=lr)
        # Q = mean + deviation * output; set by the first data.
        self._mean, self._deviation = 0.0, 1.0
        self._is_scaled = False

    def _make_network(self, model: Mapping[str, Any]) -> nn.Module:
        if unknown := model.keys() - MODEL_DEFAULTS.keys():
            raise ValueError(f"model_config takes {', '.join(MODEL_DEFAULTS)}, not {', '.join(sorted(unknown))}")
        encoder, distribution = self.policy.spec.encoder, self.policy.distribution
        width, outputs = math.prod(encoder.shape) if encoder.as_stored else encoder.size, 1
        if self.target.is_choice:
            outputs = distribution.num_actions
        else:
            nothing = np.zeros((1, *distribution.action_shape), distribution.action_dtype)
            width += action_rows(distribution, nothing).shape[1]
        sizes = [width, *model["fcnet_hiddens"], outputs]
        if model["fcnet_activation"] not in ACTIVATION_NAMES:
            raise ValueError(
                f"model_config: fcnet_activation={model['fcnet_activation']!r} must be one of "
                f"{', '.join(ACTIVATION_NAMES)}"
            )
        return _Network(sizes, ACTIVATIONS[ACTIVATION_NAMES[model["fcnet_activation"]]])

    # ------------------------------------------------------------------ fitting

    def train(self, batch: Any) -> list[float]:
        """Fits the network; a further call goes on from its weights, for the present policy.

        Args:
            batch: as for OffPolicyEstimator.estimate. Steps after which nobody knows what followed are left out.

        Returns:
            mean squared error of each pass, in rewards squared.

        Raises:
            ValueError: if no step is left.
        """
        steps = recorded_steps(batch, self.policy)
        rows = np.flatnonzero(steps.terminated | steps.has_next)
        if not len(rows):
            raise ValueError(f"{steps.source} has no step of which it is known what followed, so no model can be fitted")
        if not self._is_scaled:
            self._scale(steps)
        size = self.minibatch_size or int(np.clip(len(rows) // _STEPS_IN_PASS, _FEWEST_ROWS, _MOST_ROWS))
        data = self._tensors(steps, rows)
        losses = []
        for _ in range(self._num_passes):
            errors = [self._step(*data, order) for order in self._orders(len(rows), size)]
            with torch.no_grad():
                for old, new in zip(self._copy.parameters(), self._network.parameters()):
                    old.lerp_(new, self.polyak_coef)
            losses.append(float(torch.stack(errors).mean()) * self._deviation**2)
            if losses[-1] < self.min_loss_threshold:
                break
        return losses

    def _scale(self, steps: RecordedSteps) -> None:
        after = np.zeros(steps.num_episodes)
        returns = linear_sums(steps.rewards, np.full(len(steps), self.gamma), steps.starts, after)
        self._mean, self._deviation = float(returns.mean()), float(returns.std()) or 1.0
        self._is_scaled = True

    @property
    def _num_passes(self) -> int:
        if self.n_iters is not None:
            return self.n_iters
        if self.gamma in (0, 1):
            return _MOST_PASSES if self.gamma else 1
        return min(math.ceil(math.log(_LEFT) / math.log(self.gamma)), _MOST_PASSES)

    def _orders(self, rows: int, size: int) -> Sequence[np.ndarray]:
        order = self._rng.permutation(rows)
        return [order[first : first + size] for first in range(0, rows, size)]

    def _tensors(self, steps: RecordedSteps, rows: np.ndarray) -> tuple[Tensor, ...]:
        """Of the rows: encoded observations, actions, rewards, discounts, the next observations, what pi does there."""
        following = np.where(_as_column(steps.terminated[rows], steps.obs), steps.obs[rows], steps.new_obs[rows])
        inputs = self.target.dist_inputs(following)
        after = self.target.probabilities(inputs).astype(np.float32) if self.target.is_choice else inputs
        actions = steps.actions[rows]
        if not self.target.is_choice:
            actions = action_rows(self.policy.distribution, actions)
        discounts = np.where(steps.terminated[rows], 0.0, self.gamma)
        # (r + gamma V' - mean) / deviation, with V' = mean + deviation * output
        summands = (steps.rewards[rows] + discounts * self._mean - self._mean) / self._deviation
        columns = self._encoded(steps.obs[rows]), actions, summands.astype(np.float32)
        columns += discounts.astype(np.float32), self._encoded(following), after
        return tuple(torch.from_numpy(np.ascontiguousarray(column)) for column in columns)

    def _step(self, obs, actions, summands, discounts, following, after, order: np.ndarray) -> Tensor:
        """One step of the optimizer; returns the mean squared error."""
        rows = torch.from_numpy(order)
        with torch.no_grad():
            targets = summands[rows] + discounts[rows] * self._expected(self._copy, following[rows], after[rows])
        if self.target.is_choice:
            outputs = self._network(obs[rows]).gather(1, actions[rows, None])[:, 0]
        else:
            outputs = self._network(torch.cat([obs[rows], actions[rows]], 1))[:, 0]
        loss = (outputs - targets).square().mean()
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._network.parameters(), self.clip_grad_norm)
        self._optimizer.step()
        return loss.detach()

    def _expected(self, network: nn.Module, encoded: Tensor, after: Tensor) -> Tensor:
        """Mean of the network's outputs over the policy's actions, [B].

        Args:
            network: the network, or its copy.
            encoded: [B, width] observations.
            after: [B, actions] probabilities of choices, or inputs of the policy's distribution.
        """
        if self.target.is_choice:
            return (network(encoded) * after).sum(1)
        inputs = np.repeat(after.numpy(), self._num_draws, axis=0)
        drawn = action_rows(self.policy.distribution, self.target.draw(inputs, self._rng))
        both = torch.cat([encoded.repeat_interleave(self._num_draws, 0), torch.from_numpy(drawn)], 1)
        return network(both)[:, 0].view(-1, self._num_draws).mean(1)

    # ------------------------------------------------------------------ values

    def values(self, observations: np.ndarray) -> np.ndarray:
        return self._of_rows(observations, lambda some, encoded: self._expected(self._network, encoded, self._after(some)))

    def action_values(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        if self.target.is_choice:
            chosen = torch.from_numpy(np.asarray(actions, np.int64))
            rows = iter(chosen.split(_ROWS_AT_ONCE))
            return self._of_rows(
                observations, lambda _, encoded: self._network(encoded).gather(1, next(rows)[:, None])[:, 0]
            )
        given = iter(torch.from_numpy(action_rows(self.policy.distribution, actions)).split(_ROWS_AT_ONCE))
        return self._of_rows(observations, lambda _, encoded: self._network(torch.cat([encoded, next(given)], 1))[:, 0])

    def _after(self, observations: np.ndarray) -> Tensor:
        inputs = self.target.dist_inputs(observations)
        if self.target.is_choice:
            return torch.from_numpy(self.target.probabilities(inputs).astype(np.float32))
        return torch.from_numpy(inputs)

    def _of_rows(self, observations: np.ndarray, outputs) -> np.ndarray:
        """Values [N] from outputs(observations, encoded) of some rows at a time, float64."""
        found = [np.empty(0)]
        with torch.no_grad():
            for first in range(0, len(observations), _ROWS_AT_ONCE):
                some = observations[first : first + _ROWS_AT_ONCE]
                found.append(outputs(some, torch.from_numpy(self._encoded(some))).numpy().astype(np.float64))
        return self._mean + self._deviation * np.concatenate(found)

    def _encoded(self, observations: np.ndarray) -> np.ndarray:
        """Observations as rows of numbers, float32 [N, size]; pixels from 0 to 1."""
        spec = self.policy.spec
        if not spec.encoder.as_stored:
            return self.policy.encode(observations, self.policy.new_inputs(len(observations)))[:, : spec.encoder.size]
        rows = observations.reshape(len(observations), -1).astype(np.float32)
        return rows / np.float32(255) if observations.dtype == np.uint8 else rows


class _Network(nn.Module):
    """A fully connected network.

    Args:
        sizes: of the input, the hidden layers and the output.
        activation: after each hidden layer.
    """

    def __init__(self, sizes: Sequence[int], activation):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in zip(sizes, sizes[1:]))
        self.activation = activation

    def forward(self, rows: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            rows = self.activation(layer(rows))
        return self.layers[-1](rows)


def _as_column(flags: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Flags [N] that broadcast with observations [N, *shape]."""
    return flags.reshape(len(flags), *[1] * (like.ndim - 1))


def _refuse_wrong(**given: tuple[Any, bool]) -> None:
    """Raises a ValueError that names the arguments, by (value, whether it is right), that are out of range."""
    if wrong := [f"{name}={value!r}" for name, (value, is_right) in given.items() if not is_right]:
        raise ValueError(f"q_model_config: {', '.join(wrong)} must be above 0, and polyak_coef at most 1")
