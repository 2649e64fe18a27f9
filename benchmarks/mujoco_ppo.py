"""PPO on HalfCheetah-v5, sampling and training in one process: environment steps a second, beside four libraries.

    python benchmarks/mujoco_ppo.py --rounds 3

Each side has 8 environments x 256 steps, 10 epochs of minibatches of 64, two tanh towers of 64x64, and normalises
observations and rewards, or what takes their place there: skrl scales the values' targets. Ours is the tuned example,
whose advantages are computed again before each epoch. Every side is a separate process on one thread, SBX on
one core; it compiles before the iterations that count. A million steps take a million divided by the rate. Needs the
extra mujoco; the peers' environments are `benchmarks/peers/setup mujoco_ppo sbx`.
"""

import json
import time

from measure import alternate, arguments, machine, ours, peer_side, rows, table

PEERS = {"sb3": "SB3", "rlox": "rlox", "skrl": "skrl", "sbx": "SBX"}
WARM_UP, ITERATIONS = 2, 20


def measured() -> dict:
    """Ours, in a process of its own."""
    from rllib.algorithms.base.registry import get_algorithm_config
    from rllib.cli.spec import find_file, load_spec, make_spec

    spec = make_spec(load_spec(find_file("ppo/halfcheetah")), {}, "ppo/halfcheetah")
    config = get_algorithm_config(spec.algorithm).environment(spec.env).update_from_dict(spec.config)
    with config.debugging(seed=0).build() as algorithm:
        for _ in range(WARM_UP):
            algorithm.train()
        before, started = algorithm.timesteps, time.perf_counter()
        for _ in range(ITERATIONS):
            algorithm.train()
        return {"env_steps_per_s": (algorithm.timesteps - before) / (time.perf_counter() - started)}


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--one", action="store_true", help="run ours once and print its JSON line")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured()))
        return
    print(machine())
    key = "env_steps_per_s"
    peers = {}
    if not options.no_peers:
        venvs = {name: "mujoco_ppo" for name in PEERS} | {"sbx": "sbx"}
        peers = {name: peer_side(key, venv, f"{name}_mujoco_ppo") for name, venv in venvs.items()}
    found = alternate(options.rounds, warm_up=0, ours=lambda: ours("mujoco_ppo", "--one")[key], **peers)
    table(rows(found, "PPO on HalfCheetah-v5", "steps/s", {name: (label, "") for name, label in PEERS.items()}))


if __name__ == "__main__":
    main()
