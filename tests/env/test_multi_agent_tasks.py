"""Games of the library: equal to those of PettingZoo and mpe2 step by step, and their returns."""

import sys

import cloudpickle
import numpy as np
import pytest

from rllib.env import EnvContext, resolve
from rllib.env.multi_agent import as_multi_agent
from rllib.env.tasks.connect_four import ConnectFour
from rllib.env.tasks.guess_the_number import GuessTheNumber
from rllib.env.tasks.pistonball import Pistonball, small
from rllib.env.tasks.rock_paper_scissors import PAPER, ROCK, RockPaperScissors
from rllib.env.tasks.tic_tac_toe import TicTacToe
from rllib.env.tasks.two_step_game import TwoStepGame, TwoStepGameWithGroupedAgents
from rllib.env.tasks.vector_spread import VectorSpread


def made(name, **config):
    return as_multi_agent(resolve(name).make(EnvContext(config)))


def same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for agent, value in ours.items():
        for key in value:
            np.testing.assert_array_equal(value[key], theirs[agent][key])


@pytest.mark.parametrize("legal", [True, False])
@pytest.mark.parametrize(
    ("ours", "name"),
    [(TicTacToe(), "pettingzoo:classic.tictactoe_v3"), (ConnectFour(), "pettingzoo:classic.connect_four_v3")],
    ids=["tic-tac-toe", "connect-four"],
)
def test_board_games_are_pettingzoos(ours, name, legal):
    rng = np.random.default_rng(0)
    theirs = made(name)
    for _ in range(200):
        observations, _ = ours.reset()
        same(observations, theirs.reset()[0])
        is_over = False
        while not is_over:
            ((agent, seen),) = observations.items()
            assert ours.observation_space.contains(seen)
            moves = np.flatnonzero(seen["action_mask"]) if legal else np.arange(ours.action_space.n)
            actions = {agent: rng.choice(moves)}
            observations, rewards, terminateds, _, _ = ours.step(actions)
            theirs_step = theirs.step(actions)
            assert rewards == theirs_step[1]
            assert terminateds["__all__"] == theirs_step[2]["__all__"]
            is_over = terminateds["__all__"]
            if not is_over or legal:
                same(observations, theirs_step[0])


def test_a_full_board_of_connect_four_is_a_draw():
    env = ConnectFour()
    observations, _ = env.reset()
    # Pairs of columns in blocks of two marks each: no line of four arises.
    block = [0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1]
    columns = [2 * pair + column for pair in range(3) for column in block]
    for column in [*columns, *[6] * 6]:
        ((agent, seen),) = observations.items()
        assert seen["action_mask"][column]
        observations, rewards, terminateds, _, _ = env.step({agent: column})
    assert terminateds["__all__"]
    assert set(rewards.values()) == {0.0}
    assert observations.keys() == set(env.possible_agents)
    assert not any(seen["action_mask"].any() for seen in observations.values())


@pytest.mark.parametrize("num_agents", [1, 3, 5])
def test_spread_is_mpes(num_agents):
    rng = np.random.default_rng(1)
    count = 4
    ours = VectorSpread(count, num_agents)
    theirs = [made("pettingzoo:mpe2.simple_spread_v3", N=num_agents) for _ in range(count)]
    agents = ours.possible_agents
    observations, _ = ours.reset(seed=list(range(count)))

    def stacked(dicts):
        return np.array([[each[agent] for agent in agents] for each in dicts])

    np.testing.assert_allclose(
        observations, stacked([env.reset(seed=seed)[0] for seed, env in enumerate(theirs)]), atol=1e-6
    )
    for t in range(60):
        # Most of the time towards the middle, where agents touch.
        away = np.abs(observations[..., 2:4]).argmax(-1)
        inwards = 1 + 2 * away + (np.take_along_axis(observations[..., 2:4], away[..., None], -1)[..., 0] < 0)
        actions = np.where(rng.random((count, num_agents)) < 0.7, inwards, rng.integers(5, size=(count, num_agents)))
        observations, rewards, terminated, truncated, info = ours.step(actions)
        steps = [env.step(dict(zip(agents, row))) for env, row in zip(theirs, actions)]
        np.testing.assert_allclose(rewards, stacked([step[1] for step in steps]), atol=1e-6)
        final = info["final_obs"] if truncated.any() else observations
        np.testing.assert_allclose(final, stacked([step[0] for step in steps]), atol=1e-6)
        assert truncated.tolist() == [step[3]["__all__"] for step in steps]
        assert not terminated.any()
        if truncated.any():
            assert (t + 1) % 25 == 0
            again = stacked([env.reset()[0] for env in theirs])
            np.testing.assert_allclose(observations, again, atol=1e-6)


def test_arrays_of_spread_are_new_in_each_step():
    env = VectorSpread(2)
    first, _ = env.reset(seed=0)
    kept = first.copy()
    env.step(np.ones((2, 3), int))
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("options", [{"local_ratio": 1.5}, {"num_agents": 0}, {"max_cycles": 0}])
def test_spread_refuses_what_it_cannot_be(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        VectorSpread(**options)


def test_a_vector_of_one_is_a_multi_agent_env():
    env = as_multi_agent(VectorSpread())
    assert env.reset(seed=[3])[0].keys() == {"agent_0", "agent_1", "agent_2"}
    for t in range(25):
        observations, rewards, terminateds, truncateds, _ = env.step(env.action_space_sample())
        assert env.observation_space_contains(observations)
        assert len(rewards) == 3
        assert truncateds["__all__"] == (t == 24)
        assert not terminateds["__all__"]
    with pytest.raises(ValueError, match="has 2 environments, and can stand for a single one only with num_envs=1"):
        as_multi_agent(VectorSpread(2))


@pytest.mark.parametrize(("actions", "total"), [((0, 0, 1), 7), ((1, 0, 0), 0), ((1, 0, 1), 1), ((1, 1, 1), 8)])
def test_two_step_game(actions, total):
    env = TwoStepGame()
    env.reset()
    first, one, two = actions
    _, rewards, terminateds, _, _ = env.step({"agent_0": first, "agent_1": 0})
    assert sum(rewards.values()) == 0
    assert not terminateds["__all__"]
    observations, rewards, terminateds, _, _ = env.step({"agent_0": one, "agent_1": two})
    assert sum(rewards.values()) == total
    assert terminateds["__all__"]
    assert env.observation_space_contains(observations)


def test_the_grouped_two_step_game_has_the_state_beside_the_observations():
    env = TwoStepGameWithGroupedAgents()
    observations, _ = env.reset()
    (space,) = env.observation_spaces.values()
    assert env.possible_agents == ["agents"] and observations["agents"] in space
    observations, *_ = env.step({"agents": (1, 0)})
    for number, seen in enumerate(observations["agents"]):
        np.testing.assert_array_equal(seen["state"], [0, 0, 1])
        np.testing.assert_array_equal(seen["obs"], [0, 0, 1, *np.eye(2)[number]])
    _, rewards, terminateds, *_ = env.step({"agents": (1, 1)})
    assert rewards == {"agents": 8} and terminateds["__all__"]
    plain = TwoStepGameWithGroupedAgents({"separate_state_space": False})
    assert plain.reset()[0]["agents"][0].shape == (5,)


def test_rock_paper_scissors():
    env = RockPaperScissors({"rounds": 2})
    assert env.reset()[0] == {"player_0": 3, "player_1": 3}
    observations, rewards, terminateds, _, _ = env.step({"player_0": PAPER, "player_1": ROCK})
    assert observations == {"player_0": ROCK, "player_1": PAPER}
    assert rewards == {"player_0": 1, "player_1": -1}
    assert not terminateds["__all__"]
    assert env.step({"player_0": ROCK, "player_1": ROCK})[2]["__all__"]


def test_guess_the_number():
    env = GuessTheNumber({"numbers": 5, "words": 3})
    observations, _ = env.reset(seed=0)
    assert env.step({"speaker": 2})[0] == {"listener": 2}
    _, rewards, terminateds, _, _ = env.step({"listener": observations["speaker"]})
    assert rewards == {"speaker": 1, "listener": 1}
    assert terminateds["__all__"]


def test_cartpoles_are_given_by_name_and_travel_to_workers():
    factory = resolve("rllib.env.tasks.multi_agent_cartpole:MultiAgentCartPole")
    env = cloudpickle.loads(cloudpickle.dumps(factory)).make(EnvContext({"num_agents": 3}))
    assert list(env.reset(seed=1)[0]) == [0, 1, 2]


def test_pistonball_without_its_packages_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo.butterfly.pistonball_v6", None)
    with pytest.raises(ValueError, match=r"pip install \"pettingzoo\[butterfly\]\""):
        Pistonball()


def test_a_small_picture_is_of_means():
    picture = np.zeros((457, 120, 3), np.uint8)
    picture[:9] = 255  # the rows that are left out
    picture[9:23, 5:10] = (30, 60, 90)
    expected = np.zeros((32, 24, 1), np.uint8)
    expected[0, 1] = 60
    np.testing.assert_array_equal(small(picture), expected)


@pytest.mark.extras("pymunk")
def test_pistons_see_three_frames_in_grey():
    env = Pistonball({"max_cycles": 4, "random_drop": False})
    before, _ = env.reset(seed=1)
    assert len(before) == 5
    for step in range(4):
        kept = {agent: picture.copy() for agent, picture in before.items()}
        after, rewards, _, truncateds, _ = env.step(dict.fromkeys(before, 2))
        assert len(set(rewards.values())) == 1 and truncateds["__all__"] == (step == 3)
        for agent, picture in after.items():
            assert env.get_observation_space(agent).contains(picture)
            np.testing.assert_array_equal(picture[..., :2], kept[agent][..., 1:])
            np.testing.assert_array_equal(before[agent], kept[agent])
        before = after
    assert any((picture[..., 0] != picture[..., 2]).any() for picture in after.values())
    env.close()
