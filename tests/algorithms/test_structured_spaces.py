"""Observations and actions of several parts, from the environment to the learner and back."""

from functools import partial

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode

from rllib import BCConfig
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.impala import IMPALAConfig
from rllib.algorithms.ppo import PPOConfig
from tests.envs import MatchParts, SampledEnv, in_vector, nth_sample
from tests.multi_agent import BasicMultiAgent

SPACES = {
    "bytes": Box(0, 255, (3, 2), np.uint8),
    "float64": Box(-5, 5, (3,), np.float64),
    "discrete": Discrete(4, start=2),
    "multi_discrete": MultiDiscrete([3, 2]),
    "multi_binary": MultiBinary(3),
    "dict": spaces.Dict(a=Box(-1, 1, (2,)), b=Discrete(3), c=Box(0, 255, (2, 2), np.uint8)),
    "tuple": spaces.Tuple([Discrete(3, start=1), MultiBinary(2)]),
    "nested": spaces.Dict(
        a=spaces.Tuple([Box(-1, 1, (2, 2), np.float64), spaces.Dict(x=MultiDiscrete([2, 4]))]), b=Discrete(2)
    ),
}
each_space = pytest.mark.parametrize("name", SPACES)


def build(env, config_class=PPOConfig, workers=0, env_config=None, **training):
    settings = {"train_batch_size": 128, "model": {"fcnet_hiddens": [16]}, **training}
    return (
        config_class()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=4, rollout_fragment_length=16)
        .training(**settings)
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
        .debugging(seed=3)
        .build()
    )


MODES = {"own": SampledEnv} | {mode.value: in_vector(SampledEnv, mode) for mode in AutoresetMode}


@each_space
@pytest.mark.parametrize("mode", MODES)
def test_stored_rows_are_the_flattened_observations(name, mode):
    """Rows that are no transitions are left out, so every mode stores the steps 0, 1, 2 ... of each episode."""
    space = SPACES[name]
    flatten = (lambda sample: sample) if isinstance(space, Box | Discrete) else partial(spaces.flatten, space)
    known = [np.asarray(flatten(nth_sample(space, t)), np.float32) for t in range(6)]
    with build(MODES[mode], env_config={"space": space}) as algo:
        batch = algo.sample(64)
        assert batch.count >= 48
        for observation, reward in zip(batch["obs"], batch["rewards"]):
            np.testing.assert_array_equal(np.float32(observation), known[int(reward) - 1])
        algo.train()


@each_space
def test_the_structure_is_what_an_action_is_computed_from(name):
    space = SPACES[name]
    with build(SampledEnv, env_config={"space": space}) as algo:
        samples = [nth_sample(space, t) for t in range(5)]
        one_by_one = [algo.compute_single_action(sample, explore=False) for sample in samples]
        assert algo.compute_actions(samples, explore=False).tolist() == one_by_one
        with pytest.raises(ValueError, match="no action can be computed"):
            algo.compute_single_action("north")


@each_space
def test_q_learning_replays_them(name):
    with build(
        SampledEnv,
        DQNConfig,
        env_config={"space": SPACES[name]},
        hiddens=[],
        num_steps_sampled_before_learning_starts=64,
    ) as algo:
        for _ in range(2):
            stats = algo.train()["info"]["learner"]["default_policy"]["learner_stats"]
        assert np.isfinite(stats["mean_q"])


@pytest.mark.parametrize(
    "action_space",
    [
        *(MultiDiscrete([2, 3]), MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [2, 3]]), MultiBinary(3)),
        Box(np.array([[-2, 5]]), np.array([[3, 5]]), dtype=np.int16),
    ],
    ids=str,
)
def test_actions_of_several_numbers_lie_in_their_space(action_space):
    """The environment refuses every other action."""
    with build(SampledEnv, env_config={"space": SPACES["dict"], "action_space": action_space}) as algo:
        algo.train()
        assert action_space.contains(algo.compute_single_action(nth_sample(SPACES["dict"], 1)))


def test_q_learning_says_what_to_use_for_them():
    with pytest.raises(ValueError, match=r"needs a Discrete action space, but .* has MultiDiscrete.*Use PPO"):
        build(SampledEnv, DQNConfig, env_config={"space": SPACES["dict"], "action_space": MultiDiscrete([2, 3])})


def test_a_choice_that_leaves_its_space_is_named():
    class Liar(SampledEnv):
        def step(self, action):
            observation, *rest = super().step(action)
            return ({**observation, "b": 3} if self.episode == 4 else observation), *rest  # past what is checked

    with (
        build(Liar, env_config={"space": SPACES["dict"]}) as algo,
        pytest.raises(ValueError, match=r"\['b'\] = 3 lies above"),
    ):
        algo.sample(64)


@pytest.mark.parametrize(
    "space",
    [spaces.Sequence(Discrete(2)), spaces.Text(5), spaces.Dict(a=spaces.Graph(Box(0, 1, (1,)), None))],
    ids=["sequence", "text", "graph"],
)
def test_spaces_without_a_fixed_size_are_refused(space):
    with pytest.raises(ValueError, match=r"observation_space.* not supported.*wrapper"):
        build(SampledEnv, env_config={"space": space})


# As MiniGrid's: an image, a direction, and the mission in words.
WITH_TEXT = spaces.Dict(direction=Discrete(4), mission=spaces.Text(9), view=Box(0, 255, (2,), np.uint8))


class TestKeysThatAreIgnored:
    def config(self, env=SampledEnv, space=WITH_TEXT, keys=("mission",), workers=0):
        return (
            PPOConfig()
            .environment(env, env_config={"space": space}, ignore_observation_keys=list(keys))
            .rollouts(num_rollout_workers=workers, num_envs_per_worker=2)
            .training(train_batch_size=32, sgd_minibatch_size=16, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        )

    def test_the_error_names_the_setting(self):
        with pytest.raises(
            ValueError, match=r"mission.*Text.*not supp.*\.environment\(ignore_observation_keys=\['miss"
        ):
            self.config(keys=()).build()

    @pytest.mark.parametrize("workers", [0, 1])
    def test_the_policy_gets_the_others(self, workers):
        with self.config(workers=workers).build() as algo:
            assert list(algo.observation_space) == ["direction", "view"]
            assert algo.train()["num_env_steps_trained"] == 32
            assert algo.evaluate(2)["episodes_this_iter"] == 2
            whole = nth_sample(WITH_TEXT, 3)
            rest = {key: value for key, value in whole.items() if key != "mission"}
            for observation in (whole, rest):
                assert algo.compute_single_action(observation, explore=False) in (0, 1)

    @pytest.mark.parametrize("mode", AutoresetMode)
    def test_vector_environments(self, mode):
        with self.config(in_vector(SampledEnv, mode)).build() as algo:
            rows = algo.sample(32)["obs"]
        plain = spaces.Dict(direction=Discrete(4), view=WITH_TEXT["view"])
        with self.config(in_vector(SampledEnv, mode), plain, keys=()).build() as algo:
            assert rows.shape[1:] == algo.sample(32)["obs"].shape[1:] == (6,)

    @pytest.mark.parametrize(
        ("space", "keys", "has"),
        [
            (WITH_TEXT, ["misson"], "a Dict with the keys"),
            (WITH_TEXT, ["direction", "mission", "view"], "keep at least one"),
            (Discrete(3), ["mission"], r"is Discrete\(3\)"),
        ],
    )
    def test_other_keys_are_refused(self, space, keys, has):
        with pytest.raises(ValueError, match=rf"ignore_observation_keys=\[.*{has}"):
            self.config(space=space, keys=keys).build()

    def test_agents_that_have_none_of_them_are_refused(self):
        """A key of one agent's observation alone is enough, as agents may have different ones."""

        class Two(BasicMultiAgent):
            def __init__(self, config=None):
                super().__init__(2)
                self.possible_agents = [0, 1]
                self.observation_spaces = {0: spaces.Dict(a=Discrete(2), b=Discrete(3)), 1: spaces.Dict(b=Discrete(3))}

            def get_observation_space(self, agent_id):
                return self.observation_spaces[agent_id]

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed, options=options)
                return {0: {"a": 1, "b": 2}, 1: {"b": 2}}, {}

            def step(self, action_dict):
                _, *rest = super().step(action_dict)
                return {0: {"a": 1, "b": 2}, 1: {"b": 2}}, *rest

        def grouped(config):
            return Two().with_agent_groups({"team": [0, 1]})

        with self.config(Two, keys=["a"]).multi_agent(policies="own").build() as algo:
            assert list(algo.get_policy("0").observation_space) == ["b"]
        with pytest.raises(ValueError, match=r"ignore_observation_keys=\['c'\].*keys of theirs are \['a', 'b'\]"):
            self.config(Two, keys=["c"]).multi_agent(policies="own").build()
        with pytest.raises(ValueError, match=r"ignore_observation_keys=\['a'\].*before with_agent_groups"):
            self.config(grouped, keys=["a"]).multi_agent(policies="own").build()

    def test_recorded_ones_with_them_are_refused(self):
        recorded = {"obs.a": np.zeros(40, int), "obs.b": np.zeros(40, int), "actions": np.arange(40) % 2}
        config = BCConfig().environment(
            observation_space=spaces.Dict(a=Discrete(2), b=Discrete(3)),
            action_space=Discrete(2),
            ignore_observation_keys=["a"],
        )
        recorded["terminateds"] = np.arange(40) % 10 == 9
        with pytest.raises(ValueError, match=r"ignore_observation_keys=\['a'\].*recorded ones have a\."):
            config.offline_data(input_=recorded).training(train_batch_size=16).build()


TRAINING = {"lr": 3e-3, "model": {"fcnet_hiddens": [32]}}


def test_ppo_learns_from_every_part_of_a_dict_for_every_part_of_an_action():
    with build(
        MatchParts, train_batch_size=256, sgd_minibatch_size=64, num_sgd_iter=8, kl_coeff=0.0, gamma=0.9, **TRAINING
    ) as algo:
        for _ in range(25):
            result = algo.train()
        assert result["episode_reward_mean"] > 0.9


def test_they_travel_between_processes():
    with build(MatchParts, IMPALAConfig, workers=1, **TRAINING) as algo:
        assert algo.train()["num_env_steps_trained"] > 0
