"""What tests of a suite of environments play: random steps of a stream, and the bits of a short training."""

import numpy as np

from rllib import PPOConfig
from rllib.env import make_stream, resolve


def random_rows(name, num_envs=3, steps=60, env_config=None):
    """Plays random steps: observations [T + 1, N, ...], rewards [T, N], ends as (step, index, final observation)."""
    with make_stream(
        resolve(name), num_envs=num_envs, seeds=list(range(5, 5 + num_envs)), env_config=env_config, check=8
    ) as stream:
        buffers, rng = stream.new_buffers(), np.random.default_rng(0)
        stream.reset(buffers)
        observations, rewards, ends = [buffers.observations.copy()], [], []
        space = stream.action_space
        for step in range(steps):
            if hasattr(space, "n"):
                actions = rng.integers(space.n, size=num_envs)
            else:
                actions = rng.uniform(space.low, space.high, (num_envs, *space.shape)).astype(np.float32)
            ends += [(step, *end) for end in stream.step(actions, buffers)]
            observations.append(buffers.observations.copy())
            rewards.append(buffers.rewards.copy())
    return np.stack(observations), np.stack(rewards), ends


def weights_after(name, workers, envs, env_config=None, agents=False):
    """The weights of PPO after two short iterations, with this division of environments."""
    config = (
        PPOConfig()
        .environment(name, env_config=env_config or {})
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, sample_timeout_s=600)
        .training(train_batch_size=256, sgd_minibatch_size=128, num_sgd_iter=1)
        .debugging(seed=0)
    )
    if agents:
        config.multi_agent(policies={"shared"}, policy_mapping_fn=lambda *_, **__: "shared")
    with config.build() as algo:
        for _ in range(2):
            algo.train()
        policy = algo.get_policy("shared") if agents else algo.get_policy()
        return np.concatenate([np.ravel(part) for part in policy.get_weights().values()])
