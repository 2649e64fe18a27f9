"""The losses of soft actor-critic with distributions of returns on bins (Lee et al., arXiv:2502.15280, section 4.3).

Each of C critics gives the logits of n bins, whose values z_1 ... z_n are evenly spaced; its value is their mean,
Q_i = sum_m p_im z_m. As in C51 (Bellemare et al., arXiv:1707.06887) the distribution of the target copy with the least
value, moved and shrunk, is projected to the bins:

    i* = argmin_i Q'_i(s', a'),     a' ~ pi(. | s')
    y = projection of the distribution p'_i* of  r + gamma^k (z - alpha log p(a' | s'))
    J(p_i) = - mean w sum_m y_m log p_im(s, a)
    J(pi) = mean (alpha log p(a | s) - min_i Q_i(s, a)),     a ~ pi(. | s)

Rows, noise, importance weights w, alpha and the drawing of critics are as in losses/sac.py. The TD error of a row is
computed from values.
"""

from dataclasses import dataclass

import numpy as np

from rllib.losses.loss import NO_VALUES, LossOverModules
from rllib.losses.sac import CRITIC_STATS, LEFT_OUT, NEXT_NOISE, NOISE, READ_BY_CRITICS
from rllib.losses.td import project, torch_project
from rllib.sample_batch import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS


@dataclass(frozen=True)
class Bins:
    """Values of returns that a distribution is over.

    Attributes:
        count: number of bins, at least 2.
        least, largest: values of the first and of the last one.
    """

    count: int
    least: float
    largest: float

    def values(self) -> np.ndarray:
        """float32 [count], increasing."""
        return np.linspace(self.least, self.largest, self.count, dtype=np.float32)

    def torch_values(self, like):
        """The same as a tensor, on the device of `like`."""
        import torch

        ends = self.least, self.largest, self.count
        return torch.linspace(*ends, dtype=torch.float64, device=like.device).float()


def critic_loss(bins: Bins, *, samples_critics: bool = False, by_batch: bool = False) -> LossOverModules:
    """The critics' loss.

    Args:
        bins: bins of the returns.
        samples_critics: whether rows draw the target critics that they take the least value of.
        by_batch: critics, and their target copies, judge (s, a) and (s', a') in one pass and are normalised by the
            statistics of both together (XQC, arXiv:2509.25174; FlashSAC, arXiv:2604.04539); in torch alone.
    """

    def compute(distribution, modules, minibatch, *, alpha):
        import torch

        def judged_by(name: str, which: int, taken, actions):
            if not by_batch:
                return modules[name](minibatch[(OBS, NEXT_OBS)[which]], (taken, actions)[which])
            observations, both = torch.cat([minibatch[OBS], minibatch[NEXT_OBS]]), torch.cat([taken, actions])
            return modules[name](observations, both, by_batch=True).chunk(2, dim=-2)[which]

        with torch.no_grad():
            following = minibatch[NEXT_OBS]
            actions, log_prob = distribution.torch_draw(modules["policy"](following)[0], minibatch[NEXT_NOISE])
            taken = distribution.for_critics(minibatch[ACTIONS])
            probabilities = judged_by("target_critics", 1, taken, actions).softmax(-1)
            support = bins.torch_values(probabilities)
            judged = probabilities @ support
            if samples_critics:
                judged = judged + minibatch[LEFT_OUT].T
            least = judged.argmin(0)[None, :, None].expand(1, -1, bins.count)
            chosen = probabilities.gather(0, least)[0]
            rewards = minibatch[REWARDS] - minibatch[DISCOUNTS] * (alpha * log_prob)
            targets = torch_project(chosen, rewards, minibatch[DISCOUNTS], support)
        logits = judged_by("critics", 0, taken, actions).log_softmax(-1)
        loss = -(minibatch[WEIGHTS] * (targets * logits).sum(-1)).mean(-1).sum()
        with torch.no_grad():
            values = logits.exp() @ support
            statistics = loss, values.mean(), values.min(), values.max()
            td_errors = (values - targets @ support).abs().mean(0)
        return loss, statistics, (td_errors,)

    def compute_in_numpy(distribution, modules, minibatch, *, alpha):
        following, support = minibatch[NEXT_OBS], bins.values()
        drawn = distribution.draw(modules["policy"].forward(following)[0], minibatch[NEXT_NOISE])
        probabilities = _softmax(modules["target_critics"].forward(following, drawn.actions))
        judged = probabilities @ support
        if samples_critics:
            judged = judged + minibatch[LEFT_OUT].T
        chosen = probabilities[judged.argmin(0), np.arange(len(following))]
        rewards = minibatch[REWARDS] - minibatch[DISCOUNTS] * (np.float32(alpha) * drawn.log_prob)
        targets = project(chosen, rewards, minibatch[DISCOUNTS], support)
        logits = _log_softmax(modules["critics"].forward(minibatch[OBS], distribution.for_critics(minibatch[ACTIONS])))
        weights, found = minibatch[WEIGHTS] / np.float32(len(targets)), np.exp(logits)
        modules["critics"].backward((found - targets) * weights[:, None])
        values = found @ support
        loss = -(weights * (targets * logits).sum(-1)).sum()
        td_errors = np.abs(values - targets @ support).mean(0)
        return (loss, values.mean(), values.min(), values.max()), (td_errors,)

    columns = (*READ_BY_CRITICS, NEXT_NOISE, *((LEFT_OUT,) if samples_critics else ()))
    return LossOverModules(columns, CRITIC_STATS, compute, ("td_error",), None if by_batch else compute_in_numpy)


def actor_loss(bins: Bins, *, by_batch: bool = False) -> LossOverModules:
    """The actor's loss, by the means of the critics' distributions.

    Args:
        bins: bins of the returns.
        by_batch: the actor is normalised by the rows, and the critics by their running statistics; in torch alone.
    """

    def compute(distribution, modules, minibatch, *, alpha):
        dist_inputs = modules["policy"](minibatch[OBS], **({"by_batch": True} if by_batch else {}))[0]
        actions, log_prob = distribution.torch_draw(dist_inputs, minibatch[NOISE])
        probabilities = modules["critics"](minibatch[OBS], actions).softmax(-1)
        values = probabilities @ bins.torch_values(probabilities)
        loss = (alpha * log_prob - values.amin(0)).mean()
        return loss, (loss, -log_prob.mean())

    def compute_in_numpy(distribution, modules, minibatch, *, alpha):
        observations, rows, support = minibatch[OBS], len(minibatch[OBS]), bins.values()
        drawn = distribution.draw(modules["policy"].forward(observations)[0], minibatch[NOISE])
        probabilities = _softmax(modules["critics"].forward(observations, drawn.actions))
        values = probabilities @ support
        least = values.argmin(0), np.arange(rows)
        gradient = np.zeros_like(probabilities)
        # d Q / d logit_m = p_m (z_m - Q)
        gradient[least] = probabilities[least] * (support - values[least][:, None]) * np.float32(-1 / rows)
        d_actions = modules["critics"].input_gradient(gradient, "action")
        modules["policy"].backward((drawn.gradient(d_actions, alpha / rows), NO_VALUES))
        entropy = -drawn.log_prob.mean()
        return ((-alpha * entropy - values[least].mean(), entropy),)

    return LossOverModules((NOISE,), ("actor_loss", "entropy"), compute, (), None if by_batch else compute_in_numpy)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities of bins, [critics, B, n]."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(_log_softmax(logits))
