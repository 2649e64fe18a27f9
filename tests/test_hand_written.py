"""Policies that are written by hand: draws, masks, functions, and their errors."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rllib.acting.agent_player import AgentPlayer
from rllib.hand_written import HandWrittenPolicy, HeuristicPolicy, RandomPolicy


def masked(mask):
    return {"observation": 0, "action_mask": np.array(mask, np.int8)}


@pytest.mark.parametrize("space", [Discrete(3, start=-1), Box(-1, 1, (2,)), Tuple((Discrete(2), Box(0, 1, ())))])
def test_random_actions_lie_in_the_space_and_follow_the_seed(space):
    first, second, other = (RandomPolicy(None, space, {"seed": seed}).compute_actions([0] * 20) for seed in (1, 1, 2))
    assert all(space.contains(action) for action in first)
    assert repr(first) == repr(second) != repr(other)


def test_workers_draw_different_actions():
    drawn = [
        RandomPolicy(None, Discrete(100), {"seed": 1, "worker_index": index}).compute_actions([0] * 20)
        for index in (1, 2)
    ]
    assert drawn[0] != drawn[1]


def test_drawing_leaves_the_given_space_alone():
    space = Discrete(100)
    space.seed(3)
    RandomPolicy(None, space, {"seed": 1}).compute_actions([0] * 5)
    drawn = space.sample()
    space.seed(3)
    assert space.sample() == drawn


def test_legal_actions_are_drawn_uniformly():
    policy = RandomPolicy(None, Discrete(4, start=10), {"seed": 0})
    actions = policy.compute_actions([masked([0, 1, 0, 1])] * 1000)
    assert set(actions) == {11, 13}
    assert 400 < actions.count(11) < 600
    assert policy.compute_actions([masked([0, 0, 0, 0])]) == [10]


def test_masks_of_several_numbers():
    policy = RandomPolicy(None, MultiDiscrete([2, 3]), {"seed": 0})
    actions = np.array(policy.compute_actions([masked([0, 1, 1, 0, 1])] * 100))
    assert {tuple(action) for action in actions.tolist()} == {(1, 0), (1, 2)}


def test_random_policy_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match="needs an action space"):
        RandomPolicy()
    with pytest.raises(ValueError, match="have no choices that it could allow"):
        RandomPolicy(Dict(action_mask=MultiBinary(2), observation=Discrete(2)), Box(0, 1, (2,)))


def test_a_function_of_the_observation():
    assert HeuristicPolicy(lambda observation: observation + 1).compute_actions([1, 2]) == [2, 3]
    assert HeuristicPolicy(int).compute_actions([1.5]) == [1]


def test_a_function_with_the_policys_generator():
    def draw(observation, rng):
        return int(rng.integers(1000)) + observation

    first, second = (HeuristicPolicy(draw, config={"seed": 5}).compute_actions([0, 1000]) for _ in range(2))
    assert first == second
    assert first[1] >= 1000


@pytest.mark.parametrize(("function", "message"), [(3, "needs a function"), (lambda: 0, "takes neither")])
def test_heuristic_policy_refuses_what_it_cannot_call(function, message):
    with pytest.raises(TypeError, match=message):
        HeuristicPolicy(function)


class _Counting(HandWrittenPolicy):
    """Its action is the number of its own earlier ones, kept in the state."""

    def get_initial_state(self):
        return [np.zeros(1)]

    def compute_actions(self, observations, state_batches=None, **kwargs):
        (counts,) = state_batches
        return counts[:, 0].astype(int).tolist(), [counts + 1], {}


def _as_they_are(observations, action_masks):
    return observations


def test_players_keep_the_state_of_each_agent():
    player = AgentPlayer(None, lambda agent, episode, worker: "counts", {"counts": _Counting}, with_masks=_as_they_are)
    assert [player.act({"a": 0}), player.act({"a": 0, "b": 0}), player.act({"a": 0})] == [
        {"a": 0}, {"a": 1, "b": 0}, {"a": 2}
    ]  # fmt: skip
    player.reset()
    assert player.act({"a": 0}) == {"a": 0}


def test_the_mapping_of_a_player_may_draw():
    draws = []

    def mapping(agent, episode, worker):
        draws.append(episode.rng.random())
        return "counts"

    player = AgentPlayer(None, mapping, {"counts": _Counting}, with_masks=_as_they_are)
    for _ in range(2):
        player.act({"a": 0, "b": 0})
        player.reset()
    assert len(set(draws)) == 4
