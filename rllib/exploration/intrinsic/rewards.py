"""Intrinsic rewards of train batches: their networks, their value function and its updates, in torch.

As in the paper of RND (arXiv:1810.12894, section 2.3) intrinsic rewards have a separate value function and a separate
discount, and the two advantages are added. So intrinsic returns may continue past the end of an episode, and the
policy's values still estimate the environment's rewards. Departures from the paper:

- the value is a separate network, not a head of the policy's network, so any policy network can be used;
- at an episode's end the reward is for the true final observation, not the one after the reset;
- the discounted sums whose standard deviation scales the rewards start again with each fragment;
- the statistics of observations begin with the first train batch, not with steps of a random policy.
"""

from collections.abc import Mapping

import numpy as np
import torch

from rllib.errors import LearnerError
from rllib.exploration.intrinsic.losses import EPSILON, advantages_of_rows, discounted_sums
from rllib.exploration.intrinsic.networks import CHUNK, Distillation, Dynamics, Layers, Networks, ObservationReader
from rllib.models.dense.in_torch import backward
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.observations.filters import RunningMoments
from rllib.sample_batch import (
    ACTIONS,
    INTRINSIC_ADVANTAGES,
    INTRINSIC_REWARDS,
    LOSS_MASK,
    OBS,
    TERMINATEDS,
    TRUNCATEDS,
    SampleBatch,
)

MODELS = {"RND": Distillation, "Curiosity": Dynamics}
VALUE = "value"


class IntrinsicRewards:
    """Adds intrinsic advantages to train batches, and trains the networks on them.

    Args:
        settings: an exploration (exploration/intrinsic/settings.py: RND or Curiosity).
        spec: has the encoder of observations and the distribution of actions.
        rng: draws the initial weights.
        device: "cpu" or "cuda".
    """

    def __init__(self, settings, spec: NetworkSpec, rng: np.random.Generator, device: str = "cpu"):
        self._settings, self._device = settings, torch.device(device)
        self._model = MODELS[type(settings).__name__](settings, spec)
        self._reader = ObservationReader(spec, self._model.normalizes, self._device)
        value = Layers.of_observations(spec, 1, normalized=self._model.normalizes)
        # Initial values far from zero would make unseen observations look good or bad.
        self._networks = Networks({**self._model.layers, VALUE: value}, rng, self._device, near_zero=[VALUE])
        self._returns = RunningMoments(1)
        trained = {name: each for name, each in self._networks.modules.items() if name not in self._model.fixed}
        self._trained = list(trained.values())
        self._optimizer = torch.optim.Adam([each.flat for each in self._trained], lr=settings.lr)
        for each in self._trained:
            zeros = {"exp_avg": torch.zeros_like(each.flat), "exp_avg_sq": torch.zeros_like(each.flat)}
            self._optimizer.state[each.flat] = {"step": torch.zeros(()), **zeros}

    @property
    def stats(self) -> tuple[str, ...]:
        """Names of the statistics of `add_to`."""
        return "intrinsic_reward_mean", "intrinsic_vf_loss", *self._model.stats

    def add_to(self, batch: SampleBatch, rng: np.random.Generator) -> dict[str, float]:
        """Adds the columns intrinsic_rewards and intrinsic_advantages to a batch; then trains on it.

        Args:
            batch: rows ordered by environment; the row after a step holds the next observation, at an episode's end the
                true final one (Fragment.to_sequences, every_final_observation).
            rng: shuffles the rows.

        Returns:
            statistics by name: the mean reward, and means of the losses over the gradient steps.

        Raises:
            LearnerError: if a loss is not finite.
        """
        settings = self._settings
        steps = np.flatnonzero(batch[LOSS_MASK])
        self._reader.count(batch[OBS][steps + 1])
        ended = (batch[TERMINATEDS] | batch[TRUNCATEDS])[steps]
        # After an episode's final observation comes the next episode's first one: a step, or the fragment's last row.
        following = steps + 1 + (ended if settings.nonepisodic_returns else 0)
        goes_on = np.zeros(len(steps), bool)
        goes_on[:-1] = following[:-1] == steps[1:]
        values = self._by_chunks(self._values, batch, np.arange(batch.count))
        next_values = values[following]
        if not settings.nonepisodic_returns:
            next_values = np.where(batch[TERMINATEDS][steps], np.float32(0), next_values)
        rewards = self._scaled(self._by_chunks(self._rewards, batch, steps), goes_on)
        advantages, targets = advantages_of_rows(
            rewards, values[steps], next_values, goes_on, settings.gamma, settings.lambda_
        )
        for name, column in ((INTRINSIC_REWARDS, rewards), (INTRINSIC_ADVANTAGES, advantages)):
            batch[name] = np.zeros(batch.count, np.float32)
            batch[name][steps] = column
        losses = self._learn(batch, steps, targets, rng)
        return dict(zip(self.stats, [float(rewards.mean()), *losses], strict=True))

    def _by_chunks(self, function, batch: SampleBatch, rows: np.ndarray) -> np.ndarray:
        """function(batch, rows) -> tensor [B], applied to CHUNK rows at a time; float32."""
        with torch.no_grad():
            parts = [function(batch, rows[start : start + CHUNK]) for start in range(0, len(rows), CHUNK)]
        return torch.cat(parts).cpu().numpy()

    def _values(self, batch: SampleBatch, rows: np.ndarray) -> torch.Tensor:
        return self._networks(VALUE, self._reader(batch[OBS][rows]))[:, 0]

    def _rewards(self, batch: SampleBatch, rows: np.ndarray) -> torch.Tensor:
        return self._model.rewards(self._networks, *self._read(batch, rows))

    def _read(self, batch: SampleBatch, rows: np.ndarray) -> tuple[torch.Tensor, ...]:
        """Inputs of the model for these steps: observations, actions, next observations."""
        actions = torch.as_tensor(batch[ACTIONS][rows], device=self._device)
        return self._reader(batch[OBS][rows]), actions, self._reader(batch[OBS][rows + 1])

    def _scaled(self, rewards: np.ndarray, goes_on: np.ndarray) -> np.ndarray:
        settings = self._settings
        if not settings.normalize:
            return np.float32(settings.coefficient) * rewards
        sums = discounted_sums(rewards, goes_on, settings.gamma)
        self._returns.add(sums[:, None])
        return rewards * np.float32(settings.coefficient / np.sqrt(self._returns.variance[0] + EPSILON))

    def _learn(self, batch: SampleBatch, steps: np.ndarray, targets: np.ndarray, rng: np.random.Generator) -> list:
        """Trains on the steps. Returns means over all gradient steps: the value's loss, then the model's statistics."""
        settings, losses = self._settings, []
        size = settings.sgd_minibatch_size
        for _ in range(settings.num_sgd_iter):
            order = rng.permutation(len(steps))
            for start in range(0, len(steps), size):
                rows = order[start : start + size]
                observations, actions, following = self._read(batch, steps[rows])
                errors = self._networks(VALUE, observations)[:, 0] - torch.as_tensor(targets[rows], device=self._device)
                value_loss = errors.square().mean()
                loss, statistics = self._model.loss(self._networks, observations, actions, following)
                backward(loss + value_loss, self._trained)
                self._optimizer.step()
                losses.append(torch.stack([value_loss.detach(), *statistics]))
        means = torch.stack(losses).mean(0).tolist()
        if not np.isfinite(means).all():
            raise LearnerError(
                f"the losses of the intrinsic reward are not finite: {dict(zip(self.stats[1:], means))}. Lower lr in "
                "exploration_config, or scale the observations."
            )
        return means

    # ------------------------------------------------------------------ state

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies of weights, optimizer and statistics, by name."""
        state = {name: tensor.detach().cpu().numpy().copy() for name, tensor in self._tensors().items()}
        for name, moments in self._moments().items():
            state |= {f"{name}.{key}": array for key, array in moments.get_state().items()}
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a state of `get_state`.

        Raises:
            ValueError: as `refuse_state`.
        """
        self.refuse_state(state)
        for name, tensor in self._tensors().items():
            tensor.detach().copy_(torch.as_tensor(np.asarray(state[name])))
        for name, moments in self._moments().items():
            moments.set_state({key: state[f"{name}.{key}"] for key in ("count", "mean", "m2")})

    def refuse_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Refuses a state that `set_state` cannot restore.

        Raises:
            ValueError: if it belongs to other networks.
        """
        own = {name: np.shape(array) for name, array in self.get_state().items()}
        given = {name: np.shape(array) for name, array in state.items()}
        if own != given:
            raise ValueError(f"the intrinsic reward's state has {own}, but the given one {given}")

    def _tensors(self) -> dict[str, torch.Tensor]:
        found = {f"{name}.weights": module.flat for name, module in self._networks.modules.items()}
        for name, module in self._networks.modules.items():
            memory = self._optimizer.state.get(module.flat, {})
            found |= {f"{name}.{key}": tensor for key, tensor in memory.items()}
        return found

    def _moments(self) -> dict[str, RunningMoments]:
        found = {"returns": self._returns}
        return found if self._reader.moments is None else {**found, "observations": self._reader.moments}
