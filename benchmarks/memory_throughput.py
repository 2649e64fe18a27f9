"""PPO with an LSTM on CartPole-v1, sampling and training, beside RecurrentPPO: environment steps a second.

Eight environments x 128 steps an iteration in the driver, 4 epochs over them in minibatches of 256. One row with an
LSTM for the policy and one for the value, which is RecurrentPPO's default, one with an LSTM for both.
"""

from measure import alternate, arguments, machine, peer_side, rows, table
from ppo_throughput import BATCH, ENVS, FRAGMENT, training_rate


def build(size: int, shared: bool):
    """The algorithm with its eight environments."""
    from rllib import PPOConfig

    model = {
        "use_lstm": True,
        "lstm_cell_size": size,
        "max_seq_len": 32,
        "fcnet_hiddens": [],
        "vf_share_memory": shared,
    }
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=ENVS, rollout_fragment_length=FRAGMENT)
        .training(train_batch_size=BATCH, sgd_minibatch_size=256, num_sgd_iter=4, model=model)
        .build()
    )


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--size", type=int, default=64, help="numbers in the output of the LSTM")
    parser.add_argument("--iterations", type=int, default=10, help="of each side in each round; ours twice as many")
    options = parser.parse_args()
    print(machine())
    print(f"medians of {options.rounds} rounds of {options.iterations} iterations, LSTM {options.size}")
    made = []
    for name, shared in (("an LSTM each", False), ("one LSTM", True)):
        peer = None
        if not options.no_peers:
            more = ["--size", options.size, "--iterations", options.iterations, *(["--shared"] if shared else [])]
            peer = peer_side("env_steps_per_s", "sb3", "sb3_recurrent_throughput", *more)
        with build(options.size, shared) as algo:
            training_rate(algo, 5)
            ours = lambda algo=algo: training_rate(algo, 2 * options.iterations)  # noqa: E731
            found = alternate(options.rounds, warm_up=0, ours=ours, peer=peer)
        made += rows(found, f"PPO, {name}", "env steps/s", {"peer": ("RecurrentPPO", ">= 3 peer")})
    table(made)


if __name__ == "__main__":
    main()
