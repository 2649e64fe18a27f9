"""Evaluation of several agents: whole episodes of every environment, with policies that stand still."""

import numpy as np
import pytest
from agent_workers import SPACES, Schedule, Script, worker_of
from gymnasium.spaces import Box, Dict, Discrete
from multi_agent import BasicMultiAgent, FlexAgentsMultiAgent, MultiAgentCartPole

from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.env.multi_agent import MultiAgentEnv
from rllib.evaluation.evaluator import Duration
from rllib.evaluation.multi_agent.evaluator import MultiAgentEvaluationWorker
from rllib.policy import Snapshot

OVER = {"__all__": True}


def player_of(envs, **more):
    return worker_of(envs, kind=MultiAgentEvaluationWorker, **more)


def returns(episodes):
    return [(episode.env_index, episode.length, episode.agent_returns) for episode in episodes]


class TestDuration:
    def test_each_environment_plays_its_share_of_the_episodes(self):
        episodes = player_of(Schedule, num_envs=3).play_episodes(Duration(7), 0)
        assert sorted(episode.env_index for episode in episodes) == [0, 0, 0, 1, 1, 2, 2]
        assert all(sum(e.agent_returns.values()) <= e.episode_return for e in episodes)

    def test_an_episode_that_has_begun_is_played_to_its_end(self):
        episodes = player_of(lambda i: BasicMultiAgent(2), num_envs=2, own=basic()).play_episodes(
            Duration(60, "timesteps"), 0
        )
        assert [episode.length for episode in episodes] == [25] * 4
        assert episodes[0].agent_returns == {(0, "p0"): 25.0, (1, "p0"): 25.0}
        assert episodes[0].agent_lengths == {(0, "p0"): 25, (1, "p0"): 25}

    def test_nothing_to_play_is_refused(self):
        with pytest.raises(ValueError, match="at least one of its episodes, but 0 were given"):
            player_of(Schedule).play_episodes(Duration(0), 0)


def basic():
    return {"num_slots": {"p0": 2}}


def test_the_most_probable_actions_do_not_change_and_drawn_ones_do():
    def play(explore):
        player = player_of(lambda i: MultiAgentCartPole({"num_agents": 2}), num_envs=2, own=basic())
        player.policy_map["p0"].set_weights(0.3 * np.ones_like(player.policy_map["p0"].weights))
        return [returns(player.play_episodes(Duration(6), round_index, explore)) for round_index in (0, 1, 1)]

    greedy, drawn = play(False), play(True)
    assert greedy == play(False) and drawn == play(True)
    assert greedy[1] == greedy[2] and drawn[1] == drawn[2]
    assert drawn[0] != drawn[1] and drawn[1] != greedy[1]


def test_random_streams_belong_to_environments_and_agents():
    alone = player_of(lambda i: MultiAgentCartPole({"num_agents": 2}), own=basic(), num_envs=2)
    together = player_of(lambda i: MultiAgentCartPole({"num_agents": 2}), own=basic(), num_envs=3)
    few, many = (player.play_episodes(Duration(6), 0, explore=True) for player in (alone, together))
    of_first = [[(e.length, e.agent_returns) for e in episodes if e.env_index == 0] for episodes in (few, many)]
    assert of_first[0][:2] == of_first[1][:2]


def test_filters_are_applied_and_not_updated():
    config = PPOConfig().rollouts(observation_filter="MeanStdFilter")
    player = player_of(Schedule, config=config)
    policy = player.policies["p0"]
    policy.filter(np.array([[1.0, 2.0], [3.0, 5.0]]), update=True)
    policy.filter.merge(policy.filter.pop_delta())
    player.load_snapshots({"p0": policy.snapshot(), "another": Snapshot(np.zeros(3, np.float32))})
    before = policy.filter.get_state()
    player.play_episodes(Duration(3), 0)
    after = policy.filter.get_state()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    delta = policy.filter.pop_delta()
    assert not np.any(delta["count"])


class Remembered(MultiAgentEnv):
    """Agent "a" acts in steps 0, 1 and 3 of an episode, "b" in steps 1 and 2; two episodes are alike."""

    possible_agents = ("a", "b")
    observation_space, action_space = SPACES
    who = ("a", "ab", "b", "a", "")

    def __init__(self, index=0):
        self.actions = []

    def reset(self, *, seed=None, options=None):
        self.t = 0
        self.actions.append([])
        return self._seen(), {}

    def _seen(self):
        return {agent: np.array([self.t, ord(agent)], np.float32) for agent in self.who[self.t]}

    def step(self, action_dict):
        self.actions[-1].append(action_dict)
        self.t += 1
        is_over = self.t == len(self.who) - 1
        return self._seen(), {}, {"__all__": is_over}, {"__all__": False}, {}


def test_memory_belongs_to_an_agent_and_begins_with_its_episode():
    config = PPOConfig().training(model={"use_lstm": True, "lstm_cell_size": 8})
    env = Remembered()
    player = player_of([env], config=config)
    policy, seen = player.policies["p0"], []
    act = policy.act

    def recorded(observations, noise, dist_inputs, actions, values, state, next_state):
        act(observations, noise, dist_inputs, actions, values, state, next_state)
        seen.append((observations.copy(), state.copy(), next_state.copy()))

    policy.act = recorded
    player.play_episodes(Duration(2, "timesteps"), 0)
    player.play_episodes(Duration(5, "timesteps"), 0)
    assert len(seen) == 3 * 4
    of_a, of_b = [0, 1, 3], [1, 2]
    for first in (0, 4, 8):
        for slot, steps in ((0, of_a), (1, of_b)):
            states = [seen[first + step][1][slot] for step in steps]
            after = [seen[first + step][2][slot] for step in steps]
            assert not states[0].any() and states[1].any()
            assert all(np.array_equal(now, before) for now, before in zip(states[1:], after))


class Masked(Remembered):
    """Agents may choose the action 1 alone, and nothing at all in step `without` of the episode."""

    observation_space = Dict(observations=Box(-9, 999, (2,), np.float32), action_mask=Box(0, 1, (2,), np.int8))
    action_space = Discrete(2)
    without = None

    def _seen(self):
        mask = np.array([0, self.t != self.without], np.int8)
        return {agent: {"observations": seen, "action_mask": mask} for agent, seen in super()._seen().items()}


class TestMasks:
    def test_illegal_actions_are_never_chosen(self):
        env = Masked()
        player = player_of([env])
        for explore in (False, True):
            player.play_episodes(Duration(30, "timesteps"), 0, explore)
        assert {action for episode in env.actions for step in episode for action in step.values()} == {1}

    def test_an_observation_without_a_legal_action_is_named(self):
        env = Masked()
        env.without = 2
        player = player_of([env])
        with pytest.raises(
            ValueError, match=r"agent 'b' of environment 0 of evaluation worker 0 \(policy 'p0'\) has no"
        ):
            player.play_episodes(Duration(1), 0)


def test_exploration_stands_where_it_is_in_the_run():
    player = player_of(Schedule, config=DQNConfig().training(num_steps_sampled_before_learning_starts=1))
    policy = player.policies["p0"]
    player.load_snapshots({"p0": policy.snapshot(timesteps=0)})
    at_first = dict(policy.exploration)
    player.load_snapshots({"p0": policy.snapshot(timesteps=10**9)})
    assert policy.exploration["epsilon"] < at_first["epsilon"]


class ByHand:
    """Chooses the first agent's number of actions so far; remembers that as a state."""

    def get_initial_state(self):
        return [np.zeros(1)]

    def compute_actions(self, observations, state_batches=None, **kwargs):
        (counts,) = state_batches
        return [int(count) % 2 for count in counts[:, 0]], [counts + 1], {}


def test_policies_that_are_written_by_hand_remember_by_agent():
    env = Remembered()
    player = player_of([env], own={"hand_written": {"p0": ByHand}, "trained": frozenset()})
    player.play_episodes(Duration(5, "timesteps"), 0)
    assert env.actions == [[{"a": 0}, {"a": 1, "b": 0}, {"b": 1}, {"a": 0}]] * 2


def test_agents_that_nobody_expected_get_slots():
    player = player_of(lambda i: FlexAgentsMultiAgent(), num_envs=2)
    episodes = player.play_episodes(Duration(6), 0)
    assert len(episodes) == 6 and max(len(e.agent_returns) for e in episodes) > 4
    assert returns(episodes) == returns(player.play_episodes(Duration(6), 0)), "played again with more slots"


class Fails(Script):
    def step(self, action_dict):
        if len(self.actions) == 1:
            raise RuntimeError("asked to fail")
        return super().step(action_dict)


def test_a_void_episode_counts_for_nothing():
    steps = ({"A": 1.0}, ({"A": 2.0}, {"A": 1}), ({"A": 3.0}, {"A": 1}, OVER))
    player = player_of([Fails(*steps)], remake=lambda index: Script(*steps))
    (episode,) = player.play_episodes(Duration(1), 0)
    assert (episode.length, episode.episode_return) == (2, 2.0)
    with pytest.raises(RuntimeError, match="asked to fail") as raised:
        player_of([Fails(*steps)]).play_episodes(Duration(1), 0)
    assert "environment 0 of evaluation worker 0 (Fails) raised in step() at step 1" in raised.value.__notes__[0]
