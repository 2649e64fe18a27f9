"""Steps a second of loops outside: ExternalEnv in the worker, and clients over HTTP beside a bare round trip.

    python benchmarks/external.py --rounds 3

The environment gives constant observations of four numbers, so that nothing but the exchange of observations and
actions is measured, with a 64x64 policy. In the worker one loop, and sixteen threads; beside them the same policy that
steps such an environment itself. Over HTTP one client and sixteen, each in a process of its own, one request a step;
beside them the bare round trip: the same client, and the same server, which answers before the worker is asked. All of
it is sampling, without learning.
"""

import subprocess
import sys
import threading
import time

import gymnasium
import numpy as np
from measure import ROOT, Row, alternate, arguments, machine, rows, table

from rllib.env.external import ExternalEnv

SPACES = gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(-1, 1, (4,), np.float32)
SEEN = np.zeros(4, np.float32)
LENGTH = 200
FRAGMENT = 2000

CLIENT = """
import sys, numpy as np
from rllib.client import PolicyClient, RunEnded
seen, bare = [0.0] * 4, sys.argv[2] == "bare"
with PolicyClient(sys.argv[1]) as client:
    try:
        while True:
            if bare:
                client._request("GET", "/health", None)
                continue
            episode = client.start_episode()
            for _ in range(200):
                client.get_action(episode, seen)
                client.log_returns(episode, 1.0)
            client.end_episode(episode, seen)
    except RunEnded:
        pass
"""


class Constant(gymnasium.Env):
    """Stepped by the worker."""

    action_space, observation_space = SPACES

    def __init__(self, config=None):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return SEEN, {}

    def step(self, action):
        self.steps += 1
        return SEEN, 1.0, self.steps == LENGTH, False, {}


class Loops(ExternalEnv):
    """Threads of the worker that ask for actions."""

    def __init__(self, config):
        super().__init__(*SPACES)
        self.count = config["loops"]

    def run(self):
        for _ in range(self.count - 1):
            threading.Thread(target=self.loop, daemon=True).start()
        self.loop()

    def loop(self):
        while True:
            episode = self.start_episode()
            for _ in range(LENGTH):
                self.get_action(episode, SEEN)
                self.log_returns(episode, 1.0)
            self.end_episode(episode, SEEN)


def build(env=None, **env_config):
    """PPO, of which the sampling alone is used; without `env` a server for clients."""
    from rllib import PPOConfig

    config = PPOConfig().rollouts(num_rollout_workers=0, rollout_fragment_length=FRAGMENT)
    config.training(train_batch_size=FRAGMENT, model={"fcnet_hiddens": [64, 64]})
    if env is None:
        config.environment(observation_space=SPACES[1], action_space=SPACES[0]).external(listen="127.0.0.1:0")
    else:
        config.environment(env, env_config=env_config)
    return config.build()


def sampled(algo) -> float:
    """Steps a second of one fragment."""
    started = time.perf_counter()
    return len(algo.sample(FRAGMENT)) / (time.perf_counter() - started)


def in_the_worker(rounds: int) -> list[Row]:
    made = []
    with build(Constant) as stepped:
        for loops, bar in ((1, ">= 15000"), (16, ">= 40000")):
            with build(Loops, loops=loops) as outside:
                found = alternate(rounds, ours=lambda o=outside: sampled(o), peer=lambda: sampled(stepped))
            made += rows(found, f"ExternalEnv, episodes at once: {loops}", "steps/s", {"peer": ("stepped", bar)})
    return made


def clients(url: str, count: int, kind: str) -> list[subprocess.Popen]:
    """Processes of clients."""
    return [subprocess.Popen([sys.executable, "-c", CLIENT, url, kind], cwd=ROOT) for _ in range(count)]


def bare_rate(server, count: int, seconds: float = 3.0) -> float:
    """Requests a second that the server answers without the worker."""
    processes = clients(server.url, count, "bare")
    time.sleep(1.5)
    before, started = server.num_requests, time.perf_counter()
    time.sleep(seconds)
    rate = (server.num_requests - before) / (time.perf_counter() - started)
    for process in processes:
        process.kill()
        process.wait()
    return rate


def over_http(rounds: int) -> list[Row]:
    made = []
    for count, bar in ((1, ">= 0.6 limit"), (16, "")):
        with build() as algo:
            server = algo.workers.local_worker().stream.environments[0]

            def ours(algo=algo, server=server, count=count) -> float:
                processes = clients(server.url, count, "acts")
                sampled(algo)
                rate = sampled(algo)
                for process in processes:
                    process.kill()
                    process.wait()
                return rate

            bare = lambda server=server, count=count: bare_rate(server, count)  # noqa: E731
            found = alternate(rounds, warm_up=0, ours=ours, limit=bare)
        made.append(Row.of(found, "", f"HTTP, clients: {count}", "steps/s", bar=bar))
    return made


def main() -> None:
    options = arguments(__doc__, rounds=3).parse_args()
    print(machine())
    table(in_the_worker(options.rounds) + over_http(options.rounds))


if __name__ == "__main__":
    main()
