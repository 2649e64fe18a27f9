"""Environments in a process each, by the names of Stable-Baselines3's SubprocVecEnv."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np

from rllib.env.spaces.batches import batch_of
from rllib.env.streams.process import EnvironmentProcess
from rllib.env.vec_env.base import VecEnv


class CloudpickleWrapper:
    """A function as programs wrap it that send one to a process; here a process is forked, and nothing is sent.

    Args:
        var: the function.
    """

    def __init__(self, var: Any):
        self.var = var


class _StartingAgain:
    """An environment in its process: it resets at the end of an episode, and answers questions about its wrappers."""

    def __init__(self, make: Callable[[], gymnasium.Env]):
        self._env = make()
        self.observation_space, self.action_space = self._env.observation_space, self._env.action_space

    @property
    def unwrapped(self):
        return self._env.unwrapped

    def step(self, action):
        observation, reward, terminated, truncated, info = self._env.step(action)
        info = {**info, "TimeLimit.truncated": bool(truncated and not terminated)}
        reset_info = None
        done = bool(terminated or truncated)
        if done:
            info["terminal_observation"] = observation
            observation, reset_info = self._env.reset()
        return observation, float(reward), done, info, reset_info

    def reset(self, *, seed=None, options=None):
        return self._env.reset(seed=seed, **({"options": options} if options else {}))

    def reset_with(self, seed, options):
        return self.reset(seed=seed, options=options)

    def close(self):
        self._env.close()

    def has(self, name: str) -> bool:
        return self._env.has_wrapper_attr(name)

    def attribute(self, name: str) -> Any:
        return self._env.get_wrapper_attr(name)

    def put(self, name: str, value: Any) -> None:
        self._env.set_wrapper_attr(name, value)

    def called(self, name: str, arguments: tuple, keywords: dict[str, Any]) -> Any:
        return self._env.get_wrapper_attr(name)(*arguments, **keywords)

    def is_wrapped(self, wrapper_class: type) -> bool:
        return any(isinstance(each, wrapper_class) for each in self._layers())

    def _layers(self) -> Iterator[gymnasium.Env]:
        env = self._env
        yield env
        while isinstance(env, gymnasium.Wrapper):
            env = env.env
            yield env


class SubprocVecEnv(VecEnv):
    """Environments that are stepped at the same time, each in a process that is forked from this one.

    Args:
        env_fns: functions without arguments; each returns a new environment, in its process.
        start_method: None or "fork"; others have no effect, for functions need not be pickled.

    Attributes:
        waiting: whether a step is under way.
        closed: whether the processes have been ended.

    Raises:
        ValueError: without a function.
        EnvironmentDiedError: if a process ends; what an environment raises comes as it is.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gymnasium.Env]], start_method: str | None = None):
        if not env_fns:
            raise ValueError("a vector environment needs at least one function that makes an environment")
        self.waiting = self.closed = False
        self.processes = [
            EnvironmentProcess(lambda make=make: _StartingAgain(make), f"environment {index}", "the environment")
            for index, make in enumerate(env_fns)
        ]
        first = self.processes[0]
        super().__init__(len(env_fns), first.observation_space, first.action_space)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.num_envs} environments>"

    def reset(self):
        if any(self._options):
            answers = [
                process.reset_with(seed, options)
                for process, seed, options in zip(self.processes, self._seeds, self._options, strict=True)
            ]
        else:
            for process, seed in zip(self.processes, self._seeds, strict=True):
                process.begin("reset", seed)
            answers = [process.reset() for process in self.processes]
        self._seeds = [None] * self.num_envs
        self._options = [{} for _ in range(self.num_envs)]
        observations, infos = zip(*answers, strict=True)
        self.reset_infos = list(infos)
        return batch_of(self.observation_space, observations)

    def step_async(self, actions):
        if len(actions) != self.num_envs:
            raise ValueError(f"{self.num_envs} environments take as many actions, but got {len(actions)}")
        for process, action in zip(self.processes, actions, strict=True):
            process.begin("step", action)
        self.waiting = True

    def step_wait(self):
        answers = [process.step(None) for process in self.processes]
        self.waiting = False
        observations, rewards, dones, infos, reset_infos = zip(*answers, strict=True)
        for index, info in enumerate(reset_infos):
            if info is not None:
                self.reset_infos[index] = info
        batch = batch_of(self.observation_space, observations)
        return batch, np.array(rewards, np.float32), np.array(dones, bool), list(infos)

    def close(self):
        self.closed = True
        for process in self.processes:
            process.begin_close()
        for process in self.processes:
            process.close()

    def _chosen(self, indices) -> list[EnvironmentProcess]:
        return [self.processes[index] for index in self._indices(indices)]

    def has_attr(self, attr_name):
        return all(process.has(attr_name) for process in self.processes)

    def get_attr(self, attr_name, indices=None):
        return [process.attribute(attr_name) for process in self._chosen(indices)]

    def set_attr(self, attr_name, value, indices=None):
        for process in self._chosen(indices):
            process.put(attr_name, value)

    def env_method(self, method_name, *method_args, indices=None, **method_kwargs):
        return [process.called(method_name, method_args, method_kwargs) for process in self._chosen(indices)]

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [process.is_wrapped(wrapper_class) for process in self._chosen(indices)]

    def get_images(self):
        return self.env_method("render") if self.render_mode == "rgb_array" else [None] * self.num_envs
