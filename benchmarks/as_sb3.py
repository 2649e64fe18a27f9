"""An unchanged program for Stable-Baselines3, under `python -m rllib.as_sb3` and with 2.9.2 itself.

benchmarks/peers/sb3_program.py trains PPO with 8 environments of CartPole-v1, DQN on CartPole-v1, or SAC on
Pendulum-v1; the figure is the environment steps a second that it prints. Both sides run in processes of their own, in
turn.
"""

import argparse

from measure import PEERS, alternate, machine, peer_side, rows, table, unchanged

PROGRAM = PEERS / "sb3_program.py"
# Model -> what it is called in the table, and steps that count.
MODELS = {
    "ppo": ("PPO, 8 environments of CartPole-v1", 60_000),
    "dqn": ("DQN, CartPole-v1", 20_000),
    "sac": ("SAC, Pendulum-v1", 4_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each side is measured")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS), help="what is trained")
    parser.add_argument("--share", type=float, default=1.0, help="share of the steps, for a short try")
    parser.add_argument("--no-peers", action="store_true", help="leave Stable-Baselines3 out")
    options = parser.parse_args()
    print(machine())
    found = []
    for model in options.models:
        what, steps = MODELS[model]
        arguments = ("--model", model, "--timesteps", int(steps * options.share))
        sb3 = None if options.no_peers else peer_side("env_steps_per_s", "sb3", "sb3_program", *arguments)
        rounds = alternate(
            options.rounds, warm_up=0, ours=lambda given=arguments: unchanged("rllib.as_sb3", PROGRAM, *given), sb3=sb3
        )
        found += rows(rounds, f"the same program: {what}", "steps/s", {"sb3": ("SB3 2.9.2", "")})
    table(found)


if __name__ == "__main__":
    main()
