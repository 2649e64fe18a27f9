"""PPO on EnvPool's HalfCheetah, LunarLander and Pong, beside gymnasium's: environment steps a second, trained on.

    .venv-extras/bin/python benchmarks/envpool_throughput.py --rounds 3

The settings are those of the tuned examples ppo/halfcheetah (8 x 256 steps, 10 epochs of minibatches of 64) and
ppo/lunarlander (16 x 1,024, 4 epochs of 64), in one process, and those of pong_throughput.py; the only difference is
`simulator="envpool"`. The peer is SB3's PPO over EnvPool, with the same sizes. Every side is a separate process.
EnvPool steps in as many threads as there are cores. Needs the extras envpool, mujoco, box2d and atari; the peer's
environment is `benchmarks/peers/setup envpool`.
"""

import json
import time
from typing import NamedTuple

from measure import alternate, arguments, machine, ours, peer_side, rows, table


class Task(NamedTuple):
    """A task, its tuned example, and what the peer needs."""

    env: str
    example: str | None  # None: the settings of pong_throughput.py
    of_envpool: str
    peer: tuple = ()


TASKS = {
    "halfcheetah": Task(
        "HalfCheetah-v5", "ppo/halfcheetah", "HalfCheetah-v5", ("--fragment", 256, "--batch", 64, "--epochs", 10)
    ),
    "lunarlander": Task(
        "LunarLander-v3", "ppo/lunarlander", "LunarLander-v3",
        ("--envs", 16, "--fragment", 1024, "--batch", 64, "--epochs", 4, "--iterations", 2),
    ),
    "pong": Task("ALE/Pong-v5", None, "Pong-v5", ("--iterations", 4)),
}  # fmt: skip
KEY = "env_steps_per_s"


def measured(task: Task, simulator: str | None, seconds: float) -> dict:
    """Ours, in a separate process."""
    with _build(task, simulator) as algorithm:
        algorithm.train()
        before, started = algorithm.timesteps, time.perf_counter()
        while time.perf_counter() - started < seconds:
            algorithm.train()
        return {KEY: (algorithm.timesteps - before) / (time.perf_counter() - started)}


def _build(task: Task, simulator: str | None):
    if task.example is None:
        from pong_throughput import ENVPOOL, build_ppo

        return build_ppo(f"envpool:{ENVPOOL}" if simulator else task.env, 8)
    from rllib.algorithms.base.registry import get_algorithm_config
    from rllib.cli.spec import find_file, load_spec, make_spec

    spec = make_spec(load_spec(find_file(task.example)), {}, task.example)
    config = get_algorithm_config(spec.algorithm).environment(spec.env).update_from_dict(spec.config)
    return config.environment(simulator=simulator).debugging(seed=0).build()


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seconds", type=float, default=10, help="of ours in each round")
    parser.add_argument("--one", nargs=2, metavar=("TASK", "SIMULATOR"), help="run ours once and print its JSON line")
    options = parser.parse_args()
    if options.one:
        task, simulator = options.one
        print(json.dumps(measured(TASKS[task], simulator if simulator == "envpool" else None, options.seconds)))
        return
    print(machine())
    found = []
    for name in options.tasks:
        task, sides = TASKS[name], {}
        for side, simulator in (("ours", "gymnasium"), ("ours_envpool", "envpool")):
            words = ("--one", name, simulator, "--seconds", options.seconds)
            sides[side] = lambda words=words: ours("envpool_throughput", *words)[KEY]
        if not options.no_peers:
            script, env = "envpool_sb3_ppo_throughput", ("--env", task.of_envpool)
            sides["sb3"] = peer_side(KEY, "envpool", script, *env, *task.peer)
        values = alternate(options.rounds, warm_up=0, **sides)
        for side, what in (("ours", "gymnasium"), ("ours_envpool", "EnvPool")):
            found += rows(values, f"PPO {name}, {what}", "steps/s", {"sb3": ("SB3 + EnvPool", "")}, ours=side)
    table(found)


if __name__ == "__main__":
    main()
