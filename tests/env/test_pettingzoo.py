"""PettingZoo's environments in both interfaces, by all their names, and OpenSpiel's games."""

import logging

import numpy as np
import pytest
import rllib.env.wrappers.pettingzoo_env as of_ray
from gymnasium.spaces import Discrete

from rllib.env import EnvContext, is_multi_agent, resolve
from rllib.env.multi_agent import CheckedAgents, as_multi_agent
from rllib.env.multi_agent.pettingzoo_envs import ParallelPettingZooEnv, PettingZooEnv
from rllib.errors import EnvironmentPackageError
from tests.multi_agent import collect


def made(name, **config):
    return as_multi_agent(resolve(name).make(EnvContext(config)))


def test_rays_names():
    assert of_ray.PettingZooEnv is PettingZooEnv
    assert of_ray.ParallelPettingZooEnv is ParallelPettingZooEnv


@pytest.mark.parametrize(
    ("name", "kind", "agents"),
    [
        ("pettingzoo:mpe2.simple_spread_v3", ParallelPettingZooEnv, ["agent_0", "agent_1", "agent_2"]),
        ("pettingzoo:classic.tictactoe_v3", PettingZooEnv, ["player_1", "player_2"]),
        ("pettingzoo:pettingzoo.classic.tictactoe_v3", PettingZooEnv, ["player_1", "player_2"]),
        ("pettingzoo:aec/classic/rps-v2", PettingZooEnv, ["player_0", "player_1"]),
        ("pettingzoo:parallel/classic/rps-v2", ParallelPettingZooEnv, ["player_0", "player_1"]),
    ],
)
def test_names(name, kind, agents):
    factory = resolve(name)
    assert factory.name == name
    env = factory.make(EnvContext())
    assert is_multi_agent(env)
    assert type(as_multi_agent(env)) is kind
    assert as_multi_agent(env).possible_agents == agents


def test_a_module_and_a_function_are_taken_as_well():
    from mpe2 import simple_spread_v3

    assert resolve(simple_spread_v3).name == "pettingzoo:mpe2.simple_spread_v3"
    creator = resolve(lambda config: simple_spread_v3.parallel_env(**config))
    assert len(as_multi_agent(creator.make(EnvContext({"N": 2}))).possible_agents) == 2


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("mpe.simple_spread_v3", EnvironmentPackageError, "MPE has been moved into its own package"),
        ("classic.tictacto_v3", ValueError, "no module 'classic.tictacto_v3' or 'pettingzoo.classic.tictacto_v3'"),
        ("aec/classic/tictacto-v3", ValueError, "no aec environment 'classic/tictacto-v3'. Did you mean 'classic/tic"),
        ("os.path", ValueError, "has no environment of PettingZoo: no class raw_env or parallel_env"),
        ("rllib.env", ValueError, "has no environment of PettingZoo"),
        ("a b", ValueError, "'a b' is no path of a module. Write \"pettingzoo:mpe2"),
    ],
)
def test_names_of_nothing(name, error, message):
    with pytest.raises(error, match=message):
        made(f"pettingzoo:{name}")


def test_arguments_of_the_constructor():
    assert len(made("pettingzoo:mpe2.simple_spread_v3", N=4).possible_agents) == 4
    message = "env_config has 'max_cycle', but .* takes no such argument. Did you mean 'max_cycles'"
    with pytest.raises(ValueError, match=message):
        made("pettingzoo:mpe2.simple_spread_v3", max_cycle=4)


def rows_by_agent(env, num_rows, seed):
    """The first rows of each agent, whose actions depend on its own observations alone."""

    def act(agent, observation):
        total = float(np.abs(np.asarray(observation, np.float64)).sum())
        return int(total * 1000 + len(agent)) % env.get_action_space(agent).n

    rows, _, _ = collect(env, act, num_rows * 4, seed)
    return {
        agent: [
            (
                np.asarray(row["obs"]).tolist(),
                row["action"],
                round(row["reward"], 5),
                row["terminated"],
                row["truncated"],
            )
            for row in rows
            if row["agent"] == agent
        ][:num_rows]
        for agent in env.possible_agents
    }


def test_both_interfaces_of_rock_paper_scissors_give_the_same_rows():
    in_turn, parallel = (made(f"pettingzoo:{kind}/classic/rps-v2", max_cycles=7) for kind in ("aec", "parallel"))
    rows = rows_by_agent(parallel, 20, seed=0)
    assert all(len(own) == 20 for own in rows.values())
    assert rows_by_agent(in_turn, 20, seed=0) == rows


def test_an_environment_in_turns_gives_one_observation_a_step():
    env = made("pettingzoo:classic.tictactoe_v3")
    observations, _ = env.reset(seed=0)
    assert list(observations) == ["player_1"]
    observations, rewards, terminateds, _, _ = env.step({"player_1": 0})
    assert list(observations) == ["player_2"]
    assert rewards == {"player_1": 0, "player_2": 0}
    for player, square in (("player_2", 3), ("player_1", 1), ("player_2", 4)):
        observations, rewards, terminateds, truncateds, _ = env.step({player: square})
    observations, rewards, terminateds, truncateds, _ = env.step({"player_1": 2})
    assert rewards == {"player_1": 1, "player_2": -1}
    assert observations.keys() == {"player_1", "player_2"}
    assert terminateds == {"player_1": True, "player_2": True, "__all__": True}
    assert not truncateds["__all__"]
    assert env.agents == []


@pytest.mark.parametrize("actions", [{}, {"player_2": 0}, {"player_1": 0, "player_2": 1}])
def test_an_action_out_of_turn(actions):
    env = made("pettingzoo:classic.tictactoe_v3")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"it is the turn of agent 'player_1', but there (is|are)"):
        env.step(actions)


def test_a_time_limit_truncates_and_gives_final_observations():
    env = made("pettingzoo:mpe2.simple_spread_v3", max_cycles=3)
    env.reset(seed=0)
    results = [env.step(env.action_space_sample()) for _ in range(3)]
    assert [result[3]["__all__"] for result in results] == [False, False, True]
    assert not results[-1][2]["__all__"]
    assert len(results[-1][0]) == 3
    assert type(results[-1][1]) is dict


class Uneven:
    """A parallel environment: `first` terminates at step 1, `second` is truncated at step 2 or terminates then.

    It goes on to return entries of agents that have ended, as some do, in the same arrays and dicts.
    """

    possible_agents = ["first", "second"]  # noqa: RUF012
    metadata = {}  # noqa: RUF012

    def __init__(self, ends="truncated"):
        self.ends, self.array, self.rewards = ends, np.zeros(1), {}

    def observation_space(self, agent):
        return Discrete(5)

    action_space = observation_space

    @property
    def unwrapped(self):
        return self

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        return dict.fromkeys(self.agents, 0), {}

    def step(self, actions):
        self.t += 1
        self.rewards.update(first=float(self.t), second=1.0)
        terminated = {"first": True, "second": self.t == 2 and self.ends == "terminated"}
        truncated = {"first": False, "second": self.t == 2 and self.ends == "truncated"}
        self.agents = [] if self.t == 2 else ["second"]
        return dict.fromkeys(self.possible_agents, self.t), self.rewards, terminated, truncated, {}


@pytest.mark.parametrize("ends", ["truncated", "terminated"])
def test_agents_that_end_one_after_another(ends):
    env = CheckedAgents(as_multi_agent(Uneven(ends)))
    env.reset(seed=0)
    first = env.step({"first": 0, "second": 0})
    assert first[0] == {"first": 1, "second": 1}
    assert not first[2]["__all__"] and not first[3]["__all__"]
    second = env.step({"second": 0})
    assert second[0] == {"second": 2}
    assert second[1] == {"first": 2.0, "second": 1.0}, "a reward after the end counts in the return"
    assert first[1] == {"first": 1.0, "second": 1.0}, "the environment's own dict was handed on"
    assert (second[2]["__all__"], second[3]["__all__"]) == (ends == "terminated", ends == "truncated")


@pytest.mark.parametrize("name", ["mpe2.simple_spread_v3", "classic.tictactoe_v3", "mpe2.simple_speaker_listener_v4"])
def test_nothing_is_wrong_with_pettingzoos(name, caplog):
    caplog.set_level(logging.WARNING, "rllib.env")
    env = CheckedAgents(made(f"pettingzoo:{name}"), 10**6)
    rng = np.random.default_rng(0)
    observations, _ = env.reset(seed=0)
    for _ in range(200):
        actions = {}
        for agent, seen in observations.items():
            mask = seen["action_mask"] if isinstance(seen, dict) else np.ones(env.spaces.action(agent).n)
            actions[agent] = int(rng.choice(np.flatnonzero(mask)))
        observations, _, terminateds, truncateds, _ = env.step(actions)
        if terminateds["__all__"] or truncateds["__all__"]:
            observations, _ = env.reset()
    assert not caplog.records


@pytest.mark.extras("pyspiel")
class TestOpenSpiel:
    @pytest.mark.parametrize("game", ["tic_tac_toe", "connect_four", "kuhn_poker", "matrix_rps", "goofspiel"])
    @pytest.mark.parametrize("action_mask", [True, False])
    def test_a_game_is_played_to_its_end(self, game, action_mask):
        from rllib.env.wrappers.open_spiel import OpenSpielEnv

        env = CheckedAgents(OpenSpielEnv(game, action_mask), 10**6)
        rng = np.random.default_rng(0)
        for seed in range(20):
            observations, _ = env.reset(seed=seed)
            returns, is_over = np.zeros(2), False
            while not is_over:
                state = env.env.game_state
                actions = {agent: int(rng.choice(state.legal_actions(agent))) for agent in observations}
                if action_mask:
                    assert all(observations[agent]["action_mask"][action] for agent, action in actions.items())
                observations, rewards, terminateds, _, _ = env.step(actions)
                returns += [rewards[0], rewards[1]]
                is_over = terminateds["__all__"]
            np.testing.assert_allclose(returns, env.env.game_state.returns())

    def test_an_illegal_action_costs_its_player(self):
        from rllib.env.wrappers.open_spiel import OpenSpielEnv

        env = OpenSpielEnv("tic_tac_toe")
        env.reset(seed=0)
        env.step({0: 4})
        observations, rewards, _, _, _ = env.step({1: 4})
        assert rewards == {0: 0.0, 1: -0.1}
        assert observations[0]["action_mask"].sum() == 7

    def test_a_game_that_does_not_exist(self):
        from rllib.env.wrappers.open_spiel import OpenSpielEnv

        with pytest.raises(ValueError, match="OpenSpiel cannot load the game 'tic_tac'"):
            OpenSpielEnv("tic_tac")
