"""What slow and dying workers cost, and what old fragments do to learning: the tables of docs/scale/stragglers.md.

    python benchmarks/stragglers.py rounds      steps a second by quorum and number of workers, by simulated time
    python benchmarks/stragglers.py validate    that simulation beside real workers whose environments sleep
    python benchmarks/stragglers.py late        PPO on CartPole by the share of late fragments
    python benchmarks/stragglers.py lag         IMPALA and APPO on CartPole by the lag of the weights that sample

`rounds` makes events by numbers alone. `late` and `lag` sample and learn in turn in one process, and hand each
environment's fragment out by weights that are so many updates old; so their results do not depend on the machine's
load. Each prints a table and, with --out, writes it as CSV; of `late` and `lag` the file has a row for each run, and
those that it has already are not run again.
"""

import argparse
import csv
import heapq
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from measure import above_0, aligned, at_least_1, machine

from rllib import APPOConfig, IMPALAConfig, PPOConfig
from rllib.algorithms.base.registry import get_algorithm_class
from rllib.algorithms.base.sources import NoWorkers
from rllib.evaluation.quorum import quorum_of
from rllib.evaluation.rollout_worker import RolloutWorker

# ------------------------------------------------------------------------------------------------- simulated rounds

# Laws of the time that a fragment takes, with mean 1: name -> a function of a generator.
LAWS: Mapping[str, Callable[[np.random.Generator], float]] = {
    "log-normal 0.5": lambda rng: rng.lognormal(-(0.5**2) / 2, 0.5),
    "log-normal 1.5": lambda rng: rng.lognormal(-(1.5**2) / 2, 1.5),
    "Pareto 2": lambda rng: rng.pareto(2.0),  # Lomax with exponent 2 and scale 1: mean 1, infinite variance
}
QUORUMS = 1.0, 0.95, 0.9, 0.75
NUMBERS = 8, 64, 512, 1000


@dataclass(frozen=True)
class Cluster:
    """What is simulated.

    Attributes:
        num_workers: workers.
        law: of the time that a fragment takes, a key of LAWS.
        mean_s: mean of that time (seconds).
        update_s: time of an update, in which no worker is asked (seconds).
        life_s: mean life of a worker, with an exponential law (seconds); math.inf: none dies.
        replaced_s: from a worker's death until its successor is there (seconds).
    """

    num_workers: int
    law: str
    mean_s: float = 5.0
    update_s: float = 1.0
    life_s: float = 3600.0
    replaced_s: float = 30.0

    @property
    def ideal(self) -> float:
        """Fragments a second where each takes the mean time and nobody dies."""
        return self.num_workers / (self.mean_s + self.update_s)


@dataclass
class Outcome:
    """What a simulation gives.

    Attributes:
        fragments, late: number of fragments that arrived, and of those that were late.
        lags: rounds by which each late one was late.
        seconds: simulated time.
        rounds: number of rounds.
    """

    fragments: int = 0
    late: int = 0
    lags: list[int] = field(default_factory=list)
    seconds: float = 0.0
    rounds: int = 0


def simulate(cluster: Cluster, quorum: float, rounds: int, seed: int) -> Outcome:
    """Rounds as `Fleet.ask_most` makes them, by a queue of events.

    A round asks all workers that are idle; those that were late and have answered by then are idle, too. It ends when
    the share of the living workers has answered, counted from its beginning; an update follows. A worker that dies
    loses its fragment, and its successor is asked at once.
    """
    rng = np.random.default_rng([seed, cluster.num_workers])
    now, round_ = 0.0, 0
    outcome, events = Outcome(), []  # (time, number, what, worker, round that has asked)
    idle, living, numbers = set(range(cluster.num_workers)), cluster.num_workers, iter(range(10**12))

    def push(at: float, what: str, worker: int) -> None:
        heapq.heappush(events, (at, next(numbers), what, worker, round_))

    def ask(worker: int, at: float) -> None:
        """The worker answers, or dies before; a life without a memory is drawn for each request."""
        takes = cluster.mean_s * LAWS[cluster.law](rng)
        lives = rng.exponential(cluster.life_s) if math.isfinite(cluster.life_s) else math.inf
        push(at + min(takes, lives), "answers" if takes <= lives else "dies", worker)

    while round_ < rounds:
        # Late answers that came during the update.
        while events and events[0][0] <= now:
            at, _, what, worker, asked = heapq.heappop(events)
            if what == "dies":
                living -= 1
                push(at + cluster.replaced_s, "returns", worker)
            else:
                living += what == "returns"
                idle.add(worker)
                if what == "answers":
                    _count(outcome, round_ - asked + 1)
        round_ += 1
        for worker in idle:
            ask(worker, now)
        idle, answers = set(), 0
        while answers < quorum_of(quorum, max(living, 1)) or not answers:
            now, _, what, worker, asked = heapq.heappop(events)
            if what == "dies":
                living -= 1
                push(now + cluster.replaced_s, "returns", worker)
            elif what == "returns":
                living += 1
                ask(worker, now)
            else:
                answers += 1
                idle.add(worker)
                _count(outcome, round_ - asked)
        now += cluster.update_s
    outcome.seconds, outcome.rounds = now, round_
    return outcome


def _count(outcome: Outcome, lag: int) -> None:
    outcome.fragments += 1
    if lag > 0:
        outcome.late += 1
        outcome.lags.append(lag)


def without_rounds(cluster: Cluster) -> float:
    """Fragments a second of workers that wait for nobody, where the learner keeps up: each is a process by itself."""
    whole = cluster.mean_s * (1 + cluster.replaced_s / cluster.life_s)  # a second of work costs its share of deaths
    return cluster.num_workers / whole


def rounds(arguments) -> list[dict]:
    """Steps a second relative to the ideal, and the share of late fragments."""
    rows = []
    for law in LAWS:
        for number in NUMBERS:
            cluster = Cluster(number, law)
            for quorum in QUORUMS:
                # Few workers need more rounds for the same certainty.
                count = max(arguments.rounds, 400 * arguments.rounds // number)
                outcome = simulate(cluster, quorum, count, arguments.seed)
                speed = outcome.fragments / outcome.seconds
                rows.append(
                    {
                        "law": law,
                        "workers": number,
                        "quorum": quorum,
                        "relative speed": round(speed / cluster.ideal, 3),
                        "round s": round(outcome.seconds / outcome.rounds, 2),
                        "late %": round(100 * outcome.late / outcome.fragments, 1),
                        "rounds late, mean": round(float(np.mean(outcome.lags)), 2) if outcome.lags else 0,
                        "rounds late, max": max(outcome.lags, default=0),
                    }
                )
            rows.append(
                {"law": law, "workers": number, "quorum": "no rounds"}
                | {"relative speed": round(without_rounds(cluster) / cluster.ideal, 3)}
            )
    return rows


# ------------------------------------------------------------------------------------------------- real workers

STEPS = 5  # of a fragment


class Sleeping(gymnasium.Env):
    """Draws for each fragment how long it takes, and sleeps for a part of it in each step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config):
        self._law, self._mean_s = LAWS[config["law"]], config["mean_s"]
        self._rng, self._steps = np.random.default_rng([config["seed"], config.worker_index]), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if self._steps % STEPS == 0:
            self._pause_s = self._mean_s * self._law(self._rng) / STEPS
        self._steps += 1
        time.sleep(self._pause_s)
        return np.zeros(1, np.float32), 1.0, self._steps % 20 == 0, False, {}


def validate(arguments) -> list[dict]:
    """Measured and simulated seconds of a round, of a few workers that do not die."""
    rows = []
    for law, quorum in (("log-normal 0.5", 1.0), ("log-normal 1.5", 1.0), ("log-normal 1.5", 0.75)):
        config = PPOConfig().environment(
            Sleeping, env_config={"law": law, "mean_s": arguments.mean_s, "seed": arguments.seed},
            disable_env_checking=True,
        )  # fmt: skip
        config.rollouts(num_rollout_workers=4, rollout_fragment_length=STEPS, sample_quorum=quorum)
        config.training(train_batch_size=STEPS * config.workers_per_round, sgd_minibatch_size=STEPS, num_sgd_iter=1)
        config.training(model={"fcnet_hiddens": [8]}).reporting(min_time_s_per_iteration=0)
        with config.build() as algo:
            algo.train()
            steps, late = algo.timesteps, algo.metrics.counters["num_late_fragments"]
            began, sampled_s = time.perf_counter(), 0.0
            for _ in range(arguments.rounds):
                sampled_s += algo.train()["timers"]["sample_time_ms"] / 1e3
            seconds = time.perf_counter() - began
            fragments = (algo.timesteps - steps) / STEPS
            late = algo.metrics.counters["num_late_fragments"] - late
        update_s = (seconds - sampled_s) / arguments.rounds
        cluster = Cluster(4, law, arguments.mean_s, update_s, math.inf)
        simulated = simulate(cluster, quorum, 20 * arguments.rounds, arguments.seed)
        measured, expected = seconds / arguments.rounds, simulated.seconds / simulated.rounds
        rows.append(
            {
                "law": law,
                "quorum": quorum,
                "measured round s": round(measured, 3),
                "simulated round s": round(expected, 3),
                "simulated / measured": round(expected / measured, 3),
                "measured late %": round(100 * late / fragments, 1),
                "simulated late %": round(100 * simulated.late / simulated.fragments, 1),
            }
        )
    return rows


# ------------------------------------------------------------------------------------------------- old fragments


class AgedWorkers(NoWorkers):
    """Workers in this process, each with an environment, whose fragments are by the weights of earlier rounds.

    Args:
        settings: of rollout workers.
        num_workers: workers.
        age: function of a generator: by how many rounds the weights of a fragment are older.
        seed: of that.
    """

    def __init__(self, settings, num_workers: int, age: Callable[[np.random.Generator], int], seed: int):
        settings = replace(settings, num_workers=num_workers)
        self._workers = [RolloutWorker(settings, index + 1, 0, np.empty) for index in range(num_workers)]
        self._age, self._rng, self._snapshots = age, np.random.default_rng([seed, num_workers]), deque(maxlen=MOST + 1)

    def sample(self, snapshots):
        """One fragment of each worker."""
        # The learner changes the weights in their place.
        own = {name: replace(each, weights=each.weights.copy()) for name, each in snapshots.items()}
        self._snapshots.append(own)
        fragments = []
        for worker in self._workers:
            age = min(self._age(self._rng), len(self._snapshots) - 1)
            worker.load_snapshots(self._snapshots[-1 - age])
            fragments.append(worker.sample())
        return fragments

    def stop(self) -> None:
        """Closes the environments."""
        for worker in self._workers:
            worker.close()


MOST = 64  # the greatest age, in rounds


def aged(name: str, num_workers: int, age: Callable[[np.random.Generator], int]) -> type:
    """The algorithm of a name with such workers, and a loss that takes rows by earlier weights."""
    base = get_algorithm_class(name)

    class Aged(base):
        loss = replace(base.loss, by_newest_weights=False)

        def make_workers(self, **more):
            return AgedWorkers(self._rollout_settings, num_workers, age, self.seed)

    Aged.__name__ = name
    return Aged


def learned(config, steps: int, goal: float = 475.0) -> dict[str, Any]:
    """Returns at half of the steps and at all of them, steps until the goal ("": not reached), measured lag."""
    found, lags = {"solved at": ""}, []
    with config.build() as algorithm:
        while algorithm.timesteps < steps:
            result = algorithm.train()
            at, mean = result["timesteps_total"], result["episode_reward_mean"]
            if at <= steps / 2:
                found["half"] = round(mean, 1)
            if found["solved at"] == "" and mean >= goal:
                found["solved at"] = at
            stats = result["info"]["learner"]["default_policy"]["learner_stats"]
            lags.append(stats["policy_lag_updates"])
    return {**found, "end": round(mean, 1), "measured lag": statistics.median(lags)}


# tuned_examples/ppo/cartpole.yaml, with 16 workers of an environment in place of 8 environments.
PPO_SETTINGS = {
    "train_batch_size": 1024, "sgd_minibatch_size": 256, "num_sgd_iter": 4, "lr": [[0, 3e-3], [100_000, 6e-4]],
    "gamma": 0.98, "lambda_": 0.95, "clip_param": 0.1, "kl_coeff": 0.0, "vf_clip_param": None, "vf_loss_coeff": 0.5,
    "entropy_coeff": 0.01, "model": {"fcnet_hiddens": [64, 64]},
}  # fmt: skip
LATE = 0, 5, 10, 25


def late(arguments) -> list[dict]:
    """PPO by the percentage of fragments that are by the policy of the round before."""

    def run(percent: int, seed: int, steps: int) -> dict[str, Any]:
        algorithm = aged("PPO", 16, lambda rng: int(rng.random() < percent / 100))
        config = PPOConfig(algo_class=algorithm).environment("CartPole-v1").training(**PPO_SETTINGS)
        config.rollouts(num_rollout_workers=0, rollout_fragment_length=64).debugging(seed=seed)
        return learned(config, steps)

    found = runs_of(arguments, [{"late %": percent} for percent in LATE], lambda key, *more: run(key["late %"], *more))
    return summary(found, ["late %"], arguments.steps)


LAGS = 1, 4, 16, 64
CONFIGS = {"IMPALA": IMPALAConfig, "APPO": APPOConfig}


def lag(arguments) -> list[dict]:
    """IMPALA and APPO by the number of updates by which the weights of all fragments are old."""

    def run(key: dict, seed: int, steps: int) -> dict[str, Any]:
        name, updates = key["algorithm"], key["lag"]
        config = CONFIGS[name](algo_class=aged(name, 10, lambda rng: updates)).environment("CartPole-v1")
        config.training(vtrace=key["V-trace"] == "yes", gamma=0.98, lr=[[0, 2e-3], [steps, 0.0]], train_batch_size=500)
        config.training(entropy_coeff=0.01, model={"fcnet_hiddens": [64, 64], "vf_share_layers": False})
        config.rollouts(num_rollout_workers=0, rollout_fragment_length=50).debugging(seed=seed)
        config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=2500)
        return learned(config, steps)

    keys = [
        {"algorithm": name, "V-trace": corrects, "lag": updates}
        for name in CONFIGS
        for corrects in ("yes", "no")
        for updates in LAGS
    ]
    return summary(runs_of(arguments, keys, run), ["algorithm", "V-trace", "lag"], arguments.steps)


def runs_of(arguments, keys: list[dict], run: Callable[[dict, int, int], dict]) -> list[dict]:
    """A run of each key and seed, seed by seed; those that the file has are read, the others are added to it."""
    found: list[dict] = []
    if arguments.out is not None and arguments.out.exists():
        with arguments.out.open(newline="") as file:
            found = list(csv.DictReader(file))
    there = {_key(row, [*keys[0], "seed", "steps"]) for row in found}
    for seed in range(arguments.seeds):
        for key in keys:
            identity = {**key, "seed": seed, "steps": arguments.steps}
            if _key(identity, list(identity)) in there:
                continue
            row = {**identity, **run(key, seed, arguments.steps)}
            print(row, flush=True)
            found.append({name: str(value) for name, value in row.items()})
            if arguments.out is not None:
                write(arguments.out, found)
    return [row for row in found if row["steps"] == str(arguments.steps)]


def _key(row: Mapping[str, Any], names: list[str]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in names)


def summary(found: list[dict], names: list[str], steps: int) -> list[dict]:
    """Runs that differ in the seed alone as one row."""
    groups: dict[tuple, list[dict]] = {}
    for row in found:
        groups.setdefault(_key(row, names), []).append(row)
    rows = []
    for key, runs in groups.items():
        solved = [int(run["solved at"]) for run in runs if run["solved at"]]
        rows.append(
            {
                **dict(zip(names, key, strict=True)),
                f"return at {steps // 2}": _spread(runs, "half"),
                f"return at {steps}": _spread(runs, "end"),
                "reach 475": f"{len(solved)} of {len(runs)}",
                "steps to 475, median": statistics.median(solved) if solved else "-",
                "measured lag": statistics.median(float(run["measured lag"]) for run in runs),
            }
        )
    return rows


def _spread(runs: list[dict], name: str) -> str:
    values = sorted(float(run[name]) for run in runs)
    return f"{statistics.mean(values):.0f} ({values[0]:.0f} to {values[-1]:.0f})"


def write(path: Path, rows: list[dict]) -> None:
    """Writes rows as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)


COMMANDS = {"rounds": rounds, "validate": validate, "late": late, "lag": lag}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=COMMANDS)
    parser.add_argument("--rounds", type=at_least_1, default=None, help="rounds: 40, more of few workers; validate: 60")
    parser.add_argument("--mean-s", type=above_0, default=1.0, help="validate: mean time of a fragment (seconds)")
    parser.add_argument("--steps", type=at_least_1, default=150_000, help="late, lag: environment steps of a run")
    parser.add_argument("--seeds", type=at_least_1, default=3, help="late, lag: runs of each row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="CSV of the rows")
    arguments = parser.parse_args()
    if arguments.rounds is None:
        arguments.rounds = 60 if arguments.what == "validate" else 40
    print(machine())
    rows = COMMANDS[arguments.what](arguments)
    names = list(dict.fromkeys(name for row in rows for name in row))
    aligned([names, *([str(row.get(name, "")) for name in names] for row in rows)])
    if arguments.out is not None and arguments.what in ("rounds", "validate"):
        write(arguments.out, rows)


if __name__ == "__main__":
    main()
