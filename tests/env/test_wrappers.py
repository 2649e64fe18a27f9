"""The setting env_wrappers: names, classes and functions around each environment, in every place that makes one."""

import itertools
import sys
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.wrappers import TimeAwareObservation
from pettingzoo import ParallelEnv
from pettingzoo.utils import parallel_to_aec

import rllib
from rllib import Algorithm, PPOConfig, register_wrapper
from rllib.algorithms.base.wiring import learned_environment, playable_environment
from rllib.core.connectors.pieces import FlattenObservations
from rllib.env.factories import wrapped as wrappers_module
from rllib.env.factories.registry import EnvContext
from rllib.registered import WRAPPERS
from tests.envs import CountingEnv, ProbeFailure
from tests.generated import values, worlds


@pytest.fixture(autouse=True)
def registered_here():
    before = dict(WRAPPERS._values)
    yield
    WRAPPERS._values.clear()
    WRAPPERS._values.update(before)


def config(*entries, env="CartPole-v1", **more):
    return (
        PPOConfig()
        .environment(env, env_wrappers=list(entries), **more)
        .rollouts(num_rollout_workers=0)
        .training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .debugging(seed=0)
    )


def made(*entries, **more):
    return learned_environment(config(*entries, **more)).make(EnvContext())


class Doubled(gymnasium.RewardWrapper):
    """Rewards times `times`."""

    def __init__(self, env, times=2.0):
        super().__init__(env)
        self.times = times

    def reward(self, reward):
        return reward * self.times


def first_observation_zero(env):
    return gymnasium.wrappers.TransformObservation(env, np.zeros_like, env.observation_space)


@pytest.mark.parametrize(
    "entry",
    [
        "TimeAwareObservation",
        "gymnasium.wrappers.TimeAwareObservation",
        "gymnasium.wrappers:TimeAwareObservation",
        "gym.wrappers.TimeAwareObservation",
        TimeAwareObservation,
        {"TimeAwareObservation": {"normalize_time": False}},
        {"gymnasium.wrappers.TimeAwareObservation": None},
        ("TimeAwareObservation", {"flatten": True}),
        (TimeAwareObservation, {"flatten": True}),
        lambda env: TimeAwareObservation(env),
    ],
)
def test_an_entry_may_have_many_forms(entry):
    assert made(entry).observation_space.shape == (5,)


def test_the_first_one_is_innermost_and_arguments_arrive():
    register_wrapper("doubled", Doubled)
    env = made({"doubled": {"times": 7}}, {"ClipReward": {"max_reward": 5}})
    env.reset(seed=0)
    assert env.step(0)[1] == 5
    env = made({"ClipReward": {"max_reward": 0.5}}, {"doubled": {"times": 7}})
    env.reset(seed=0)
    assert env.step(0)[1] == 3.5


def test_one_entry_needs_no_list_and_rl_zoos_name_is_taken():
    given = PPOConfig().from_dict({"env": "CartPole-v1", "env_wrapper": "TimeAwareObservation"})
    assert given.env_wrappers == "TimeAwareObservation"
    assert learned_environment(given).make(EnvContext()).observation_space.shape == (5,)
    assert made(env="CartPole-v1").observation_space.shape == (4,)


def test_time_limits_by_a_wrapper_are_kept_as_gymnasiums():
    with config({"TimeLimit": {"max_episode_steps": 5}}).build() as algo:
        assert max(algo.sample(64)["truncateds"].nonzero()[0][:1]) == 4


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_runs_train_and_evaluate_with_them(mode, workers):
    settings = config("TimeAwareObservation").rollouts(num_rollout_workers=workers, gym_env_vectorize_mode=mode)
    with settings.evaluation(evaluation_interval=1, evaluation_duration=2).build() as algo:
        result = algo.train()
        assert result["evaluation"]["episodes_this_iter"] == 2
        assert algo.sample(64)["obs"].shape == (64, 5)


def test_evaluation_may_have_others():
    settings = config(Doubled).evaluation(evaluation_interval=1, evaluation_config={"env_wrappers": []})
    with settings.build() as algo:
        evaluation = algo.train()["evaluation"]
    np.testing.assert_array_equal(
        evaluation["hist_stats"]["episode_reward"], evaluation["hist_stats"]["episode_lengths"]
    )


@pytest.mark.parametrize("entry", ["TimeAwareObservation", TimeAwareObservation, (TimeAwareObservation, {})])
def test_checkpoints_hold_gymnasiums_without_user_code(entry, tmp_path):
    with config(entry).build() as algo:
        path = algo.save(tmp_path)
        weights = algo.policy.weights.copy()
    with Algorithm.from_checkpoint(path) as restored:
        np.testing.assert_array_equal(restored.policy.weights, weights)
        assert restored.train()["timesteps_total"] == 64
        env = playable_environment(restored.config).make(EnvContext({"render_mode": "rgb_array"}))
        assert env.observation_space.shape == (5,) and env.render_mode == "rgb_array"
        env.close()


def test_a_class_of_the_users_in_a_checkpoint_is_user_code(tmp_path):
    with config((Doubled, {"times": 3})).build() as algo:
        path = algo.save(tmp_path)
    with pytest.raises(ValueError, match=r"env_wrappers.*test_wrappers:Doubled.*load_user_code=True"):
        Algorithm.from_checkpoint(path)
    Algorithm.from_checkpoint(path, load_user_code=True).stop()
    Algorithm.from_checkpoint(path, {"env_wrappers": []}).stop()


def test_registered_ones_are_known_in_trials(tmp_path):
    from rllib import tune

    register_wrapper("timed", lambda env: TimeAwareObservation(env))
    settings = config("timed").rollouts(num_rollout_workers=0)
    results = tune.Tuner(
        "PPO",
        param_space=settings,
        run_config=tune.RunConfig(stop={"training_iteration": 1}, storage_path=str(tmp_path)),
    ).fit()
    assert not results.errors and results[0].metrics["timesteps_total"] == 64


# ---- what is refused


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("TimeAwareObservations", "there is no wrapper 'TimeAwareObservations'. Did you mean 'TimeAwareObservation'"),
        ("FrameStack", "Did you mean 'FrameStackObservation'"),
        ("gymnasium.wrappers.Nothing", "Known are AddRenderObservation"),
        ("os.system", "a name may stand for no code of other modules.*rllib.register_wrapper.'os.system', system"),
        ("tests.env.test_wrappers.Doubled", "register_wrapper"),
        ("gymnasium.make", "a name may stand for no code"),
        ("gymnasium.wrappers.vector.RecordEpisodeStatistics", "a name may stand for no code"),
        ("gymnasium.wrappers.gym", "there is no wrapper"),
        ("RecordVideo", "use rllib record CHECKPOINT"),
        ({"ClipReward": 3}, "the arguments of 'ClipReward' must be a dict"),
        (3, "one entry is 3"),
        (CountingEnv(), "needs the wrapper's class"),
    ],
)
def test_what_is_wrong_is_said_at_build(entry, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        config(entry).build()


def test_a_registered_name_looks_near():
    register_wrapper("doubled", Doubled)
    with pytest.raises(ValueError, match="Did you mean 'doubled'"):
        config("douled").build()


def test_a_wrapper_that_fails_says_where():
    def broken(env, depth):
        raise ProbeFailure("no depth")

    with pytest.raises(ProbeFailure, match="no depth") as caught:
        config("TimeAwareObservation", (broken, {"depth": 3})).build()
    notes = "\n".join(caught.value.__notes__)
    assert "the wrapper broken(depth=3) could not be put around CartPoleEnv" in notes and "(5,)" in notes


def test_arguments_that_it_does_not_take():
    with pytest.raises(TypeError, match="colour") as caught:
        config({"ClipReward": {"colour": "red"}}).build()
    assert any("ClipReward(colour='red')" in note for note in caught.value.__notes__)


def test_a_wrapper_that_returns_no_environment():
    with pytest.raises(TypeError, match=r"the wrapper <lambda>\(\) must return an environment, but returned 3"):
        config(lambda env: 3).build()


class Halved(gymnasium.ObservationWrapper):
    """Changes the observations' shape without saying so."""

    def observation(self, observation):
        return observation[:2]


def test_a_wrapper_that_changes_observations_but_not_their_space_is_found():
    with pytest.raises(ValueError, match=r"observation has shape \(2,\)") as caught:
        config("TimeAwareObservation", Halved).build()
    (note,) = [note for note in caught.value.__notes__ if "through its wrappers" in note]
    assert "CartPoleEnv: Box" in note and "TimeAwareObservation: Box" in note


def test_a_checkpoint_does_not_fit_wrappers_that_change_the_space(tmp_path):
    with config().build() as algo:
        path = algo.save(tmp_path)
    with pytest.raises(ValueError, match=r"'shape': \[4\].* there, .*'shape': \[5\].* here"):
        Algorithm.from_checkpoint(path, {"env_wrappers": ["TimeAwareObservation"]})


def test_vectors_and_atari_preprocessing_are_refused():
    with pytest.raises(ValueError, match="go around single environments"):
        config(Doubled).rollouts(gym_env_vectorize_mode="vector_entry_point").build()
    with pytest.raises(ValueError, match="preprocessor_pref=None"):
        config(Doubled, env="ALE/Pong-v5").build()
    with pytest.raises(ValueError, match="makes a vector of 1"):
        config(Doubled, env=lambda context: gymnasium.make_vec("CartPole-v1", num_envs=1)).build()


_AROUND = {"env_wrappers": ["RecordEpisodeStatistics"]}, {"env_to_module_connector": values.flatten}
_OUTSIDE = worlds.External, worlds.ExternalWorlds


@pytest.mark.parametrize(
    "env, around",
    [(worlds.parallel, _AROUND[0]), *itertools.product(_OUTSIDE, _AROUND)],
    ids=lambda each: getattr(each, "__name__", None) or next(iter(each)),
)
def test_what_is_made_for_gymnasiums_environments_is_refused_around_others(env, around):
    world = {"observation": "numbers", "action": "choice", "length": 3, "agents": 2, "style": "all"}
    made = PPOConfig().environment(env, env_config=world).update_from_dict(around)
    with pytest.raises(ValueError, match="around environments of gymnasium"):
        made.rollouts(num_rollout_workers=0).build()


@pytest.mark.parametrize("env", [worlds.Worlds, worlds.parallel, worlds.aec])
@pytest.mark.parametrize("wrapper", ["TimeAwareObservation", {"FrameStackObservation": {"stack_size": 2}}], ids=str)
def test_what_reads_spaces_is_refused_around_a_time_limit_of_several_agents(env, wrapper):
    """A time limit goes around these environments, and makes them look like gymnasium's."""
    world = {"observation": "numbers", "action": "choice", "length": 3, "agents": 2, "style": "all"}
    made = PPOConfig().environment(
        env, env_config=world, env_wrappers=[{"TimeLimit": {"max_episode_steps": 6}}, wrapper]
    )
    with pytest.raises(ValueError, match="around") as raised:
        made.rollouts(num_rollout_workers=0).build()
    assert raised.value.mistakes[0].remedies


class AlikeWorlds(worlds.Worlds):
    """All agents have one space, which wrappers of gymnasium take for that of one agent."""

    def __init__(self, config):
        super().__init__(config)
        self.observation_space, self.action_space = (
            next(iter(of_agents.values())) for of_agents in (self.observation_spaces, self.action_spaces)
        )
        self.observation_spaces = self.action_spaces = None

    def seen(self, agent):
        return worlds.observed(self.observation_space, self.t)


_OF_ONE_AGENT = [
    "RecordEpisodeStatistics", {"ClipReward": {"min_reward": -1, "max_reward": 1}}, "TimeAwareObservation",
    {"StickyAction": {"repeat_action_probability": 0.1}}, {"DelayObservation": {"delay": 1}}, "FlattenObservation",
]  # fmt: skip


@pytest.mark.parametrize("env", [worlds.Worlds, AlikeWorlds, worlds.parallel, worlds.aec])
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("wrapper", _OF_ONE_AGENT, ids=str)
def test_wrappers_of_one_agent_are_refused_around_several(env, limited, wrapper):
    world = {"observation": "numbers", "action": "choice", "length": 3, "agents": 2, "style": "all"}
    wrappers = [*([{"TimeLimit": {"max_episode_steps": 6}}] if limited else []), wrapper]
    made = PPOConfig().environment(env, env_config=world, env_wrappers=wrappers)
    with pytest.raises(ValueError, match="env_wrappers has") as raised:
        made.rollouts(num_rollout_workers=0).build()
    assert raised.value.mistakes[0].remedies[0] == {"env_wrappers": None}


def test_statistics_that_no_checkpoint_holds_are_told_once(caplog):
    wrappers_module._warned.clear()
    config("NormalizeObservation").validate()
    config("NormalizeObservation").validate()
    assert caplog.text.count('observation_filter="MeanStdFilter"') == 1


def test_what_cannot_be_registered():
    with pytest.raises(TypeError, match="needs a string"):
        register_wrapper(Doubled, Doubled)
    with pytest.raises(TypeError, match="needs a class or function"):
        register_wrapper("doubled", Doubled(CountingEnv()))
    assert rllib.register_wrapper is register_wrapper


def test_what_is_not_installed_is_said_at_build(monkeypatch):
    monkeypatch.setitem(sys.modules, "minigrid.wrappers", None)
    settings = config("minigrid.wrappers.FlatObsWrapper")
    settings.validate()
    with pytest.raises(ModuleNotFoundError, match="pip install minigrid"):
        settings.build()


@pytest.mark.extras("minigrid")
def test_minigrids_wrappers_may_be_named():
    env = made("minigrid.wrappers.FlatObsWrapper", env="minigrid:MiniGrid-Empty-5x5-v0")
    assert isinstance(env.observation_space, Box)


class OfOldGym:
    """Of no base class, and with the old API: no seed, no info, four values, no close()."""

    observation_space, action_space = Dict(a=Box(-1, 1, (2,)), b=Box(-1, 1, (1,))), Discrete(2)

    def observation(self):
        return {"a": np.full(2, self.n / 10, np.float32), "b": np.zeros(1, np.float32)}

    def reset(self):
        self.n = 0
        return self.observation()

    def step(self, action):
        self.n += 1
        return self.observation(), 1, self.n >= 5, {}


class OfNoClass(OfOldGym):
    """With the new API, and of no base class."""

    def reset(self, *, seed=None, options=None):
        return super().reset(), {}

    def step(self, action):
        observation, reward, done, info = super().step(action)
        return observation, float(reward), done, False, info


class OfOldForm(gymnasium.Env, OfOldGym):
    """With gymnasium's base class and the old API."""

    observation_space, action_space = OfOldGym.observation_space, OfOldGym.action_space
    reset, step = OfOldGym.reset, OfOldGym.step


AROUND = {
    "env_wrappers": lambda config: config.environment(env_wrappers=[{"TimeLimit": {"max_episode_steps": 3}}]),
    "env_to_module_connector": lambda config: config.rollouts(
        env_to_module_connector=lambda env: FlattenObservations()
    ),
    "ignore_observation_keys": lambda config: config.environment(ignore_observation_keys=["b"]),
    "lstm_use_prev_action": lambda config: config.training(
        model={"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True}
    ),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("env", [OfOldGym, OfNoClass, OfOldForm])
def test_environments_are_adapted_before_something_is_put_around_them(env, around):
    config = PPOConfig().environment(lambda config: env()).rollouts(num_rollout_workers=0)
    config.training(train_batch_size=60, sgd_minibatch_size=30, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
    with AROUND[around](config).build() as algo:
        assert algo.train()["episode_len_mean"] == (3 if around == "env_wrappers" else 5)
        assert algo.evaluate(1)["episode_len_mean"] == (3 if around == "env_wrappers" else 5)


class Together(ParallelEnv):
    """PettingZoo's, without an end."""

    metadata: ClassVar[dict] = {"name": "together"}
    possible_agents: ClassVar[list] = ["a", "b"]

    def observation_space(self, agent):
        return Box(-1, 1, (1,))

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        observations, infos = Together.reset(self)
        none = dict.fromkeys(self.agents, False)
        return observations, dict.fromkeys(self.agents, 1.0), none, none, infos


@pytest.mark.parametrize("makes", [Together, lambda: parallel_to_aec(Together())])
def test_a_time_limit_goes_around_pettingzoos_environments(makes):
    config = PPOConfig().environment(lambda config: makes(), env_wrappers=[{"TimeLimit": {"max_episode_steps": 4}}])
    config.rollouts(num_rollout_workers=0)
    config.training(train_batch_size=60, sgd_minibatch_size=30, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
    with config.build() as algo:
        assert algo.train()["episode_len_mean"] == 4
