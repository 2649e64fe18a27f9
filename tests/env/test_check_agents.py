"""rllib.check_env of environments with several agents: sound ones, and one mistake each."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium.spaces import Box, Discrete, Text

import rllib
from rllib.cli.verbs.check_env import command
from rllib.env import MultiAgentEnv
from rllib.env.tasks.guess_the_number import GuessTheNumber
from rllib.env.tasks.vector_spread import VectorSpread
from tests.multi_agent import BasicMultiAgent, FlexAgentsMultiAgent, MultiAgentCartPole, SometimesZeroAgentsMultiAgent


def found(env, **options):
    return rllib.check_env(env, raise_errors=False, **{"steps": 100, **options})


class Walk(MultiAgentEnv):
    """Nothing is wrong with it: two agents walk by chance for 10 steps."""

    possible_agents = ("a", "b")
    observation_space = Box(-1000, 1000, (2,), np.float32)
    action_space = Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, config=None):
        super().__init__()
        self.render_mode = (config or {}).get("render_mode")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.x = self.np_random.normal(size=(2, 2)).astype(np.float32)
        return self.seen(), {}

    def seen(self):
        return dict(zip(self.possible_agents, self.x.copy()))

    def step(self, action_dict):
        self.t += 1
        self.x = self.x + self.np_random.normal(size=(2, 2)).astype(np.float32)
        is_over = self.t == 10
        return self.seen(), dict.fromkeys(self.possible_agents, 1.0), {"__all__": is_over}, {"__all__": False}, {}

    def render(self):
        return np.zeros((4, 4, 3), np.uint8)


def test_nothing_is_found_in_a_sound_one():
    report = found(Walk)
    assert [finding for finding in report.findings if finding.check != "speed"] == []
    assert report.measured["agents"] == report.measured["agent_steps_per_step"] == 2
    assert report.measured["mean_length"] == 10
    assert report.measured["mean_return_of_random_actions"] == pytest.approx(20)
    assert report.measured["agent_steps_per_second"] == pytest.approx(2 * report.measured["steps_per_second"])
    assert set(report.checks) >= {"agents", "steps", "seeds", "instances", "workers", "pettingzoo", "speed"}


@pytest.mark.parametrize(
    "env",
    [
        lambda config: BasicMultiAgent(3),
        FlexAgentsMultiAgent,
        SometimesZeroAgentsMultiAgent,
        GuessTheNumber,
        MultiAgentCartPole,
        lambda config: VectorSpread(),
        Walk(),
        "pettingzoo:mpe2.simple_spread_v3",
        "pettingzoo:classic.tictactoe_v3",
    ],
)
def test_these_pass(env):
    report = found(env)
    assert report.passes(strict=True), report


class Reuses(Walk):
    def seen(self):
        self.kept = getattr(self, "kept", np.zeros((2, 2), np.float32))
        self.kept[:] = self.x
        return dict(zip(self.possible_agents, self.kept))


class Shares(Walk):
    clock = [0]  # noqa: RUF012

    def reset(self, **keywords):
        self.clock[0] = 0
        return super().reset(**keywords)

    def seen(self):
        self.clock[0] += 1
        return {agent: own + np.float32(self.clock[0]) for agent, own in super().seen().items()}


class Unseeded(Walk):
    def reset(self, *, seed=None, options=None):
        return super().reset()


class NeverEnds(Walk):
    def step(self, action_dict):
        self.t = 0
        return super().step(action_dict)


class ComesBack(Walk):
    def step(self, action_dict):
        observations, rewards, terminateds, *rest = super().step(action_dict)
        return observations, rewards, {"a": self.t == 3, **terminateds}, *rest


class Unsupported(Walk):
    action_space = Text(5)


class Raises(Walk):
    def step(self, action_dict):
        raise RuntimeError("the motor is stuck")


@pytest.mark.parametrize(
    ("env", "severity", "check", "seen"),
    [
        (Reuses, "warning", "steps", "step() has changed an array of the observations before it"),
        (Shares, "error", "instances", "an episode differs in the observation of step"),
        (Unseeded, "warning", "seeds", "with equal seeds and actions episodes differ in the observation of the first"),
        (NeverEnds, "warning", "steps", "no episode has ended within 100 steps"),
        (ComesBack, "error", "steps", "agent 'a' was done at step 3 of the episode, and has an observation at step 4"),
        (Unsupported, "error", "agents", "agent 'a': action_space"),
        (Raises, "error", "steps", "RuntimeError: the motor is stuck"),
    ],
)
def test_a_mistake_is_named(env, severity, check, seen):
    findings = [each for each in found(env).of(severity) if each.check == check]
    assert any(seen in each.seen for each in findings), findings


class Copies:
    """A parallel environment whose spaces are new objects in each call, which PettingZoo's test refuses."""

    possible_agents = agents = ["a", "b"]  # noqa: RUF012
    metadata = {}  # noqa: RUF012
    render_mode = None

    def observation_space(self, agent):
        return Discrete(3)

    action_space = observation_space
    unwrapped = property(lambda self: self)

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.t += 1
        given = self.agents
        ends = dict.fromkeys(given, self.t == 4)
        self.agents = [] if self.t == 4 else given
        return (
            dict.fromkeys(given, 1),
            dict.fromkeys(given, 1.0),
            ends,
            dict.fromkeys(given, False),
            {agent: {} for agent in given},
        )

    def close(self):
        pass


def test_pettingzoos_own_tests_are_run():
    findings = found(Copies).find("pettingzoo")
    assert any("exact same space object" in each.seen and each.severity == "warning" for each in findings), findings


def test_the_command():
    done = CliRunner().invoke(command, ["pettingzoo:classic.tictactoe_v3", "--steps", "50", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["measured"]["interface"] == "PettingZoo, in turns"
    done = CliRunner().invoke(command, ["tests.env.test_check_agents:ComesBack", "--steps", "50"])
    assert done.exit_code == 3
    assert "fails" in done.output
