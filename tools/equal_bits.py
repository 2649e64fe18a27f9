"""Compares weights and results of this checkout and another one, after a change that should not affect them.

    git worktree add ../before REVISION
    python tools/equal_bits.py compare ../before                 # all cases, some minutes
    python tools/equal_bits.py compare ../before ppo sac         # those whose names begin so
    PYTHONPATH=../before python tools/equal_bits.py keep tests/checkpoints/families "PPO numpy" "IQL recorded"

Run it from the root of a checkout. Each case trains a small algorithm with one seed, saves it, and trains on, as does
an algorithm restored from the checkpoint. Weights are compared by digests, results number by number but for durations
and names of processes. It ends with 1 if anything differs that both checkouts have; keys of results that one of them
has alone are named.
"""

import argparse
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
DATA = Path("tests/data/offline")  # relative, so that a kept checkpoint does not name a folder of this machine
ITERATIONS = 3
CASE_S = 300  # longest time that a case may take

# Of a result: what differs from run to run.
NOT_COMPARED = ("config", "date", "experiment_id", "hostname", "node_ip", "perf", "pid", "sampler_perf", "timers")
NOT_COMPARED_WORDS = ("_per_sec", "throughput", "time_", "_time", "timestamp", "learner_cores", "_ms")

SMALL = {
    "train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 2, "hiddens": [8], "v_min": 0.0, "v_max": 100.0,
    "num_steps_sampled_before_learning_starts": 50, "replay_buffer_config": {"capacity": 2000},
    "q_model_config": {"fcnet_hiddens": [8]}, "noise_size": 50_000, "episodes_per_batch": 4, "num_rollouts": 2,
    "rollouts_used": 2,
}  # fmt: skip

ON_POLICY = ("PPO", "TRPO", "A2C", "PG", "PQN")
ASYNCHRONOUS = ("A3C", "IMPALA", "APPO")
VALUES = ("DQN", "SimpleQ", "Rainbow")
ACTOR_CRITICS = ("SAC", "TQC", "CrossQ", "TD3", "DDPG")
RECORDED = ("BC", "MARWIL", "TD3BC", "ReBRAC", "IQL", "AWAC", "CQL")
EVOLUTION = ("ES", "ARS")
LEARNERS = ("numpy", "torch")


class Line(gymnasium.Env):
    """Walks on a line towards 1; costs where it is at the border."""

    observation_space = gymnasium.spaces.Box(-2.0, 2.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, config=None):
        self.length = (config or {}).get("length", 17)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_count, self.place = 0, float(self.np_random.uniform(-1, 1))
        return self._observation(), {}

    def step(self, action):
        self.step_count += 1
        self.place = min(1.5, max(-1.5, self.place + 0.2 * (int(action) - 1)))
        ends = abs(self.place - 1) < 0.05
        is_late = self.step_count == self.length
        return self._observation(), 1 - abs(self.place - 1), ends, is_late, {"cost": float(abs(self.place) > 1.4)}

    def _observation(self):
        return np.array([self.place, np.sin(self.step_count), self.step_count / 20], np.float32)


class Seen(Line):
    """The place as a small image."""

    observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 1), np.uint8)

    def _observation(self):
        image = np.zeros((8, 8, 1), np.uint8)
        image[:, int(2 * self.place + 4)] = 10 * self.step_count
        return image


def two_agents():
    """Two agents on lines of their own; the second one acts in every other step."""
    from rllib.env import MultiAgentEnv

    class TwoLines(MultiAgentEnv):
        def __init__(self, config=None):
            super().__init__()
            self.possible_agents = self.agents = ["first", "second"]
            self.observation_spaces = dict.fromkeys(self.agents, Line.observation_space)
            self.action_spaces = dict.fromkeys(self.agents, Line.action_space)
            self.lines = {"first": Line({"length": 13}), "second": Line({"length": 40})}
            self.step_count = 0

        def reset(self, *, seed=None, options=None):
            self.step_count = 0
            seeds = {"first": seed, "second": None if seed is None else seed + 1}
            return {i: line.reset(seed=seeds[i])[0] for i, line in self.lines.items()}, {}

        def step(self, actions):
            self.step_count += 1
            told = {i: self.lines[i].step(action) for i, action in actions.items()}
            rewards = {i: float(each[1]) for i, each in told.items()}
            is_late = self.step_count == 13
            waits = self.step_count % 2 == 1 and not is_late
            observations = {i: line._observation() for i, line in self.lines.items() if not (waits and i == "second")}
            return observations, rewards, {"__all__": False}, {"__all__": is_late}, {}

    return TwoLines


def small(name: str, env, learner: str | None = None, model: Mapping | None = None, **training):
    """The config of an algorithm whose iterations take some 100 steps."""
    import rllib

    config = getattr(rllib, f"{name}Config")().environment(env).debugging(seed=1)
    settings = {key: value for key, value in SMALL.items() if key in config.settings}
    if name == "ARS":
        del settings["train_batch_size"]
    if "use_h_function" in config.settings:
        settings["training_intensity"] = 8
    if learner is not None:
        settings["learner"] = learner
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=2)
    if name in RECORDED:
        file = "pendulum_small.json" if env == "Pendulum-v1" else "cartpole_small.json"
        config.rollouts(num_envs_per_worker=1).offline_data(input_=str(DATA / file))
    config.training(model={"fcnet_hiddens": [8], **(model or {})}, **settings, **training)
    return config.reporting(
        min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=100, min_train_timesteps_per_iteration=1
    )


def cases() -> dict[str, Callable]:
    """Name -> function that makes the config."""
    found: dict[str, Callable] = {}

    def add(name: str, algorithm: str, env, change: Callable = lambda config: config, **given) -> None:
        found[name] = lambda: change(small(algorithm, env() if env is two_agents else env, **given))

    def with_workers(config):
        return config.rollouts(num_rollout_workers=2)

    def with_policies(config):
        return config.multi_agent(policies={"first", "second"}, policy_mapping_fn=lambda agent, *_, **__: agent)

    for learner in LEARNERS:
        for name in (*ON_POLICY, *ASYNCHRONOUS, *VALUES):
            add(f"{name} {learner}", name, "CartPole-v1", learner=learner)
        for name in ACTOR_CRITICS:
            add(f"{name} {learner}", name, "Pendulum-v1", learner=learner)
        for name in ("PPO", "A2C", "DQN", "SAC", "IMPALA", "TRPO"):
            add(f"{name} {learner} two agents", name, two_agents, with_policies, learner=learner)
        for name in ("PPO", "TRPO", "SAC"):
            limit = {"cost_limit": 0.1, "cost_column": "cost"} if name != "TRPO" else {}
            add(f"{name} {learner} costs", name, Line, learner=learner, **limit)
        add(f"PPO {learner} Pendulum", "PPO", "Pendulum-v1", learner=learner)
        add(f"SAC {learner} discrete", "SAC", "CartPole-v1", learner=learner)
        add(f"DQN {learner} n-step prioritised", "DQN", "CartPole-v1", learner=learner, n_step=3)
        add(f"PPO {learner} adaptive", "PPO", "CartPole-v1", learner=learner, kl_target=0.001, kl_coeff=0.5)
        add(
            f"PPO {learner} filter", "PPO", "CartPole-v1",
            lambda config: config.rollouts(observation_filter="MeanStdFilter"), learner=learner,
        )  # fmt: skip
        add(
            f"PPO {learner} novelty", "PPO", Line,
            lambda config: config.exploration(exploration_config={"type": "RND"}), learner=learner,
        )  # fmt: skip
    for name in ("PPO", "A2C", "DQN", "SAC", "ES", "ARS"):
        add(f"{name} workers", name, "Pendulum-v1" if name == "SAC" else "CartPole-v1", with_workers)
    add("PPO two agents workers", "PPO", two_agents, lambda config: with_workers(with_policies(config)))
    memory = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5}
    for name in ("PPO", "A2C", "IMPALA", "APPO"):
        add(f"{name} memory", name, "CartPole-v1", model=memory)
    add(
        "PPO attention",
        "PPO",
        "CartPole-v1",
        model={"use_attention": True, "attention_dim": 8, "attention_head_dim": 4},
    )
    for name in ("SAC", "TD3"):
        add(f"{name} memory", name, "Pendulum-v1", model={"use_gru": True, "lstm_cell_size": 8, "max_seq_len": 5})
    add("R2D2 memory", "R2D2", "CartPole-v1", model={"use_gru": True, "lstm_cell_size": 8})
    for name in RECORDED:
        continuous = name in ("TD3BC", "ReBRAC", "CQL")
        add(f"{name} recorded", name, "Pendulum-v1" if continuous else "CartPole-v1")
    for name in EVOLUTION:
        add(name, name, "CartPole-v1")
    for learner in LEARNERS:
        for name in ("IQL", "AWAC", "BC", "CQL", "TD3BC"):
            more = {"bc_iters": 1} if name == "CQL" else {}
            add(f"{name} {learner} recorded continuous", name, "Pendulum-v1", learner=learner, **more)
        add(
            f"PPO {learner} squashed", "PPO", "Pendulum-v1", learner=learner, kl_target=0.001, kl_coeff=0.5,
            entropy_coeff=0.01, model={"squash_actions": True},
        )  # fmt: skip
        add(f"DQN {learner} noisy", "DQN", "CartPole-v1", learner=learner, noisy=True, num_atoms=5)
        implicit = {"num_quantiles": 4, "implicit_quantiles": True, "noisy": True}
        add(f"DQN {learner} implicit", "DQN", "CartPole-v1", learner=learner, **implicit)
        add(f"PPO {learner} own value layers", "PPO", "CartPole-v1", learner=learner, model={"vf_hiddens": [6, 5]})
        add(f"PPO {learner} sde", "PPO", "Pendulum-v1", learner=learner, model={"use_sde": True})
        add(f"TQC {learner} sde", "TQC", "Pendulum-v1", learner=learner, model={"use_sde": True})
    add("PPO images", "PPO", Seen, model={"conv_filters": [[4, 3, 2]]})
    add("SAC residual", "SAC", "Pendulum-v1", model={"network": "simba"})
    return found


# ---------------------------------------------------------------------- one checkout


def weights_of(algo) -> dict[str, str]:
    """Digest of the weights of each policy."""
    found = {}
    for policy_id, weights in sorted(algo.get_weights().items()):
        arrays = weights.values() if isinstance(weights, Mapping) else [weights]
        data = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        found[policy_id] = hashlib.sha256(data).hexdigest()[:16]
    return found


def numbers_of(result, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, text) of each number of a result that is compared."""
    if isinstance(result, Mapping):
        for key in sorted(result, key=str):
            if not path and key in NOT_COMPARED:
                continue
            if not any(word in str(key) for word in NOT_COMPARED_WORDS):
                yield from numbers_of(result[key], f"{path}/{key}" if path else str(key))
    elif isinstance(result, list | tuple):
        for index, each in enumerate(result):
            yield from numbers_of(each, f"{path}/{index}")
    elif isinstance(result, bool | int | float | np.number):
        yield path, repr(float(result))


def run_case(make: Callable) -> dict:
    """What a case gives: weights and numbers after each iteration, after the save, and of the restored algorithm."""
    given = {}
    with tempfile.TemporaryDirectory() as directory, make().build() as algo:
        for iteration in range(1, ITERATIONS + 1):
            given[f"iteration {iteration}"] = dict(numbers_of(algo.train()))
            given[f"weights {iteration}"] = weights_of(algo)
        path = algo.save(directory)
        given["after the save"] = dict(numbers_of(algo.train()))
        with make().build() as restored:
            restored.restore(path)
            given["restored weights"] = weights_of(restored)
            given["after the restore"] = dict(numbers_of(restored.train()))
    return given


def keep_case(name: str, folder: Path) -> None:
    """Saves a checkpoint of a case, and what holds after it (`kept.json`), for a test that later versions read it."""
    path = folder / name.replace(" ", "_").lower()
    with cases()[name]().build() as algo:
        for _ in range(ITERATIONS):
            result = algo.train()
        algo.save(path)
        kept = {"weights": weights_of(algo), "timesteps_total": result["timesteps_total"]}
    path.joinpath("kept.json").write_text(json.dumps(kept, indent=1))


def print_case(name: str) -> None:
    """Writes what a case gives as JSON; an error as its text."""
    import logging

    logging.disable(logging.WARNING)
    # The checkout is the current folder. A .pth file of the environment may have put another one before PYTHONPATH.
    sys.path.insert(0, os.getcwd())
    try:
        import rllib

        if (home := Path(rllib.__file__).parents[1]) != Path.cwd():
            raise ImportError(f"rllib is that of {home}, not of {Path.cwd()}")
        given = run_case(cases()[name])
    except Exception as error:
        given = {"error": f"{type(error).__name__}: {error}"}
    print(f"\n{json.dumps(given)}", flush=True)


# ---------------------------------------------------------------------- two checkouts


def given_in(checkout: Path, name: str) -> dict:
    """Runs a case in a process that imports the library of a checkout."""
    argv = [sys.executable, str(Path(__file__).resolve()), "case", name]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONWARNINGS": "ignore"}
    try:
        run = subprocess.run(argv, env=environment, cwd=checkout, capture_output=True, text=True, timeout=CASE_S)
    except subprocess.TimeoutExpired:
        return {"error": f"it did not end within {CASE_S} s"}
    try:
        return json.loads(run.stdout.rstrip().rpartition("\n")[2])
    except json.JSONDecodeError:
        return {"error": f"exit code {run.returncode}: {run.stderr[-500:]}"}


def differences(this: dict, other: dict) -> tuple[list[str], set[str]]:
    """What differs, in words, and the keys of results that one checkout has alone."""
    if "error" in this or "error" in other:
        texts = this.get("error"), other.get("error")
        return ([] if texts[0] == texts[1] else [f"this: {texts[0]}; other: {texts[1]}"]), set()
    found, alone = [], set()
    for part in this:
        alone |= this[part].keys() ^ other[part].keys()
        keys = [key for key in this[part] if key in other[part] and this[part][key] != other[part][key]]
        if keys:
            shown = ", ".join(f"{key} {this[part][key]} | {other[part][key]}" for key in keys[:3])
            found.append(f"{part}: {shown}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}")
    return found, alone


def compare(other: Path, names: list[str], jobs: int) -> int:
    """Prints a line for each case; the number of those that differ, or that neither checkout can run."""
    num_different, num_raised, alone = 0, 0, set()

    def both(name: str) -> tuple[dict, dict]:
        return given_in(ROOT, name), given_in(other, name)

    with ThreadPoolExecutor(jobs) as pool:
        for name, pair in zip(names, pool.map(both, names)):
            found, only = differences(*pair)
            alone |= only
            num_different += bool(found)
            raises = not found and "error" in pair[0]
            num_raised += raises
            state = "DIFFERS" if found else f"RAISES in both: {pair[0]['error']}" if raises else "equal"
            print(f"{name:32} {state}", *found, sep="\n    " if found else "", flush=True)
    if alone:
        print(f"keys of results that one checkout has alone: {', '.join(sorted(alone))}")
    print(f"{len(names)} cases: {num_different} differ, {num_raised} raise in both checkouts")
    return num_different + num_raised


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    comparing = commands.add_parser("compare", help="compare this checkout with another one")
    comparing.add_argument("other", type=Path, help="the other checkout")
    comparing.add_argument("names", nargs="*", help="beginnings of the names of cases; by default all")
    comparing.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases that run at a time")
    keeping = commands.add_parser("keep", help="save a checkpoint of each of some cases")
    keeping.add_argument("folder", type=Path)
    keeping.add_argument("names", nargs="+", help="names of cases")
    commands.add_parser("list", help="print the names of the cases")
    commands.add_parser("case").add_argument("name")  # for `compare`
    options = parser.parse_args()
    # Workers find classes of this file by the module's name, which `__main__` is not.
    this = importlib.import_module(Path(__file__).stem)
    if options.command == "list":
        print("\n".join(cases()))
    elif options.command == "case":
        this.print_case(options.name)
    elif options.command == "keep":
        for name in options.names:
            this.keep_case(name, options.folder)
    else:
        if not (options.other / "rllib").is_dir():
            parser.error(f"{options.other} is no checkout of this library: it has no folder rllib.")
        starts = [name.lower() for name in options.names] or [""]
        chosen = [name for name in cases() if any(name.lower().startswith(start) for start in starts)]
        if not chosen:
            parser.error(f"no case begins with {options.names}; the command list prints their names")
        return int(compare(options.other.resolve(), chosen, options.jobs) > 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
