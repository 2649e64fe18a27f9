"""Tuple and Dict actions, from the environment to the learner and back."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rllib import (
    A2CConfig,
    A3CConfig,
    Algorithm,
    APPOConfig,
    ARSConfig,
    DefaultCallbacks,
    DQNConfig,
    ESConfig,
    IMPALAConfig,
    PGConfig,
    Policy,
    PPOConfig,
    PQNConfig,
)
from rllib.algorithms.base.settings.exploration import make_exploration
from rllib.models.distributions.user import TorchDistributionWrapper
from tests.envs import StructuredProbe, in_vector

SPACE = StructuredProbe.action_space
SMALL = {"train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 2}


def build(config, env=StructuredProbe, workers=0, model=None, num_envs=4, **environment):
    return (
        config.environment(env, **environment)
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=num_envs)
        .training(model={"fcnet_hiddens": [16], **(model or {})})
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=500)
        .debugging(seed=1)
        .build()
    )


def seen(x):
    return np.array([x], np.float32)


def is_right(action, x):
    assert action in SPACE
    return action["jump"] == 5 + x and action["arm"][1] == [1 - x] and abs(action["arm"][0] - 3 - 4 * x) < 0.7


def algorithms() -> dict:
    """By name the config and the iterations in which it finds the best action."""
    ppo = {"train_batch_size": 256, "sgd_minibatch_size": 64, "lr": 5e-3, "kl_coeff": 0.0, "num_sgd_iter": 8}
    return {
        "ppo": (PPOConfig().training(**ppo), 40),
        "a2c": (A2CConfig().training(lr=1e-2, train_batch_size=80), 60),
        "pg": (PGConfig().training(lr=1e-2, train_batch_size=200), 60),
        "impala": (IMPALAConfig().training(lr=5e-3, train_batch_size=80), 80),
        "appo": (APPOConfig().training(lr=5e-3, train_batch_size=80), 80),
    }


@pytest.mark.parametrize("name", algorithms())
def test_every_part_is_learned(name):
    config, iterations = algorithms()[name]
    with build(config) as algo:
        for _ in range(iterations):
            algo.train()
            if all(is_right(algo.compute_single_action(seen(x), explore=False), x) for x in (0, 1)):
                break
        assert all(is_right(algo.compute_single_action(seen(x), explore=False), x) for x in (0, 1))
        assert algo.evaluate(50)["episode_reward_mean"] > 2.8


def test_batches_hold_a_row_of_numbers_and_callbacks_get_the_structure():
    class Hears(DefaultCallbacks):
        first, taken = None, []

        def on_episode_start(self, *, episode, **kwargs):
            type(self).first = episode.last_action_for()

        def on_episode_step(self, *, episode, **kwargs):
            self.taken.append(episode.last_action_for())

    with build(PPOConfig().training(**SMALL).callbacks(Hears)) as algo:
        batch = algo.sample(64)
        # In the order of the space's leaves, as the policy drew them: the number in [-1, 1], the bit, jump from 0 on.
        assert batch["actions"].shape == (64, 3) and batch["actions"].dtype == np.float32
        assert set(np.unique(batch["actions"][:, 1:])) == {0, 1}
        np.testing.assert_equal(Hears.first, {"arm": (np.zeros(1), np.zeros(1, np.int8)), "jump": 0})
        assert len(Hears.taken) == 64 and all(action in SPACE for action in Hears.taken)
        jumps = [action["jump"] - 5 for action in Hears.taken]
        assert sorted(jumps) == sorted(batch["actions"][:, 2])


def test_actions_are_computed_in_the_form_of_the_space():
    with build(PPOConfig().training(**SMALL)) as algo:
        action = algo.compute_single_action(seen(0))
        assert action in SPACE and isinstance(action["arm"], tuple) and action["arm"][0].dtype == np.float64
        actions, states, fetches = algo.compute_actions([seen(0), seen(1)], full_fetch=True)
        assert len(actions) == 2 and all(action in SPACE for action in actions) and states == [[], []]
        assert fetches["action_logp"].shape == (2,)
        by_agent = algo.compute_actions({"a": seen(0), "b": seen(1)}, explore=False)
        alone = algo.compute_single_action(seen(1), explore=False)
        assert by_agent["b"]["jump"] == alone["jump"] and by_agent["b"]["arm"][1] == alone["arm"][1]
        # Matrix products of one row and of two may differ in the last bit.
        np.testing.assert_allclose(by_agent["b"]["arm"][0], alone["arm"][0], rtol=1e-5)
        assert algo.make_player().act(seen(0)) in SPACE
        assert all(action in SPACE for action in algo.make_player(2).act([seen(0), seen(1)]))


@pytest.mark.parametrize(
    ("mode", "kind"), [*((mode, SyncVectorEnv) for mode in AutoresetMode), (AutoresetMode.NEXT_STEP, AsyncVectorEnv)]
)
def test_vector_environments(mode, kind):
    taken = []

    class Hears(DefaultCallbacks):
        def on_episode_step(self, *, episode, **kwargs):
            taken.append(episode.last_action_for())

    config = PPOConfig().training(**SMALL).callbacks(Hears)
    with build(config, in_vector(StructuredProbe, mode, kind), num_envs=2) as algo:
        algo.train()
        algo.evaluate(4)
    assert taken and all(action in SPACE for action in taken)


@pytest.mark.parametrize("workers", [0, 1])
def test_checkpoints_go_on_exactly(workers, tmp_path):
    with build(PPOConfig().training(**SMALL), workers=workers) as algo:
        algo.train()
        algo.save(tmp_path)
        action, weights = algo.compute_single_action(seen(0), explore=False), algo.policy.weights.copy()
    with Algorithm.from_checkpoint(tmp_path) as algo:
        assert algo.action_space == SPACE
        np.testing.assert_array_equal(algo.policy.weights, weights)
        np.testing.assert_equal(algo.compute_single_action(seen(0), explore=False), action)
        algo.train()
    policy = Policy.from_checkpoint(tmp_path)["default_policy"]
    assert policy.choose(seen(0)[None]).shape == (1, 3)


def test_runs_do_not_depend_on_how_environments_are_shared_out():
    runs = []
    for workers, num_envs in ((0, 4), (2, 2)):
        with build(PPOConfig().training(**SMALL), workers=workers, num_envs=num_envs) as algo:
            algo.training_step(), algo.training_step()
            runs.append(algo.policy.weights.copy())
    np.testing.assert_array_equal(*runs)


class OwnNetwork(torch.nn.Module):
    def __init__(self, observation_space, action_space, num_outputs):
        super().__init__()
        assert action_space == SPACE and num_outputs == 2 + 2 + 2
        self.layer = torch.nn.Linear(1, num_outputs + 1)

    def forward(self, observation):
        outputs = self.layer(observation)
        return outputs[:, :-1], outputs[:, -1]


@pytest.mark.parametrize(
    ("config", "model"),
    [
        (PPOConfig().training(**SMALL, learner="torch"), {}),
        (PPOConfig().training(**SMALL), {"use_lstm": True, "lstm_cell_size": 8, "lstm_use_prev_action": True}),
        (PPOConfig().training(**SMALL), {"custom_model": OwnNetwork}),
        (PPOConfig().training(**SMALL).rollouts(observation_filter="MeanStdFilter"), {"vf_share_layers": True}),
        (A3CConfig(), {}),
    ],
    ids=["torch", "lstm", "own network", "filter", "a3c"],
)
def test_it_trains_with(config, model):
    with build(config, model=model) as algo:
        algo.training_step(), algo.training_step()
        assert np.isfinite(algo.evaluate(2)["episode_reward_mean"])
        player = algo.make_player()
        for _ in range(3):
            assert player.act(seen(0)) in SPACE


def test_a_memory_reads_the_structured_action_before():
    model = {"use_lstm": True, "lstm_cell_size": 8, "lstm_use_prev_action": True}

    class Goes(StructuredProbe):
        def follow(self, action):
            super().follow(action)
            return self.x, 0.0, False, self.t >= 3

    for env in (Goes, in_vector(Goes, AutoresetMode.NEXT_STEP)):
        with build(PPOConfig().training(**SMALL), env, model=model, num_envs=2) as algo:
            batch = algo.sample(64)
            told = batch["obs"][:, 1:]
            assert told.shape[1] == 4 and not told[0].any()  # the number, the bit, and jump one-hot
            followed = np.flatnonzero(told.any(1))
            drawn = batch["actions"][followed - 1]
            np.testing.assert_allclose(told[followed, 0], drawn[:, 0].clip(-1, 1), atol=1e-6)
            np.testing.assert_array_equal(told[followed, 1], drawn[:, 1])
            np.testing.assert_array_equal(told[followed, 2:], np.eye(2)[drawn[:, 2].astype(int)])


class OwnDistribution(TorchDistributionWrapper):
    """The number, then the bit and jump, given whether the number is positive."""

    def __init__(self, inputs, model):
        super().__init__(inputs, model)
        self.number = torch.distributions.Normal(inputs[:, 0], inputs[:, 1].exp())
        self.logits = inputs[:, 2:].reshape(-1, 2, 2)

    def choices(self, number):
        return torch.distributions.Bernoulli(logits=self.logits[torch.arange(len(number)), (number > 0).long()])

    def sample(self):
        number = self.number.sample()
        return torch.cat([number[:, None], self.choices(number).sample()], dim=1)

    def deterministic_sample(self):
        number = self.number.mean
        return torch.cat([number[:, None], (self.choices(number).probs > 0.5).float()], dim=1)

    def logp(self, actions):
        number = actions[:, 0]
        return self.number.log_prob(number) + self.choices(number).log_prob(actions[:, 1:]).sum(1)

    def entropy(self):
        return self.number.entropy()

    def kl(self, other):
        return torch.distributions.kl_divergence(self.number, other.number)

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 2 + 4


def test_a_distribution_of_the_users_makes_rows():
    with build(PPOConfig().training(**SMALL), model={"custom_action_dist": OwnDistribution}) as algo:
        algo.training_step()
        assert algo.sample(64)["actions"].shape == (64, 3)
        assert all(algo.compute_single_action(seen(0), explore=explore) in SPACE for explore in (True, False))


MASK = np.array([0, 1, 1, 0], np.int8)


class Masked(StructuredProbe):
    """Only the bit 1 and jump 5 are legal."""

    observation_space = Dict(action_mask=MultiBinary(4), observations=StructuredProbe.observation_space)

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return {"action_mask": MASK, "observations": observation}, info

    def step(self, action):
        assert action["arm"][1] == [1] and action["jump"] == 5
        observation, *rest = super().step(action)
        return {"action_mask": MASK, "observations": observation}, *rest


def test_masks_of_the_parts_that_are_choices():
    with build(PPOConfig().training(**SMALL), Masked) as algo:
        algo.training_step()
        algo.evaluate(4)
        observation = {"action_mask": 1 - MASK, "observations": seen(0)}
        for _ in range(10):
            action = algo.compute_single_action(observation)
            assert action["arm"][1] == [0] and action["jump"] == 6


def test_an_error_of_the_environment_names_the_action():
    class Fails(StructuredProbe):
        def follow(self, action):
            raise RuntimeError("broken")

    with build(PPOConfig().training(**SMALL), Fails, disable_env_checking=True) as algo:
        with pytest.raises(RuntimeError, match="broken") as caught:
            algo.train()
        assert "action {'arm': (array([" in "\n".join(caught.value.__notes__)


@pytest.mark.parametrize("config", [DQNConfig(), PQNConfig(), ESConfig(), ARSConfig()], ids=lambda c: c.algo_class)
def test_others_refuse_it_by_name(config):
    with pytest.raises(ValueError, match=r"StructuredProbe.* has Dict\('arm'.*Use PPO"):
        build(config)


@pytest.mark.parametrize("setting", ["free_log_std", "squash_actions", "use_sde"])
def test_settings_of_continuous_actions_are_refused(setting):
    with pytest.raises(ValueError, match=rf"{setting}.* needs continuous actions.*but the action space is Dict"):
        build(PPOConfig(), model={setting: True})


@pytest.mark.parametrize("kind", ["GaussianNoise", "OrnsteinUhlenbeckNoise", "Random", "ParameterNoise"])
def test_explorations_of_one_array_are_refused(kind):
    with pytest.raises(ValueError, match=rf"{kind} changes actions that are one array, but the action space is Dict"):
        make_exploration({"type": kind}, {"type": kind}, SPACE)


@pytest.mark.parametrize("exploration", [{"type": "RND", "embed_dim": 8}, {"type": "Curiosity", "feature_dim": 8}])
def test_novelty_is_rewarded_whatever_the_actions_are(exploration):
    config = PPOConfig().training(**SMALL).exploration(exploration_config=exploration)
    with build(config) as algo:
        stats = algo.train()["info/learner/default_policy/learner_stats"]
        assert "intrinsic_reward_mean" in stats  # 0 for observations that never change, as RND normalises them


def test_a_space_that_no_policy_has():
    class Talks(StructuredProbe):
        action_space = Dict(a=Discrete(2), b=Tuple([gymnasium.spaces.Text(3)]))

    with pytest.raises(ValueError, match=r"action_space\['b'\]\[0\] is Text.*not supported.*Supported are Box"):
        build(PPOConfig(), Talks)
    with pytest.raises(ValueError, match=r"action_space\['b'\]\[0\] is Text.*not supported.*Supported are Box"):
        PPOConfig().environment(observation_space=Box(0, 1, (1,)), action_space=Talks.action_space).build()


def test_acting_without_an_environment():
    space = Tuple([MultiDiscrete([2, 3], start=[1, 1]), Discrete(2)])
    config = PPOConfig().environment(observation_space=Box(0, 1, (1,)), action_space=space)
    with config.training(model={"fcnet_hiddens": [4]}).build() as algo:
        assert algo.compute_single_action(seen(0)) in space
        assert algo.policy.action_dtype == np.int64
