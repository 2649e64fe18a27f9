"""Updates a second of the algorithms for recorded data, beside d3rlpy's and a plain torch loop's.

11 observations, 3 actions, two layers of 256 units, batches of 256, one thread. Counted is the time of the processor,
so that other work on the machine counts little. Sampling the batch is a part of an update on every side. d3rlpy's and
ours have their defaults; the loop is what everyone writes from the paper, with Adam and two critics (CQL's penalty
judges ten actions of each kind on every side).

    python benchmarks/offline.py                       all of them
    python benchmarks/offline.py IQL CQL --seconds 5   two
"""

import copy
import time
from collections.abc import Callable

import numpy as np
import torch
from gymnasium import spaces
from measure import alternate, arguments, machine, peer, rows, table
from torch import nn
from torch.nn import functional

OBSERVATIONS, ACTIONS, BATCH, WIDTH, ROWS = 11, 3, 256, 256, 20_000
GAMMA, TAU, LR = 0.99, 0.005, 3e-4
NAMES = ("BC", "TD3BC", "IQL", "AWAC", "CQL")
# What ours is to reach: of d3rlpy's rate, and of the loop's.
BARS = {name: (">= 2.0 peer", ">= 1.4 peer") for name in NAMES} | {"CQL": (">= 1.2 peer", "")}


def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "obs": rng.normal(size=(ROWS, OBSERVATIONS)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (ROWS, ACTIONS)).astype(np.float32),
        "rewards": rng.normal(size=ROWS).astype(np.float32),
        "new_obs": rng.normal(size=(ROWS, OBSERVATIONS)).astype(np.float32),
        "truncateds": np.arange(ROWS) % 200 == 199,
    }


def rate(update: Callable[[], object], seconds: float) -> float:
    """Updates a second of the processor."""
    for _ in range(3):
        update()
    updates, started, spent = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        update()
        updates += 1
    return updates / (time.process_time() - spent)


# ---------------------------------------------------------------------------------------------------------- ours


def ours(name: str, seconds: float) -> float:
    from rllib.algorithms.base.registry import get_algorithm_config

    box = spaces.Box(-np.inf, np.inf, (OBSERVATIONS,)), spaces.Box(-1, 1, (ACTIONS,))
    config = get_algorithm_config(name).environment(observation_space=box[0], action_space=box[1])
    config.offline_data(input_=data(), input_config={"check": False}).debugging(seed=0)
    model = {"fcnet_hiddens": [WIDTH, WIDTH], "fcnet_activation": "relu"}
    own = {"bc_loss": "mse"} if name == "BC" else {"bc_iters": 0} if name == "CQL" else {}
    with config.training(train_batch_size=BATCH, model=model, **own).build() as algorithm:
        return rate(algorithm.training_step, seconds)


# ------------------------------------------------------------------------------------------------------ the loop


def mlp(inputs: int, outputs: int) -> nn.Module:
    layers = nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs)
    return nn.Sequential(*layers)


class Loop:
    """One update of each algorithm, as a plain loop makes it."""

    def __init__(self):
        columns = data()
        self.columns = {name: torch.from_numpy(column) for name, column in columns.items()}
        self.rng, self.updates = np.random.default_rng(0), 0
        self.critics = nn.ModuleList(mlp(OBSERVATIONS + ACTIONS, 1) for _ in range(2))
        self.actor, self.log_std = mlp(OBSERVATIONS, ACTIONS), nn.Parameter(torch.zeros(ACTIONS))
        self.squashed, self.value = mlp(OBSERVATIONS, 2 * ACTIONS), mlp(OBSERVATIONS, 1)
        self.log_alpha = nn.Parameter(torch.zeros(()))
        self.targets = copy.deepcopy(self.critics)
        self.target_actor = copy.deepcopy(self.actor)
        self.of = {
            "critics": self.adam(*self.critics.parameters()),
            "actor": self.adam(*self.actor.parameters(), self.log_std),
            "squashed": self.adam(*self.squashed.parameters()),
            "value": self.adam(*self.value.parameters()),
            "alpha": self.adam(self.log_alpha),
        }

    def adam(self, *parameters) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, LR)

    def batch(self):
        chosen = torch.from_numpy(self.rng.integers(ROWS, size=BATCH))
        return tuple(self.columns[name][chosen] for name in ("obs", "actions", "rewards", "new_obs"))

    def step(self, name: str, loss: torch.Tensor) -> None:
        self.of[name].zero_grad()
        loss.backward()
        self.of[name].step()

    def follow(self, *pairs) -> None:
        with torch.no_grad():
            for target, module in pairs:
                for copied, learned in zip(target.parameters(), module.parameters()):
                    copied.lerp_(learned, TAU)

    def judge(self, critics, obs, actions) -> torch.Tensor:
        """Values [critics, B]."""
        read = torch.cat([obs, actions], 1)
        return torch.stack([critic(read)[:, 0] for critic in critics])

    def bc(self) -> None:
        obs, actions, *_ = self.batch()
        self.step("actor", functional.mse_loss(self.actor(obs).tanh(), actions))

    def td3bc(self) -> None:
        self.updates += 1
        obs, actions, rewards, following = self.batch()
        with torch.no_grad():
            noise = (torch.randn_like(actions) * 0.2).clamp(-0.5, 0.5)
            chosen = (self.target_actor(following).tanh() + noise).clamp(-1, 1)
            targets = rewards + GAMMA * self.judge(self.targets, following, chosen).amin(0)
        errors = self.judge(self.critics, obs, actions) - targets
        self.step("critics", errors.square().mean(1).sum())
        if self.updates % 2 == 0:
            chosen = self.actor(obs).tanh()
            values = self.critics[0](torch.cat([obs, chosen], 1))
            scale = 2.5 / values.detach().abs().mean()
            self.step("actor", functional.mse_loss(chosen, actions) - scale * values.mean())
            self.follow((self.targets, self.critics), (self.target_actor, self.actor))

    def clone(self, obs, actions, weights) -> None:
        """The actor's step towards weighted recorded actions."""
        distribution = torch.distributions.Normal(self.actor(obs).tanh(), self.log_std.clamp(-5, 2).exp())
        self.step("actor", -(weights * distribution.log_prob(actions).sum(-1)).mean())

    def iql(self) -> None:
        obs, actions, rewards, following = self.batch()
        with torch.no_grad():
            judged = self.judge(self.targets, obs, actions).amin(0)
            targets = rewards + GAMMA * self.value(following)[:, 0]
        advantages = judged - self.value(obs)[:, 0]
        self.step("value", (torch.where(advantages > 0, 0.7, 0.3) * advantages.square()).mean())
        self.step("critics", (self.judge(self.critics, obs, actions) - targets).square().mean(1).sum())
        self.follow((self.targets, self.critics))
        self.clone(obs, actions, (3 * advantages.detach()).exp().clamp(max=100))

    def drawn(self, obs) -> torch.Tensor:
        """Actions that the actor draws."""
        mean = self.actor(obs).tanh()
        return (mean + self.log_std.clamp(-5, 2).exp() * torch.randn_like(mean)).clamp(-1, 1)

    def awac(self) -> None:
        obs, actions, rewards, following = self.batch()
        with torch.no_grad():
            targets = rewards + GAMMA * self.judge(self.targets, following, self.drawn(following)).amin(0)
        self.step("critics", (self.judge(self.critics, obs, actions) - targets).square().mean(1).sum())
        self.follow((self.targets, self.critics))
        with torch.no_grad():
            judged, own = (self.judge(self.critics, obs, each).amin(0) for each in (actions, self.drawn(obs)))
        self.clone(obs, actions, (judged - own).exp().clamp(max=100))

    def squash(self, obs) -> tuple[torch.Tensor, torch.Tensor]:
        """Drawn actions and their log-densities."""
        mean, log_std = self.squashed(obs).chunk(2, -1)
        noise, log_std = torch.randn_like(mean), log_std.clamp(-20, 2)
        actions = (mean + log_std.exp() * noise).tanh()
        densities = -0.5 * noise.square() - log_std - 0.919 - torch.log(1 - actions.square() + 1e-6)
        return actions, densities.sum(-1)

    def cql(self) -> None:
        count = 10
        obs, actions, rewards, following = self.batch()
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            targets = rewards + GAMMA * self.judge(self.targets, following, self.squash(following)[0]).amin(0)
            here, there = (each.repeat_interleave(count, 0) for each in (obs, following))
            drawn = [self.squash(each) for each in (here, there)]
            judged = torch.cat([torch.rand(BATCH * count, ACTIONS) * 2 - 1, *(each for each, _ in drawn)])
            uniform = torch.full((BATCH, count), -ACTIONS * float(np.log(2)))
            densities = torch.cat([uniform, *(each.view(BATCH, count) for _, each in drawn)], 1)
        of_data = self.judge(self.critics, obs, actions)
        of_drawn = self.judge(self.critics, here.repeat(3, 1), judged).view(2, 3, BATCH, count)
        of_drawn = of_drawn.transpose(1, 2).reshape(2, BATCH, 3 * count)
        penalty = torch.logsumexp(of_drawn - densities, -1) - of_data
        self.step("critics", ((of_data - targets).square() + 5 * penalty).mean(1).sum())
        chosen, log_prob = self.squash(obs)
        self.step("squashed", (alpha * log_prob - self.judge(self.critics, obs, chosen).amin(0)).mean())
        self.step("alpha", -(self.log_alpha * (log_prob.detach() - ACTIONS)).mean())
        self.follow((self.targets, self.critics))


def loop(name: str, seconds: float) -> float:
    return rate(getattr(Loop(), name.lower()), seconds)


# ---------------------------------------------------------------------------------------------------------- sides


def d3rlpy(name: str, seconds: float) -> float | None:
    found = peer("d3rlpy", "d3rlpy_updates", name, seconds)
    return found and found["per_cpu_s"]


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="ALGORITHM", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each side in each round")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{machine()}; updates per second of the processor, one thread", flush=True)
    found = []
    for name in options.names or NAMES:
        sides = {
            "ours": lambda: ours(name, options.seconds),  # noqa: B023
            "loop": lambda: loop(name, options.seconds),  # noqa: B023
            "peer": None if options.no_peers else lambda: d3rlpy(name, options.seconds),  # noqa: B023
        }
        rounds = alternate(options.rounds, 0, **sides)
        of_peer, of_loop = BARS[name]
        found += rows(rounds, name, "updates/s", {"peer": ("d3rlpy", of_peer), "loop": ("plain torch", of_loop)})
    table(found)


if __name__ == "__main__":
    main()
