"""DQN on CartPole-v1, sampling and training: environment steps a second.

One environment, one update of 64 rows per 4 steps, a 64x64 network, uniform replay. The peer does the same with the
same numbers. Steps before learning starts are not counted.
"""

import time

from measure import alternate, arguments, machine, peer_side, rows, table

FRAGMENT = 4
BATCH = 64
START = 1000


def build(learner: str, parts: dict):
    """The algorithm, one environment in this process."""
    from rllib.algorithms.dqn import DQNConfig

    plain = {"double_q": False, "dueling": False, "replay_buffer_config": {"type": "ReplayBuffer"}}
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .rollouts(rollout_fragment_length=FRAGMENT)
        .training(
            train_batch_size=BATCH,
            num_steps_sampled_before_learning_starts=START,
            model={"fcnet_hiddens": [64, 64], "fcnet_activation": "relu"},
            hiddens=[],
            learner=learner,
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
    parser.add_argument("--peer-steps", type=int, default=5000, help="steps of the peer in each round")
    options = parser.parse_args()
    print(machine())
    algos = {"plain": build("numpy", {}), "rainbow": build("numpy", RAINBOW)}
    for algo in algos.values():
        training_rate(algo, 2)
    ours = {name: lambda algo=algo: training_rate(algo, options.iterations) for name, algo in algos.items()}
    peers = (
        {}
        if options.no_peers
        else {"sb3": peer_side("env_steps_per_s", "sb3", "sb3_dqn_throughput", "--steps", options.peer_steps)}
    )
    found = alternate(options.rounds, warm_up=0, **ours, **peers)
    table(
        [
            *rows(found, "DQN", "env steps/s", {"sb3": ("SB3", ">= 3 peer")}, ours="plain"),
            *rows(found, "double dueling PER n-step C51", "env steps/s", {"sb3": ("SB3 (plain)", "")}, ours="rainbow"),
        ]
    )


if __name__ == "__main__":
    main()
