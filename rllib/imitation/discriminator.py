"""A discriminator and its reward, in torch: networks, running statistics, updates, rewards and state.

It learns to tell rows of demonstrations from rows of the policy, and the policy is rewarded for rows that it takes for
the expert's. Departures from GAIL (Ho and Ermon, arXiv:1606.03476) and AIRL (Fu et al., arXiv:1710.11248):

- the gradient of the logit is penalised (DAC, Kostrikov et al., arXiv:1809.02925; or R1);
- observations are normalised by running statistics in which both sides count alike; they stand still in an update;
- terminated episodes may end in an absorbing state (DAC): a row on its side, and a value (losses/discriminator.py);
- rewards are divided by the standard deviation of their discounted sums, without taking a mean off.
"""

from collections import deque
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from rllib.errors import LearnerError
from rllib.exploration.intrinsic.losses import EPSILON, discounted_sums
from rllib.exploration.intrinsic.networks import Layers, Networks
from rllib.imitation.rows import RowReader
from rllib.imitation.settings import ACTION, NEXT_OBSERVATION, OBSERVATION, R1, STATS, TERMINATED, DiscriminatorSettings
from rllib.imitation.steps import Steps
from rllib.losses.discriminator import (
    LEAST_SQUARES,
    REWARD_FORMS,
    cross_entropy,
    distance_from_unit_norm,
    entropy,
    least_squares,
    shaped,
    squared_norm,
)
from rllib.models.dense.in_torch import backward
from rllib.models.observations.filters import RunningMoments

CLIP = 10.0  # bound of normalised observations, in standard deviations
_LOGIT, _REWARD, _SHAPING = "logit", "reward", "shaping"
_ROWS_AT_ONCE = 4096


class Discriminator:
    """Logits of rows, which it learns, and the rewards that they give.

    Args:
        settings: its settings.
        reader: makes rows; with `is_shaped` they have observations before and after, and terminations.
        expert: the demonstrations' steps; None: nothing is learned.
        rng: draws the initial weights.
        device: "cpu" or "cuda".
    """

    def __init__(
        self,
        settings: DiscriminatorSettings,
        reader: RowReader,
        expert: Steps | None,
        rng: np.random.Generator,
        device: str = "cpu",
    ):
        self._settings, self._reader, self._device = settings, reader, torch.device(device)
        layers = self._layers()
        # Rewards of all rows are alike at first.
        self._networks = Networks(layers, rng, self._device, near_zero=list(layers))
        self._modules = list(self._networks.modules.values())
        self._optimizer = torch.optim.Adam([each.flat for each in self._modules], lr=settings.lr)
        for each in self._modules:
            zeros = {"exp_avg": torch.zeros_like(each.flat), "exp_avg_sq": torch.zeros_like(each.flat)}
            self._optimizer.state[each.flat] = {"step": torch.zeros(()), **zeros}
        self._moments = RunningMoments(reader.observation_size)
        self._returns = RunningMoments(1)
        if expert is not None:
            rows = reader(expert)
            self._expert_moments = self._moments_of(rows)
            self._expert = self._with_absorbing(rows, expert)
        # Train batches of the policy: rows, and log-probabilities where logits read them.
        self._batches: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=settings.generator_buffer)

    def _layers(self) -> dict[str, Layers]:
        settings, reader = self._settings, self._reader

        def network(num_inputs: int) -> Layers:
            return Layers.of_features(num_inputs, settings.hiddens, settings.activation, 1)

        if not settings.is_shaped:
            return {_LOGIT: network(reader.width)}
        return {_REWARD: network(self._reads_for_reward.size), _SHAPING: network(reader.observation_size)}

    @property
    def _reads_for_reward(self) -> np.ndarray:
        """Columns of a row that AIRL's g reads."""
        parts = [self._reader.parts[name] for name in (OBSERVATION, ACTION) if name in self._settings.inputs]
        return np.concatenate([np.arange(part.start, part.stop) for part in parts])

    # ------------------------------------------------------------------ rows

    def _moments_of(self, rows: np.ndarray) -> RunningMoments:
        moments = RunningMoments(self._reader.observation_size)
        for part in self._reader.of_observations[:1]:
            moments.add(rows[:, part])
        return moments

    def _with_absorbing(self, rows: np.ndarray, steps: Steps) -> np.ndarray:
        """The rows of these steps, and one of the absorbing state for each episode that terminated."""
        count = int(steps.terminated.sum()) + steps.left_out_ends
        if not (self._settings.absorbing and count):
            return rows
        return np.concatenate([rows, np.tile(self._reader.absorbing, (count, 1))])

    def _count(self, rows: np.ndarray) -> None:
        """Adds the policy's rows to the running statistics, and the expert's with the same weight."""
        self._moments.merge(self._moments_of(rows))
        expert = self._expert_moments.get_state()
        weight = len(rows) / expert["count"]
        counted = RunningMoments(self._reader.observation_size)
        counted.set_state({"count": float(len(rows)), "mean": expert["mean"], "m2": weight * expert["m2"]})
        self._moments.merge(counted)

    def _read(self, rows: np.ndarray) -> Tensor:
        """Rows [B, width] as the networks read them. The absorbing state stays at zeros."""
        if self._settings.normalize and self._moments.count:
            rows, of_steps = rows.copy(), rows[:, -1] == 0
            deviation = np.sqrt(self._moments.variance + EPSILON)
            for part in self._reader.of_observations:
                normal = (rows[of_steps, part] - self._moments.mean) / deviation
                rows[of_steps, part] = np.clip(normal, -CLIP, CLIP)
        return torch.as_tensor(rows, device=self._device)

    # ------------------------------------------------------------------ logits and rewards

    def _apply(self, name: str, inputs: Tensor) -> Tensor:
        return self._networks(name, torch.cat([inputs, inputs.new_ones((len(inputs), 1))], dim=1))[:, 0]

    def _outputs(self, rows: Tensor) -> Tensor:
        """Logits [B] of normalised rows; with shaping f, whose gradient is penalised."""
        settings, parts = self._settings, self._reader.parts
        if not settings.is_shaped:
            return self._apply(_LOGIT, rows)
        values = self._apply(_SHAPING, torch.cat([rows[:, parts[OBSERVATION]], rows[:, parts[NEXT_OBSERVATION]]]))
        before, after = values.chunk(2)
        return shaped(self._goodness(rows), before, after, rows[:, parts[TERMINATED]][:, 0], settings.gamma)

    def _goodness(self, rows: Tensor) -> Tensor:
        return self._apply(_REWARD, rows[:, torch.as_tensor(self._reads_for_reward, device=self._device)])

    def _logits(self, rows: Tensor, log_probs: Tensor | None) -> Tensor:
        outputs = self._outputs(rows)
        return outputs - log_probs if self._settings.is_shaped else outputs

    def _rewards_of(self, rows: np.ndarray, log_probs: np.ndarray | None) -> np.ndarray:
        """Rewards [B] float32 before they are scaled."""
        found = []
        with torch.no_grad():
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                some = slice(start, start + _ROWS_AT_ONCE)
                given = None if log_probs is None else torch.as_tensor(log_probs[some], device=self._device)
                logits = self._logits(self._read(rows[some]), given)
                found.append(REWARD_FORMS[self._settings.reward_form](logits).cpu().numpy())
        return np.concatenate(found) if found else np.zeros(0, np.float32)

    def rewards(self, steps: Steps, goes_on: np.ndarray) -> tuple[np.ndarray, float, float]:
        """Rewards of the policy's steps.

        Args:
            steps: in the order of their episodes.
            goes_on: bool [B], whether the next row follows this one in the same episode.

        Returns:
            rewards [B] float32 as they are learned from; the reward of a step in the absorbing state, on the same
                scale, 0 without one; and the mean reward before scaling.
        """
        settings, absorbed = self._settings, np.zeros(1, np.float32)
        rewards = self._rewards_of(self._reader(steps), steps.log_probs)
        if settings.absorbing:
            absorbed = self._rewards_of(self._reader.absorbing[None], None)
        mean = float(rewards.mean())
        if settings.reward_normalize:
            self._returns.add(discounted_sums(rewards, goes_on, settings.gamma)[:, None])
            scale = np.float32(1 / np.sqrt(self._returns.variance[0] + EPSILON))
            rewards, absorbed = rewards * scale, absorbed * scale
        if settings.reward_clip is not None:
            bounds = -settings.reward_clip, settings.reward_clip
            rewards, absorbed = np.clip(rewards, *bounds), np.clip(absorbed, *bounds)
        return rewards, float(absorbed[0]), mean

    def learned_reward(self, steps: Steps) -> np.ndarray:
        """What has been learned of steps, [B] float32: AIRL's g; else the reward of the logit, not scaled."""
        rows = self._reader(steps)
        if not self._settings.is_shaped:
            return self._rewards_of(rows, None)
        with torch.no_grad():
            return self._goodness(self._read(rows)).cpu().numpy()

    # ------------------------------------------------------------------ updates

    def learn(self, steps: Steps, expert_log_probs: np.ndarray | None, rng: np.random.Generator) -> dict[str, float]:
        """Makes the gradient steps on a train batch.

        Args:
            steps: of the policy.
            expert_log_probs: of the demonstrated actions by the newest policy, where logits read them.
            rng: draws rows and points between them.

        Returns:
            STATS by name, means over the gradient steps.

        Raises:
            LearnerError: if a loss is not finite.
        """
        settings, rows = self._settings, self._reader(steps)
        if settings.normalize:
            self._count(rows)
        rows = self._with_absorbing(rows, steps)
        self._batches.append((rows, np.zeros(0, np.float32) if steps.log_probs is None else steps.log_probs))
        policy_rows, policy_log_probs = map(np.concatenate, zip(*self._batches))
        found = [
            self._gradient_step(
                _drawn(self._expert, expert_log_probs, settings.batch_size, rng),
                _drawn(policy_rows, policy_log_probs, settings.batch_size, rng),
                rng.random((settings.batch_size, 1), np.float32),
            )
            for _ in range(settings.updates)
        ]
        means = torch.stack(found).mean(0).tolist()
        stats = dict(zip(STATS, means, strict=True))
        if not np.isfinite(means).all():
            raise LearnerError(
                f"the loss of the discriminator is not finite: {stats}. Lower discriminator_lr, or leave "
                "discriminator_model's normalize at True."
            )
        return stats

    def _gradient_step(self, expert: tuple, policy: tuple, between: np.ndarray) -> Tensor:
        """One step of Adam; returns STATS.

        Args:
            expert, policy: rows, and log-probabilities of their actions.
            between: [B, 1] in 0 ... 1, places of rows between both sides'.
        """
        settings = self._settings
        (expert_rows, policy_rows), (expert_probs, policy_probs) = zip(
            *((self._read(rows), torch.as_tensor(probs, device=self._device)) for rows, probs in (expert, policy))
        )
        of_expert, of_policy = self._logits(expert_rows, expert_probs), self._logits(policy_rows, policy_probs)
        if settings.reward_form == LEAST_SQUARES:
            loss = least_squares(of_expert, of_policy)
        else:
            loss = cross_entropy(of_expert, of_policy, settings.label_smoothing)
        penalty = loss.new_zeros(())
        if settings.gradient_penalty:
            penalty = settings.gradient_penalty * self._penalty(expert_rows, policy_rows, between)
        backward(loss + penalty, self._modules)
        self._optimizer.step()
        accuracies = (of_expert > 0).float().mean(), (of_policy < 0).float().mean()
        disorder = entropy(torch.cat([of_expert, of_policy]))
        return torch.stack([*accuracies, loss.detach(), disorder.detach(), penalty.detach()])

    def _penalty(self, expert_rows: Tensor, policy_rows: Tensor, between: np.ndarray) -> Tensor:
        if self._settings.penalty == R1:
            return squared_norm(self._gradients(expert_rows))
        share = torch.as_tensor(between, device=self._device)
        return distance_from_unit_norm(self._gradients(share * expert_rows + (1 - share) * policy_rows))

    def _gradients(self, rows: Tensor) -> Tensor:
        """Gradients [B, width] of the outputs with respect to rows, with a graph."""
        rows = rows.detach().requires_grad_(True)
        return torch.autograd.grad(self._outputs(rows).sum(), rows, create_graph=True)[0]

    # ------------------------------------------------------------------ state

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies of weights, optimizer, statistics and, with a generator_buffer above 1, the policy's rows, by name."""
        state = {name: tensor.detach().cpu().numpy().copy() for name, tensor in self._tensors().items()}
        for name, moments in (("observations", self._moments), ("returns", self._returns)):
            state |= {f"{name}.{key}": array for key, array in moments.get_state().items()}
        if self._settings.generator_buffer > 1:
            for index, (rows, log_probs) in enumerate(self._batches):
                state |= {f"batch_{index}.rows": rows.copy(), f"batch_{index}.log_probs": log_probs.copy()}
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a state of `get_state`.

        Raises:
            ValueError: as `refuse_state`.
        """
        self.refuse_state(state)
        for name, tensor in self._tensors().items():
            tensor.detach().copy_(torch.as_tensor(np.asarray(state[name])))
        for name, moments in (("observations", self._moments), ("returns", self._returns)):
            moments.set_state({key: state[f"{name}.{key}"] for key in ("count", "mean", "m2")})
        self._batches.clear()
        for index in range(self._settings.generator_buffer):
            if f"batch_{index}.rows" in state:
                self._batches.append((state[f"batch_{index}.rows"], state[f"batch_{index}.log_probs"]))

    def refuse_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Refuses a state that `set_state` cannot restore.

        Raises:
            ValueError: if it belongs to other networks, or to rows of other parts.
        """
        own = {name: np.shape(array) for name, array in self.get_state().items() if not name.startswith("batch_")}
        given = {name: np.shape(array) for name, array in state.items() if not name.startswith("batch_")}
        widths = {np.shape(array)[1:] for name, array in state.items() if name.endswith(".rows")}
        if own != given or not widths <= {(self._reader.width,)}:
            raise ValueError(f"the discriminator's state has {own}, but the given one {given}")

    def _tensors(self) -> dict[str, Tensor]:
        found = {f"{name}.weights": module.flat for name, module in self._networks.modules.items()}
        for name, module in self._networks.modules.items():
            found |= {f"{name}.{key}": tensor for key, tensor in self._optimizer.state[module.flat].items()}
        return found


def _drawn(
    rows: np.ndarray, log_probs: np.ndarray | None, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """`count` rows, drawn with replacement, and log-probabilities of their actions; [0] where there are none."""
    chosen = rng.integers(len(rows), size=count)
    has_none = log_probs is None or not len(log_probs)
    return rows[chosen], np.zeros(0, np.float32) if has_none else log_probs[chosen]
