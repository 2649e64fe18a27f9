"""Environments with numbers that only a teacher reads, and teachers, for tests of policies that are taught."""

import atexit
import functools
import tempfile

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from rllib import PPOConfig, load_policy

# A memory, of students and of teachers.
GRU = {"use_gru": True, "lstm_cell_size": 8, "max_seq_len": 4}


class Secretive(gymnasium.Env):
    """Episodes whose observations say where they are from: "place" is (environment, episode, step) to whoever sees it.

    The key "secret" holds a number that follows from the place, and half of the episodes are truncated. An action
    changes nothing but the reward: 1 for `right_choice`.

    Args:
        config: "actions": the action space; by default two choices.
    """

    observation_space = Dict({"place": Box(0, 1e4, (3,), np.float32), "secret": Box(-1, 1, (2,), np.float32)})

    def __init__(self, config=None):
        self.action_space = (config or {}).get("actions", Discrete(2))
        self._serial = self._episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self._serial = seed % 997
        self._episode, self._step = self._episode + 1, 0
        self._length = int(self.np_random.integers(2, 9))
        return self._observation(), {}

    def step(self, action):
        reward = float(np.all(action == right_choice(self._observation())))
        self._step += 1
        is_over = self._step == self._length
        return self._observation(), reward, is_over and self._episode % 2 == 0, is_over and self._episode % 2 == 1, {}

    def _observation(self):
        return whole([self._serial, self._episode, self._step])


def whole(place) -> dict:
    """The whole observation at a place."""
    place = np.array(place, np.float32)
    return {"place": place, "secret": np.sin(place[1:] * 7 + place[0]).astype(np.float32)}


def right_choice(observation) -> int:
    """The choice of the only action that is rewarded."""
    return int(observation["secret"][0] > 0)


def by_rule(observations) -> np.ndarray:
    """A teacher that is a function."""
    return (observations["secret"][:, 0] > 0).astype(np.int64)


def answers(rule, places) -> np.ndarray:
    """What a teacher that is a function does at these places."""
    return rule({"secret": np.array([whole(place)["secret"] for place in places])})


def played(path, places) -> tuple[np.ndarray, np.ndarray]:
    """A teacher's actions and distribution inputs at these places, by playing each episode with it.

    Args:
        path: of the teacher.
        places: [T, 3], episode by episode, each from its first step on.
    """
    player, actions, inputs, state = load_policy(path), [], [], None
    for index, place in enumerate(places):
        follows = index and (place[:2] == places[index - 1][:2]).all()
        state = state if follows else player.get_initial_state()
        action, state, fetches = player.compute_single_action(whole(place), state, explore=False, full_fetch=True)
        actions.append(action)
        inputs.append(fetches["action_dist_inputs"])
    return np.array(actions), np.array(inputs)


@functools.cache
def teacher_of(env: str) -> str:
    """The path of a small untrained policy of an environment, which stays until the process ends."""
    place = tempfile.TemporaryDirectory(prefix="rllib-teacher-")
    atexit.register(place.cleanup)
    config = PPOConfig().environment(env).rollouts(num_rollout_workers=0).debugging(seed=0)
    with config.training(model={"fcnet_hiddens": [8]}).build() as algo:
        return str(algo.export_policy_model(f"{place.name}/teacher"))


def made_teacher(path, env=Secretive, *, model=None, **settings) -> str:
    """The path of a checkpoint of a policy that sees everything, has a filter, and has learned a little."""
    config = (
        PPOConfig().environment(env, **settings).rollouts(num_rollout_workers=0, observation_filter="MeanStdFilter")
    )
    config.training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=2, lr=0.05)
    config.training(model={"fcnet_hiddens": [16], **(model or {})}).debugging(seed=3)
    with config.build() as algo:
        algo.train()
        return str(algo.save(path))
