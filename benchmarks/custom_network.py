"""PPO with a network of the user's on CartPole-v1, sampling and training, beside SB3: environment steps a second.

Eight environments x 128 steps an iteration in the driver, 4 epochs over them in minibatches of 256, two 64x64 tanh
towers: as a custom torch module, as the built-in network that learns in torch, and as that learns by default.
"""

import torch
from measure import alternate, arguments, machine, peer_side, rows, table
from ppo_throughput import BATCH, ENVS, FRAGMENT, training_rate
from torch import nn


class Towers(nn.Module):
    """The built-in network, written as a module."""

    def __init__(self, observation_space, action_space, num_outputs, width=64):
        super().__init__()

        def tower(outputs):
            layers = nn.Linear(observation_space.shape[0], width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
            return nn.Sequential(*layers, nn.Linear(width, outputs))

        self.policy, self.value = tower(num_outputs), tower(1)

    def forward(self, observation):
        return self.policy(observation), self.value(observation).squeeze(-1)


def build(model: dict, learner: str):
    """The algorithm with its eight environments."""
    from rllib import PPOConfig

    return (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=ENVS, rollout_fragment_length=FRAGMENT)
        .training(train_batch_size=BATCH, sgd_minibatch_size=256, num_sgd_iter=4, model=model, learner=learner)
        .build()
    )


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--iterations", type=int, default=20, help="of each side in each round")
    parser.add_argument("--threads", type=int, default=None, help="of torch here; by default as many as it chooses")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(machine())
    print(f"medians of {options.rounds} rounds of {options.iterations} iterations, {torch.get_num_threads()} threads")
    built_in = {"fcnet_hiddens": [64, 64], "vf_share_layers": False}
    algos = {
        "custom": build({"custom_model": Towers}, "auto"),
        "built_in_torch": build(built_in, "torch"),
        "built_in": build(built_in, "auto"),
    }
    try:
        for algo in algos.values():
            training_rate(algo, 3)
        ours = {name: lambda algo=algo: training_rate(algo, options.iterations) for name, algo in algos.items()}
        peers = {}
        if not options.no_peers:
            peers["sb3"] = peer_side(
                "env_steps_per_s", "sb3", "sb3_ppo_throughput", "--iterations", options.iterations
            )
        found = alternate(options.rounds, warm_up=0, **ours, **peers)
    finally:
        for algo in algos.values():
            algo.stop()
    made = rows(found, "custom network", "env steps/s", {"sb3": ("SB3", ">= 1.5 peer")}, ours="custom")
    for name in ("built_in_torch", "built_in"):
        made += rows(found, name.replace("_", " "), "env steps/s", {"sb3": ("SB3", "")}, ours=name)
    table(made)


if __name__ == "__main__":
    main()
