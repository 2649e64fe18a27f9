"""Share of RL Baselines3 Zoo's published settings that `rllib train -f` takes, as the table of docs/start/from_sb3.md.

    git clone https://github.com/DLR-RM/rl-baselines3-zoo
    python tools/zoo_share.py rl-baselines3-zoo/hyperparams

Each section of each file is translated and checked, as far as that goes without its environment: CartPole-v1 or
Pendulum-v1 stands in its place, by the kind of actions that the settings are for, and Pong for the games.
"""

import argparse
import collections
import tempfile
from pathlib import Path

import yaml

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli.spec import load_specs
from rllib.cli.values import read_file

ALGORITHMS = ("ppo", "a2c", "dqn", "sac", "td3", "ddpg", "tqc", "crossq", "ars")
# Environments with discrete actions, by parts of their names.
DISCRETE = ("CartPole", "MountainCar-", "Acrobot", "LunarLander-", "MiniGrid", "atari", "default")
GAME = "PongNoFrameskip-v4"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    print("| file | settings | accepted | refused |\n|---|---|---|---|")
    total = taken_of_all = 0
    for algorithm in ALGORITHMS:
        sections = {name: keys for name, keys in read_file(directory / f"{algorithm}.yml").items() if keys}
        refused = {name: why for name, keys in sections.items() if (why := refusal(algorithm, name, keys))}
        taken = len(sections) - len(refused)
        total, taken_of_all = total + len(sections), taken_of_all + taken
        print(f"| `{algorithm}.yml` | {len(sections)} | {taken} | {reasons(refused)} |")
    print(f"| all | {total} | {taken_of_all} ({100 * taken_of_all / total:.0f} %) | |")


def refusal(algorithm: str, name: str, keys: dict) -> str | None:
    """Message of what is refused in a section; None if it is taken."""
    discrete = any(part in name for part in DISCRETE)
    env = GAME if name == "atari" else "CartPole-v1" if discrete else "Pendulum-v1"
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"{algorithm}.yml"
        path.write_text(yaml.safe_dump({env: keys}))
        try:
            (run,) = load_specs(path, {"env": env})
            config = get_algorithm_config(run["algorithm"]).environment(env)
            return next(iter(config.update_from_dict(run["config"]).mistakes()), None)
        except (ValueError, TypeError) as error:
            return str(error).partition(f"{env}: ")[2] or str(error)


def reasons(refused: dict[str, str]) -> str:
    """Each reason once, with the names of its sections."""
    by_reason = collections.defaultdict(list)
    for name, why in refused.items():
        by_reason[why.partition(":")[0].partition(". ")[0]].append(name)
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in by_reason.items())


if __name__ == "__main__":
    main()
