"""Environments with a mistake: one clear error, in the driver, that says what, where, and what to do."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import SyncVectorEnv

from rllib.env import check_environment, make_stream, resolve
from tests.env.transitions import Tape, constant_actions
from tests.envs import ProbeFailure, RaisingEnv


class Scripted(gymnasium.Env):
    """Returns what its config says: `space`, `first`, `following`, `step` (the whole result), `reset` (likewise)."""

    action_space = Discrete(2)

    def __init__(self, config):
        self.config = config
        self.observation_space = config.get("space", Box(-1, 1, (3,), np.float32))
        self.action_space = config.get("action_space", self.action_space)

    def reset(self, *, seed=None, options=None):
        first = self.config.get("first", np.zeros(3, np.float32))
        return self.config.get("reset", (first, {}))

    def step(self, action):
        following = self.config.get("following", self.config.get("first", np.zeros(3, np.float32)))
        return self.config.get("step", (following, self.config.get("reward", 1.0), False, False, {}))


def check(**config):
    return check_environment(resolve(Scripted), config)


LARGEST = np.finfo(np.float32).max


def cpp_box(dtype):
    """A Box with the bounds of C++'s numeric_limits."""
    limits = np.finfo(dtype)
    return Box(limits.tiny, limits.max, (3,), dtype)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"first": np.zeros(4)}, r"observation has shape \(4,\), but Box.* needs shape \(3,\) \(returned by reset"),
        ({"following": [0, 0]}, r"observation has shape \(2,\).*returned by step"),
        ({"following": [[0], [0, 0]]}, "observation is a ragged list"),
        ({"following": [0, 0, 1.5]}, r"observation\[2\] = 1.5 lies above the upper bound 1.0 of Box"),
        ({"following": [0, -7, 0]}, r"observation\[1\] = -7 lies below the lower bound -1.0 of Box"),
        ({"following": [0, 0, np.nan]}, r"observation\[2\] is nan"),
        ({"following": None}, r"observation is None \(NoneType\), but Box.* needs numbers"),
        ({"first": "north"}, r"observation is 'north' \(str\)"),
        ({"space": Box(0, 255, (2,), np.uint8), "first": [0.5, 3]}, r"\[0\] = 0.5 cannot be stored as uint8 without"),
        ({"space": Box(0, 255, (2,), np.uint8), "first": [3, 256]}, r"\[1\] = 256 cannot be stored as uint8 without"),
        ({"space": Discrete(16), "first": 16}, r"observation = 16 lies above the upper bound 15 of Discrete\(16\)"),
        ({"space": Discrete(3, start=5), "first": 4}, "observation = 4 lies below the lower bound 5"),
        ({"space": Discrete(4), "first": np.array([1])}, r"observation has shape \(1,\)"),
        (
            {"space": spaces.MultiDiscrete([2, 3]), "first": [1, 3]},
            r"observation\[1\] = 3 lies above the upper bound 2",
        ),
        ({"space": spaces.MultiBinary(2), "first": [0, 2]}, r"observation\[1\] = 2 "),
        (
            {"space": spaces.Dict(gripper=Box(0, 4.8, (3,)), speed=Discrete(2)), "first": {"gripper": [0, 0, 5.3]}},
            r"observation lacks the key 'speed'; its space has the keys \['gripper', 'speed'\]",
        ),
        (
            {
                "space": spaces.Dict(arm=spaces.Dict(gripper=Box(0, 4.8, (3,)))),
                "first": {"arm": {"gripper": [0, 0, 5.3]}},
            },
            r"observation\['arm'\]\['gripper'\]\[2\] = 5.3 lies above the upper bound 4.8",
        ),
        ({"space": spaces.Dict(a=Discrete(2)), "first": {"a": 0, "b": 1}}, "has the key 'b'"),
        ({"space": spaces.Dict(a=Discrete(2)), "first": [0]}, r"needs a dict with the keys \['a'\]"),
        ({"space": spaces.Tuple([Discrete(2), Discrete(3)]), "first": (0, 3)}, r"observation\[1\] = 3"),
        ({"space": spaces.Tuple([Discrete(2)]), "first": (0, 3)}, "needs a tuple of 1 parts"),
        ({"reward": np.nan}, "reward must be finite, .*but step.. returned nan"),
        ({"reward": None}, r"reward must be a number, but step.. returned None \(NoneType\)"),
        ({"reward": [1.0, 2.0]}, "reward must be a number"),
        ({"step": (np.zeros(3), 1.0, None, False, {})}, "must return True or False as terminated, but it is None"),
        ({"step": (np.zeros(3), 1.0, False, False, None)}, "must return a dict as info, but it is None"),
        ({"step": (np.zeros(3), 1.0, False)}, "Scripted returned 3 values"),
        ({"step": None}, r"Scripted returned None \(NoneType\)"),
        ({"reset": (np.zeros(3), None)}, r"must return \(observation, info\) with a dict as info, but info is None"),
        ({"reset": None}, r"observation is None .*returned by reset"),
        (
            {"space": spaces.Text(5)},
            r"observation_space is Text.*Text spaces are not supported.*Supported are Box, Disc",
        ),
        (
            {"space": spaces.Dict(x=spaces.Tuple([spaces.Sequence(Discrete(2))]))},
            r"observation_space\['x'\]\[0\] is Seq",
        ),
        ({"space": spaces.Graph(Discrete(2), None)}, "Graph spaces are not supported"),
        ({"action_space": spaces.OneOf([Discrete(2)])}, "action_space is OneOf.*not supported"),
        ({"space": spaces.Box(-1, 1, (0,))}, r"observation_space is Box.*holds no number.*Discrete\(1\)"),
        ({"space": spaces.Dict()}, "observation_space is Dict.*holds no number"),
        ({"action_space": spaces.Tuple([])}, "action_space is Tuple.*holds no number"),
        (
            {"action_space": spaces.Dict(a=spaces.Text(3))},
            r"action_space\['a'\] is Text.*Text spaces are not supported",
        ),
        ({"space": None}, "observation_space must be a space of gymnasium.spaces, but it is None"),
        ({"space": cpp_box(np.float64)}, r"observation_space is Box.* calls min\(\).*give -inf and inf"),
        ({"space": spaces.Dict(x=cpp_box(np.float32))}, r"observation_space\['x'\] is Box.*smallest positive"),
        ({"action_space": cpp_box(np.float64)}, "action_space is Box.*smallest positive"),
        (
            {"action_space": spaces.Tuple([Box(-LARGEST, LARGEST, (2,))])},
            r"action_space\[0\] is Box.*the largest floats.*\[-1, 1\], which is stretched",
        ),
    ],
)
def test_message_names_the_mistake(config, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        check(**config)
    assert "Scripted" in str(caught.value) + "".join(getattr(caught.value, "__notes__", []))


@pytest.mark.parametrize(
    "config",
    [
        {"first": [0, 0, 1]},
        {"first": np.zeros(3, np.float64)},
        {"first": (0.1, 0.2, np.float32(0.3))},
        {"following": np.array([1, 0, -1])},
        {"space": Box(0, 255, (2,), np.uint8), "first": [3, 255.0]},
        {"space": Box(0.0, 0.1, (1,), np.float32), "first": [0.1]},
        {"space": Discrete(4), "first": np.int32(3)},
        {"space": spaces.MultiDiscrete([2, 3]), "first": [1, 2]},
        {"space": spaces.Tuple([Discrete(2), Box(0, 1, (2,))]), "first": [1, [0, 1]]},
        {"reward": 1},
        {"reward": np.array([1.0])},
        {"reward": True},
        {"step": (np.zeros(3), 0, 0, np.bool_(False), {})},
    ],
)
def test_what_loses_nothing_is_taken_in_silence(config, caplog, recwarn):
    observation_space, action_space = check(**config)
    assert observation_space == config.get("space", Box(-1, 1, (3,), np.float32))
    assert action_space == Discrete(2)
    assert not caplog.records and not recwarn.list


def test_checks_can_be_switched_off():
    factory = resolve(Scripted)
    with make_stream(factory, num_envs=1, seeds=[0], env_config={"first": [0, 0, 2]}, check=False) as stream:
        assert Tape(stream).reset()[0].tolist() == [0, 0, 2]


def test_spaces_without_steps():
    assert check_environment(resolve(RaisingEnv), {"reset": 1}, check=False) == (
        RaisingEnv.observation_space,
        RaisingEnv.action_space,
    )


def test_vector_environments_are_checked_with_their_number():
    def create(context):
        return SyncVectorEnv([lambda: Scripted({"following": [0, 0, 2]})] * context.num_envs)

    with pytest.raises(ValueError, match=r"observation of environment 0\[2\] = 2.0 lies above"):
        check_environment(resolve(create), num_envs=3)
    made = []
    check_environment(resolve(lambda config: made.append(1) or Scripted({})), num_envs=3)
    assert made == [1]


class Clock(gymnasium.Env):
    """Observes a time that moves by `step` from `start`, beside the number of steps."""

    action_space = Discrete(2)

    def __init__(self, config):
        self.config = config
        box = Box(-np.inf, np.inf, (2,), config.get("dtype", np.float64))
        self.observation_space = spaces.Dict({"time": box, "other": Discrete(2)}) if config.get("is_dict") else box

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.seen(), {}

    def step(self, action):
        self.t += 1
        return self.seen(), 0.0, False, False, {}

    def seen(self):
        time = np.array([self.t, self.config["start"] + self.t * self.config["step"]])
        return {"time": time, "other": 0} if self.config.get("is_dict") else time


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"start": 1.7e9, "step": 1}, r"observation\[1\] near 1700000000 changes by less than 128"),
        ({"start": -1e7, "step": 0.01}, r"observation\[1\] near -10000000 changes by less than 1"),
        ({"start": 1.7e9, "step": 1, "is_dict": True}, r"observation\['time'\]\[1\] near 1700000000"),
    ],
)
def test_numbers_that_stand_still_in_float32_are_refused(config, path):
    def create(context):
        return SyncVectorEnv([lambda: Clock(config)] * context.num_envs)

    advice = r".*, the .* Subtract an offset, .*disable_env_checking=True"
    with pytest.raises(ValueError, match=f"Clock: {path}{advice}"):
        check_environment(resolve(Clock), config)
    with pytest.raises(ValueError, match="changes by less than"):
        check_environment(resolve(create), num_envs=2)
    check_environment(resolve(Clock), config, check=False)


@pytest.mark.parametrize(
    "config",
    [
        {"start": 1.7e9, "step": 0},  # it does not change
        {"start": 1.7e9, "step": 1000},
        {"start": 1e5, "step": 1e-4},  # small: what the last digits say matters little
        {"start": 0, "step": 1},
    ],
)
def test_numbers_that_float32_shows_are_taken(config):
    check_environment(resolve(Clock), config)


def test_reward_arrays_of_one_element_become_numbers():
    with make_stream(resolve(Scripted), num_envs=3, seeds=[0] * 3, env_config={"reward": np.array([2.5])}) as stream:
        tape = Tape(stream)
        tape.reset()
        tape.step(constant_actions(stream))
        assert tape.rewards.tolist() == [2.5] * 3


@pytest.mark.parametrize(("reward", "active"), [(np.nan, None), (-np.inf, None), (None, None), (np.inf, [False, True])])
def test_rewards_that_turn_bad_later_are_noticed(reward, active):
    def create(context):
        env = Scripted(context)
        env.index = context.vector_index
        return env

    with make_stream(resolve(create), num_envs=2, seeds=[0, 1], worker_index=3) as stream:
        tape = Tape(stream)
        tape.reset()
        for _ in range(4):
            tape.step(constant_actions(stream))
        stream._envs[1].config["reward"] = reward  # private: misbehaves from now on
        with pytest.raises(ValueError, match="environment 1: the reward must be") as caught:
            tape.step(constant_actions(stream), active=active)
    assert caught.value.__notes__ == ["in rollout worker 3, at step 5 of its environments"]


def test_shape_that_changes_later_is_noticed():
    with make_stream(resolve(Scripted), num_envs=2, seeds=[0, 1], worker_index=3) as stream:
        tape = Tape(stream)
        tape.reset()
        tape.step(constant_actions(stream))
        stream._envs[1].config["following"] = np.zeros(5)  # private: as above
        with pytest.raises(ValueError, match=r"environment 1 of rollout worker 3 .* observation has shape \(5,\)"):
            tape.step(constant_actions(stream))


@pytest.mark.parametrize("final", [None, [0.5], np.zeros(5)])
def test_final_observations_are_looked_at(final):
    """Some environments hand out something else once the episode is over; numpy would make nan of None."""
    with make_stream(resolve(Scripted), num_envs=2, seeds=[0, 1]) as stream:
        tape = Tape(stream)
        tape.reset()
        tape.step(constant_actions(stream))
        stream._envs[1].config["step"] = (final, 1.0, True, False, {})  # private: as above
        with pytest.raises(ValueError, match=r"environment 1 of rollout worker 0 \(Scripted\): the observation"):
            tape.step(constant_actions(stream))


# ---- environments that raise


def test_error_in_step_keeps_class_and_traceback():
    config = {"step": 6, "worker_index": 2, "vector_index": 1}
    with make_stream(resolve(RaisingEnv), num_envs=3, seeds=[0, 1, 2], worker_index=2, env_config=config) as stream:
        tape = Tape(stream)
        tape.reset()
        with pytest.raises(ProbeFailure, match=r"^asked to fail in step 6") as caught:
            for _ in range(9):
                tape.step([0, 1, 0])
    assert caught.value.__notes__ == [
        "environment 1 of rollout worker 2 (RaisingEnv) raised in step() at step 6 of its episode, action 1"
    ]
    assert caught.traceback[-1].path.name == "envs.py"


def test_error_in_step_counts_from_the_start_of_the_episode():
    def create(context):
        return gymnasium.wrappers.TimeLimit(RaisingEnv({"step": 6}), 4)

    with make_stream(resolve(create), num_envs=1, seeds=[0]) as stream:
        tape = Tape(stream)
        tape.reset()
        with pytest.raises(ProbeFailure) as caught:
            for _ in range(9):
                tape.step([0])
    assert "at step 2 of its episode" in caught.value.__notes__[0]


@pytest.mark.parametrize(("reset", "where"), [(1, r"raised in reset\(\)$"), (2, "after an episode of 1000 steps")])
def test_error_in_reset_says_when(reset, where):
    with make_stream(resolve(RaisingEnv), num_envs=1, seeds=[0], env_config={"reset": reset}) as stream:
        tape = Tape(stream)
        with pytest.raises(ProbeFailure) as caught:
            tape.reset()
            for _ in range(1000):
                tape.step([0])
    assert re.search(where, caught.value.__notes__[0])


@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_driver_check_shows_the_users_own_error(where):
    with pytest.raises(ProbeFailure) as caught:
        check_environment(resolve(RaisingEnv), {where: 1})
    assert "environment 0 of rollout worker 0" in caught.value.__notes__[0]


def test_creators_that_return_no_environment():
    with pytest.raises(TypeError, match=r"None \(NoneType\) lacks reset, step, observation_space, action_space"):
        check_environment(resolve(lambda config: None))


def test_spaces_that_were_never_set():
    class NoSpaces(gymnasium.Env):
        def __init__(self):
            pass

    with pytest.raises(TypeError, match=r"lacks observation_space, action_space.*does its __init__ set both spaces"):
        check_environment(resolve(NoSpaces))


def test_the_users_action_space_is_not_sampled():
    env = Scripted({})
    env.action_space.seed(3)
    wanted = [env.action_space.sample() for _ in range(20)]
    env.action_space.seed(3)
    check_environment(resolve(lambda config: env))
    assert [env.action_space.sample() for _ in range(20)] == wanted
