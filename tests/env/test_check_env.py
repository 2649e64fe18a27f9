"""rllib.check_env: environments with one mistake each, and the finding that names it."""

import json
import re
import threading
import time

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rllib
from rllib.env.checkup import speed
from rllib.env.checkup.report import EnvironmentCheckError
from tests.envs import CountingEnv

STEPS = 100


class Sound(gymnasium.Env):
    """Nothing is wrong with it: a walk by chance and action, episodes of 10 to 20 steps."""

    observation_space = Box(-100, 100, (2,), np.float32)
    action_space = Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, config=None):
        self.config, self.render_mode = dict(config or {}), (config or {}).get("render_mode")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(10, 20))
        self.x = self.np_random.normal(size=2).astype(np.float32)
        return self.x.copy(), {}

    def step(self, action):
        self.t += 1
        self.x = self.x + np.float32(action - 0.5) + self.np_random.normal(size=2).astype(np.float32)
        return self.x.copy(), float(self.x[0]), self.t == self.length, False, {}

    def render(self):
        return np.zeros((4, 4, 3), np.uint8)


def found(env, **options):
    return rllib.check_env(env, raise_errors=False, **{"steps": STEPS, **options})


def test_nothing_is_found_in_a_sound_one():
    report = found(Sound)
    assert [finding for finding in report.findings if finding.check != "speed"] == []
    assert report.passes(strict=True)
    assert report.measured["steps"] == STEPS
    assert 10 <= report.measured["mean_length"] <= 20
    assert set(report.checks) >= {"spaces", "form", "episodes", "seeds", "instances", "workers", "memory", "gymnasium"}


def make(**methods):
    """A Sound environment with other methods or attributes."""
    return type("Changed", (Sound,), methods)


def returns(observation=None, reward=None, terminated=None, info=None):
    """A step() that gives something else from its third step on."""

    def step(self, action):
        own = list(Sound.step(self, action))
        for index, other in ((0, observation), (1, reward), (2, terminated), (4, info)):
            if other is not None and self.t > 2:
                own[index] = other
        return tuple(own)

    return step


class Reuses(Sound):
    def reset(self, **keywords):
        self.row, info = super().reset(**keywords)
        return self.row, info

    def step(self, action):
        observation, *rest = super().step(action)
        self.row[:] = observation
        return self.row, *rest


class Shares(Sound):
    """All instances share their clock."""

    clock = [0]  # noqa: RUF012

    def reset(self, **keywords):
        self.clock[0] = 0
        return super().reset(**keywords)

    def step(self, action):
        observation, *rest = super().step(action)
        self.clock[0] += 1
        return observation + np.float32(self.clock[0]), *rest


class Leaks(Sound):
    def __init__(self, config=None):
        super().__init__(config)
        self.history = []

    def step(self, action):
        self.history.append(np.zeros(1000))
        return super().step(action)


class ClearsItsHistory(Leaks):
    def reset(self, **keywords):
        self.history = []
        return super().reset(**keywords)


def draws_globally(self, action):
    observation, *rest = Sound.step(self, action)
    return observation + np.float32(np.random.rand()), *rest


def by_the_clock(self, action):
    observation, *rest = Sound.step(self, action)
    return np.float32([observation[0], time.perf_counter() % 1]), *rest


def raises(self, action):
    if self.t == 5:
        raise RuntimeError("the motor is stuck")
    return Sound.step(self, action)


class NeverEnds(Sound):
    def reset(self, **keywords):
        result = super().reset(**keywords)
        self.length = None
        return result


class AlwaysTheSame(Sound):
    def step(self, action):
        return np.zeros(2, np.float32), *super().step(action)[1:]

    def reset(self, **keywords):
        super().reset(**keywords)
        return np.zeros(2, np.float32), {}


class Clock(Sound):
    observation_space = Box(0, np.inf, (2,), np.float64)

    def reset(self, **options):
        return self.seen(super().reset(**options)[0]), {}

    def step(self, action):
        observation, *rest = super().step(action)
        return self.seen(observation), *rest

    def seen(self, observation):
        return np.array([1.7e9 + self.t, self.t], np.float64)


class WithoutChance(Sound):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=3)


class ClosesOnce(Sound):
    def close(self):
        if self.__dict__.get("is_closed"):
            raise KeyError("window")
        self.is_closed = True


@pytest.mark.parametrize(
    ("env", "severity", "check", "seen"),
    [
        (make(observation_space=Text(3)), "error", "spaces", "Text"),
        (make(step=returns(observation=np.float32([0, np.nan]))), "error", "episodes", r"\[1\] is nan .step.. at"),
        (make(step=returns(observation=np.zeros(3, np.float32))), "error", "episodes", r"has shape \(3,\)"),
        (make(step=returns(observation=np.float32([0, 1e3]))), "error", "episodes", "lies above the upper bound"),
        (Clock, "error", "episodes", r"observation\[0\] near 1700000000 changes by less than 128"),
        (make(step=returns(observation=np.zeros(2))), "warning", "episodes", "dtype float64, its space float32"),
        (make(step=returns(observation=[0, 0])), "note", "episodes", "is a list"),
        (make(step=returns(reward=float("inf"))), "error", "episodes", "the reward must be finite"),
        (make(step=returns(reward="1")), "error", "episodes", "the reward must be a number"),
        (make(step=returns(reward=np.ones(1))), "note", "episodes", "the reward is an array"),
        (make(step=returns(terminated=0)), "warning", "episodes", "terminated is 0 .int"),
        (make(step=returns(terminated="no")), "error", "episodes", "terminated is 'no' .str"),
        (make(step=returns(info=[])), "error", "episodes", r"info is \[\]"),
        (make(step=raises), "error", "episodes", "RuntimeError: the motor is stuck .test_check_env.py:.* in raises"),
        (make(step=lambda self, action: (0, 0)), "error", "form", "step.. returned 2 values"),
        (make(reset=lambda self, **_: (np.zeros(2, np.float32), None)), "error", "form", "reset.. returned None as"),
        (make(action_space=Box(-np.inf, np.inf, (1,))), "warning", "spaces", "infinite bounds"),
        (make(observation_space=Box(-1e6, 1e6, (2,))), "note", "spaces", r"bounds of up to 1e\+06"),
        (Reuses, "warning", "episodes", "changed the array of the observation before"),
        (NeverEnds, "warning", "episodes", "no episode has ended within 100 steps"),
        (AlwaysTheSame, "warning", "episodes", "all observations of 100 steps were equal"),
        (make(step=lambda self, a: (Sound.step(self, a)[0], 0.0, False, self.t > 9, {})), "note", "episodes", "were 0"),
        (make(step=draws_globally), "warning", "seeds", "do not with random and numpy.random seeded"),
        (make(step=by_the_clock), "warning", "seeds", "episodes differ in the observation of step 1"),
        (WithoutChance, "note", "seeds", "seeds 7 and 8 give equal episodes"),
        (Shares, "error", "instances", "differs in the observation of step .* when another environment"),
        (Leaks, "warning", "memory", "memory grows by 8,... bytes a step, over episodes: .* GB in a million"),
        (make(render=lambda self: [1]), "warning", "rendering", "render.. gives list"),
        (make(metadata={"render_modes": []}), "note", "rendering", r"is \[\]"),
        (ClosesOnce, "note", "closing", "a second close.. raises KeyError"),
        (
            make(__init__=lambda self, config=None: time.sleep("x")),
            "error", "construction", "TypeError.*test_check_env.py",
        ),
    ],
)  # fmt: skip
def test_a_mistake_has_its_finding(env, severity, check, seen):
    report = found(env)
    findings = report.find(check) if check else report.findings
    assert any(f.severity == severity and re.search(seen, f.seen) for f in findings), str(report)
    assert report.passes() == (severity != "error"), str(report)
    for finding in report.findings:
        assert finding.rule and finding.remedy


def test_observations_outside_their_space_are_not_also_called_equal():
    report = found(make(step=returns(observation=np.float32([0, 1e3]))))
    assert not any("were equal" in finding.seen for finding in report.findings), str(report)


def test_findings_have_no_colours_of_a_terminal():
    report = found(make(step=lambda self, action: (np.zeros(2), *Sound.step(self, action)[1:])))
    assert report.find("gymnasium"), "gymnasium warns in yellow"
    assert not any("\x1b" in finding.seen + finding.rule for finding in report.findings), str(report)


def test_a_report_is_readable_in_a_notebook():
    pretty = pytest.importorskip("IPython.lib.pretty")
    report = found(NeverEnds)
    assert pretty.pretty(report) == str(report)


def test_memory_of_an_episode_is_none_that_grows():
    assert not found(ClearsItsHistory).find("memory")


def test_what_cannot_be_sent_to_workers():
    lock = threading.Lock()
    report = found(lambda: [lock, Sound()][1])
    (finding,) = report.find("workers")
    assert finding.severity == "error" and "cannot be pickled" in finding.seen


def test_environments_of_the_old_api_are_warned_of_and_checked_on():
    class Old:
        observation_space, action_space = Box(0, 99, (1,)), Discrete(2)

        def reset(self):
            self.t = 0
            return np.zeros(1, np.float32)

        def step(self, action):
            self.t += 1
            return np.full(1, self.t, np.float32), float(action), self.t == 4, {}

    report = found(Old)
    assert report.passes() and not report.passes(strict=True)
    assert {"reset() returns the observation alone"} <= {finding.seen for finding in report.find("form")}
    assert report.measured["mean_length"] == 4


def test_an_environment_that_is_made_already():
    report = found(Sound())
    assert report.passes() and "workers" not in report.checks and "seeds" in report.checks
    assert found(make(step=raises)()).of("error")


class Masked(gymnasium.Env):
    observation_space = Dict({"action_mask": Box(0, 1, (3,), np.int8), "x": Box(-9, 9, (1,))})
    action_space = Discrete(3)

    def __init__(self, config=None):
        pass

    def _observe(self):
        return {"action_mask": np.int8([0, 1, 0]), "x": self.np_random.normal(size=1).astype(np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action):
        if action != 1:
            raise ValueError(f"action {action} is illegal")
        self.t += 1
        return self._observe(), 1.0, self.t == 5, False, {}


def masked_vector(context):
    return SyncVectorEnv([Masked] * context.num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize("env", [Masked, masked_vector])
def test_masks_are_respected(env, monkeypatch):
    monkeypatch.setattr(speed, "TOGETHER_S", 0.1)
    assert not found(env, num_envs=2).of("error")


def test_what_gymnasium_warns_of_is_plain_text():
    def step(self, action):
        observation, reward, *rest = Sound.step(self, action)
        return observation, np.array(reward), *rest

    (note,) = found(make(step=step)).find("gymnasium")
    assert note.seen.startswith("The reward returned by `step()`") and note.seen.isprintable()


def test_vectors_are_run_in_their_stream():
    def vector(context):
        makers = [CountingEnv] * context.num_envs
        return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP)

    report = found(vector, num_envs=4)
    assert report.passes() and report.measured["num_envs"] == 4 and report.measured["episodes"] > 10
    assert report.measured["autoreset_mode"] == "NEXT_STEP"


def test_several_together_in_a_loop_and_in_processes(monkeypatch):
    monkeypatch.setattr(speed, "TOGETHER_S", 0.1)
    report = found(Sound, num_envs=2)
    assert report.measured["sync_steps_per_second"] > 0 < report.measured["async_steps_per_second"]
    assert 'gym_env_vectorize_mode="' in report.find("together")[0].remedy


def test_what_waits_is_told_from_what_computes():
    def waits(self, action):
        time.sleep(0.005)
        return Sound.step(self, action)

    (finding,) = found(make(step=waits), steps=20).find("speed")
    assert "It waits rather than computes" in finding.remedy


def test_wrappers_and_config_belong_to_it():
    report = found("CartPole-v1", env_config={"max_episode_steps": 5}, env_wrappers=["TimeAwareObservation"])
    assert report.passes() and report.measured["mean_length"] <= 5 and "(5,)" in report.measured["observation_space"]
    assert not found(NeverEnds, env_wrappers=[{"TimeLimit": {"max_episode_steps": 50}}]).find("episodes")


def test_errors_are_raised_with_the_report():
    with pytest.raises(EnvironmentCheckError, match="the motor is stuck") as caught:
        rllib.check_env(make(step=raises), steps=STEPS)
    again = cloudpickle.loads(cloudpickle.dumps(caught.value))
    assert again.report == caught.value.report
    assert rllib.check_env(Sound, steps=STEPS).passes()
    with pytest.raises(ValueError, match="there is no environment 'CartPoole-v1'"):
        rllib.check_env("CartPoole-v1")
    with pytest.raises(ValueError, match="steps=0 must be at least 1"):
        rllib.check_env(Sound, steps=0)


def test_a_report_is_plain_data():
    report = found(make(step=raises))
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["passes"] is False and plain["findings"][0]["severity"] == "error"
    assert str(report).startswith("Changed: 1 error")
