"""DQN on CartPole-v1, sampling and training: environment steps a second.

    python benchmarks/dqn_throughput.py --rounds 3

One environment, one update of 64 rows per 4 steps, a 64x64 ReLU network, uniform replay of 50,000 rows. The peers do
the same with the same numbers: SB3, and SBX, which is SB3 in JAX. rejax, whose environments, acting and updates are one
XLA program, steps four environments at once and updates after each step of all four; beside it ours does the same, with
Gymnasium's vector version of the task. Steps before learning starts are not counted, nor is compiling.
"""

import time

from measure import alternate, arguments, machine, peer_side, rows, table

STEPS_PER_UPDATE = 4
BATCH = 64
START = 1000


def build(parts: dict, envs: int = 1):
    """The algorithm, its environments in this process; an update after 4 steps of one or one of four."""
    from rllib.algorithms.dqn import DQNConfig

    plain = {"double_q": False, "dueling": False, "replay_buffer_config": {"type": "ReplayBuffer"}}
    mode = {"gym_env_vectorize_mode": "vector_entry_point"} if envs > 1 else {}
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .rollouts(num_envs_per_worker=envs, rollout_fragment_length=STEPS_PER_UPDATE // envs, **mode)
        .training(
            train_batch_size=BATCH,
            num_steps_sampled_before_learning_starts=START,
            model={"fcnet_hiddens": [64, 64], "fcnet_activation": "relu"},
            hiddens=[],
            learner="numpy",
            **{**plain, **parts},
        )
        .build()
    )


def training_rate(algo, iterations: int) -> float:
    """Steps a second, sampled and trained on, over iterations of 1000 steps."""
    before, started = algo.timesteps, time.perf_counter()
    for _ in range(iterations):
        algo.train()
    return (algo.timesteps - before) / (time.perf_counter() - started)


RAINBOW = {
    "double_q": True,
    "dueling": True,
    "n_step": 3,
    "num_atoms": 51,
    "replay_buffer_config": {"type": "PrioritizedReplayBuffer"},
}


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--iterations", type=int, default=10, help="of 1000 steps, of ours in each round")
    parser.add_argument("--peer-steps", type=int, default=5000, help="steps of SB3 and SBX in each round")
    parser.add_argument("--rejax-steps", type=int, default=100_000, help="steps of rejax in each round")
    options = parser.parse_args()
    print(machine())
    algos = {"plain": build({}), "four": build({}, envs=4), "rainbow": build(RAINBOW)}
    for algo in algos.values():
        training_rate(algo, 2)
    ours = {name: lambda algo=algo: training_rate(algo, options.iterations) for name, algo in algos.items()}
    peers = {}
    if not options.no_peers:
        key, steps = "env_steps_per_s", ("--steps", options.peer_steps)
        peers = {name: peer_side(key, name, f"{name}_dqn_throughput", *steps) for name in ("sb3", "sbx")}
        peers["rejax"] = peer_side(key, "rejax", "rejax_dqn_throughput", "--steps", options.rejax_steps)
    found = alternate(options.rounds, warm_up=0, **ours, **peers)
    of_one = {"sb3": ("SB3", ">= 3 peer"), "sbx": ("SBX", "")}
    of_plain = {"sb3": ("SB3 (plain)", "")}
    table(
        [
            *rows(found, "DQN", "env steps/s", of_one, ours="plain"),
            *rows(found, "DQN, four environments at once", "env steps/s", {"rejax": ("rejax", "")}, ours="four"),
            *rows(found, "double dueling PER n-step C51", "env steps/s", of_plain, ours="rainbow"),
        ]
    )


if __name__ == "__main__":
    main()
