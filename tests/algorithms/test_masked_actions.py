"""Action masks, from the environment to the learner and back: the best legal actions are taken, and no illegal ones."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode

from rllib import (
    A2CConfig,
    A3CConfig,
    Algorithm,
    ApexDQNConfig,
    APPOConfig,
    ARSConfig,
    DQNConfig,
    ESConfig,
    IMPALAConfig,
    PGConfig,
    PPOConfig,
    PQNConfig,
    SACConfig,
)
from rllib.algorithms.base.videos import key_in_infos, undrawn_environment
from rllib.config.conflicts import SettingsError
from rllib.core import (
    FlattenObservations,
    MultiAgentObservationPreprocessor,
    PrevActionsPrevRewards,
    SingleAgentObservationPreprocessor,
)
from rllib.env import MultiAgentEnv
from rllib.env.multi_agent.played_episodes import PlayedEpisodes
from rllib.policies import PolicySpec, RandomPolicy
from tests.envs import MaskedProbe, in_vector

MODEL = {"fcnet_hiddens": [16]}
EPSILON = {"initial_epsilon": 1.0, "final_epsilon": 0.05, "epsilon_timesteps": 1500}
REPLAY = {
    "lr": 5e-3, "hiddens": [], "train_batch_size": 32, "num_steps_sampled_before_learning_starts": 200,
    "target_network_update_freq": 100,
}  # fmt: skip


def algorithms() -> dict:
    """By name the config and the iterations in which it finds the best legal actions."""
    ppo = {"train_batch_size": 256, "sgd_minibatch_size": 64, "lr": 5e-3, "kl_coeff": 0.0, "num_sgd_iter": 8}
    return {
        "ppo": (PPOConfig().training(**ppo), 15),
        "a2c": (A2CConfig().training(lr=1e-2, train_batch_size=80), 60),
        "pg": (PGConfig().training(lr=2e-2, train_batch_size=200), 40),
        "impala": (IMPALAConfig().training(lr=5e-3, train_batch_size=80), 60),
        "appo": (APPOConfig().training(lr=5e-3, train_batch_size=80), 60),
        "dqn": (DQNConfig().training(**REPLAY), 4),
        "c51": (DQNConfig().training(**REPLAY, num_atoms=11, v_min=0.0, v_max=2.0), 4),
        "munchausen": (DQNConfig().training(**REPLAY, munchausen_alpha=0.9, double_q=False), 4),
        "quantiles": (DQNConfig().training(**REPLAY, num_quantiles=5), 4),
        "noisy dqn": (DQNConfig().training(**{**REPLAY, "hiddens": [16]}, noisy=True, sigma0=3.0), 4),
        "pqn": (PQNConfig().training(lr=5e-3, train_batch_size=256, sgd_minibatch_size=64), 20),
    }


def build(config, env=MaskedProbe, env_config=None, workers=0, **environment):
    return config_of(config, env, env_config, workers, **environment).build()


def config_of(config, env=MaskedProbe, env_config=None, workers=0, **environment):
    if "EpsilonGreedy" in config.exploration_kinds and not config.get("noisy"):
        config.exploration(exploration_config=EPSILON)
    return (
        config.environment(env, env_config=env_config or {}, **environment)
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=4)
        .training(gamma=0.5, model=MODEL)
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=500)
        .debugging(seed=1)
    )


def observation(state, mask=None):
    legal = np.array([1, 1, state] if mask is None else mask, np.int8)
    return {"action_mask": legal, "observations": np.eye(2, dtype=np.float32)[state]}


def takes_the_best_legal_actions(algo):
    actions = [algo.compute_single_action(observation(state), explore=False) for state in (0, 1)]
    return actions == [1, 2]


@pytest.mark.parametrize("name", algorithms())
def test_p10_the_best_legal_action_is_learned_and_no_other_taken(name):
    """The environment raises on an illegal action, so every run proves that none was taken."""
    config, iterations = algorithms()[name]
    config.reporting(min_sample_timesteps_per_iteration=500)
    with build(config) as algo:
        for _ in range(iterations):
            algo.train()
            if takes_the_best_legal_actions(algo) and algo.evaluate(40)["episode_reward_mean"] > 1.35:
                break
        assert takes_the_best_legal_actions(algo)
        assert algo.evaluate(100)["episode_reward_mean"] > 1.35
        for _ in range(50):
            assert algo.compute_single_action(observation(0), explore=True) in (0, 1)


class OwnNetwork(torch.nn.Module):
    """Reads the mask, too, as the observation's structure has it, and leaves the masking to the library."""

    def __init__(self, observation_space, action_space, num_outputs):
        super().__init__()
        self.layers = torch.nn.Linear(2, num_outputs + 1)

    def forward(self, observation):
        assert observation["action_mask"].shape[1:] == (3,)
        outputs = self.layers(observation["observations"])
        return outputs[:, :-1], outputs[:, -1]


@pytest.mark.parametrize(
    ("model", "learner"),
    [({"use_lstm": True, "lstm_cell_size": 8}, "numpy"), ({"use_gru": True, "lstm_cell_size": 8}, "torch"),
     ({"custom_model": OwnNetwork}, "torch")],
    ids=["lstm", "gru", "own"],
)  # fmt: skip
def test_networks_with_a_memory_and_of_the_users_take_legal_actions(model, learner):
    config = PPOConfig().training(
        train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1, learner=learner, model=model
    )
    with build(config) as algo:
        assert algo.policy.is_masked
        algo.training_step()
        algo.training_step()
        algo.evaluate(4)


def test_ape_x_takes_the_best_legal_actions_and_no_other():
    """Its worker draws two of five actions at random, and the environment raises on an illegal one."""
    config = ApexDQNConfig().training(
        **{**REPLAY, "training_intensity": 8}, num_replay_buffer_shards=1, replay_buffer_config={"capacity": 5000}
    )
    with build(config.rollouts(rollout_fragment_length=20), workers=1) as algo:
        for _ in range(20):
            algo.train()
            if takes_the_best_legal_actions(algo):
                break
        assert takes_the_best_legal_actions(algo)
        assert algo.evaluate(50)["episode_reward_mean"] > 1.35


def test_a3c_takes_legal_actions():
    with build(A3CConfig()) as algo:
        algo.train()
        assert algo.evaluate(10)["episode_reward_mean"] <= 2


@pytest.mark.parametrize(
    "config",
    [ESConfig().training(episodes_per_batch=8, train_batch_size=8), ARSConfig().training(num_rollouts=4)],
    ids=["es", "ars"],
)
def test_perturbed_weights_take_legal_actions(config):
    config.environment(MaskedProbe).rollouts(num_rollout_workers=0).training(noise_size=50_000, model=MODEL)
    with config.build() as algo:
        algo.train()
        algo.evaluate(10)


def test_parameter_noise_takes_legal_actions():
    config = DQNConfig().environment(MaskedProbe).training(**REPLAY, model=MODEL)
    with config.exploration(exploration_config={"type": "ParameterNoise", "random_timesteps": 100}).build() as algo:
        algo.train()


def test_the_first_random_actions_of_sac_are_legal():
    config = config_of(SACConfig().training(train_batch_size=32, num_steps_sampled_before_learning_starts=500))
    config.exploration(exploration_config={"type": "StochasticSampling", "random_timesteps": 400})
    with config.build() as algo:
        algo.train()  # the environment refuses illegal actions
        assert algo.timesteps >= 400


class FewLegal(gymnasium.Env):
    """Episodes of 10 steps, in which 2 of 20 actions are legal, the lower with a reward of 1; each costs 0.1."""

    action_space = Discrete(20)
    observation_space = Dict(action_mask=MultiBinary(20), seen=Box(0.0, 1.0, (10,), np.float32))

    def __init__(self, config=None):
        self.t = 0

    def given(self):
        mask = np.zeros(20, np.int8)
        mask[[self.t, self.t + 1]] = 1
        return {"action_mask": mask, "seen": np.eye(11, 10, dtype=np.float32)[self.t]}, {"cost": 0.1}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.given()

    def step(self, action):
        reward = float(action == self.t)
        self.t += 1
        observation, info = self.given()
        return observation, reward, self.t == 10, False, info


def few_legal(**training):
    settings = {"train_batch_size": 16, "num_steps_sampled_before_learning_starts": 40, "lr": 1e-2, **training}
    config = SACConfig().environment(FewLegal).rollouts(num_rollout_workers=0).debugging(seed=1)
    return config.training(**{"gamma": 0.5, "model": {"fcnet_hiddens": [16]}, "initial_alpha": 0.1, **settings})


MEMORY = {"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8], "max_seq_len": 5}


@pytest.mark.parametrize("kind", [{}, {"cost_limit": 5.0}, {"policy_delay": 2}, {"model": MEMORY}], ids=str)
def test_the_entropy_that_sac_aims_at_is_that_of_legal_actions(kind):
    """Alpha falls from where the policy begins; with all 20 actions it grew without bound."""
    found = []
    for learner in ("numpy", "torch") if "model" not in kind else ("torch",):
        with few_legal(learner=learner, **kind).build() as algo:
            assert algo.trainee.target_entropy() == pytest.approx(0.5 * np.log(20))
            while algo.num_updates < 20:
                stats = algo.training_step().get("default_policy", {})
            found.append([stats["entropy"], stats["alpha_value"]])
            assert stats["target_entropy"] == pytest.approx(0.5 * np.log(2), rel=1e-5)
            assert "largest_entropy" not in stats and stats["entropy"] <= np.log(2) + 1e-5
            assert stats["alpha_value"] < 0.1
    np.testing.assert_allclose(found[0], found[-1], rtol=1e-4)


def test_a_target_entropy_that_is_given_is_kept_with_masks():
    with few_legal(target_entropy=0.2).build() as algo:
        while algo.num_updates < 3:
            stats = algo.training_step().get("default_policy", {})
        assert stats["target_entropy"] == 0.2


def test_without_masks_the_target_entropy_is_that_of_all_actions():
    with few_legal().environment(action_mask_key=None).build() as algo:
        assert algo.trainee.target_entropy() == 0.5 * np.log(20)
        while algo.num_updates < 3:
            stats = algo.training_step().get("default_policy", {})
        assert stats["target_entropy"] == 0.5 * np.log(20)


@pytest.mark.parametrize("kind", ["int8", "float"])
@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
def test_masks_of_other_numbers_and_filters(kind, observation_filter):
    config = (
        PPOConfig().training(train_batch_size=64, sgd_minibatch_size=32).rollouts(observation_filter=observation_filter)
    )
    with build(config, env_config={"mask": kind}) as algo:
        batch = algo.sample(64)
        assert set(np.unique(batch["obs"][:, :3])) <= {0, 1}
        algo.train()
        algo.evaluate(4)


@pytest.mark.parametrize("source", ["info", "method"])
@pytest.mark.parametrize("workers", [0, 1])
def test_masks_from_elsewhere(source, workers):
    config = PPOConfig().training(train_batch_size=64, sgd_minibatch_size=32)
    with build(config, env_config={"mask": source}, workers=workers, action_mask_from=source) as algo:
        algo.train()
        algo.evaluate(4)
        seen = np.eye(2, dtype=np.float32)[0]
        for _ in range(20):
            assert algo.compute_single_action(seen, action_mask=np.array([0, 1, 0])) == 1
            assert algo.compute_actions([seen, seen], action_masks=[[0, 1, 0], [0, 0, 1]]).tolist() == [1, 2]
        with pytest.raises(ValueError, match=r"trained with masks in addition.*action_mask=info\['action_mask'\]"):
            algo.compute_single_action(seen)
        with pytest.raises(ValueError, match=r"action_mask'.* has shape"):
            algo.compute_single_action(seen, action_mask=[1, 0])


@pytest.mark.parametrize("source", ["observation", "info", "method"])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_vector_environments(mode, source):
    """Also their final observations have masks, all zeros here; nobody acts upon them."""
    env = in_vector(MaskedProbe, mode)
    config = DQNConfig().training(**{**REPLAY, "num_steps_sampled_before_learning_starts": 32})
    if source == "method" and mode is AutoresetMode.SAME_STEP:
        with pytest.raises(ValueError, match="does not get the masks of final observations"):
            build(config, env, {"mask": source}, action_mask_from=source)
        return
    with build(config, env, {"mask": source}, action_mask_from=source) as algo:
        algo.train()
        rows = algo.replay.get_state()
        states, masks = rows["columns.obs"][:, 3:], rows["columns.obs"][:, :3]
        np.testing.assert_array_equal(masks, np.stack([np.ones(len(states)), np.ones(len(states)), states[:, 1]], 1))
        ended = rows["columns.discounts"] == 0
        assert ended.any() and not rows["columns.new_obs"][ended, :3].any()
        assert rows["columns.new_obs"][~ended, :2].all()
        algo.evaluate(4)


@pytest.mark.parametrize(
    ("space", "mask"),
    [
        (MultiDiscrete([2, 3]), [1, 0, 0, 1, 1]),
        (MultiBinary(2), [1, 0, 0, 1]),
        (Discrete(3, start=5), [0, 1, 0]),
        (Box(np.array([-1, 4]), np.array([0, 6]), dtype=np.int32), [1, 0, 0, 1, 1]),
    ],
    ids=str,
)
def test_every_part_of_an_action_is_masked(space, mask):
    class Env(gymnasium.Env):
        observation_space = Dict(action_mask=MultiBinary(len(mask)), observations=Box(0, 1, (1,)))
        action_space = space

        def __init__(self, config=None):
            pass

        def reset(self, *, seed=None, options=None):
            return {"action_mask": np.array(mask, np.int8), "observations": np.zeros(1, np.float32)}, {}

        def step(self, action):
            action = np.asarray(action).ravel() - np.ravel(getattr(space, "start", getattr(space, "low", 0)))
            sizes = {MultiDiscrete: [2, 3], MultiBinary: [2, 2], Discrete: [3], Box: [2, 3]}[type(space)]
            first = np.cumsum(sizes) - sizes
            assert np.array(mask)[first + action].all()
            return self.reset()[0], 0.0, False, True, {}

    with build(PPOConfig().training(train_batch_size=32, sgd_minibatch_size=16), Env) as algo:
        algo.train()
        algo.evaluate(4)


def test_runs_do_not_depend_on_how_environments_are_shared_out():
    runs = []
    for workers, envs in ((0, 4), (2, 2)):
        config = PPOConfig().training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=2, model=MODEL)
        config.environment(MaskedProbe).rollouts(num_rollout_workers=workers, num_envs_per_worker=envs)
        with config.debugging(seed=1).build() as algo:
            algo.train(), algo.train()
            runs.append(algo.policy.weights.copy())
    np.testing.assert_array_equal(*runs)


def test_a_checkpoint_knows_the_mask(tmp_path):
    config = PPOConfig().training(train_batch_size=64, sgd_minibatch_size=32)
    with build(config, env_config={"mask": "info"}, action_mask_from="info") as algo:
        algo.train()
        algo.save(tmp_path)
        wanted = algo.policy.weights.copy()
    with Algorithm.from_checkpoint(tmp_path) as algo:
        np.testing.assert_array_equal(algo.policy.weights, wanted)
        assert algo.compute_single_action(np.zeros(2, np.float32), action_mask=[0, 0, 1]) == 2
        algo.train()


class TestBadMasks:
    def test_none_is_legal_in_the_check(self):
        with pytest.raises(ValueError, match=r"MaskedProbe gives an observation without a legal action.*\[0, 0, 0\]"):
            build(PPOConfig(), env_config={"never": 0})

    @pytest.mark.parametrize("workers", [0, 1])
    def test_none_is_legal_in_training(self, workers):
        config = PPOConfig().training(train_batch_size=64, sgd_minibatch_size=32)
        with (
            build(config, env_config={"never": 1}, workers=workers, disable_env_checking=True) as algo,
            pytest.raises(
                ValueError, match=rf"environment 0 of rollout worker {workers} had no legal action at step 1"
            ),
        ):
            algo.train()

    def test_none_is_legal_in_an_evaluation(self):
        config = PPOConfig().evaluation(evaluation_config={"env_config": {"never": 1}, "disable_env_checking": True})
        with (
            build(config) as algo,
            pytest.raises(ValueError, match="evaluation worker 0 has no legal action after 1 steps"),
        ):
            algo.evaluate(2)

    def test_none_is_legal_where_an_action_is_computed(self):
        with build(PPOConfig()) as algo, pytest.raises(ValueError, match="observation 0 of 1 has no legal action"):
            algo.compute_single_action(observation(0, [0, 0, 0]))

    def test_an_environment_that_raises_first_is_noted(self):
        class Strict(MaskedProbe):
            def step(self, action):
                assert self.action_masks().any(), "what now?"
                return super().step(action)

        config = PPOConfig().training(train_batch_size=64, sgd_minibatch_size=32)
        with build(config, Strict, {"never": 1}, disable_env_checking=True) as algo:
            with pytest.raises(AssertionError, match="what now") as caught:
                algo.train()
            assert "environment 0 of rollout worker 0 had no legal action" in "\n".join(caught.value.__notes__)

    def test_another_length(self):
        class Short(MaskedProbe):
            action_space = Discrete(4)

        with pytest.raises(ValueError, match=r"'action_mask' is MultiBinary\(3\).*the actions have 4 choices"):
            build(PPOConfig(), Short)

    @pytest.mark.parametrize(
        "inside",
        [lambda seen: Dict(inner=seen), lambda seen: Tuple([Discrete(2), seen]), lambda seen: Tuple([seen] * 2)],
    )
    @pytest.mark.parametrize("config", [PPOConfig, DQNConfig])
    def test_inside_of_a_part(self, inside, config):
        """Networks would read such a mask as features, and take illegal actions."""
        probe = MaskedProbe()
        spaces = inside(probe.observation_space), probe.action_space

        class Nested(gymnasium.Env):
            observation_space, action_space = spaces

            def reset(self, *, seed=None, options=None):
                return self.observation_space.sample(), {}

            def step(self, action):
                return self.observation_space.sample(), 1.0, True, False, {}

        with pytest.raises(ValueError, match=r"\['action_mask'\], but a mask of legal actions is read"):
            build(config(), Nested)
        build(config(), Nested, action_mask_key=None).stop()

    def test_of_the_members_of_a_group(self):
        """QMIX masks them; of other algorithms a group's action is one action."""
        grouped = PPOConfig().environment(lambda _: MaskedAgents({}).with_agent_groups({"both": ["first", "second"]}))
        with pytest.raises(ValueError, match=r"observation\[0\]\['action_mask'\], but a mask"):
            grouped.rollouts(num_rollout_workers=0).build()

    def test_no_mask_in_the_info(self):
        with pytest.raises(
            ValueError, match=r"a mask in every info, but the info of reset\(\) has \[\] and no 'action_mask'"
        ):
            build(PPOConfig(), env_config={"mask": "method"}, action_mask_from="info")

    def test_no_method(self):
        with pytest.raises(ValueError, match=r"needs an environment with a method action_masks\(\), but CartPole"):
            build(PPOConfig(), "CartPole-v1", action_mask_from="method")

    def test_no_choices(self):
        with pytest.raises(ValueError, match="is for actions that are choices, but the action space is Box"):
            build(PPOConfig(), "Pendulum-v1", action_mask_from="info")

    def test_no_key(self):
        with pytest.raises(ValueError, match="action_mask_key=None and action_mask_from='info': the mask needs a name"):
            build(PPOConfig(), action_mask_from="info", action_mask_key=None)

    def test_a_mask_that_is_not_used(self):
        with build(PPOConfig()) as algo, pytest.raises(ValueError, match="as a part of the observation alone"):
            algo.compute_single_action(observation(1), action_mask=[1, 1, 1])


class MaskedAgents(MultiAgentEnv):
    """Two agents, each in a MaskedProbe of its own."""

    possible_agents: ClassVar[list[str]] = ["first", "second"]

    def __init__(self, config=None):
        self.probes = {agent: MaskedProbe(config) for agent in self.possible_agents}
        self.observation_spaces = {agent: probe.observation_space for agent, probe in self.probes.items()}
        self.action_spaces = {agent: probe.action_space for agent, probe in self.probes.items()}

    def reset(self, *, seed=None, options=None):
        first = {agent: probe.reset(seed=seed) for agent, probe in self.probes.items()}
        return {agent: seen for agent, (seen, _) in first.items()}, {agent: info for agent, (_, info) in first.items()}

    def step(self, actions):
        taken = {agent: self.probes[agent].step(action) for agent, action in actions.items()}
        observations, rewards, ended, cut, infos = ({a: each[i] for a, each in taken.items()} for i in range(5))
        return observations, rewards, {**ended, "__all__": all(ended.values())}, {**cut, "__all__": False}, infos


@pytest.mark.parametrize("source", ["observation", "info"])
@pytest.mark.parametrize("second", [None, RandomPolicy], ids=["networks", "by hand"])
@pytest.mark.parametrize("more", [{}, {"agent_id_in_observation": True}], ids=["", "ids"])
@pytest.mark.parametrize("key", ["action_mask", "legal"])
def test_agents_are_played_by_legal_actions(source, second, more, key):
    """By a player, in episodes of the library's and of one's own, and by compute_actions; others raise."""
    config = PPOConfig().training(train_batch_size=64, sgd_minibatch_size=32)
    config.multi_agent(policies={"first": None, "second": PolicySpec(second)}, **more)
    names = {"action_mask_from": source, "action_mask_key": key}
    with build(config, MaskedAgents, {"mask": source, "key": key}, **names) as algo:
        algo.train()
        env = undrawn_environment(algo.config)
        played = PlayedEpisodes(env, mask_key=key_in_infos(algo.config))
        for _ in range(10):
            played.play(algo.make_player(explore=True))
        player = algo.make_player(explore=True)
        for act in (lambda seen, masks: player.act(seen, action_masks=masks), by_agent(algo)):
            for _ in range(10):
                (observations, infos), over = env.reset(), False
                while not over:
                    masks = {agent: info[key] for agent, info in infos.items()} if source == "info" else None
                    observations, _, ends, _, infos = env.step(act(observations, masks))
                    over = ends["__all__"]
                player.reset()
        if source == "info":
            with pytest.raises(ValueError, match="trained with masks in addition"):
                algo.compute_actions({"second": observations["second"]})


def by_agent(algo):
    return lambda observations, masks: algo.compute_actions(observations, action_masks=masks)


class WithoutMask(MultiAgentObservationPreprocessor):
    """Agents' observations without their masks."""

    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        return Dict({agent: space["observations"] for agent, space in input_observation_space.spaces.items()})

    def preprocess(self, observations, episode):
        return {agent: seen["observations"] for agent, seen in observations.items()}


def flattened(env, spaces, device):
    return FlattenObservations()


def nested(env, spaces, device):
    return PrevActionsPrevRewards()


class TestLostMasks:
    """What changes observations keeps their mask, or is refused with settings that train."""

    @pytest.mark.parametrize(
        ("env", "setting", "value"),
        [
            (MaskedProbe, "env_to_module_connector", flattened),
            (MaskedProbe, "env_to_module_connector", nested),
            (MaskedProbe, "env_wrappers", ["FlattenObservation"]),
            (MaskedProbe, "env_wrappers", [{"FilterObservation": {"filter_keys": ["observations"]}}]),
            (MaskedAgents, "env_to_module_connector", lambda *args: WithoutMask()),
        ],
    )
    @pytest.mark.parametrize("mode", ["sync", "async"])
    def test_they_are_refused(self, env, setting, value, mode):
        config = config_of(PPOConfig().training(train_batch_size=64, sgd_minibatch_size=32), env)
        config.rollouts(gym_env_vectorize_mode=mode).apply({setting: value})
        with pytest.raises(SettingsError, match="'action_mask'") as caught:
            config.copy().build()
        (mistake,) = caught.value.mistakes
        first, off = mistake.remedies
        assert (first, off) == ({setting: None}, {"action_mask_key": None})
        with config.copy().apply(first).build() as algo:  # MaskedProbe raises for an illegal action
            algo.train()
            assert all(policy.is_masked for policy in algo.policies.values())

    @pytest.mark.parametrize("setting", ["ignore_observation_keys", "critic_observation_keys"])
    def test_keys_that_the_policy_does_not_get(self, setting):
        config = config_of(PPOConfig().training(train_batch_size=64, sgd_minibatch_size=32))
        config.apply({setting: ["action_mask"]})
        with pytest.raises(SettingsError, match="mask of legal actions, 'action_mask', from the policy") as caught:
            config.copy().build()
        (mistake,) = caught.value.mistakes
        assert mistake.remedies == ({setting: []}, {"action_mask_key": None})
        with config.copy().apply(mistake.remedies[0]).build() as algo:
            algo.train()
            assert algo.policy.is_masked

    def test_a_connector_that_keeps_them(self):
        class Doubled(SingleAgentObservationPreprocessor):
            def preprocess(self, observation, episode):
                return {**observation, "observations": observation["observations"] * 1}

        with config_of(PPOConfig()).env_runners(env_to_module_connector=lambda *args: Doubled()).build() as algo:
            algo.train()
            assert algo.policy.is_masked

    def test_numbers_under_the_key_that_are_none(self):
        config = config_of(PPOConfig().training(train_batch_size=64, sgd_minibatch_size=32), action_mask_key=None)
        config.env_runners(env_to_module_connector=flattened)
        with config.build() as algo:
            assert algo.observation_space.shape == (5,)


def test_without_the_key_a_mask_is_read_as_numbers():
    class Lenient(MaskedProbe):
        def action_masks(self):
            return np.ones(3, np.int8)

    with build(PPOConfig(), Lenient, action_mask_key=None) as algo:
        assert not algo.policy.is_masked
        assert algo.compute_single_action(observation(0, [0, 0, 0])) in (0, 1, 2)
