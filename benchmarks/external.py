"""Steps a second of loops outside: ExternalEnv in the worker, and clients over HTTP beside a bare round trip.

    python benchmarks/external.py --rounds 3

The environment gives constant observations of four numbers, so that nothing but the exchange of observations and
actions is measured, with a 64x64 policy. In the worker one loop, and sixteen threads; beside them the same policy that
steps such an environment itself. Over HTTP and ZeroMQ one client, 16 and 64, one request a step, in up to 16 processes;
beside them the bare round trip: the same clients, and the same server, which answers before the worker is asked; and
the rate of one client; beside one client RLlib 2.6.3's policy server (its client sends two requests a step, too), and
`rllib serve`, which answers with actions and keeps no steps. A client that acts by itself (local inference), with parts
of 100 steps and of 400, stands beside the environment that is stepped. All of it is sampling, without learning.
"""

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
from measure import ROOT, Row, alternate, arguments, machine, peer_side, rows, table
from serving import Clients, Served, checkpoints

from rllib.env.external import ExternalEnv
from rllib.env.external.exchange import RunEnded

SPACES = gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(-1, 1, (4,), np.float32)
SEEN = np.zeros(4, np.float32)
LENGTH = 200
FRAGMENT = 2000
MOST_PROCESSES = 16

CLIENT = """
import os, sys, threading, numpy as np
from rllib.client import PolicyClient, RunEnded
seen, bare = np.zeros(4, np.float32), sys.argv[2] == "bare"
def play():
    ready = False
    mode = "local" if sys.argv[2] == "local" else "remote"
    with PolicyClient(sys.argv[1], inference_mode=mode, fragment_length=int(sys.argv[4])) as client:
        try:
            while True:
                episode = client.start_episode()
                if not ready:
                    ready = os.write(1, b"ready\\n")  # in one piece, whatever the other threads write
                while bare:
                    client._request("GET", "/health", None)
                for _ in range(200):
                    client.get_action(episode, seen)
                    client.log_returns(episode, 1.0)
                client.end_episode(episode, seen)
        except RunEnded:
            pass
for _ in range(int(sys.argv[3])):
    threading.Thread(target=play).start()
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
        with contextlib.suppress(RunEnded):
            while True:
                episode = self.start_episode()
                for _ in range(LENGTH):
                    self.get_action(episode, SEEN)
                    self.log_returns(episode, 1.0)
                self.end_episode(episode, SEEN)


def build(env=None, listen=None, **env_config):
    """PPO, of which the sampling alone is used; without `env` a server for clients."""
    from rllib import PPOConfig

    config = PPOConfig().rollouts(num_rollout_workers=0, rollout_fragment_length=FRAGMENT)
    config.training(train_batch_size=FRAGMENT, model={"fcnet_hiddens": [64, 64]})
    if env is None:
        config.environment(observation_space=SPACES[1], action_space=SPACES[0])
        config.external(listen=listen, episode_timeout_s=2.0)  # those of clients that were killed
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


@contextlib.contextmanager
def clients(server, count: int, kind: str, fragment_length: int = 100):
    """Runs clients, from when all of them have an episode; those that act by themselves begin with the first sample."""
    processes = min(count, MOST_PROCESSES)
    command = [sys.executable, "-c", CLIENT, server.url, kind, str(count // processes), str(fragment_length)]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    try:
        for process in started if kind != "local" else ():  # their first weights come with it
            for _ in range(count // processes):
                if process.stdout.readline() != "ready\n":
                    raise RuntimeError("a client ended before its first episode")
        yield
    finally:
        for process in started:
            process.kill()
            process.communicate()


def bare_rate(server, count: int, seconds: float = 2.0) -> float:
    """Requests a second that the server answers without the worker."""
    with clients(server, count, "bare"):
        before, started = server.num_requests, time.perf_counter()
        time.sleep(seconds)
        return (server.num_requests - before) / (time.perf_counter() - started)


def acting_rate(algo, server, count: int, kind: str = "acts", fragment_length: int = 100) -> float:
    """Steps a second of clients; those that act by themselves send parts of this length."""
    with clients(server, count, kind, fragment_length):
        sampled(algo)
        return sampled(algo)


def over_a_network(name: str, listen: str, bar: str, rounds: int, peers: dict | None = None) -> list[Row]:
    """Rows of one, 16 and 64 clients; `bar` of the first."""
    made = []
    for count in (1, 16, 64):
        with build(listen=listen) as algo:
            server = algo.workers.local_worker().stream.environments[0]
            ours, bare = partial(acting_rate, algo, server, count), partial(bare_rate, server, count)
            found = alternate(rounds, warm_up=0, ours=ours, limit=bare, **(peers or {}) if count == 1 else {})
        more = {"peer": made[0].ours, "peer_name": "one client", "bar": ">= 1.5 peer"} if made else {"bar": bar}
        if count == 1:
            labels = {"ray": ("Ray 2.6", ""), "served": ("rllib serve", "")}
            beside = [row for row in rows(found, f"  {name} beside it", "steps/s", labels) if row.peer]
        ratio = found.ratio("ours", "limit")
        figures = found.median("ours"), found.median("limit")
        made.append(Row(f"{name}, clients: {count}", "steps/s", *figures, limit_ratio=ratio, **more))
    return made[:1] + beside + made[1:]


def local_inference(rounds: int) -> list[Row]:
    """Rows of a client that acts by itself and sends parts of the default length, 100 steps, and longer ones."""
    with build(Constant) as stepped, build(listen="127.0.0.1:0") as algo:
        server = algo.workers.local_worker().stream.environments[0]
        ours, longer = (partial(acting_rate, algo, server, 1, "local", length) for length in (100, 400))
        found = alternate(rounds, warm_up=0, ours=ours, longer=longer, peer=lambda: sampled(stepped))
    made = rows(found, "HTTP, local inference, clients: 1", "steps/s", {"peer": ("stepped", ">= 0.7 peer")})
    longer_parts = "HTTP, local inference, parts of 400 steps"
    return made + rows(found, longer_parts, "steps/s", {"peer": ("stepped", "")}, ours="longer")


@contextlib.contextmanager
def served_policy():
    """A function that measures the answers a second of `rllib serve` over one connection."""
    with tempfile.TemporaryDirectory() as directory:
        served = Served("-m", "rllib", "serve", *checkpoints(Path(directory), 1), "--port", "0")
        try:
            yield partial(_served_rate, served.address)
        finally:
            served.stop()


def _served_rate(address) -> float:
    with Clients(address, count=1) as one:  # a new one: servers end connections that have been idle for seconds
        return one.rate(2.0)


def main() -> None:
    options = arguments(__doc__, rounds=3).parse_args()
    print(machine())
    made = in_the_worker(options.rounds)
    with served_policy() as served:
        peers = {"ray": peer_side("steps_per_s", "ray26", "ray26_policy_server"), "served": served}
        made += over_a_network("HTTP", "127.0.0.1:0", ">= 0.6 limit", options.rounds, peers)
    made += local_inference(options.rounds)
    made += over_a_network("ZeroMQ", "tcp://127.0.0.1:0", ">= 0.5 limit", options.rounds)
    table(made)


if __name__ == "__main__":
    main()
