"""Exploration by RND and Curiosity: PPO and A2C with rewards that are rare, settings, splits, checkpoints."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib import A2CConfig, DefaultCallbacks, PPOConfig
from rllib import sample_batch as sb
from rllib.algorithms.a3c import A3CConfig
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.impala import IMPALAConfig
from rllib.env.multi_agent import MultiAgentEnv
from tests.envs import ConstantReward, CountingEnv

SMALL = {
    "RND": {"type": "RND", "embed_dim": 8, "num_sgd_iter": 2},
    "Curiosity": {"type": "Curiosity", "feature_dim": 8, "num_sgd_iter": 2},
}


def make(exploration, env="CartPole-v1", config=PPOConfig, workers=0, envs=4, **training):
    made = (
        config()
        .environment(env)
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, rollout_fragment_length=16)
        .training(train_batch_size=64, lr=1e-3, model={"fcnet_hiddens": [16], "vf_share_layers": False}, **training)
        .exploration(exploration_config=exploration)
        .reporting(min_time_s_per_iteration=0)
        .debugging(seed=3)
    )
    return made.training(sgd_minibatch_size=32, num_sgd_iter=2) if config is PPOConfig else made


def learner_stats(result):
    return result["info"]["learner"]["default_policy"]["learner_stats"]


# ---------------------------------------------------------------------- what they are for


def corridor(exploration, seed, iterations=40):
    """The mean reward of the last episodes when 0.9 is reached, or after all iterations of 1024 steps."""
    config = (
        PPOConfig()
        .environment("rllib.env.tasks.sparse:Corridor")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=8, rollout_fragment_length=128)
        .training(
            train_batch_size=1024, sgd_minibatch_size=128, num_sgd_iter=6, lr=1e-3, lambda_=0.95, kl_coeff=0.0,
            # Values of places that were never seen are near zero: else they attract as novelty does.
            model={"fcnet_hiddens": [32, 32], "orthogonal_gains": {"value": 0.01}},
        )
        .exploration(exploration_config=exploration)
        .debugging(seed=seed)
    )  # fmt: skip
    with config.build() as algo:
        for _ in range(iterations):
            reward = algo.train()["episode_reward_mean"]
            if reward > 0.9:
                break
    return reward


FINDS_IT = [{"type": "RND"}, {"type": "Curiosity", "feature_dim": 32}]


@pytest.mark.parametrize("exploration", FINDS_IT, ids=lambda each: each["type"])
def test_a_reward_at_the_end_of_a_corridor_is_found(exploration):
    assert corridor(exploration, seed=0) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_ppo_alone_does_not_find_it(seed):
    assert corridor({"type": "StochasticSampling"}, seed) < 0.1
    for exploration in FINDS_IT:
        assert corridor(exploration, seed) > 0.9


# ---------------------------------------------------------------------- how they work in an algorithm


class Batches(DefaultCallbacks):
    seen: list = []  # noqa: RUF012

    def on_learn_on_batch(self, *, train_batch, **kwargs):
        self.seen.append({name: column.copy() for name, column in train_batch.items()})


def first_batch(exploration, *args, **training):
    """The columns that are learned from in the first iteration, and the result."""
    Batches.seen.clear()
    with make(exploration, *args, **training).callbacks(Batches).build() as algo:
        result = algo.train()
    return Batches.seen[0], result


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("config", [PPOConfig, A2CConfig])
def test_returns_and_rewards_stay_the_environments(name, config):
    batch, result = first_batch(SMALL[name], CountingEnv, config)
    plain, expected = first_batch({"type": "StochasticSampling"}, CountingEnv, config)
    for key in ("episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean"):
        assert result[key] == expected[key]
    assert sorted(batch[sb.REWARDS]) == sorted(plain[sb.REWARDS])
    assert len(batch[sb.OBS]) == 64 and (batch[sb.INTRINSIC_REWARDS] > 0).all()
    stats = learner_stats(result)
    assert stats["intrinsic_reward_mean"] == pytest.approx(batch[sb.INTRINSIC_REWARDS].mean(), rel=1e-4)
    losses = {"RND": {"distillation_loss"}, "Curiosity": {"forward_loss", "inverse_loss"}}[name]
    assert stats.keys() >= losses | {"intrinsic_vf_loss", "policy_loss"}


@pytest.mark.parametrize("recompute", [False, True])
def test_advantages_are_added_up(recompute):
    given = {"standardize_advantages": False, "recompute_advantages": recompute}
    batch, _ = first_batch(SMALL["RND"], **given)
    plain, _ = first_batch({"type": "StochasticSampling"}, **given)
    advantages = plain[sb.ADVANTAGES]
    if not recompute:  # step by step instead of environment by environment
        advantages = advantages.reshape(16, 4).T.reshape(-1)
    np.testing.assert_allclose(batch[sb.ADVANTAGES], advantages + batch[sb.INTRINSIC_ADVANTAGES], rtol=1e-4, atol=1e-4)
    assert np.abs(batch[sb.INTRINSIC_ADVANTAGES]).max() > 0.01


def test_workers_may_share_out_the_environments():
    weights = []
    for workers, envs in ((0, 4), (2, 2)):
        with make(SMALL["Curiosity"], workers=workers, envs=envs).build() as algo:
            for _ in range(2):
                algo.train()
            weights.append(algo.get_weights()["default_policy"])
    np.testing.assert_array_equal(*weights)


class OneDies(MultiAgentEnv):
    """Observations are the number of steps; "a" lives for 10 steps, "b" for 4, and may see nothing of its end."""

    possible_agents = ("a", "b")
    observation_space, action_space = Box(0, 100, (1,)), Discrete(2)

    def __init__(self, config):
        self.truncates, self.last = config["truncates"], {"a": 10, "b": 4}
        if config.get("is_blind"):
            self.last = {"a": 9, "b": 3}

    def _seen(self):
        return {agent: np.array([self.time], np.float32) for agent in ("a", "b") if self.time <= self.last[agent]}

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self._seen(), {}

    def step(self, action_dict):
        self.time += 1
        ends = {"b": self.time == 4, "__all__": self.time == 10}
        flags = [ends, {"__all__": False}]
        return self._seen(), dict.fromkeys(action_dict, 1.0), *(flags[::-1] if self.truncates else flags), {}


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("end", ["terminated", "truncated", "terminated without an observation"])
@pytest.mark.parametrize("fragment", [4, 7, 10, 20])
def test_returns_of_agents_go_on_from_the_start_of_an_episode(fragment, end, mode):
    """Behind a step that ends an agent's life stand what it has seen last, and the start of the next life."""
    is_blind = end == "terminated without an observation"
    config = make(SMALL["RND"], OneDies, envs=2)
    config.environment(env_config={"truncates": end == "truncated", "is_blind": is_blind})
    config.rollouts(rollout_fragment_length=fragment, batch_mode=mode).multi_agent(policies="own")
    with config.training(train_batch_size=2 * fragment, sgd_minibatch_size=8).build() as algo:
        ends = 0
        for _ in range(3):
            for trainee, batch in algo.train_batches():
                lived = 10 if trainee.policy_id == "a" else 4
                for row in np.flatnonzero(batch[sb.TERMINATEDS] | batch[sb.TRUNCATEDS]):
                    last = lived - 1 if is_blind else lived
                    assert batch[sb.OBS][row : row + 3].ravel().tolist() == [lived - 1, last, 0]
                    ends += 1
    assert ends > 3


@pytest.mark.parametrize("name", SMALL)
def test_a_checkpoint_goes_on_exactly(name, tmp_path):
    """Episodes of one step that are all alike: restored environments begin new ones."""
    with make(SMALL[name], ConstantReward).build() as algo:
        algo.train()
        path = algo.save(tmp_path)
        expected = [learner_stats(algo.train()) for _ in range(2)]
        weights = algo.get_weights()["default_policy"]
    with Algorithm.from_checkpoint(path) as algo:
        assert [learner_stats(algo.train()) for _ in range(2)] == expected
        np.testing.assert_array_equal(algo.get_weights()["default_policy"], weights)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("exploration", "message"),
    [
        ({"type": "RND", "embed_dim": 0}, "embed_dim=0 must be an integer >= 1"),
        ({"type": "RND", "intrinsic_reward_coeff": -1}, "must be a number >= 0 and finite"),
        ({"type": "RND", "nonepisodic_returns": 1}, "must be True or False"),
        ({"type": "RND", "distill_net_config": {"use_lstm": True}}, "None or a dict of fcnet_hiddens"),
        ({"type": "RND", "eta": 1.0}, "there is no 'eta'"),
        ({"type": "Curiosity", "beta": 1.5}, ">= 0 and <= 1"),
        ({"type": "Curiosity", "forward_net_hiddens": 64}, "a list of integers"),
        ({"type": "Curiosity", "inverse_net_activation": "softplus"}, "must be 'tanh' or 'relu'"),
        ({"type": "Curiosity", "sub_exploration": {"type": "EpsilonGreedy"}}, "StochasticSampling"),
    ],
)
def test_settings_that_are_no_settings(exploration, message):
    with pytest.raises(ValueError, match=message):
        make(exploration).build()


@pytest.mark.parametrize("config", [A3CConfig, IMPALAConfig])
def test_algorithms_that_have_no_advantages_in_the_driver_refuse_them(config):
    with pytest.raises(ValueError, match="added to the advantages of PPO's and A2C's train batches"):
        make(SMALL["RND"], config=config).build()


def test_a_policy_with_a_memory_is_refused():
    with pytest.raises(ValueError, match="intrinsic rewards and their values are of single observations"):
        make(SMALL["RND"]).training(model={"use_lstm": True}).build()
