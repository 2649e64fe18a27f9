"""QMIX, VDN and independent members: what each makes of the two-step game, masks, and settings that are refused."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from rllib import QMixConfig, SampleBatch, VDNConfig
from rllib import sample_batch as sb
from rllib.env import MultiAgentEnv
from rllib.env.tasks.two_step_game import TwoStepGame, TwoStepGameWithGroupedAgents
from rllib.models.distributions.joint_q_values import JointQValues
from tests.multi_agent import PairsNameTheSignal

PAYOFF = np.array([[0, 1], [1, 8]], np.float32)


def config_of(env=TwoStepGameWithGroupedAgents, **training):
    config = QMixConfig().environment(env).rollouts(num_rollout_workers=0)
    config.training(model={"fcnet_hiddens": [16]}, num_steps_sampled_before_learning_starts=20, **training)
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=60)
    return config.debugging(seed=0)


def rows_of_2b(env):
    """The four rows of state 2B, as uniform behaviour samples them."""
    env.reset()
    observations, *_ = env.step({"agents": (1, 0)})
    (space,) = env.observation_spaces.values()
    seen = np.array([spaces.flatten(space, observations["agents"])] * 4, np.float32)
    actions = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    ones = np.ones(4, np.float32)
    columns = {sb.OBS: seen, sb.NEXT_OBS: seen, sb.ACTIONS: actions, sb.REWARDS: PAYOFF.ravel()}
    return SampleBatch({**columns, sb.DISCOUNTS: 0 * ones, sb.WEIGHTS: ones})


def fitted(algo, rows):
    """Values of the members [2, 2] and of the group [2, 2], fitted to the rows."""
    for lr in (0.03, 0.01, 0.003):
        algo.learn_on_batch(rows, lr=lr, num_epochs=100, shuffle=False)
    values = algo.policy.action_values(rows[sb.OBS]).q_values()
    chosen = torch.from_numpy(values[[0, 1, 2, 3], [[0], [1]], rows[sb.ACTIONS].T].T.copy())
    if algo.config.mixer == "qmix":
        (mixer,) = algo.trainee.mixer().values()
        weights = algo.learner.get_state()["mixer.weights"]
        mix = mixer.torch(mixer.layout({}), torch.from_numpy(weights.copy()))
        together = mix(chosen, torch.from_numpy(algo.policy.encode(rows[sb.OBS]))).detach().numpy()
    else:
        together = chosen.numpy().sum(1)
    return values[0], together.reshape(2, 2)


def fit(mixer):
    with config_of(mixer=mixer, opt_type="adam").build() as algo:
        return fitted(algo, rows_of_2b(TwoStepGameWithGroupedAgents()))


def test_vdn_finds_the_best_sum_of_single_values():
    """The additive fit of the payoffs under uniform behaviour; 2A, which is worth 7, is then preferred."""
    _, table = fit("vdn")
    np.testing.assert_allclose(table, [[-1.5, 2.5], [2.5, 6.5]], atol=0.05)


def test_members_alone_find_the_means_over_what_the_others_do():
    values, _ = fit(None)
    np.testing.assert_allclose(values, [[0.5, 4.5], [0.5, 4.5]], atol=0.05)


def test_qmix_represents_the_payoffs():
    values, table = fit("qmix")
    np.testing.assert_allclose(table, PAYOFF, atol=0.1)
    assert (values.argmax(1) == [1, 1]).all()


def test_without_a_state_qmix_mixes_by_the_observations_of_all_members():
    config = config_of().environment(env_config={"separate_state_space": False})
    with config.build() as algo:
        (mixer,) = algo.trainee.mixer().values()
        assert mixer.state == ((0, 10),)
    with config_of().build() as algo:
        (mixer,) = algo.trainee.mixer().values()
        assert mixer.state == ((5, 8),)


def test_a_row_holds_a_step_of_the_group_and_the_sum_of_its_rewards():
    with config_of().build() as algo:
        algo.train()
        rows = algo.replay.sample(200, np.random.default_rng(0), 0.4)
        ended = rows[sb.DISCOUNTS] == 0
        assert 0.4 < ended.mean() < 0.6
        assert not rows[sb.REWARDS][~ended].any()
        state = rows[sb.OBS][:, 5:8].argmax(1)
        first, second = rows[sb.ACTIONS].T
        np.testing.assert_array_equal(
            rows[sb.REWARDS][ended], np.where(state == 1, 7, PAYOFF[first, second])[ended].astype(np.float32)
        )


def test_mixers_move_and_their_copies_follow():
    with config_of(target_network_update_freq=10_000).build() as algo:
        targets, (mixer,) = algo.learner.targets, algo.trainee.mixer()
        copies = {name: targets[name].weights.copy() for name in ("policy", mixer)}
        while algo.num_updates < 5:
            algo.train()
        after = {"policy": algo.policy.weights, mixer: algo.learner.get_state()["mixer.weights"]}
        for name, copy in copies.items():
            np.testing.assert_array_equal(targets[name].weights, copy)
            assert not np.array_equal(after[name], copy)
        assert algo.learner.update_targets(algo.timesteps + 10_000)
        for name in copies:
            np.testing.assert_array_equal(targets[name].weights, after[name])


class MaskedTeam(MultiAgentEnv):
    """Two members, three actions, of which one is illegal, another one in each step; episodes of four steps."""

    possible_agents = ("a", "b")
    observation_space = Dict(action_mask=MultiBinary(3), obs=Box(-1, 1, (2,), np.float32))
    action_space = Discrete(3, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.agents, self.t = list(self.possible_agents), 0
        return self._shown(), {}

    def _shown(self):
        self.illegal = dict(zip(self.possible_agents, self.np_random.integers(3, size=2)))
        return {
            agent: {"action_mask": 1 - np.eye(3, dtype=np.int8)[illegal], "obs": np.zeros(2, np.float32)}
            for agent, illegal in self.illegal.items()
        }

    def step(self, action_dict):
        for agent, action in action_dict.items():
            assert action in self.action_space and action - 1 != self.illegal[agent]
        self.t += 1
        return self._shown(), {"a": 1.0, "b": 0.0}, {"__all__": self.t == 4}, {"__all__": False}, {}


def masked_team(config):
    return MaskedTeam().with_agent_groups({"team": ["a", "b"]})


@pytest.mark.parametrize("exploration", [{"type": "SoftQ"}, {"type": "EpsilonGreedy", "final_epsilon": 1.0}])
def test_members_take_legal_actions_alone(exploration):
    config = config_of(masked_team).exploration(exploration_config=exploration)
    with config.build() as algo:
        for _ in range(2):
            result = algo.train()
        assert result["num_env_steps_trained"] > 0
        assert algo.evaluate(2)["episode_reward_mean"] == 4
        action = algo.compute_single_action(masked_team({}).reset()[0]["team"])
        assert action in algo.policy.action_space
        # Values of illegal actions are no targets.
        stats = result["info"]["learner"]["default_policy"]["learner_stats"]
        assert abs(stats["min_q"]) < 100 > stats["mean_td_error"]


def test_groups_of_different_sizes_have_policies_of_their_own():
    config = config_of(PairsNameTheSignal).multi_agent(policies={"first": {"mixer": None}, "second": {"lr": 1e-3}})
    config.multi_agent(policy_mapping_fn={"first": "first", "second": "second"})
    with config.build() as algo:
        assert [algo.policies[each].distribution for each in ("first", "second")] == [
            JointQValues(2, 2),
            JointQValues(2, 3),
        ]
        assert not algo.trainees["first"].mixer() and algo.trainees["second"].mixer()
        algo.train()
        assert all(algo.metrics.num_updates(each) for each in algo.policies)


def test_a_checkpoint_acts_without_torch(tmp_path):
    with config_of().build() as algo:
        algo.train()
        algo.save(tmp_path / "checkpoint")
        rows = rows_of_2b(TwoStepGameWithGroupedAgents())[sb.OBS]
        expected = algo.policy.choose(rows, explore=False).tolist()
    code = (
        "import sys, numpy, rllib\n"
        f"policy = rllib.Policy.from_checkpoint({str(tmp_path / 'checkpoint')!r})['default_policy']\n"
        f"rows = numpy.array({rows.tolist()}, numpy.float32)\n"
        "print(policy.choose(rows, explore=False).tolist(), 'torch' in sys.modules)"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert outcome.stdout.strip() == f"{expected} False"


# ---------------------------------------------------------------------- settings


def test_settings_have_rays_names():
    config = QMixConfig().training(mixer="vdn", mixing_embed_dim=16, optim_alpha=0.9, optim_eps=1e-3)
    assert (config.decay, config.rmsprop_epsilon, config.opt_type) == (0.9, 1e-3, "rmsprop")
    assert config.optim_alpha == 0.9
    assert QMixConfig().training(mixer=None).mixer is None
    assert VDNConfig().mixer == "vdn"
    with pytest.raises(ValueError, match="mixer='sum' must be"):
        QMixConfig().training(mixer="sum").validate()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": {"use_lstm": True}}, "'use_lstm': True.* replay holds single steps"),
        ({"model": {"use_gru": True}}, "'use_gru': True.* replay holds single steps"),
        ({"model": {"custom_model": torch.nn.Linear}}, "custom_model.* is not available for the network of a group"),
        ({"custom_loss": print}, "custom_loss.*over several modules"),
        ({"replay_buffer_config": {"type": "HindsightReplayBuffer"}}, "HindsightReplayBuffer.*several agents"),
    ],
    ids=str,
)
def test_settings_that_a_group_cannot_have_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        config_of().training(**settings).build()


def test_agents_without_groups_are_told_to_form_one():
    for env in (TwoStepGame, "CartPole-v1"):
        with pytest.raises(ValueError, match=r"Discrete\(2\), of one agent.*with_agent_groups.*or use DQN"):
            config_of(env).build()


def test_a_mask_inside_of_a_part_is_refused():
    class Nested(MaskedTeam):
        observation_space = Dict(inner=MaskedTeam.observation_space)

        def _shown(self):
            return {agent: {"inner": seen} for agent, seen in super()._shown().items()}

    with pytest.raises(ValueError, match=r"'action_mask' at observation\['inner'\]\['action_mask'\].*illegal actions"):
        config_of(lambda _: Nested().with_agent_groups({"team": ["a", "b"]})).environment(
            disable_env_checking=True  # it takes illegal actions
        ).build()


def test_noise_in_the_weights_is_refused():
    with pytest.raises(ValueError, match="explores by EpsilonGreedy or PerWorkerEpsilonGreedy or SoftQ"):
        config_of().exploration(exploration_config={"type": "ParameterNoise"}).build()
