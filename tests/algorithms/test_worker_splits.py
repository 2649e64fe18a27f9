"""The bits of a run do not depend on how its environments are shared out among workers."""

import gymnasium as gym
import numpy as np
import pytest

from rllib import (
    A2CConfig,
    CrossQConfig,
    DDPGConfig,
    DQNConfig,
    PGConfig,
    PPOConfig,
    PQNConfig,
    R2D2Config,
    SACConfig,
    TD3Config,
    TQCConfig,
)
from rllib.core import RLModuleSpec
from tests.algorithms.test_custom_networks import Cell, Net
from tests.core.test_modules import Mlp
from tests.envs import GoalOnALine


class ThreeDimensions(gym.ObservationWrapper):
    """CartPole, its numbers in a form that is no image."""

    def __init__(self, config=None):
        super().__init__(gym.make("CartPole-v1"))
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2, 1, 2), np.float32)

    def observation(self, observation):
        return observation.reshape(2, 1, 2)


SPLITS = [(0, 4), (1, 4), (2, 2), (4, 1)]
MODEL = {"fcnet_hiddens": [32, 32]}
ATTENTION = {"use_attention": True, "attention_dim": 16, "fcnet_hiddens": [16], "max_seq_len": 7}
PPO = {"train_batch_size": 128, "sgd_minibatch_size": 64, "num_sgd_iter": 2, "lr": 1e-3, "model": MODEL}


def algorithms() -> dict:
    """By name, how each of them is configured; with few steps between updates."""
    critics = {
        "num_steps_sampled_before_learning_starts": 64,
        "train_batch_size": 32,
        "model": MODEL,
        "replay_buffer_config": {"capacity": 1000},
    }
    dqn = {"num_steps_sampled_before_learning_starts": 64, "lr": 1e-3, "model": {"fcnet_hiddens": [32]}}
    return {
        "ppo": PPOConfig().training(**PPO).rollouts(rollout_fragment_length=16),  # two rounds a batch
        "ppo of whole episodes, filtered": PPOConfig()
        .training(**PPO)
        .rollouts(batch_mode="complete_episodes", observation_filter="MeanStdFilter"),
        "ppo of continuous actions, with all that is normalised": PPOConfig()
        .environment("Pendulum-v1", normalize_returns=True)
        .training(**{**PPO, "model": {**MODEL, "use_sde": True, "sde_sample_freq": 5}}, recompute_advantages=True)
        .rollouts(observation_filter="MeanStdFilter"),
        "a2c with shared layers": A2CConfig().training(
            train_batch_size=80, lr=1e-3, model={**MODEL, "vf_share_layers": True}
        ),
        "ppo with an lstm": PPOConfig()
        .training(**PPO | {"model": {"use_lstm": True, "lstm_cell_size": 16, "fcnet_hiddens": [16], "max_seq_len": 7}})
        .rollouts(rollout_fragment_length=16),  # two rounds a batch
        "ppo with attention": PPOConfig()
        .training(**PPO | {"model": ATTENTION})
        .rollouts(rollout_fragment_length=16, observation_filter="MeanStdFilter"),
        "a2c with grus, filtered": A2CConfig()
        .training(train_batch_size=80, lr=1e-3, model={"use_gru": True, "lstm_cell_size": 16, "vf_share_memory": False})
        .rollouts(observation_filter="MeanStdFilter"),
        "ppo with a custom network": PPOConfig().training(**PPO | {"model": {"custom_model": Net}}),
        "ppo with a custom memory, filtered": PPOConfig()
        .training(**PPO | {"model": {"custom_model": Cell, "max_seq_len": 7}})
        .rollouts(observation_filter="MeanStdFilter"),
        "ppo of three dimensions without convolutions": PPOConfig().environment(ThreeDimensions).training(**PPO),
        "ppo with a module": PPOConfig()
        .training(**PPO | {"model": {}})
        .rl_module(rl_module_spec=RLModuleSpec(Mlp, model_config={"width": 32})),
        "pg": PGConfig().training(train_batch_size=80, lr=1e-3, model=MODEL),
        "pqn": PQNConfig().training(train_batch_size=128, sgd_minibatch_size=32, lr=1e-3),
        "dqn": DQNConfig().training(**dqn, hiddens=[32]),
        "dqn of noisy distributions": DQNConfig().training(
            **dqn, hiddens=[32], num_atoms=11, v_min=0.0, v_max=50.0, n_step=3, noisy=True
        ),
        "dqn with hindsight": DQNConfig()
        .environment("rllib.env.tasks.sparse:BitFlipping", env_config={"length": 5})
        .rollouts(rollout_fragment_length=3)
        .training(**dqn, hiddens=[32], n_step=2, replay_buffer_config={"type": "HindsightReplayBuffer"}),
        "sac of n steps, random at first": SACConfig()
        .environment("Pendulum-v1")
        .training(**critics, n_step=3)
        .exploration(exploration_config={"random_timesteps": 40}),
        "sac of discrete actions": SACConfig().training(**critics),
        "sac with hindsight": SACConfig()
        .environment(GoalOnALine)
        .rollouts(rollout_fragment_length=3)
        .training(**critics | {"replay_buffer_config": {"type": "HindsightReplayBuffer", "capacity": 1000}}),
        "sac with stored states and burn-in": SACConfig()
        .environment("Pendulum-v1")
        .training(
            **critics
            | {
                "model": {"use_gru": True, "lstm_cell_size": 8, "fcnet_hiddens": [], "max_seq_len": 5},
                "replay_buffer_config": {"replay_burn_in": 3, "capacity": 1000},
                "zero_init_states": False,
            }
        ),
        "tqc": TQCConfig().environment("Pendulum-v1").training(**critics),
        "tqc with state-dependent noise": TQCConfig()
        .environment("Pendulum-v1")
        .rollouts(rollout_fragment_length=4)
        .training(**critics | {"model": {**MODEL, "use_sde": True, "sde_sample_freq": 3}}),
        "crossq, random at first": CrossQConfig()
        .environment("Pendulum-v1")
        .training(**critics, q_model_config={"fcnet_hiddens": [32, 32]})
        .exploration(exploration_config={"random_timesteps": 40}),
        "td3": TD3Config()
        .environment("Pendulum-v1")
        .training(**critics)
        .exploration(exploration_config={"random_timesteps": 40}),
        "ddpg of n steps, filtered": DDPGConfig()
        .environment("Pendulum-v1")
        .rollouts(observation_filter="MeanStdFilter")
        .training(**critics, n_step=2)
        .exploration(exploration_config={"random_timesteps": 40, "scale_timesteps": 100}),
        "r2d2 with stored states and burn-in": R2D2Config().training(
            num_steps_sampled_before_learning_starts=64,
            lr=1e-3,
            hiddens=[8],
            zero_init_states=False,
            n_step=2,
            train_batch_size=42,
            training_intensity=2,
            replay_buffer_config={"replay_burn_in": 3, "capacity": 1000},
            model={"use_lstm": True, "lstm_cell_size": 16, "fcnet_hiddens": [16], "max_seq_len": 7},
        ),
    }


@pytest.mark.parametrize("name", algorithms())
def test_weights_are_equal_bits_after_every_update_however_environments_are_shared_out(name, tmp_path):
    """Also after a restore from the checkpoint of a run that had shared them out differently."""
    runs, checkpoint = {}, None
    for num_workers, num_envs in SPLITS:
        config = algorithms()[name].debugging(seed=3)
        config.environment(config.env or "CartPole-v1")
        config.rollouts(num_rollout_workers=num_workers, num_envs_per_worker=num_envs)
        config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
        if "store_buffer_in_checkpoints" in config:
            config.training(store_buffer_in_checkpoints=True)
        with config.build() as algo:
            weights, updates = [], 0
            while updates < 6:
                algo.train()
                if algo.num_updates > updates:
                    updates = algo.num_updates
                    weights.append(algo.learner.weights.copy())
                    if len(weights) == 3:
                        own = algo.save(tmp_path / f"{num_workers}_{num_envs}")
                        algo.restore(checkpoint or own)
                        checkpoint = own
            runs[num_workers, num_envs] = (algo.timesteps, weights)
    timesteps, expected = runs[0, 4]
    assert not np.array_equal(expected[0], expected[-1])
    for split, (steps, weights) in runs.items():
        assert steps == timesteps, split
        for update, (own, other) in enumerate(zip(weights, expected, strict=True)):
            np.testing.assert_array_equal(own, other, err_msg=f"{split}, update {update}")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_evaluations_play_the_same_episodes_with_the_same_numbers_of_their_own(num_workers):
    """Of workers and of environments, however the environments of training are shared out."""
    played = {}
    for split in SPLITS:
        config = PPOConfig().environment("CartPole-v1").training(**PPO).debugging(seed=3)
        config.rollouts(num_rollout_workers=split[0], num_envs_per_worker=split[1])
        own = {"num_envs_per_worker": 3, "explore": True}
        config.evaluation(
            evaluation_interval=1, evaluation_duration=6, evaluation_num_workers=num_workers, evaluation_config=own
        )
        with config.build() as algo:
            played[split] = [algo.train()["evaluation"]["hist_stats"]["episode_reward"] for _ in range(2)]
    assert played[0, 4][0] != played[0, 4][1]
    assert all(each == played[0, 4] for each in played.values()), played
