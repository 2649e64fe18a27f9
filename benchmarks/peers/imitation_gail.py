"""`imitation`'s GAIL with its tutorial's settings, on recorded episodes; prints CPU seconds and the final return."""

import argparse
import json
import time
from importlib.metadata import version

import numpy as np
import torch
from imitation.algorithms.adversarial.gail import GAIL
from imitation.data.types import Transitions
from imitation.rewards.reward_nets import BasicRewardNet
from imitation.util.networks import RunningNorm
from imitation.util.util import make_vec_env
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy


def demonstrations(path: str, episodes: int) -> Transitions:
    """The steps of the first episodes of a file of columns."""
    with np.load(path) as columns:
        observations, actions = columns["obs"], columns["actions"]
        dones = columns["terminateds"] | columns["truncateds"]
    steps = int(np.flatnonzero(dones)[episodes - 1]) + 1
    following = np.concatenate([observations[1:steps], observations[steps - 1 : steps]])
    return Transitions(
        obs=observations[:steps],
        acts=actions[:steps],
        infos=np.array([{}] * steps),
        next_obs=following,  # GAIL's network does not read them
        dones=dones[:steps],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    envs = make_vec_env(options.env, rng=np.random.default_rng(options.seed), n_envs=8)
    # The tutorial trains for 800,000 steps, in rounds of 16,384; these are as long as ours.
    learner = PPO(
        "MlpPolicy",
        envs,
        n_steps=2048 // envs.num_envs,
        batch_size=64,
        ent_coef=0.0,
        learning_rate=4e-4,
        gamma=0.95,
        n_epochs=5,
        seed=options.seed,
        device="cpu",
    )
    network = BasicRewardNet(envs.observation_space, envs.action_space, normalize_input_layer=RunningNorm)
    expert = demonstrations(options.data, options.episodes)
    trainer = GAIL(
        demonstrations=expert,
        demo_batch_size=min(1024, len(expert)),
        gen_replay_buffer_capacity=512,
        n_disc_updates_per_round=8,
        venv=envs,
        gen_algo=learner,
        reward_net=network,
        allow_variable_horizon=True,
    )
    started = time.process_time()
    trainer.train(options.steps)
    seconds = time.process_time() - started
    fresh = make_vec_env(options.env, rng=np.random.default_rng(options.seed + 1), n_envs=8)
    mean, _ = evaluate_policy(learner, fresh, 100, deterministic=False)
    result = {"cpu_s": seconds, "return": float(mean), "env_steps": learner.num_timesteps}
    print(json.dumps(result | {"imitation": version("imitation")}))


if __name__ == "__main__":
    main()
