"""Environments with several agents: their spaces, groups, copies, and the errors of results that break a rule."""

import logging

import gymnasium
import numpy as np
import pytest
import rllib.env.multi_agent_env
from gymnasium.spaces import Box, Dict, Discrete, Tuple

import rllib
from rllib.core.connectors.connected_agents import ConnectedAgents
from rllib.env import EnvContext, MultiAgentEnv, is_multi_agent, make_multi_agent, register_env, resolve
from rllib.env.disturbances.settings import Disturbances
from rllib.env.factories.previous_steps import PreviousStep
from rllib.env.multi_agent import AgentOrder, AgentSpaces, BrokenRule, CheckedAgents, as_multi_agent
from rllib.env.multi_agent.adapt import TimeLimitedAgents
from rllib.env.multi_agent.augmented import AugmentedEnv
from rllib.env.multi_agent.disturbed import DisturbedAgents
from rllib.env.multi_agent.wrapped import AdaptedAgents
from tests.multi_agent import (
    BasicMultiAgent,
    EarlyDoneMultiAgent,
    FlexAgentsMultiAgent,
    MultiAgentCartPole,
    RoundRobinMultiAgent,
    SometimesZeroAgentsMultiAgent,
    collect,
)

MASKED = Dict(observations=Box(-1, 1, (2,)), action_mask=Box(0, 1, (3,), np.int8))


class Scripted(MultiAgentEnv):
    """Returns what it was given, step by step; it does not call super().__init__()."""

    possible_agents = ("a0", "a1")
    observation_space = action_space = Discrete(3)

    def __init__(self, *steps, first=None, **attributes):
        self.steps = list(steps)
        self.first = ({"a0": 0, "a1": 0}, {}) if first is None else first
        for name, value in attributes.items():
            setattr(self, name, value)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = list(self.steps)
        return self.first

    def step(self, action_dict):
        return self.left.pop(0)


def step(observations=None, rewards=None, terminateds=None, truncateds=None, infos=None):
    given = {"a0": 1, "a1": 2} if observations is None else observations
    return (
        given,
        rewards or {},
        {"__all__": False} | (terminateds or {}),
        {"__all__": False} | (truncateds or {}),
        (infos or {}),
    )


def checked(*steps, num_steps=8, **attributes):
    """The results of a scripted environment, checked."""
    env = CheckedAgents(Scripted(*steps, **attributes), num_steps)
    return [env.reset(seed=1), *(env.step({}) for _ in steps)]


def test_the_class_is_found_by_all_its_names():
    assert rllib.MultiAgentEnv is rllib.env.MultiAgentEnv is rllib.env.multi_agent_env.MultiAgentEnv
    assert rllib.make_multi_agent is rllib.env.multi_agent_env.make_multi_agent


def test_attributes_are_not_shared_between_environments():
    one, other = BasicMultiAgent(2), BasicMultiAgent(2)
    one.agents.append("x")
    assert not other.agents
    assert MultiAgentEnv.agents == ()


@pytest.mark.parametrize(
    ("attributes", "agent", "space"),
    [
        (
            {"observation_spaces": {"a": Discrete(4), "b": Discrete(5)}, "observation_space": Discrete(9)},
            "b",
            Discrete(5),
        ),
        ({"observation_space": Dict(a=Discrete(4), b=Discrete(5)), "possible_agents": ["a", "b"]}, "b", Discrete(5)),
        ({"observation_space": Dict(a=Discrete(4), b=Discrete(5))}, "b", Discrete(5)),
        ({"observation_space": Dict({0: Discrete(4), 1: Discrete(5)}), "_agent_ids": {0, 1}}, 1, Discrete(5)),
        ({"observation_space": Dict({0: Discrete(4), 1: MASKED}), "_agent_ids": {0, 1}}, 1, MASKED),
        ({"observation_space": {"a": Discrete(4), "b": Discrete(5)}}, "b", Discrete(5)),
        ({"observation_space": Discrete(7)}, "b", Discrete(7)),
        ({"observation_space": MASKED}, "b", MASKED),
        ({"observation_space": MASKED, "possible_agents": ["a", "b"]}, "b", MASKED),
        ({"observation_space": MASKED, "agents": ["a"]}, "b", MASKED),
        ({"observation_space": MASKED, "_agent_ids": {0, ("car", 3)}}, ("car", 3), MASKED),
    ],
)
def test_space_of_an_agent(attributes, agent, space):
    env = MultiAgentEnv()
    vars(env).update({"action_space": Discrete(2), **attributes})
    assert env.get_observation_space(agent) == space
    assert AgentSpaces(env, [agent]).observation(agent) == space
    assert env.get_action_space(agent) == Discrete(2)


def test_an_agent_without_a_space():
    env = Scripted(observation_space=None, observation_spaces={"agent_0": Discrete(2)})
    message = (
        "no observation space for agent 'agent_1': observation_spaces has those of 'agent_0'. Did you mean 'agent_0'"
    )
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        env.get_observation_space("agent_1")


def test_ids_samples_and_contents():
    env = Scripted(observation_space=Dict(a0=Discrete(4), a1=Box(0, 1, (2,))))
    assert env.get_agent_ids() == {"a0", "a1"}
    assert MultiAgentEnv.get_agent_ids(Scripted(possible_agents=(), agents=["x"])) == {"x"}
    by_space = Scripted(possible_agents=(), observation_space=Dict(p=MASKED), action_space=Dict(p=Discrete(2)))
    assert by_space.get_agent_ids() == {"p"}
    assert Scripted(possible_agents=(), observation_space=MASKED).get_agent_ids() == set()
    sample = env.observation_space_sample()
    assert env.observation_space_contains(sample)
    assert not env.observation_space_contains({"a0": 4})
    assert env.action_space_contains(env.action_space_sample(["a1"]))
    assert (env.num_agents, env.max_num_agents) == (0, 2)


def test_order_comes_from_the_environment_or_from_first_appearance_but_from_no_dict():
    order = AgentOrder(["b", "a"])
    order.meet(["d", "a", "c"])
    order.meet(["z", "aa"])
    assert list(order) == ["b", "a", "c", "d", "aa", "z"]
    assert order.sorted({"z", "a", "b"}) == ["b", "a", "z"]
    mixed = AgentOrder()
    mixed.meet(["x", 10, 9])
    assert mixed[10] < mixed["x"]
    assert "y" not in mixed


# ---- groups


class Pair(Scripted):
    observation_spaces = {"a0": Discrete(3), "a1": Discrete(4), "b": Discrete(5)}  # noqa: RUF012
    action_spaces = {"a0": Discrete(2), "a1": Discrete(3), "b": Discrete(4)}  # noqa: RUF012
    possible_agents = ("a0", "a1", "b")

    def step(self, action_dict):
        self.actions = action_dict
        return super().step(action_dict)


def test_groups():
    env = Pair(
        ({"a0": 1, "a1": 2, "b": 0}, {"a0": 2, "a1": 3, "b": 1}, {"a0": True, "a1": False, "__all__": False},
         {"__all__": False}, {"a0": {"k": 1}, "a1": {}}),
        first=({"a1": 3, "a0": 1}, {}),
    )  # fmt: skip
    grouped = env.with_agent_groups({"g": ["a0", "a1"]})
    assert grouped.get_observation_space("g") == Tuple([Discrete(3), Discrete(4)])
    assert grouped.get_action_space("g") == Tuple([Discrete(2), Discrete(3)])
    assert grouped.get_observation_space("b") == Discrete(5)
    assert grouped.possible_agents == ["g", "b"]
    assert grouped.reset() == ({"g": (1, 3)}, {})
    observations, rewards, terminateds, truncateds, infos = grouped.step({"g": (1, 0), "b": 3})
    assert env.actions == {"a0": 1, "a1": 0, "b": 3}
    assert observations == {"g": (1, 2), "b": 0}
    assert rewards == {"g": 5, "b": 1}
    assert terminateds == {"g": False, "__all__": False}
    assert truncateds == {"__all__": False}
    assert infos["g"]["_group_rewards"] == [2, 3]
    assert infos["g"]["_group_info"] == [{"k": 1}, {}]
    assert infos["g"]["individual_rewards"] == {"a0": 2, "a1": 3}


@pytest.mark.parametrize(
    ("terminated", "truncated", "group"),
    [
        ("", "", (False, False)),
        ("a0", "", (False, False)),
        ("a0 a1", "", (True, False)),
        ("", "a0 a1", (False, True)),
        ("a0", "a1", (False, True)),
        ("a0", "a0", (False, False)),
        ("a0", "a0 a1", (False, True)),
        ("a0 a1", "a1", (True, False)),
        ("a0 a1", "a0 a1", (True, True)),
    ],
)
def test_a_group_ends_when_all_members_have_ended_in_one_way_or_the_other(terminated, truncated, group):
    flags = ({agent: agent in ended for agent in ("a0", "a1")} for ended in (terminated, truncated))
    grouped = Pair(step(None, None, *flags)).with_agent_groups({"g": ["a0", "a1"]})
    grouped.reset()
    _, _, *ends, _ = grouped.step({"g": (1, 0)})
    assert tuple(each["g"] for each in ends) == group


def test_spaces_of_groups_may_be_given():
    grouped = Pair().with_agent_groups({"g": ["a0", "a1"]}, obs_space=Discrete(9), act_space=Discrete(8))
    assert grouped.get_observation_space("g") == Discrete(9)
    assert grouped.get_action_space("g") == Discrete(8)


def test_members_of_a_group_act_together():
    env = Pair(first=({"a0": 1}, {})).with_agent_groups({"g": ["a0", "a1"]})
    with pytest.raises(ValueError, match=r"group 'g' got observations of \['a0'\], but not of \['a1'\]: members"):
        env.reset()
    with pytest.raises(ValueError, match="Agent id a0 is in multiple groups: 'g' and 'h'"):
        Pair().with_agent_groups({"g": ["a0"], "h": ["a0"]})


# ---- copies


def test_copies_have_seeds_of_their_own_and_their_own_ends():
    env = MultiAgentCartPole({"num_agents": 2})
    observations, _ = env.reset(seed=5)
    for agent in range(2):
        np.testing.assert_array_equal(observations[agent], gymnasium.make("CartPole-v1").reset(seed=5 + agent)[0])
    acting, seen = {0, 1}, []
    while acting:
        # The first falls, the second balances for longer.
        actions = {0: 1, 1: int(observations[1][2] > 0)} if len(acting) == 2 else {1: int(observations[1][3] > 0)}
        observations, rewards, terminateds, truncateds, _ = env.step(actions)
        assert rewards.keys() == observations.keys() == acting
        acting -= {agent for agent in acting if terminateds[agent] or truncateds[agent]}
        seen.append((terminateds["__all__"], truncateds["__all__"]))
    assert seen[-1] in [(True, False), (False, True)]
    assert not any(any(flags) for flags in seen[:-1])


def test_a_time_limit_of_a_copy_is_no_end_by_itself():
    env = make_multi_agent("CartPole-v1")({"num_agents": 1, "max_episode_steps": 3})
    env.reset(seed=0)
    flags = [env.step({0: 0})[2:4] for _ in range(3)]
    assert flags[-1] == ({0: False, "__all__": False}, {0: True, "__all__": True})


def test_a_time_limit_counts_an_agents_own_steps():
    env = make_multi_agent("CartPole-v1")({"num_agents": 2, "max_episode_steps": 3})
    for _ in range(2):
        env.reset(seed=0)
        flags = [env.step(actions)[3] for actions in ({0: 0, 1: 1}, {0: 0}, {0: 1, 1: 0}, {1: 1})]
        assert [given.get(0) for given in flags] == [False, False, True, None]
        assert [given.get(1) for given in flags] == [False, None, False, True]
        assert [given["__all__"] for given in flags] == [False, False, False, True]


@pytest.mark.parametrize("number", [0, "2", None])
def test_the_number_of_copies_is_positive(number):
    with pytest.raises(ValueError, match=r"env_config\['num_agents'\] = .* must be an int of at least 1"):
        make_multi_agent("CartPole-v1")({"num_agents": number})


def test_copies_are_drawn_below_one_another():
    env = MultiAgentCartPole({"num_agents": 2, "render_mode": "rgb_array"})
    env.reset(seed=0)
    assert env.render().shape == (800, 600, 3)


# ---- the reference's rows of Ray's environments


def test_rows_of_agents_in_turn():
    rows, opened, episodes = collect(RoundRobinMultiAgent(), lambda agent, seen: 0, 50)
    assert (len(rows), len(opened), episodes[0][1]) == (42, 4, 29)
    own = [row for row in rows if row["agent"] == 1 and row["episode"] == 0]
    assert [row["t"] for row in own] == [5, 10, 15, 20, 25]
    assert [float(row["obs"][0]) for row in own] == [0, 1, 2, 3, 4]
    assert [row["reward"] for row in own] == [100, 100, 100, 100, 0]
    assert [row["terminated"] and row["truncated"] for row in own] == [False] * 4 + [True]


def test_rows_of_agents_that_all_act():
    rows, _, _ = collect(BasicMultiAgent(5), lambda agent, seen: 0, 50)
    assert len(rows) == 250
    assert [row["t"] for row in rows if row["agent"] == 3] == [*range(25)] * 2


def test_rows_of_an_agent_that_is_done_early():
    rows, _, _ = collect(EarlyDoneMultiAgent(), lambda agent, seen: 0, 6)
    assert [(row["agent"], row["t"]) for row in rows] == [(0, 1), (1, 2), (0, 3), (1, 4), (0, 5), (1, 5)]


# ---- checks of results


@pytest.mark.parametrize(
    "env",
    [BasicMultiAgent, EarlyDoneMultiAgent, RoundRobinMultiAgent, FlexAgentsMultiAgent, SometimesZeroAgentsMultiAgent],
)
def test_nothing_is_wrong_with_these(env):
    rows, _, episodes = collect(as_checked(env()), lambda agent, seen: 0, 200, seed=3)
    assert rows
    assert episodes


def as_checked(env):
    checks = CheckedAgents(env, 10**6)
    checks.reset, reset = lambda seed=None: reset(seed), checks.reset
    return checks


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([({"a0": 0}, {}, {"a0": True}, {}, {})], r"terminateds = \{'a0': True\} lacks the key \"__all__\", and so"),
        ([step({"a0": 3, "a1": 0})], r"Scripted: agent 'a0': the observation = 3 lies above the upper bound 2 of "
         r"Discrete\(3\) \(returned by step\(\) at step 1 of the episode\)"),
        ([step(terminateds={"a0": True}), step()],
         "agent 'a0' was done at step 1 of the episode, and has an observation at step 2. A done agent cannot"),
        ([step({"__all__": 0})], "observations has the key '__all__'. Ids of agents are hashable values other than"),
        ([step([1, 2])], r"step\(\) returned \[1, 2\] \(list\) as observations"),
        ([step({"a0": 0, "a_1": 0})], "observations has the agent 'a_1', but possible_agents.*Did you mean"),
        ([step(rewards={"a2": 1.0})], "rewards has the agent 'a2', but possible_agents are 'a0', 'a1'"),
        ([step(terminateds={"b": True})], "terminateds has the agent 'b', but possible_agents"),
        ([step(infos={"a0": 3})], "the info of agent 'a0' is 3. infos has a dict by agent"),
        ([step(rewards={"a1": np.nan})], "agent 'a1': the reward must be finite.* nan, at step 1"),
        ([step(rewards={"a1": None})], "agent 'a1': the reward must be a number, but step.* returned None"),
        ([step(rewards={"a1": np.ones(2)})], "agent 'a1': the reward must be a number, but step.* returned array"),
        ([step(rewards={"a0": -1e39, "a1": 1e39})], "agent 'a0': the reward must be finite, in float32 as well"),
        ([step(terminateds={"a1": "no"})], r"terminateds\['a1'\] is 'no' \(str\).*Return bool\(terminated\)"),
        ([7], r"step\(\) returned 7. step\(\) returns \(observations, rewards, terminateds, truncateds, infos\)"),
        ([({}, {}, {})], r"step\(\) returned 3 values"),
    ],
)  # fmt: skip
def test_a_result_that_breaks_a_rule(steps, message):
    with pytest.raises(BrokenRule, match=message):
        checked(*steps)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (({"a0": 9}, {}), r"agent 'a0': the observation = 9 lies above .* \(returned by reset\(\)\)"),
        (([0, 0], {}), r"reset\(\) returned \[0, 0\] \(list\) as observations"),
        (({}, None), r"reset\(\) returned None \(NoneType\) as infos"),
        (({"b": 0}, {}), "observations has the agent 'b'"),
    ],
)
def test_a_first_result_that_breaks_a_rule(first, message):
    with pytest.raises(BrokenRule, match=message):
        checked(first=first)


def test_nan_in_an_observation_names_the_agent():
    space = Box(-1, 1, (2,), np.float32)
    with pytest.raises(BrokenRule, match=r"agent 'a1': the observation\[1\] is nan"):
        checked(step({"a1": np.array([0, np.nan])}), first=({}, {}), observation_space=space)


def test_later_steps_are_checked_cheaply():
    assert checked(step({"a0": 9}), num_steps=0)
    for bad in (step(rewards={"a0": np.inf}), step({"a0": 0})):
        with pytest.raises(BrokenRule):
            checked(step(terminateds={"a0": True}), bad, num_steps=0)


def test_what_is_accepted():
    gone = {"a0": True}
    results = checked(
        step(terminateds=gone),
        step({"a1": 0}, {"a0": 0.0, "a1": 1.0}, infos={"a0": {"x": 1}, "__common__": {}}),
        step({"a1": 0}, {"a0": None}),
        step({}),
    )
    assert results[2][1]["a1"] == 1.0


def test_no_observation_at_reset_is_accepted():
    assert checked(step(), first=({}, {}))[1][0] == {"a0": 1, "a1": 2}


def test_an_agent_that_comes_with_its_end_has_no_observation():
    results = checked(step({"a0": 1, "a1": 1}, terminateds={"a1": True}), first=({"a0": 0}, {}))
    assert results[1][0] == {"a0": 1}


def test_a_missing_flag_of_all_counts_as_false_with_one_notice(caplog):
    caplog.set_level(logging.WARNING, "rllib.env")
    given = ({"a0": 1}, {}, {"__all__": False}, {}, {})
    results = checked(given, given)
    assert results[1][3]["__all__"] is False
    assert caplog.text.count('truncateds lacks the key "__all__", which is taken as False') == 1


class FourValues(MultiAgentEnv):
    """The API of old: no seed, observations alone, four dicts."""

    observation_space = action_space = Discrete(4)

    def reset(self):
        self.t = 0
        return {"a": 0, "b": 0}

    def step(self, action_dict):
        self.t += 1
        dones = {"a": self.t >= 1, "b": self.t >= 3, "__all__": self.t >= 3}
        seen = {agent: self.t for agent in action_dict}
        late = {"b": {"TimeLimit.truncated": True}} if self.t == 3 else {}
        return seen, dict.fromkeys(action_dict, 1.0), {agent: dones[agent] for agent in [*seen, "__all__"]}, late


def test_four_values_are_adapted_with_one_warning(caplog):
    caplog.set_level(logging.WARNING, "rllib.env")
    env = CheckedAgents(FourValues())
    assert env.reset(seed=3) == ({"a": 0, "b": 0}, {})
    assert env.step({"a": 0, "b": 0})[2:4] == (
        {"a": True, "b": False, "__all__": False},
        {"a": False, "b": False, "__all__": False},
    )
    env.step({"b": 0})
    assert env.step({"b": 0})[2:4] == ({"b": False, "__all__": False}, {"b": True, "__all__": True})
    assert caplog.text.count("FourValues follows the old gym API") == 1
    assert "(observations, rewards, terminateds, truncateds, infos), dicts by agent" in caplog.text


class FourValuesNamed(FourValues):
    """The same with names of its agents, which wrappers ask for; all have observations to the end."""

    possible_agents = ("a", "b")

    def step(self, action_dict):
        _, rewards, _, late = super().step(action_dict)
        return dict.fromkeys("ab", self.t), rewards, {"a": self.t == 3, "b": self.t == 3, "__all__": self.t == 3}, late


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda env: env.with_agent_groups({"a": ["a"], "b": ["b"]}),
        lambda env: AugmentedEnv(env, agent_ids=True),
        lambda env: DisturbedAgents(env, Disturbances.of({"observation_delay": 1})),
        lambda env: AdaptedAgents(env, PreviousStep(action=True, reward=True)),
        lambda env: ConnectedAgents(env, []),
        lambda env: TimeLimitedAgents(as_multi_agent(env), 9),
    ],
    ids=["groups", "augmented", "disturbed", "adapted", "connected", "limited"],
)
def test_wrappers_take_four_values(wrapped):
    bare, env = (CheckedAgents(each, num_steps=0) for each in (FourValuesNamed(), wrapped(FourValuesNamed())))
    results = [each.reset(seed=3) for each in (bare, env)]
    for _ in range(3):
        assert results[0][0].keys() == results[1][0].keys()
        assert results[0][1:4] == results[1][1:4]
        number = {"a": 0, "b": 0}
        results = bare.step(number), env.step({agent: (0,) for agent in "ab"} if is_grouped(env) else number)
    assert results[1][1:4] == results[0][1:4]
    assert results[0][2]["a"] and results[0][3]["b"]


def is_grouped(env):
    return isinstance(env.spaces.action("a"), Tuple)


# ---- recognition


def test_recognition():
    assert is_multi_agent(Scripted())
    assert is_multi_agent(MultiAgentCartPole())
    assert not is_multi_agent(gymnasium.make("CartPole-v1"))
    assert not is_multi_agent(gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"))
    with pytest.raises(TypeError, match="is no environment with several agents"):
        as_multi_agent(gymnasium.make("CartPole-v1"))


class Foreign:
    """Not derived from ours, such as Ray's own MultiAgentEnv."""

    observation_space = action_space = Discrete(2)

    def get_agent_ids(self):
        return {0, 1}

    def reset(self, *, seed=None, options=None):
        return {0: 0, 1: seed or 0}, {}

    def step(self, action_dict):
        return {0: 1}, {}, {"__all__": True}, {"__all__": False}, {}


def test_one_with_the_same_methods_is_adapted():
    env = as_multi_agent(Foreign())
    assert env.get_agent_ids() == {0, 1}
    assert CheckedAgents(env).reset(seed=1)[0] == {0: 0, 1: 1}
    assert env.step({})[0] == {0: 1}
    assert env.get_observation_space(1) == Discrete(2)
    env.close()


def test_a_wrapper_may_make_a_single_agent_of_it():
    assert not is_multi_agent(gymnasium.Wrapper(BasicMultiAgent(2)))


def test_ways_to_name_one():
    register_env("basic", lambda config: BasicMultiAgent(config["n"]))
    for given in (Scripted, lambda config: Scripted(), "tests.env.test_multi_agent:Scripted"):
        assert is_multi_agent(resolve(given).make(EnvContext()))
    assert len(resolve("basic").make(EnvContext({"n": 4})).reset()[0]) == 4


def test_an_environment_may_assign_its_number_of_agents():
    env = Scripted(num_agents=7)
    assert (env.num_agents, env.max_num_agents) == (7, 2)
    assert Scripted().num_agents == 0 and Scripted(max_num_agents=9).max_num_agents == 9
