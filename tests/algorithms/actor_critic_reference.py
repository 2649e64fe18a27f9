"""SAC, discrete SAC, TQC, CrossQ, TD3 and DDPG written out from the papers: float64, one network after the other.

Nothing here is shared with the library, and nothing is written for speed. A network is a list of tensors, the weights
[outputs, inputs] and biases of its layers in turn, with ReLU between layers. A batch maps these names to tensors of B
rows: obs, actions (in [-1, 1]; of a discrete space their numbers), rewards, discounts (gamma^k, or 0 behind a
termination), new_obs, weights (importance weights), and standard normal noise, next_noise, or target_noise.
"""

import copy
import math

import torch

LOG_STD = (-20.0, 2.0)


def compute(network, *inputs):
    """The outputs [B, outputs] of a network that reads its inputs side by side."""
    x = torch.cat(inputs, -1)
    for layer in range(0, len(network) - 2, 2):
        x = torch.relu(x @ network[layer].T + network[layer + 1])
    return x @ network[-2].T + network[-1]


def squashed(outputs, noise):
    """a = tanh(u) and log p(a) of u = mean + std noise (arXiv:1812.05905, appendix C)."""
    mean, log_std = outputs.chunk(2, -1)
    std = log_std.clamp(*LOG_STD).exp()
    u = mean + std * noise
    density = torch.exp(-(((u - mean) / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi))
    return u.tanh(), (density.log() - (1 - u.tanh() ** 2).log()).sum(-1)


class ActorCritic:
    """Networks, their targets and Adam; `update` makes the steps of one batch.

    Args:
        networks: "policy": a network, "critics": a list of them.
        lr: of all optimizers.
        tau: share of the way that a target network goes.
        policy_delay: updates of the critics for one of the actor and of the targets.

    Attributes:
        targets: the target networks, in the same form.
    """

    policy_delay = 1

    def __init__(self, networks, lr, tau, **settings):
        self.policy, self.critics = networks["policy"], networks["critics"]
        self.targets = copy.deepcopy(networks)
        for name, value in settings.items():
            setattr(self, name, value)
        self.tau, self.num_updates = tau, 0
        self._optimizers = [torch.optim.Adam(each, lr) for each in (self.policy, self.of_critics())]

    def of_critics(self):
        """The parameters of all critics."""
        return [part for critic in self.critics for part in critic]

    def critic_loss(self, batch):
        """Summed over the critics, mean over the rows."""
        with torch.no_grad():
            targets = self.critic_targets(batch)
        values = [compute(critic, *self.critic_inputs(batch)) for critic in self.critics]
        return sum(self.fit(value, targets, batch) for value in values)

    def critic_inputs(self, batch):
        return batch["obs"], batch["actions"]

    def fit(self, values, targets, batch):
        return (batch["weights"] * self.of_error(values[:, 0] - targets)).mean()

    def of_error(self, error):
        return error**2 / 2

    def least(self, critics, *inputs):
        """min_i Q_i [B]."""
        return torch.stack([compute(critic, *inputs)[:, 0] for critic in critics]).min(0).values

    def update(self, batch):
        """Critics, then the actor by the new critics, then the targets; losses by name."""
        self.num_updates += 1
        losses = {"critic": self.critic_loss(batch)}
        self._descend(self._optimizers[1], self.of_critics(), losses["critic"])
        if self.num_updates % self.policy_delay == 0:
            losses["actor"] = self.actor_loss(batch)
            self._descend(self._optimizers[0], self.policy, losses["actor"])
            self.after_actor()
            self._move(self.targets["policy"], self.policy)
            for target, critic in zip(self.targets["critics"], self.critics, strict=True):
                self._move(target, critic)
        return {name: loss.item() for name, loss in losses.items()}

    def after_actor(self):
        """Whatever else learns."""

    def _descend(self, optimizer, parameters, loss):
        for part, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            part.grad = gradient
        optimizer.step()

    @torch.no_grad()
    def _move(self, target, network):
        for old, new in zip(target, network, strict=True):
            old.copy_((1 - self.tau) * old + self.tau * new)


class SAC(ActorCritic):
    """arXiv:1812.05905, algorithm 1. `log_alpha` is learned if there is a target entropy; else it stays."""

    log_alpha, target_entropy = 0.0, None

    def __init__(self, networks, lr, tau, **settings):
        super().__init__(networks, lr, tau, **settings)
        self.log_alpha = torch.tensor([float(self.log_alpha)], dtype=torch.float64, requires_grad=True)
        self._alpha_optimizer = torch.optim.Adam([self.log_alpha], lr)
        self._log_prob = None

    @property
    def alpha(self):
        return self.log_alpha.detach().exp()

    def critic_targets(self, batch):
        actions, log_prob = squashed(compute(self.policy, batch["new_obs"]), batch["next_noise"])
        least = self.least(self.targets["critics"], batch["new_obs"], actions)
        return batch["rewards"] + batch["discounts"] * (least - self.alpha * log_prob)

    def actor_loss(self, batch):
        actions, log_prob = squashed(compute(self.policy, batch["obs"]), batch["noise"])
        self._log_prob = log_prob.detach().mean()
        return (self.alpha * log_prob - self.least(self.critics, batch["obs"], actions)).mean()

    def after_actor(self):
        if self.target_entropy is not None:
            self._descend(self._alpha_optimizer, [self.log_alpha], self.alpha_loss())

    def alpha_loss(self):
        """Equation 18, by the entropy of the actor whose loss was computed last."""
        return -(self.log_alpha * (self._log_prob + self.target_entropy)).sum()


class DiscreteSAC(SAC):
    """arXiv:1910.07207, equations 10 to 12: critics give the values of all actions, expectations are sums."""

    def critic_inputs(self, batch):
        return (batch["obs"],)

    def least_of_all(self, critics, observations):
        return torch.stack([compute(critic, observations) for critic in critics]).min(0).values

    def critic_targets(self, batch):
        log_p = compute(self.policy, batch["new_obs"]).log_softmax(-1)
        values = self.least_of_all(self.targets["critics"], batch["new_obs"])
        soft = (log_p.exp() * (values - self.alpha * log_p)).sum(-1)
        return batch["rewards"] + batch["discounts"] * soft

    def fit(self, values, targets, batch):
        taken = values[torch.arange(len(values)), batch["actions"].long()]
        return super().fit(taken[:, None], targets, batch)

    def actor_loss(self, batch):
        log_p = compute(self.policy, batch["obs"]).log_softmax(-1)
        with torch.no_grad():
            values = self.least_of_all(self.critics, batch["obs"])
        self._log_prob = (log_p.exp() * log_p).sum(-1).detach().mean()
        return (log_p.exp() * (self.alpha * log_p - values)).sum(-1).mean()


class TD3(ActorCritic):
    """arXiv:1802.09477, algorithm 1; with one critic, no delay and no noise it is DDPG (arXiv:1509.02971).

    Attributes:
        threshold: from where on an error counts linearly (Huber's loss).
        l2: weight of half the squared weights and biases, in both losses.
    """

    threshold, l2 = math.inf, 0.0

    def of_error(self, error):
        beyond = (error.abs() - self.threshold).clamp(min=0)
        return error**2 / 2 - beyond**2 / 2

    def penalty(self, parameters):
        return self.l2 * sum((part**2).sum() for part in parameters) / 2

    def critic_loss(self, batch):
        return super().critic_loss(batch) + self.penalty(self.of_critics())

    def critic_targets(self, batch):
        actions = compute(self.targets["policy"], batch["new_obs"]).tanh()
        actions = (actions + batch.get("target_noise", 0.0)).clamp(-1, 1)
        least = self.least(self.targets["critics"], batch["new_obs"], actions)
        return batch["rewards"] + batch["discounts"] * least

    def actor_loss(self, batch):
        actions = compute(self.policy, batch["obs"]).tanh()
        return self.penalty(self.policy) - compute(self.critics[0], batch["obs"], actions).mean()


class TQC(SAC):
    """arXiv:2005.04269, algorithm 1: the smallest of all critics' quantiles are the targets of each.

    Attributes:
        dropped: quantiles left out for each critic, the largest of all critics together.
    """

    dropped = 2

    def critic_targets(self, batch):
        """[B, quantiles that are kept]."""
        actions, log_prob = squashed(compute(self.policy, batch["new_obs"]), batch["next_noise"])
        quantiles = [compute(critic, batch["new_obs"], actions) for critic in self.targets["critics"]]
        ordered = torch.cat(quantiles, -1).sort(-1).values
        kept = ordered[:, : ordered.shape[1] - self.dropped * len(self.critics)]
        return batch["rewards"][:, None] + batch["discounts"][:, None] * (kept - (self.alpha * log_prob)[:, None])

    def fit(self, values, targets, batch):
        """The quantile Huber loss of each row, pair by pair; means over quantiles and over targets."""
        count, total = values.shape[1], 0.0
        for m in range(count):
            level = (2 * m + 1) / (2 * count)
            error = targets - values[:, m, None]
            huber = torch.where(error.abs() <= 1, error**2 / 2, error.abs() - 0.5)
            total = total + ((level - (error < 0).double()).abs() * huber).mean(1)
        return (batch["weights"] * total / count).mean()

    def actor_loss(self, batch):
        actions, log_prob = squashed(compute(self.policy, batch["obs"]), batch["noise"])
        self._log_prob = log_prob.detach().mean()
        values = torch.stack([compute(critic, batch["obs"], actions) for critic in self.critics])
        return (self.alpha * log_prob - values.mean((0, 2))).mean()


class CrossQ(SAC):
    """arXiv:1902.05605, figure 2: no targets; every layer reads batch-renormalised numbers (arXiv:1702.03275).

    A network is [scale, shift, weights, biases] for each layer in turn.

    Attributes:
        statistics: of the actor and of each critic, the running mean and variance of what each layer reads, and the
            number of training passes.
    """

    policy_delay = 3
    momentum, epsilon, warm_up, r_max, d_max = 0.01, 1e-3, 100_000, 3.0, 5.0
    adam_epsilon = 1e-8

    def __init__(self, networks, lr, tau=1.0, **settings):
        super().__init__(networks, lr, tau, **settings)
        self.statistics = [self._fresh(self.policy), *map(self._fresh, self.critics)]
        adam = {"betas": (0.5, 0.999), "eps": self.adam_epsilon}
        self._optimizers = [torch.optim.Adam(each, lr, **adam) for each in (self.policy, self.of_critics())]

    def _fresh(self, network):
        scales = [scale.detach() for scale in network[::4]]
        return {"passes": 0, "layers": [(torch.zeros_like(scale), torch.ones_like(scale)) for scale in scales]}

    def pass_through(self, number, network, *inputs, trains):
        """The outputs of network `number` (0: the actor, then the critics)."""
        statistics = self.statistics[number]
        x = torch.cat(inputs, -1)
        for index, running in enumerate(statistics["layers"]):
            scale, shift, weight, bias = network[4 * index : 4 * index + 4]
            x = torch.relu(x) if index else x
            x = self._renormalised(x, running, statistics["passes"], trains) * scale + shift
            x = x @ weight.T + bias
        statistics["passes"] += int(trains)
        return x

    def _renormalised(self, x, running, passes, trains):
        """Algorithm 1 of the paper on renormalisation; a batch has statistics of its own until the warm-up is over."""
        if not trains:
            return (x - running[0]) / (running[1] + self.epsilon).sqrt()
        mean, variance = x.mean(0), x.var(0, correction=0)
        normal = (x - mean) / (variance + self.epsilon).sqrt()
        if passes >= self.warm_up:
            running_std = (running[1] + self.epsilon).sqrt()
            with torch.no_grad():
                r = ((variance + self.epsilon).sqrt() / running_std).clamp(1 / self.r_max, self.r_max)
                d = ((mean - running[0]) / running_std).clamp(-self.d_max, self.d_max)
            normal = normal * r + d
        for old, new in zip(running, (mean, variance), strict=True):
            old.mul_(1 - self.momentum).add_(self.momentum * new.detach())
        return normal

    def critic_loss(self, batch):
        """Both halves of a batch go through the critics together, so that they are normalised alike."""
        with torch.no_grad():
            outputs = self.pass_through(0, self.policy, batch["new_obs"], trains=False)
            following, log_prob = squashed(outputs, batch["next_noise"])
        observations = torch.cat([batch["obs"], batch["new_obs"]])
        actions = torch.cat([batch["actions"], following])
        both = [
            self.pass_through(number, critic, observations, actions, trains=True)[:, 0].chunk(2)
            for number, critic in enumerate(self.critics, 1)
        ]
        least = torch.stack([next_values for _, next_values in both]).min(0).values.detach()
        targets = batch["rewards"] + batch["discounts"] * (least - self.alpha * log_prob)
        return sum(self.fit(values[:, None], targets, batch) for values, _ in both)

    def actor_loss(self, batch):
        outputs = self.pass_through(0, self.policy, batch["obs"], trains=True)
        actions, log_prob = squashed(outputs, batch["noise"])
        self._log_prob = log_prob.detach().mean()
        values = [
            self.pass_through(number, critic, batch["obs"], actions, trains=False)[:, 0]
            for number, critic in enumerate(self.critics, 1)
        ]
        return (self.alpha * log_prob - torch.stack(values).min(0).values).mean()
