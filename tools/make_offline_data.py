"""Records the CartPole steps in tests/data/offline: of a policy that has solved it, of always left, and random ones.

    python tools/make_offline_data.py

tuned_examples/ppo/cartpole.yaml is trained for 100,000 steps; its policy then draws actions for 10,000 steps. Without
new_obs, since each is the next row's obs: the steps at a time limit, after which nothing is known, are few.
"""

import hashlib
from pathlib import Path

import gymnasium
import numpy as np

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli.spec import find_file, load_spec, make_spec
from rllib.offline.formats.array_files import METADATA

DIRECTORY = Path(__file__).parents[1] / "tests" / "data" / "offline"
STEPS = 10_000
SEED = 1
FACTS = '{"env": "CartPole-v1", "max_episode_steps": 500}'


def record(act, steps: int = STEPS) -> dict[str, np.ndarray]:
    """Whole episodes, at least this number of steps, whose actions `act` chooses from observations."""
    env = gymnasium.make("CartPole-v1")
    rows, episode = [], 0
    while len(rows) < steps:
        obs, _ = env.reset(seed=SEED + episode)
        ended = False
        while not ended:
            action = act(obs)
            following, reward, terminated, truncated, _ = env.step(action)
            rows.append((obs, action, reward, terminated, truncated, episode))
            obs, ended = following, terminated or truncated
        episode += 1
    names = "obs", "actions", "rewards", "terminateds", "truncateds", "eps_id"
    types = np.float32, np.int8, np.float32, bool, bool, np.int32
    return {name: np.array(column, dtype) for name, column, dtype in zip(names, zip(*rows), types)}


def write(name: str, columns: dict[str, np.ndarray]) -> None:
    """Writes a file and prints its checksum."""
    path = DIRECTORY / name
    np.savez_compressed(path, **columns, **{METADATA: np.frombuffer(FACTS.encode(), np.uint8)})
    returns = np.bincount(columns["eps_id"], columns["rewards"])
    digest = hashlib.sha256(b"".join(column.tobytes() for column in columns.values())).hexdigest()[:16]
    print(f"{name}: {len(columns['obs'])} steps, {len(returns)} episodes, mean return {returns.mean():.1f}, {digest}")


def main() -> None:
    spec = make_spec(load_spec(find_file("ppo/cartpole")), {}, "ppo/cartpole")
    config = get_algorithm_config(spec.algorithm).environment(spec.env).update_from_dict(spec.config)
    with config.debugging(seed=SEED).build() as algorithm:
        while algorithm.timesteps < 100_000:
            algorithm.train()
        expert = record(lambda obs: algorithm.compute_single_action(obs, explore=True))
    rng = np.random.default_rng(SEED)
    write("cartpole_expert.npz", expert)
    write("cartpole_expert_positions.npz", {**expert, "obs": expert["obs"][:, ::2]})
    write("cartpole_left.npz", record(lambda obs: 0, 90))
    write("cartpole_random.npz", record(lambda obs: int(rng.integers(2))))


if __name__ == "__main__":
    main()
