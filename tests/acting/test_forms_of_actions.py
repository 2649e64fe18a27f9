"""Actions have the dtype of their space, and lie in it, by whatever way a policy acts."""

import asyncio
import contextlib
import inspect
import threading
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rllib import PPOConfig, load_policy
from rllib.client import PolicyClient, RunEnded
from tests.serving.serving_support import AppClient

SEEN = Box(-1, 1, (2,))
OBSERVATION = np.array([0.5, -1], np.float32)
# gymnasium 1.1 and 1.2 have no dtype of Discrete.
NARROW = {"dtype": np.int32} if "dtype" in inspect.signature(Discrete).parameters else {}
SPACES = {
    "int32": Discrete(3, start=-1, **NARROW),
    "choices": MultiDiscrete([2, 3], dtype=np.int32, start=[1, 0]),
    "bytes": MultiDiscrete([2, 3], dtype=np.uint8),
    "bits": MultiBinary(3),
    "numbers": Box(0, 9, (2,), np.uint8),
    "doubles": Box(-1, 1, (2,), np.float64),
    "halves": Box(-1, 1, (), np.float16),
    "tuple": Tuple([MultiDiscrete([2, 3], dtype=np.int32), Discrete(2, start=1)]),
    "dict": Dict(bits=MultiBinary(2), number=Box(-1, 1, (1,), np.float64)),
}


class Noting(gymnasium.Env):
    """Notes the actions that it is given."""

    observation_space = SEEN
    taken: ClassVar[list] = []

    def __init__(self, config):
        self.action_space = config["space"]

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return OBSERVATION, {}

    def step(self, action):
        self.taken.append(action)
        self.steps += 1
        return OBSERVATION, 0.0, self.steps == 4, False, {}


def config(space):
    config = PPOConfig().rollouts(num_rollout_workers=0, rollout_fragment_length=8)
    return config.training(train_batch_size=8, sgd_minibatch_size=8, num_sgd_iter=1, model={"fcnet_hiddens": [4]})


def of_client(space, inference: str) -> list:
    """Actions that a client is given."""
    given = []

    def play(url):
        with contextlib.suppress(RunEnded), PolicyClient(url, inference) as client:
            while True:
                episode = client.start_episode()
                given.extend(client.get_action(episode, OBSERVATION) for _ in range(4))
                client.end_episode(episode, OBSERVATION)

    served = config(space).environment(observation_space=SEEN, action_space=space).external(listen="127.0.0.1:0")
    with served.build() as algorithm:
        (url,) = algorithm.workers.foreach_worker(lambda worker: worker.env.url)
        thread = threading.Thread(target=play, args=(url,))
        thread.start()
        algorithm.sample(8)
    thread.join(20)
    return given


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_actions_have_the_form_of_their_space(space, tmp_path):
    Noting.taken.clear()
    built = config(space).environment(Noting, env_config={"space": space})
    with built.build() as algorithm:
        algorithm.sample(8)
        loaded = load_policy(algorithm.save(tmp_path / "saved"), load_user_code=True)
        ways = {"environment": list(Noting.taken)}
        for name, acting in (("algorithm", algorithm), ("loaded policy", loaded)):
            ways |= {
                f"{name}, one": [acting.compute_single_action(OBSERVATION)],
                f"{name}, several": list(acting.compute_actions([OBSERVATION] * 3)),
                f"{name}, predict": [acting.predict(OBSERVATION)[0]],
                f"{name}, player": [acting.make_player().act(OBSERVATION)],
            }
    ways |= {f"client, {inference}": of_client(space, inference) for inference in ("remote", "local")}
    for way, actions in ways.items():
        assert actions and all(map(space.contains, actions)), (way, actions[:1])
        if isinstance(space, Box | MultiDiscrete | MultiBinary):
            assert {each.dtype for each in actions} == {space.dtype}, way
    if space.shape is None:
        return

    async def raw():
        return await AppClient(tmp_path / "saved", load_user_code=True)(
            "POST", "/act", OBSERVATION.tobytes(), content_type="application/octet-stream"
        )

    expected = loaded.compute_single_action(OBSERVATION, explore=False)
    answer = np.frombuffer(asyncio.run(raw()).body, space.dtype)
    np.testing.assert_array_equal(answer.reshape(space.shape), expected)
