"""Parts of the GPU report for continuous actions: updates of SAC and TD3 beside the eager torch loop, and whole runs.

Rows have the sizes of HalfCheetah, 17 numbers of an observation and 6 of an action, and are made up, so that MuJoCo is
not needed; whole runs are of Pendulum-v1, one update for each step. LeanRL has published rates of training on an H100
with compiled and recorded steps: see LEANRL.
"""

import copy
import time
from collections.abc import Callable

import gymnasium
import numpy as np
import torch
from learner_update import LR
from measure import Row, alternate
from roofline import BYTES_PER_WEIGHT, Roofline

from rllib import sample_batch as sb
from rllib.algorithms.base.registry import get_algorithm_config

OBSERVATION, ACTIONS = gymnasium.spaces.Box(-np.inf, np.inf, (17,)), gymnasium.spaces.Box(-1, 1, (6,))
HIDDENS, BATCH, CAPACITY, UPDATES, RUN_STEPS = [256, 256], 256, 10_000, 10, 1_000
GAMMA, TAU = 0.99, 0.005
LEANRL = (
    "LeanRL publishes, on one H100, with compiled and recorded steps, environment included: PPO-Atari 6,809, "
    "PPO-continuous 1,774, SAC 725 and TD3 936 frames/s (https://github.com/meta-pytorch/LeanRL)"
)
LEANRL_STEPS_PER_S = {"SAC": 725, "TD3": 936}
# Logarithm of what divides a normal density.
_LOG_ROOT = 0.5 * np.log(2 * np.pi)


class MadeUpEnv(gymnasium.Env):
    """Observations and actions that mean nothing, here of HalfCheetah's shapes."""

    observation_space, action_space = OBSERVATION, ACTIONS

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._nothing(), {}

    def step(self, action):
        return self._nothing(), 0.0, False, False, {}

    def _nothing(self) -> np.ndarray:
        return np.zeros(self.observation_space.shape, self.observation_space.dtype)


# -------------------------------------------------------------------------------------------------------- SAC and TD3


def layers(inputs: int, outputs: int) -> torch.nn.Sequential:
    """A fully connected network, as everyone writes it."""
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    first, second = HIDDENS
    return torch.nn.Sequential(linear(inputs, first), relu(), linear(first, second), relu(), linear(second, outputs))


class EagerActorCritic:
    """Actor, two critics and their target copies in torch; rows are drawn from arrays and sent for each update.

    Args:
        rows: columns of the replay.
        device: by torch's name.
    """

    num_outputs = ACTIONS.shape[0]  # of the actor

    def __init__(self, rows: dict[str, np.ndarray], device: str):
        self.rows, self.device, self.rng = rows, device, np.random.default_rng(1)
        self.actor = layers(OBSERVATION.shape[0], self.num_outputs).to(device)
        read = OBSERVATION.shape[0] + ACTIONS.shape[0]
        self.critics = torch.nn.ModuleList(layers(read, 1) for _ in range(2)).to(device)
        self.target_critics = copy.deepcopy(self.critics)
        adam = torch.optim.Adam
        self.of_actor = adam(self.actor.parameters(), lr=LR, fused=True)
        self.of_critics = adam(self.critics.parameters(), lr=LR, fused=True)

    def drawn(self) -> list[torch.Tensor]:
        """A batch: observations, actions, rewards, discounts, next observations."""
        index = self.rng.integers(CAPACITY, size=BATCH)
        names = sb.OBS, sb.ACTIONS, sb.REWARDS, sb.DISCOUNTS, sb.NEXT_OBS
        return [torch.from_numpy(self.rows[name][index]).to(self.device) for name in names]

    @staticmethod
    def values(critics, obs, actions) -> torch.Tensor:
        """Values [2, B]."""
        both = torch.cat([obs, actions], 1)
        return torch.stack([critic(both)[:, 0] for critic in critics])

    def fit_critics(self, obs, actions, targets) -> None:
        loss = 0.5 * (self.values(self.critics, obs, actions) - targets).square().mean(1).sum()
        self._step(self.of_critics, loss)

    @staticmethod
    def _step(optimizer, loss) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    @torch.no_grad()
    def move_targets(self, *pairs) -> None:
        for target, source in pairs:
            for old, new in zip(target.parameters(), source.parameters()):
                old.lerp_(new, TAU)


class EagerSAC(EagerActorCritic):
    """Soft actor-critic, whose temperature is learned."""

    num_outputs = 2 * ACTIONS.shape[0]

    def __init__(self, rows, device: str):
        super().__init__(rows, device)
        self.log_alpha = torch.zeros(1, device=device, requires_grad=True)
        self.of_alpha = torch.optim.Adam([self.log_alpha], lr=LR, fused=True)

    def draw(self, obs) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions, and the logarithms of their densities."""
        mean, log_std = self.actor(obs).chunk(2, 1)
        log_std = log_std.clamp(-20, 2)
        noise = torch.randn_like(mean)
        actions = (mean + log_std.exp() * noise).tanh()
        log_prob = -0.5 * noise.square() - log_std - _LOG_ROOT - (1 - actions.square() + 1e-6).log()
        return actions, log_prob.sum(1)

    def update(self) -> None:
        obs, actions, rewards, discounts, following = self.drawn()
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            following_actions, log_prob = self.draw(following)
            least = self.values(self.target_critics, following, following_actions).amin(0)
            targets = rewards + discounts * (least - alpha * log_prob)
        self.fit_critics(obs, actions.tanh(), targets)
        drawn, log_prob = self.draw(obs)
        self._step(self.of_actor, (alpha * log_prob - self.values(self.critics, obs, drawn).amin(0)).mean())
        entropy_error = (log_prob.detach() - ACTIONS.shape[0]).mean()
        self._step(self.of_alpha, -(self.log_alpha.exp() * entropy_error).sum())
        self.move_targets((self.target_critics, self.critics))


class EagerTD3(EagerActorCritic):
    """Twin delayed deep deterministic policy gradients."""

    def __init__(self, rows, device: str):
        super().__init__(rows, device)
        self.target_actor, self.num_updates = copy.deepcopy(self.actor), 0

    def update(self) -> None:
        obs, actions, rewards, discounts, following = self.drawn()
        with torch.no_grad():
            following_actions = self.target_actor(following).tanh()
            noise = (0.2 * torch.randn_like(following_actions)).clamp(-0.5, 0.5)
            least = self.values(self.target_critics, following, (following_actions + noise).clamp(-1, 1)).amin(0)
            targets = rewards + discounts * least
        self.fit_critics(obs, actions, targets)
        self.num_updates += 1
        if self.num_updates % 2 == 0:
            self._step(self.of_actor, -self.values(self.critics, obs, self.actor(obs).tanh())[0].mean())
            self.move_targets((self.target_critics, self.critics), (self.target_actor, self.actor))


EAGER = {"SAC": EagerSAC, "TD3": EagerTD3}


def build(name: str, env, device: str):
    """The settings of the algorithm with one environment in this process."""
    config = get_algorithm_config(name).environment(env).resources(num_gpus=int(device == "cuda")).debugging(seed=0)
    return config.rollouts(num_rollout_workers=0).training(
        learner="torch",
        train_batch_size=BATCH,
        training_intensity=BATCH,
        num_steps_sampled_before_learning_starts=BATCH,
        replay_buffer_config={"type": "ReplayBuffer", "capacity": CAPACITY},
        model={"fcnet_hiddens": HIDDENS},
        q_model_config={"fcnet_hiddens": HIDDENS},
    )


def made_up_rows(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Columns of a replay of transitions."""
    return {
        sb.OBS: rng.standard_normal((CAPACITY, *OBSERVATION.shape), dtype=np.float32),
        sb.NEXT_OBS: rng.standard_normal((CAPACITY, *OBSERVATION.shape), dtype=np.float32),
        sb.ACTIONS: rng.uniform(-1, 1, (CAPACITY, *ACTIONS.shape)).astype(np.float32),
        sb.REWARDS: rng.standard_normal(CAPACITY, dtype=np.float32),
        sb.DISCOUNTS: np.full(CAPACITY, GAMMA, np.float32),
    }


def timed(update: Callable[[], object]) -> Callable[[], float]:
    """A side of `alternate`: milliseconds of an update that waits for its end."""

    def side() -> float:
        started = time.perf_counter()
        for _ in range(UPDATES):
            update()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return (time.perf_counter() - started) * 1e3 / UPDATES

    return side


def update_row(name: str, device: str, rounds: int, roofline: Roofline) -> Row:
    """An update of SAC or TD3, with the drawing of its rows, beside the eager one."""
    rows = made_up_rows(np.random.default_rng(0))
    with build(name, MadeUpEnv, device).build() as algo:
        algo.replay.add(rows)
        rates = algo.trainee.learning_rates()
        found = alternate(
            rounds, ours=timed(lambda: algo.trainee.update(**rates)), plain=timed(EAGER[name](rows, device).update)
        )
        actor = len(algo.policy.weights)
        critics = len(algo.learner.weights) - actor
    # Of a row and a weight 2 operations a pass. Critics: three passes of their own, one of the targets, two for the
    # actor's gradient. The actor: one for the next action, three of its own. TD3's actor moves in every second update,
    # by one critic.
    passes = 6 * critics + 4 * actor if name == "SAC" else 4 * critics + (critics / 2 + 3 * actor) / 2 + actor
    size_bytes = BATCH * sum(column[0].nbytes for column in rows.values()) + BYTES_PER_WEIGHT * (critics + actor)
    what = f"{name}, 256x256, {BATCH} rows"
    return roofline.row(found, 2 * BATCH * passes, size_bytes, what=what, bar="<= 0.5 peer")


def run_row(name: str, device: str) -> Row:
    """A whole run: for each step of Pendulum an update."""
    config = build(name, "Pendulum-v1", device)
    config.reporting(min_sample_timesteps_per_iteration=RUN_STEPS, min_time_s_per_iteration=0)
    with config.build() as algo:
        while algo.timesteps < BATCH + RUN_STEPS:
            algo.train()
        started = time.perf_counter()
        algo.train()
        rate = RUN_STEPS / (time.perf_counter() - started)
    peer = {"peer": LEANRL_STEPS_PER_S[name], "peer_name": "LeanRL"}
    return Row(f"{name}, Pendulum, a step and an update", "env steps/s", rate, **peer)
