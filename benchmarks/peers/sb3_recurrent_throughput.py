"""sb3-contrib's RecurrentPPO on CartPole-v1, sampling and training: environment steps a second.

8 environments x 128 steps, 4 epochs, minibatches of 256. An LSTM for the policy and one for the value, by default, or
one for both (--shared).
"""

import argparse
import json

import sb3_contrib
import torch
from sb3_common import Clock, versions
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=64, help="numbers in the output of the LSTM")
    parser.add_argument("--shared", action="store_true", help="the value reads the policy's LSTM, without a gradient")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=2, help="iterations before those that count")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    envs = make_vec_env("CartPole-v1", n_envs=8, seed=0, vec_env_cls=DummyVecEnv)
    network = {
        "lstm_hidden_size": arguments.size,
        "net_arch": [],
        "shared_lstm": arguments.shared,
        "enable_critic_lstm": not arguments.shared,
    }
    model = RecurrentPPO(
        "MlpLstmPolicy", envs, seed=0, device="cpu", n_steps=128, batch_size=256, n_epochs=4, policy_kwargs=network
    )
    clock = Clock()
    # One iteration more than is counted: the last one has no rollout after it to say when it ended.
    model.learn((arguments.warm_up + arguments.iterations + 1) * 1024, callback=clock)
    seconds = clock.times[-1] - clock.times[arguments.warm_up]
    iterations = len(clock.times) - 1 - arguments.warm_up
    rate = iterations * 1024 / seconds
    print(json.dumps({"env_steps_per_s": rate, "sb3_contrib": sb3_contrib.__version__, **versions()}))


if __name__ == "__main__":
    main()
