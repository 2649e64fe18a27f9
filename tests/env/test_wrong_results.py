"""Results of step() and reset() that break the API after the steps that are checked: each says rule, place and step."""

import gymnasium as gym
import numpy as np
import pytest

from rllib.env.factories.make import make_stream
from rllib.env.factories.registry import resolve

OK = np.zeros(2, np.float32)
CHECKED = 2
STEP = "step() must return (observation, reward, terminated, truncated, info): "
FLAG = "step() must return True or False as"


class Wrong(gym.Env):
    """Ends every third step; gives what the config says as the result of its fifth, or of its second reset."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.config, self.steps, self.resets = config, 0, 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        return self.config["reset"] if self.resets == 2 and "reset" in self.config else (OK, {})

    def step(self, action):
        self.steps += 1
        result = (OK, 1.0, self.steps % 3 == 0, False, {})
        return self.config["step"] if self.steps == 5 and "step" in self.config else result


def after_five_steps(in_evaluation=False, active=None, **config):
    options = {"env_config": config, "worker_index": 4, "check": CHECKED, "in_evaluation": in_evaluation}
    with make_stream(resolve(Wrong), num_envs=2, seeds=[0, 1], **options) as stream:
        buffers = stream.new_buffers()
        stream.reset(buffers)
        for _ in range(5):
            stream.step(np.zeros(2, int), buffers, active)
        return buffers


@pytest.mark.parametrize("active", [None, [True, True]])
@pytest.mark.parametrize(
    ("wrong", "error", "rule"),
    [
        ({"step": (OK, 1.0, np.array([True, False]), False, {})}, TypeError, f"{FLAG} terminated, but it is array("),
        ({"step": (OK, 1.0, None, False, {})}, TypeError, f"{FLAG} terminated, but it is None"),
        ({"step": (OK, 1.0, False, None, {})}, TypeError, f"{FLAG} truncated, but it is None"),
        ({"step": (OK, 1.0, "no", False, {})}, TypeError, f"{FLAG} terminated, but it is 'no'"),
        ({"step": (OK, 1.0, False, {})}, TypeError, f"{STEP}not enough values to unpack (expected 5, got 4)"),
        ({"step": None}, TypeError, f"{STEP}cannot unpack non-iterable NoneType object"),
        ({"step": (np.array(["a", "b"]), 1.0, False, False, {})}, ValueError, "needs numbers"),
        ({"reset": None}, TypeError, "reset() must return (observation, info): cannot unpack non-iterable NoneType"),
        ({"reset": (np.array(["a", "b"]), {})}, ValueError, "needs numbers"),
    ],
)
def test_a_wrong_result_is_told_with_rule_and_place(wrong, error, rule, active):
    with pytest.raises(error) as raised:
        after_five_steps(**wrong, active=active)
    told = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert rule in told and "environment 0 of rollout worker 4 (Wrong)" in told
    assert "at step 5" in told or "after an episode of 3 steps" in told or "at step 3" in told or "at step 2" in told


@pytest.mark.parametrize("flag", [True, np.True_, 1, np.array([True])])
def test_what_stands_for_a_bool_is_taken(flag):
    buffers = after_five_steps(step=(OK, 1.0, flag, np.False_, {}))
    assert buffers.terminated.tolist() == [True, True] and not buffers.truncated.any()


def test_the_faults_of_an_evaluation_are_those_of_its_worker():
    for wrong in ({"step": None}, {"step": (OK, float("nan"), False, False, {})}, {"reset": None}):
        with pytest.raises((TypeError, ValueError)) as raised:
            after_five_steps(in_evaluation=True, **wrong)
        told = "\n".join([str(raised.value), *raised.value.__notes__])
        assert "evaluation worker 4" in told and "rollout" not in told


OKS, NO = np.zeros((2, 2), np.float32), np.zeros(2, bool)


class WrongVector(gym.vector.VectorEnv):
    num_envs = 2
    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012
    single_observation_space, single_action_space = Wrong.observation_space, Wrong.action_space
    action_space = gym.spaces.MultiDiscrete([2, 2])

    def __init__(self, config):
        self.config = config

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 2), np.float32), {}

    def step(self, actions):
        no = np.zeros(2, bool)
        result = (np.zeros((2, 2), np.float32), np.zeros(2), no, no, {})
        return self.config.get("step", result)


@pytest.mark.parametrize(
    ("result", "rule"),
    [
        ((OKS, np.zeros(2), None, NO, {}), "must return 2 bools as terminated, but it is None"),
        ((OKS, np.zeros(2), NO, False, {}), "must return 2 bools as truncated, but it is False"),
        ((OKS, np.zeros(2), NO, {}), STEP),
    ],
)
def test_a_wrong_result_of_a_vector_is_told_with_rule_and_place(result, rule):
    options = {"env_config": {"step": result}, "worker_index": 4, "in_evaluation": True}
    with make_stream(resolve(WrongVector), num_envs=2, seeds=[0, 1], **options) as stream:
        buffers = stream.new_buffers()
        stream.reset(buffers)
        with pytest.raises(TypeError) as raised:
            stream.step(np.zeros(2, int), buffers)
    told = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert rule in told and "vector environment WrongVector of evaluation worker 4" in told
