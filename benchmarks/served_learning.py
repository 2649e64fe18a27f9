"""A policy that learns from its users' rewards over HTTP beside the same training in one process, at equal steps.

    python benchmarks/served_learning.py bandit
    python benchmarks/served_learning.py cartpole

Users are environments of this process: a round asks `rllib serve --learn` for the actions of all of them, and gives
the rewards. They wait while the learner is behind, as people do who come at their own pace. Both policies are then
judged by their most likely actions.
"""

import argparse
import http.client
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gymnasium
import numpy as np

from rllib import DQNConfig, load_policy, register_env

USERS = 16
# Steps that may wait for the learner.
MOST_BEHIND = 2000
_LOOK_EVERY = 10


class LinearBandit(gymnasium.Env):
    """Contexts in the plane, and three actions: the reward is 1 for the nearest of three directions, with noise."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)
    _directions = np.array([[1, 0], [-0.5, 0.87], [-0.5, -0.87]])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._context = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._context, {}

    def step(self, action):
        is_best = int(action) == int(np.argmax(self._directions @ self._context))
        reward = float(is_best != (self.np_random.random() < 0.1))
        return self._context, reward, True, False, {}


register_env("LinearBandit", lambda config: LinearBandit())

_CARTPOLE = {
    "rollout_fragment_length": 16, "train_batch_size": 64, "training_intensity": 32, "target_network_update_freq": 256,
    "num_steps_sampled_before_learning_starts": 1000, "n_step": 3, "grad_clip": 10, "double_q": True, "dueling": False,
    "hiddens": [], "model": {"fcnet_hiddens": [128, 128], "fcnet_activation": "relu", "layer_norm": True},
    "replay_buffer_config": {"type": "ReplayBuffer", "capacity": 100_000},
    "exploration_config": {"final_epsilon": 0.1, "epsilon_timesteps": 8000},
}  # fmt: skip
_BANDIT = {
    "rollout_fragment_length": 4, "train_batch_size": 32, "num_steps_sampled_before_learning_starts": 500, "lr": 1e-3,
    "dueling": False, "hiddens": [], "model": {"fcnet_hiddens": [64]},
    "replay_buffer_config": {"type": "ReplayBuffer", "capacity": 20_000},
    "exploration_config": {"final_epsilon": 0.1, "epsilon_timesteps": 2000},
}  # fmt: skip


def config(name: str, steps: int) -> DQNConfig:
    """DQN for this environment, to learn for this number of steps."""
    if name == "bandit":
        return DQNConfig().environment("LinearBandit").update_from_dict(_BANDIT)
    given = {**_CARTPOLE, "lr": [[0, 1e-3], [steps, 1e-5]]}
    return DQNConfig().environment("CartPole-v1").update_from_dict(given)


def make_env(name: str):
    """One environment."""
    return LinearBandit() if name == "bandit" else gymnasium.make("CartPole-v1")


def judged(policy, name: str) -> float:
    """The mean return of the most likely actions."""
    env, returns = make_env(name), []
    for seed in range(1000 if name == "bandit" else 30):
        observation, over, total = env.reset(seed=10_000 + seed)[0], False, 0.0
        while not over:
            action = policy.compute_single_action(observation, explore=False)
            observation, reward, terminated, truncated, _ = env.step(action)
            over, total = terminated or truncated, total + reward
        returns.append(total)
    return float(np.mean(returns))


def in_process(name: str, steps: int, seed: int) -> float:
    """The return after training in this process."""
    with config(name, steps).debugging(seed=seed).build() as algorithm:
        algorithm.learn(steps)
        return judged(algorithm, name)


class Users:
    """Environments whose actions come from a server, and whose rewards go to it.

    Args:
        name: of the environment.
        address: of the server.
        seed: of the environments.
    """

    def __init__(self, name: str, address: str, seed: int):
        self._envs = [make_env(name) for _ in range(USERS)]
        self._line = http.client.HTTPConnection(address, timeout=120)
        self._seen = [env.reset(seed=seed * 1000 + i)[0] for i, env in enumerate(self._envs)]
        self._episodes = list(range(USERS))
        self.returns: list[float] = []
        self._totals = [0.0] * USERS

    def ask(self, method: str, path: str, body=None):
        """The server's answer."""
        self._line.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        response = self._line.getresponse()
        content = json.loads(response.read())
        assert response.status == 200, content
        return content

    def round(self, sign: float = 1.0) -> None:
        """One action of each; rewards are multiplied by the sign."""
        observations = [each.tolist() for each in self._seen]
        body = {"observations": observations, "episode_ids": list(map(str, self._episodes)), "explore": True}
        answer = self.ask("POST", "/act", body)
        rewards = []
        for index, (env, action, action_id) in enumerate(zip(self._envs, answer["actions"], answer["action_ids"])):
            observation, reward, terminated, truncated, _ = env.step(action)
            self._totals[index] += reward
            item = {"action_id": action_id, "reward": sign * reward}
            if terminated or truncated:
                item |= {"terminated": True} if terminated else {"truncated": True}
                item["next_observation"] = observation.tolist()
                observation = self._begin(index)
            self._seen[index] = observation
            rewards.append(item)
        results = self.ask("POST", "/reward", {"rewards": rewards})["results"]
        assert all(each["accepted"] for each in results), results

    def _begin(self, index: int) -> np.ndarray:
        self.returns.append(self._totals[index])
        self._totals[index] = 0.0
        self._episodes[index] += USERS
        return self._envs[index].reset()[0]

    def wait_for_learner(self) -> dict:
        """Waits until the learner has caught up; returns the statistics."""
        while (stats := self.ask("GET", "/stats"))["rows"]["waiting"] > MOST_BEHIND:
            time.sleep(0.02)
        return stats


def served(name: str, steps: int, seed: int, *options: str, inverted=(0, 0)) -> tuple[float, dict, list[str]]:
    """The return of the policy that is served after this number of its users' steps.

    Args:
        name: of the environment.
        steps: of all users together.
        seed: of the first policy and the users.
        options: of `rllib serve --learn`.
        inverted: first and last step in which rewards are inverted.

    Returns:
        the return, the last statistics, and what the server has said.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, learned = Path(folder) / "first", Path(folder) / "learned"
        with config(name, steps).debugging(seed=seed).build() as algorithm:
            algorithm.save(source)
        command = [sys.executable, "-m", "rllib", "serve", source, "--learn", "--learn-to", learned, "--port", 0]
        server = subprocess.Popen(
            [*map(str, command), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        said = []
        try:
            while not said or "http://" not in said[-1]:
                said.append(server.stdout.readline())
                assert said[-1], said
            users = Users(name, re.search(r"http://(\S+)", said[-1])[1], seed)
            for number in range(steps // USERS):
                users.round(-1.0 if inverted[0] <= number * USERS < inverted[1] else 1.0)
                if number % _LOOK_EVERY == 0:
                    users.wait_for_learner()
            stats = users.wait_for_learner()
        finally:
            server.terminate()
            said += server.communicate()[0].splitlines(keepends=True)
        return judged(load_policy(learned), name), stats, said


OPTIONS = {
    "bandit": ("--canary-share", "0.3", "--trial-episodes", "50", "--offer-every", "1000"),
    "cartpole": (
        *("--canary-share", "0.5", "--trial-episodes", "6", "--block-episodes", "6", "--offer-every", "1500"),
        *("--margin", "0.5"),
    ),
}
STEPS = {"bandit": 12_000, "cartpole": 60_000}


def main() -> None:
    """Compares both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(STEPS))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    steps = given.steps or STEPS[given.name]
    alone = in_process(given.name, steps, given.seed)
    over_http, stats, said = served(given.name, steps, given.seed, *OPTIONS[given.name])
    print(*said, sep="")
    print(json.dumps(stats, indent=1))
    print(f"{given.name}, {steps:,} steps: in process {alone:.4g}, served {over_http:.4g} ({over_http / alone:.1%})")


if __name__ == "__main__":
    main()
