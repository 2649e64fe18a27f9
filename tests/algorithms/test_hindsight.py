"""Hindsight replay: what it learns that plain replay does not, that runs repeat and go on, and what it refuses."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv
from gymnasium.wrappers import TransformReward

from rllib import ApexDQNConfig, DQNConfig, R2D2Config
from rllib.env.tasks.sparse import BitFlipping
from tests.algorithms.algorithm_support import train

BITS = "rllib.env.tasks.sparse:BitFlipping"


def make_config(env=BITS, kind="HerReplayBuffer", cls=DQNConfig, bits=8, replay=None, **training):
    settings = {
        "gamma": 0.98,
        "lr": 3e-3,
        "train_batch_size": 64,
        "target_network_update_freq": 200,
        "dueling": False,
        "hiddens": [],
        "model": {"fcnet_hiddens": [64], "fcnet_activation": "relu"},
        "num_steps_sampled_before_learning_starts": 500,
        "training_intensity": 16,
        "replay_buffer_config": {"type": kind, "capacity": 50_000, **(replay or {})},
        **training,
    }
    return (
        cls()
        .environment(env, env_config={"length": bits} if env == BITS else {})
        .rollouts(num_rollout_workers=0, num_envs_per_worker=8, rollout_fragment_length=2)
        .training(**settings)
        .exploration(exploration_config={"type": "EpsilonGreedy", "epsilon_timesteps": 1500, "final_epsilon": 0.02})
        .reporting(min_sample_timesteps_per_iteration=1000, min_time_s_per_iteration=0)
        .debugging(seed=3)
    )


def test_goals_are_reached_that_are_never_found_without():
    """Eight bits: chance finds one goal in some hundred episodes, and the best walk takes four steps on average."""
    lengths = {}
    for kind in ("HindsightReplayBuffer", "ReplayBuffer"):
        with make_config(kind=kind).build() as algo:
            lengths[kind] = train(algo, 4)["episode_len_mean"]
    assert lengths["HindsightReplayBuffer"] < 4.7 and lengths["ReplayBuffer"] > 7.5, lengths


@pytest.mark.parametrize("parts", [{}, {"n_step": 3, "replay": {"goal_selection_strategy": "episode"}}], ids=str)
def test_a_checkpoint_goes_on_as_if_nothing_had_been(parts, tmp_path):
    config = make_config(store_buffer_in_checkpoints=True, training_intensity=2, **parts)
    with config.build() as algo, config.build() as other:
        train(algo, 1)
        path = algo.save(tmp_path / "checkpoint")
        for each in (algo, other):
            each.restore(path)
            train(each, 1)
        assert len(algo.replay) == len(other.replay) > 5000
        assert np.array_equal(algo.policy.weights, other.policy.weights)


def test_ape_x_learns_as_often_as_steps_are_sampled():
    replay = {"n_sampled_goal": 2, "storage": "disk"}
    config = make_config(cls=ApexDQNConfig, replay=replay, training_intensity=1, num_replay_buffer_shards=1)
    with config.build() as algo:
        result = train(algo, 2)
        assert result["info/replay"]["num_entries"] > 2.5 * result["timesteps_total"]
        trained, sampled = result["num_env_steps_trained"], result["timesteps_total"] - 500
        assert 0.7 * sampled < trained < 1.1 * sampled


# ------------------------------------------------------------------ bad input


class WithoutReward(BitFlipping):
    compute_reward = None

    def step(self, action):
        return self._observation(), 0.0, False, False, {}


def scaled(config):
    return TransformReward(BitFlipping(), lambda reward: 2 * reward)


class NeverEnds(BitFlipping):
    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, False, truncated, info

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return np.ones(np.shape(achieved_goal)[:-1], bool)


def reads_infos(config):
    env = BitFlipping()
    env.compute_reward = lambda achieved, desired, info: np.array([each["distance"] for each in info])
    env.step = lambda action: (env._observation(), 0.0, False, False, {"distance": 0.0})
    return env


def in_processes(config):
    return AsyncVectorEnv([BitFlipping] * 8)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPole-v1", "needs a goal environment: .*observation space is Box.*{'type': 'ReplayBuffer'}"),
        (WithoutReward, "needs a goal environment: .*WithoutReward has no method compute_reward"),
        (in_processes, "needs a goal environment: .*AsyncVectorEnv has no method compute_reward"),
        (scaled, r"compute_reward\(.*gives -1.0 for a step whose reward was -2.0"),
        (NeverEnds, r"compute_terminated\(.*gives True for a step whose terminated was False"),
    ],
    # A function as it prints itself has its address in it, which differs between the processes that test.
    ids=lambda value: getattr(value, "__name__", None),
)
def test_environments_without_goals(env, message):
    with pytest.raises(ValueError, match=message):
        make_config(env).build()


def test_infos_that_compute_reward_reads_have_to_be_columns():
    with pytest.raises(KeyError) as raised:
        make_config(reads_infos).build()
    assert "which have the keys that .environment(info_columns={...}) names" in "".join(raised.value.__notes__)
    make_config(reads_infos).environment(info_columns={"distance": {}}).build().stop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replay": {"n_sampled_goal": 0}}, "n_sampled_goal=0 must be an integer >= 1"),
        (
            {"replay": {"goal_selection_strategy": "random"}},
            "goal_selection_strategy='random' must be 'future' or 'final' or 'episode'",
        ),
        ({"replay": {"n_sampled_goal": 2}, "kind": "ReplayBuffer"}, "n_sampled_goal=2 .*: it is for hindsight"),
        ({"kind": "HER"}, "type='HER' must be .*'HindsightReplayBuffer' or 'HerReplayBuffer'"),
        ({"cls": R2D2Config, "training_intensity": 1}, "hindsight replay is for single rows"),
    ],
    ids=str,
)
def test_mistakes_in_training(change, message):
    with pytest.raises(ValueError, match=message):
        make_config(**change).validate()


def test_a_replay_that_loses_rows_before_learning_starts_says_so():
    message = make_config(replay={"capacity": 2000}).lost_before_learning().text(str)
    assert re.search(r"learning_starts=500 times 5 rows a step.*Use {'capacity': 2500}", message)
    assert make_config(replay={"capacity": 2500}).lost_before_learning() is None


def test_what_changes_rewards_or_goals_is_refused():
    with pytest.raises(ValueError, match="clip_rewards changes the rewards of steps"):
        make_config().environment(clip_rewards=True).validate()


def test_names_of_stable_baselines():
    class HerReplayBuffer:
        pass

    config = DQNConfig().training(
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 8, "goal_selection_strategy": "final"},
        buffer_size=1e6,
    )
    settings = config.environment(gymnasium.Env).replay_settings()
    assert config.needs_goals and config.rows_per_step == 9 and settings["capacity"] == 10**6
    assert settings["goal_selection_strategy"] == "final"
