"""Connectors of observations and actions: the arrays by hand, and what is refused."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from rllib import PPOConfig
from rllib.core import (
    Columns,
    ConnectedEnv,
    ConnectorPipelineV2,
    ConnectorV2,
    FlattenObservations,
    FrameStackingEnvToModule,
    FrameStackingLearner,
    MeanStdFilter,
    MultiAgentObservationPreprocessor,
    PrevActionsPrevRewards,
    SingleAgentObservationPreprocessor,
)
from rllib.core.connectors.connected_env import ConnectedFactory
from rllib.env import EnvContext, MultiAgentEnv
from rllib.env.factories.registry import resolve
from rllib.env.multi_agent import make_multi_agent
from tests.envs import CountingEnv
from tests.generated.worlds import OBSERVATIONS, World
from tests.multi_agent import NameTheSignal


class Parts(gymnasium.Env):
    """Observations {"a": 2 of 3 choices, "b": [t, -t]}; the reward is the action, an episode has 3 steps."""

    observation_space = Dict({"b": Box(-9, 9, (2,), np.float32), "a": Discrete(3)})
    action_space = Discrete(3)

    def __init__(self, config=None):
        self.t = 0

    def _seen(self):
        return {"a": self.t % 3, "b": np.array([self.t, -self.t], np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        return self._seen(), float(action), self.t >= 3, False, {}


class Picture(gymnasium.Env):
    """A picture [2, 1, 1] whose pixels are the time."""

    observation_space = Box(0, 255, (2, 1, 1), np.uint8)
    action_space = Discrete(2)

    def __init__(self, config=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 1
        return np.full((2, 1, 1), self.t, np.uint8), {}

    def step(self, action):
        self.t += 1
        return np.full((2, 1, 1), self.t, np.uint8), 0.0, self.t >= 9, False, {}


def played(env, actions):
    """Observations of an episode that the actions are played in."""
    seen = [env.reset(seed=0)[0], *(env.step(action)[0] for action in actions)]
    assert all(each in env.observation_space for each in seen)
    return seen


def test_flattened_observations():
    env = ConnectedEnv(Parts(), [FlattenObservations()], [])
    assert env.observation_space.shape == (5,)
    np.testing.assert_array_equal(played(env, [0, 0]), [[1, 0, 0, 0, 0], [0, 1, 0, 1, -1], [0, 0, 1, 2, -2]])
    env = ConnectedEnv(Parts(), [FlattenObservations(keys_to_remove=["a"])], [])
    np.testing.assert_array_equal(played(env, [0]), [[0, 0], [1, -1]])


def test_stacked_frames():
    env = ConnectedEnv(Picture(), [FrameStackingEnvToModule(num_frames=3)], [])
    assert env.observation_space == Box(0, 255, (2, 1, 3), np.uint8)
    for episode in range(2):
        seen = played(env, [0, 1, 0])
        assert [frames[0, 0].tolist() for frames in seen] == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]], episode


def test_previous_actions_and_rewards():
    env = ConnectedEnv(Parts(), [PrevActionsPrevRewards(n_prev_actions=2, n_prev_rewards=1)], [])
    seen = played(env, [2, 1, 0])
    assert [each["prev_n_actions"].tolist() for each in seen] == [
        [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 0],
    ]  # fmt: skip
    assert [each["prev_n_rewards"].tolist() for each in seen] == [[0], [2], [1], [0]]
    assert [each["_orig_obs"]["a"] for each in seen] == [0, 1, 2, 0]
    flat = ConnectedEnv(Parts(), [PrevActionsPrevRewards(), FlattenObservations()], [])
    assert played(flat, [2])[1].shape == (5 + 3 + 1,)


class Halved(ConnectorV2):
    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, **kwargs):
        shared_data["halved"] = True
        batch[Columns.OBS] = batch[Columns.OBS] / 2
        return batch


class WithLength(SingleAgentObservationPreprocessor):
    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        return Box(-np.inf, np.inf, (2,), np.float32)

    def preprocess(self, observation, episode):
        return np.array([observation[0], len(episode)])


class OfTheLastTwo(ConnectorV2):
    """The difference of the newest two observations that it has seen."""

    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, **kwargs):
        assert shared_data["halved"]
        for episode in self.single_agent_episode_iterator(episodes):
            newest, before = episode.get_observations([-1, -2], fill=np.zeros(1))
            self.add_batch_item(batch, Columns.OBS, newest + 0 * before + len(episode.get_actions()), episode)
        return batch


def test_a_users_own_connectors_over_a_batch():
    env = ConnectedEnv(CountingEnv({"lengths": [9]}), [Halved(), WithLength()], [])
    np.testing.assert_array_equal(played(env, [0, 0, 0]), [[0, 0], [0.5, 1], [1, 2], [1.5, 3]])


def test_a_pipeline_is_taken_apart_and_items_may_be_added_by_episode():
    config = quick(CountingEnv).env_runners(
        env_to_module_connector=lambda env, spaces, device: ConnectorPipelineV2(connectors=[Halved(), OfTheLastTwo()])
    )
    with config.build() as algo:
        batch = algo.sample(16)
        # CountingEnv's first episode has 3 steps: t / 2, and t actions were taken before.
        np.testing.assert_allclose(batch["obs"][:3, 0], [0, 1.5, 3])


class Reversed(ConnectorV2):
    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, **kwargs):
        batch[Columns.ACTIONS] = 2 - batch[Columns.ACTIONS]
        return batch


def test_actions_on_their_way_to_the_environment():
    env = ConnectedEnv(Parts(), [], [Reversed()])
    env.reset()
    assert [env.step(action)[1] for action in (0, 1, 2)] == [2.0, 1.0, 0.0]
    config = quick(Parts).env_runners(module_to_env_connector=lambda env, spaces, device: [Reversed()])
    with config.build() as algo:
        batch = algo.sample(16)
        np.testing.assert_array_equal(batch["rewards"], 2 - batch["actions"])


def quick(env, **settings):
    config = PPOConfig().environment(env, **settings).rollouts(num_rollout_workers=0).debugging(seed=0)
    return config.training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1, model={"fcnet_hiddens": [8]})


@pytest.mark.parametrize(
    "make",
    [
        lambda env, spaces, device: FlattenObservations(),
        lambda env, spaces, device: MeanStdFilter(),
        lambda env, spaces, device: [PrevActionsPrevRewards(), FlattenObservations(), MeanStdFilter()],
        lambda env: [Halved()],
    ],
)
def test_cartpole_trains_through_a_connector(make):
    with quick("CartPole-v1").env_runners(env_to_module_connector=make).build() as algo:
        result = algo.train()
        assert np.isfinite(result["info"]["learner"]["default_policy"]["learner_stats"]["total_loss"])
        algo.evaluate(2)


def test_a_loop_of_ones_own_has_the_connectors():
    def make(env, spaces, device):
        return PrevActionsPrevRewards(), FlattenObservations()

    with quick("CartPole-v1").env_runners(env_to_module_connector=make).build() as algo:
        env = ConnectedEnv.of(gymnasium.make("CartPole-v1"), make)
        observation, _ = env.reset(seed=0)
        assert observation.shape == (4 + 2 + 1,)
        observation, reward, *_ = env.step(algo.compute_single_action(observation))
        assert observation[-1] == reward == 1.0


@pytest.mark.slow
def test_connectors_are_made_in_workers():
    make = lambda env, spaces, device: [Halved(), MeanStdFilter(clip_by_value=3.0)]  # noqa: E731
    with quick("CartPole-v1").rollouts(num_rollout_workers=1).env_runners(env_to_module_connector=make).build() as algo:
        algo.train()
        assert algo.workers.foreach_worker(lambda worker: type(worker.env).__name__) == ["ConnectedEnv"]


def test_the_filter_is_the_librarys_and_its_state_is_resumed(tmp_path):
    config = quick("CartPole-v1").env_runners(env_to_module_connector=mean_std)
    with config.build() as algo:
        assert (algo.config.observation_filter, algo.config.observation_clip) == ("MeanStdFilter", 3.0)
        algo.train()
        state = algo.get_policy().filter.get_state()
        assert state["count"] > 0
        algo.save(str(tmp_path))
    with type(algo).from_checkpoint(tmp_path, load_user_code=True) as again:
        for name, numbers in again.get_policy().filter.get_state().items():
            np.testing.assert_array_equal(numbers, state[name])
        again.train()
        assert again.get_policy().filter.get_state()["count"] > state["count"]


def mean_std(env, spaces, device):
    return MeanStdFilter(clip_by_value=3.0)


def test_a_function_may_read_the_environment_and_the_spaces():
    def make(env, spaces, device):
        observation_space, _ = spaces["__env_single__"]
        assert env.single_observation_space == observation_space
        return [MeanStdFilter()] if observation_space.shape == (4,) else []

    with quick("CartPole-v1").env_runners(env_to_module_connector=make).build() as algo:
        assert algo.config.observation_filter == "MeanStdFilter"


def test_agents_of_one_environment():
    config = quick(NameTheSignal, env_config={"sizes": (3, 3)})
    config.env_runners(env_to_module_connector=lambda *args: FlattenObservations(multi_agent=True))
    with config.build() as algo:
        algo.train()
    with pytest.raises(ValueError, match="Halved is for environments with one agent"):
        config.copy(copy_frozen=False).env_runners(env_to_module_connector=lambda *args: Halved()).build()


@pytest.mark.parametrize(
    ("observation", "removed"), [*((each, ()) for each in OBSERVATIONS), ("dict", ("choice",)), ("nested", ("pair",))]
)
def test_flattened_observations_of_agents_are_those_of_a_single_one(observation, removed):
    """Also pictures, which are convolved otherwise, and parts that are left out."""
    world = {"observation": observation, "action": "choice", "length": 5, "num_agents": 1}
    seen = []
    for env in (World, make_multi_agent(World)):
        config = quick(env, env_config=world).multi_agent(policies=None)
        config.env_runners(env_to_module_connector=lambda *args: FlattenObservations(keys_to_remove=removed))
        with config.build() as algo:
            batch, _ = algo.workers.local_worker().sample()
            policy = algo.get_policy("default_policy")
            seen.append((policy.observation_space, policy.weights.size, getattr(batch, "policy_batches", batch)))
    (space, size, rows), (space_of_agent, size_of_agent, of_agents) = seen
    assert space_of_agent == space and size_of_agent == size
    np.testing.assert_array_equal(of_agents["default_policy"]["obs"], rows["obs"])


class SetsRewards(ConnectorV2):
    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, **kwargs):
        episodes[0].set_rewards(new_data=1.0, at_indices=-1)


class Forgets(ConnectorV2):
    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, **kwargs):
        return None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda *args: 5, "a connector must be a rllib.core.ConnectorV2"),
        (lambda *args: [MeanStdFilter(), Halved()], "Put MeanStdFilter at the end"),
        (lambda *args: MeanStdFilter(update_stats=False), "update_stats must be True"),
        (lambda *args: FrameStackingEnvToModule(num_frames=4), "FrameStackObservation"),
        (lambda *args: SetsRewards(), "a connector cannot change rewards"),
        (lambda *args: Forgets(), "the connector Forgets must return the batch"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_way(make, says):
    with pytest.raises(Exception, match=says):
        quick("CartPole-v1").env_runners(env_to_module_connector=make).build()


def test_settings_that_are_refused():
    with pytest.raises(ValueError, match="must be a function that makes connectors"):
        quick("CartPole-v1").env_runners(env_to_module_connector=FlattenObservations()).validate()
    with pytest.raises(TypeError, match="on_postprocess_trajectory and on_learn_on_batch"):
        PPOConfig().training(learner_connector=lambda *args: None)


def test_choices_of_several_parts_are_one_hot():
    space = Dict({"m": MultiDiscrete([2, 3])})
    piece = FlattenObservations(space, Discrete(2))
    assert piece.observation_space.shape == (5,)
    np.testing.assert_array_equal(piece.changed({"m": np.array([1, 2])}, None), [0, 1, 0, 0, 1])


# ---------------------------------------------------------------------- several agents


class Pair(MultiAgentEnv):
    """Two agents, each of which sees its number; an episode has three steps."""

    possible_agents: ClassVar = ["a", "b"]
    agents = possible_agents

    def get_observation_space(self, agent_id):
        return gymnasium.spaces.Box(0, 9, (1,), np.float32)

    def get_action_space(self, agent_id):
        return gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.observed(), {}

    def step(self, action_dict):
        self.steps += 1
        flags = {"__all__": self.steps == 3}
        return self.observed(), {"a": 1.0, "b": 2.0}, flags, {"__all__": False}, {}

    def observed(self):
        return {"a": np.array([1.0], np.float32), "b": np.array([2.0], np.float32)}


class SeesTheOther(MultiAgentObservationPreprocessor):
    """Joins both observations for "a", and gives "b" a number of steps."""

    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        assert list(input_action_space) == ["a", "b"]
        return gymnasium.spaces.Dict({"a": gymnasium.spaces.Box(0, 9, (2,)), "b": gymnasium.spaces.Discrete(4)})

    def preprocess(self, observations, episode):
        return {"a": np.concatenate([observations["a"], observations["b"]]), "b": float(len(episode))}


def of_pair(*pieces):
    return (
        PPOConfig()
        .environment(Pair)
        .env_runners(num_env_runners=0, env_to_module_connector=lambda env, spaces, device: [make() for make in pieces])
        .training(train_batch_size=30, minibatch_size=30, num_epochs=1)
        .multi_agent(policies="own")
    )


def test_a_preprocessor_sees_the_observations_of_all_agents():
    factory = ConnectedFactory(resolve(Pair), lambda *args: [SeesTheOther()], None)
    env = factory.make(EnvContext({}, 0, 0))
    observations, _ = env.reset()
    assert observations["a"].tolist() == [1, 2] and observations["b"] == 0 and type(observations["b"]) is int
    assert env.get_observation_space("b") == gymnasium.spaces.Discrete(4)
    observations, rewards, *_ = env.step({"a": 0, "b": 1})
    assert observations["b"] == 1 and rewards == {"a": 1.0, "b": 2.0}
    with of_pair(SeesTheOther, FlattenObservations).build() as algo:
        assert algo.get_policy("a").observation_space.shape == (2,)
        assert algo.train()["episode_reward_mean"] == 9


def test_agents_that_are_named_alone_are_flattened():
    class Shapes(Pair):
        def get_observation_space(self, agent_id):
            return gymnasium.spaces.Discrete(3)

        def observed(self):
            return {"a": 1, "b": 2}

    factory = ConnectedFactory(resolve(Shapes), lambda *args: [FlattenObservations(agent_ids=["b"])], None)
    env = factory.make(EnvContext({}, 0, 0))
    observations, _ = env.reset()
    assert observations["a"] == 1 and observations["b"].tolist() == [0, 0, 1]
    assert env.get_observation_space("a") == gymnasium.spaces.Discrete(3)


def test_connectors_of_several_agents_that_cannot_be_used():
    with pytest.raises(ValueError, match="Put it in front"):
        of_pair(FlattenObservations, SeesTheOther).build()
    with pytest.raises(ValueError, match="Derive it from MultiAgentObservationPreprocessor"):
        of_pair(PrevActionsPrevRewards).build()


def test_frames_that_workers_stack_need_no_learner_connector():
    config = PPOConfig().training(learner_connector=lambda *spaces: FrameStackingLearner(num_frames=4))
    assert config.env_to_module_connector is None
    with pytest.raises(TypeError, match=r"learner_connector=<function .* cannot be used: batches are changed by"):
        config.training(learner_connector=lambda *spaces: [FrameStackingLearner(), MeanStdFilter()])
