"""Hopper from recorded steps alone: returns of BC, TD3+BC and IQL on medium and expert episodes, 50,000 updates each.

    python benchmarks/hopper_from_data.py
    python benchmarks/hopper_from_data.py IQL --seed 1

As D4RL's hopper-medium-expert (Fu et al. 2020, arXiv:2004.07219), whose files cannot be had here, the data has as many
steps of a policy that reaches about a third of the expert's return as of the expert: tuned_examples/ppo/hopper.yaml
after its first mean return of 1,000, and at its end. Both draw their actions. The file is made once, and kept in
build/. Bars are shares of the mean return of the expert's episodes: what clones the mixture must stay below 0.7, which
shows that it is mixed. Needs the extra mujoco. Published, normalised, after a million updates (CORL): BC 52, TD3+BC
101, IQL 107 of 100.
"""

import math
import time
from pathlib import Path

import gymnasium
import numpy as np
from measure import ROOT, aligned, arguments, machine

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli.spec import find_file, load_spec, make_spec
from rllib.offline.dataset import Dataset

DATA = ROOT / "build" / "hopper_medium_expert.npz"
ENV, STEPS, MEDIUM = "Hopper-v5", 100_000, 1000
BATCH = 256
# Share of the expert's return.
BARS = {"BC": ("<=", 0.7), "TD3BC": (">=", 0.8), "IQL": (">=", 0.9)}


def played(algorithm, seed: int) -> list[tuple]:
    """Whole episodes of the policy, which draws its actions: at least STEPS rows."""
    env, rows, episode = gymnasium.make(ENV), [], seed * 100_000
    while len(rows) < STEPS:
        observation, _ = env.reset(seed=episode)
        ended = False
        while not ended:
            action = algorithm.compute_single_action(observation, explore=True)
            following, reward, terminated, truncated, _ = env.step(action)
            rows.append((observation, action, reward, following, terminated, truncated, episode))
            observation, ended = following, terminated or truncated
        episode += 1
    return rows


def make_data(path: Path, seed: int) -> None:
    """Trains the example, and writes the steps of its policy at both times."""
    example = "ppo/hopper"
    spec = make_spec(load_spec(find_file(example)), {}, example)
    config = get_algorithm_config(spec.algorithm).environment(spec.env).update_from_dict(spec.config)
    medium = None
    with config.debugging(seed=seed).build() as algorithm:
        while algorithm.timesteps < spec.stop["timesteps_total"]:
            result = algorithm.train()
            if medium is None and result["episode_reward_mean"] >= MEDIUM:
                medium = played(algorithm, seed)
        if medium is None:
            raise RuntimeError(f"no policy of seed {seed} reached {MEDIUM}; give another --seed-of-data")
        rows = medium + played(algorithm, seed + 1)
    names = "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds", "eps_id"
    types = np.float32, np.float32, np.float32, np.float32, bool, bool, np.int64
    columns = {name: np.array(column, dtype) for name, column, dtype in zip(names, zip(*rows), types)}
    path.parent.mkdir(exist_ok=True)
    Dataset.from_columns(columns).save(path)


def returns_of_episodes(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return and number of rows of each episode, in the order of the file."""
    with np.load(path) as file:
        _, episode_of_row = np.unique(file["eps_id"], return_inverse=True)
        return np.bincount(episode_of_row, file["rewards"]), np.bincount(episode_of_row)


def returns_of(path: Path) -> tuple[float, float]:
    """Mean returns of the medium and of the expert's episodes."""
    returns, rows = returns_of_episodes(path)
    first = np.searchsorted(np.cumsum(rows), STEPS) + 1
    return returns[:first].mean(), returns[first:].mean()


def cosine(start: float, rows: int) -> list[list[float]]:
    """Schedule that falls from `start` to 0 within these rows, as half a wave of the cosine."""
    return [[rows * at // 20, start * (1 + math.cos(math.pi * at / 20)) / 2] for at in range(21)]


def trained(name: str, path: Path, updates: int, seed: int, episodes: int) -> tuple[float, float]:
    """Mean return of the final policy, deterministic, and the minutes that the updates took."""
    config = get_algorithm_config(name).environment(ENV).offline_data(input_=str(path))
    config.training(train_batch_size=BATCH).debugging(seed=seed)
    if name == "IQL":  # the paper's, for locomotion
        config.offline_data(reward_scale=1000 / np.ptp(returns_of_episodes(path)[0]))
        config.training(actor_lr=cosine(3e-4, updates * BATCH))
    started = time.perf_counter()
    with config.build() as algorithm:
        while algorithm.timesteps < updates * BATCH:
            algorithm.train()
        minutes = (time.perf_counter() - started) / 60
        return algorithm.evaluate(episodes)["episode_reward_mean"], minutes


def main() -> None:
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("names", nargs="*", default=list(BARS), help="algorithms [default: all]")
    parser.add_argument("--updates", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seed-of-data", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=50)
    options = parser.parse_args()
    print(machine())
    if not DATA.exists():
        make_data(DATA, options.seed_of_data)
    medium, expert = returns_of(DATA)
    print(f"mean returns of the data: {medium:.0f} and {expert:.0f}", flush=True)
    lines = [("algorithm", "return", "of the expert's", "bar", "", "minutes")]
    for name in options.names:
        value, minutes = trained(name, DATA, options.updates, options.seed, options.episodes)
        relation, bar = BARS[name]
        share = value / expert
        verdict = "pass" if (share <= bar if relation == "<=" else share >= bar) else "MISS"
        lines.append((name, f"{value:.0f}", f"{share:.2f}", f"{relation} {bar}", verdict, f"{minutes:.1f}"))
        print(f"# {' '.join(lines[-1])}", flush=True)
    aligned(lines)


if __name__ == "__main__":
    main()
