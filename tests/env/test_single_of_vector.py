"""The only environment of a vector of one, as players, videos and exports step it."""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rllib import PPOConfig
from rllib.env.factories.single import SingleOfVector
from rllib.serving.export import export_policy
from tests.envs import in_vector
from tests.tensor_envs import Tensors

LIMIT = 7


class Counts(gymnasium.Env):
    """Counts the steps, in an order that its seed begins; it terminates at LIMIT, or is truncated below by chance."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gymnasium.spaces.Dict({"count": gymnasium.spaces.Box(0, 200, (1,)),
                                               "odd": gymnasium.spaces.Discrete(2)})  # fmt: skip
    action_space = gymnasium.spaces.MultiDiscrete([3, 2])

    def __init__(self, config=None):
        self.render_mode = (config or {}).get("render_mode")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.first = 0, int(self.np_random.integers(100))
        return self._seen(), {"first": self.first}

    def step(self, action):
        self.count += 1
        truncated = bool(self.np_random.random() < 0.1)
        return self._seen(), float(action[0]), self.count == LIMIT, truncated, {"count": self.count}

    def _seen(self):
        return {"count": np.array([self.first + self.count], np.float32), "odd": self.count % 2}

    def render(self):
        return np.full((4, 4, 3), self.count, np.uint8)


def rows(env, steps=60, with_infos=True):
    """What an environment gives for the same actions: observation, reward and flags of resets and steps, and infos."""
    rng = np.random.default_rng(0)
    (seen, info), found = env.reset(seed=3), []
    for _ in range(steps):
        found.append((float(seen["count"][0]), int(seen["odd"]), with_infos and info.get("first")))
        seen, *result, info = env.step(np.array([rng.integers(3), rng.integers(2)]))
        found.append((float(seen["count"][0]), int(seen["odd"]), *map(float, result), with_infos and info["count"]))
        if result[1] or result[2]:
            seen, info = env.reset()
    return found


@pytest.mark.parametrize("in_tensors", [False, True])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_it_gives_what_the_environment_gives(mode, in_tensors):
    vector = SyncVectorEnv([Counts], autoreset_mode=mode)
    single = SingleOfVector(Tensors(vector) if in_tensors else vector)
    assert rows(single, with_infos=not in_tensors) == rows(Counts(), with_infos=not in_tensors)


def test_the_final_observation_and_info_are_those_before_a_reset_within_the_step():
    env = SingleOfVector(SyncVectorEnv([Counts], autoreset_mode=AutoresetMode.SAME_STEP))
    env.reset(seed=3)
    for _ in range(20):
        first, steps, over = env.reset()[1]["first"], 0, False
        while not over:
            seen, _, terminated, truncated, info = env.step(np.array([0, 0]))
            steps, over = steps + 1, terminated or truncated
            assert seen["count"][0] == first + steps and info["count"] == steps
        assert terminated or steps < LIMIT


def test_it_is_drawn():
    env = SingleOfVector(
        SyncVectorEnv([functools.partial(Counts, {"render_mode": "rgb_array"})], autoreset_mode=AutoresetMode.NEXT_STEP)
    )
    env.reset(seed=0)
    env.step(np.array([0, 0]))
    assert env.render_mode == "rgb_array" and env.render().tolist() == np.ones((4, 4, 3)).tolist()


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_policy_of_a_vector_environment_is_exported(mode, tmp_path):
    """The export is compared with the policy on observations that an environment of the run gives."""
    config = PPOConfig().environment(in_vector(Counts, mode)).rollouts(num_rollout_workers=0, num_envs_per_worker=2)
    with config.build() as algo:
        assert export_policy(algo, tmp_path / "policy.pt", "torchscript").parity.num_rows > 100
