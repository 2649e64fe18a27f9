"""The running episode of one agent, and its environments, as users' hooks get them."""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rllib.env.spaces.actions import zero_action
from rllib.env.streams.base import EnvironmentStream
from rllib.sample_batch import DEFAULT_POLICY

if TYPE_CHECKING:
    from rllib.evaluation.worker import Worker

AGENT = "agent0"


class RunningEpisode:
    """The running episode that hooks get, from its reset on. The agent id of the `..._for` methods is optional.

    Attributes:
        episode_id: index of the environment in the run << 32 | number of the episode in it, from 0.
        env_id: index of the environment within the worker.
        worker: the worker that has the environment.
        started: whether the environment has been reset; False in on_episode_created.
        length: steps so far.
        total_reward: sum of the raw rewards so far.
        user_data: a dict for the user's hooks.
        custom_metrics: name -> number; the results have name_mean, name_min and name_max.
        hist_data: name -> list of numbers; joined over episodes they are in the results' `hist_stats`.
        media: name -> any object; listed in the results' `episode_media`.
        is_faulty: whether the environment raised, so that the episode is void.
        game_goes_on: whether the episode has ended with a life of a game whose next life is the next episode.
    """

    def __init__(self, worker: "Worker", env_id: int, episode_id: int):
        self.episode_id = episode_id
        self.env_id = env_id
        self.worker = worker
        self.started = False
        self.length = 0
        self.total_reward = 0.0
        self.user_data: dict[str, Any] = {}
        self.custom_metrics: dict[str, float] = {}
        self.hist_data: dict[str, list[float]] = {}
        self.media: dict[str, Any] = {}
        self.is_faulty = False
        self.game_goes_on = False
        # (action, result of step()) of the newest step and of the one before it; zeros if there is none.
        nothing = zero_action(worker.stream.action_space), (None, 0.0, False, False, None)
        self._newest, self._before = nothing, nothing
        self._is_over = False

    def begin(self, observation, info: dict) -> None:
        """Records the result of reset()."""
        self.started = True
        self._newest = self._newest[0], (observation, 0.0, False, False, info)

    def stepped(self, action, result: tuple) -> None:
        """Records the result of step(action). It is evaluated on demand only, since this is called in every step."""
        self.length += 1
        self.total_reward += float(result[1])
        self._before, self._newest = self._newest, (action, result)

    def ended(self) -> None:
        """Records the end of the episode; if the environment has not reported it, a time limit has ended it."""
        self._is_over = True

    def last_observation_for(self, agent_id=AGENT):
        """The newest observation, as returned by the environment."""
        return self._newest[1][0]

    last_raw_obs_for = last_observation_for

    def last_info_for(self, agent_id=AGENT) -> dict | None:
        """The info of the newest observation."""
        return self._newest[1][4]

    def last_action_for(self, agent_id=AGENT):
        """The newest action, in the environment's units; zeros before the first step."""
        return self._newest[0]

    def prev_action_for(self, agent_id=AGENT):
        """The action before that; zeros where there is none."""
        return self._before[0]

    def last_reward_for(self, agent_id=AGENT) -> float:
        """The newest reward; 0 before the first step."""
        return float(self._newest[1][1])

    def prev_reward_for(self, agent_id=AGENT) -> float:
        """The reward before that; 0 where there is none."""
        return float(self._before[1][1])

    def last_terminated_for(self, agent_id=AGENT) -> bool:
        """Whether the newest step terminated the episode."""
        return bool(self._newest[1][2])

    def last_truncated_for(self, agent_id=AGENT) -> bool:
        """Whether the newest step truncated the episode; a time limit is known from `on_episode_end` on."""
        return bool(self._newest[1][3]) or (self._is_over and not self.last_terminated_for())

    def policy_for(self, agent_id=AGENT) -> str:
        """Name of the policy that acts."""
        return DEFAULT_POLICY

    def get_agents(self) -> list[str]:
        """The only agent."""
        return [AGENT]

    @property
    def agent_rewards(self) -> dict[tuple[str, str], float]:
        """The total reward by (agent, policy)."""
        return {(AGENT, DEFAULT_POLICY): self.total_reward}

    # ------------------------------------------------------------------ names of RLlib's new API stack

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return True  # of length 0 as well

    @property
    def id_(self) -> str:
        """`episode_id` as a string."""
        return str(self.episode_id)

    @property
    def custom_data(self) -> dict[str, Any]:
        """The same dict as `user_data`."""
        return self.user_data

    def env_steps(self) -> int:
        """Steps so far."""
        return self.length

    agent_steps = env_steps

    def get_return(self) -> float:
        """Sum of the raw rewards so far."""
        return self.total_reward

    @property
    def is_terminated(self) -> bool:
        """Whether the newest step terminated the episode."""
        return self.last_terminated_for()

    @property
    def is_truncated(self) -> bool:
        """Whether the newest step truncated the episode."""
        return self.last_truncated_for()

    @property
    def is_done(self) -> bool:
        """Whether the episode has ended."""
        return self.is_terminated or self.is_truncated

    @property
    def is_reset(self) -> bool:
        """Whether there is a first observation."""
        return self._newest[1][4] is not None

    def module_for(self, agent_id=AGENT) -> str:
        """Name of the policy that acts."""
        return DEFAULT_POLICY

    def get_observations(self, indices: int | list[int] | slice | None = None, **without_effect: Any) -> Any:
        """Observations as the environment returned them, that of the reset first.

        Args:
            indices: one, or several; negative ones count from the end. None: all, as a list.

        Raises:
            RuntimeError: for others than the newest, where the episode keeps that alone.
        """
        return self._kept("get_observations", indices, lambda: self._newest[1][0])

    def get_infos(self, indices: int | list[int] | slice | None = None, **without_effect: Any) -> Any:
        """The infos of the observations; arguments and errors as for `get_observations`."""
        return self._kept("get_infos", indices, self.last_info_for)

    def get_actions(self, indices: int | list[int] | slice | None = None, **without_effect: Any) -> Any:
        """Actions in the environment's units; arguments and errors as for `get_observations`."""
        return self._kept("get_actions", indices, self.last_action_for)

    def get_rewards(self, indices: int | list[int] | slice | None = None, **without_effect: Any) -> Any:
        """Raw rewards; arguments and errors as for `get_observations`."""
        return self._kept("get_rewards", indices, self.last_reward_for)

    def _kept(self, method: str, indices: Any, newest: Callable[[], Any]) -> Any:
        if indices == -1:
            return newest()
        raise RuntimeError(
            f"episode.{method}({'' if indices is None else indices}) needs all steps, but this episode keeps the "
            "newest alone, since its hooks are those of RLlib 2.6. Name an argument of the later ones: "
            "def on_episode_end(self, *, episode, env_runner, **kwargs)."
        )


class RememberedEpisode(RunningEpisode):
    """A running episode that keeps all of its steps, for hooks of RLlib's new API stack."""

    def __init__(self, worker: "Worker", env_id: int, episode_id: int):
        super().__init__(worker, env_id, episode_id)
        self._history: dict[str, list] = {
            name: [] for name in ("get_observations", "get_infos", "get_actions", "get_rewards")
        }

    def begin(self, observation, info: dict) -> None:
        super().begin(observation, info)
        self._note(get_observations=copy.deepcopy(observation), get_infos=info)

    def stepped(self, action, result: tuple) -> None:
        super().stepped(action, result)
        observation, reward, _, _, info = result
        kept = copy.deepcopy(observation)  # environments may write into an array that they returned
        self._note(get_observations=kept, get_infos=info, get_actions=copy.copy(action), get_rewards=float(reward))

    def _note(self, **newest: Any) -> None:
        for method, value in newest.items():
            self._history[method].append(value)

    def _kept(self, method: str, indices: Any, newest: Callable[[], Any]) -> Any:
        history = self._history[method]
        if indices is None:
            return list(history)
        if isinstance(indices, int | np.integer):
            return history[indices]
        return history[indices] if isinstance(indices, slice) else [history[index] for index in indices]


class BaseEnv:
    """The environments of a worker, with the interface of RLlib's BaseEnv."""

    def __init__(self, stream: EnvironmentStream):
        self._stream = stream
        self.num_envs = stream.num_envs
        self.observation_space, self.action_space = stream.observation_space, stream.action_space

    @property
    def envs(self) -> list:
        """The environments, without gymnasium's outermost standard wrappers."""
        return self._stream.environments

    def get_sub_environments(self, as_dict: bool = False) -> list | dict:
        """`envs`, or index -> environment."""
        return dict(enumerate(self.envs)) if as_dict else self.envs

    get_unwrapped = get_sub_environments

    @property
    def vector_env(self) -> "BaseEnv":
        """This object, which has `envs`."""
        return self

    @property
    def unwrapped(self) -> "BaseEnv":
        """This object, whose `envs` are not wrapped."""
        return self

    def try_render(self, env_id: int = 0):
        """Result of the environment's render()."""
        return self.envs[env_id].render()

    def render(self):
        """Result of the first environment's render()."""
        return self.try_render()
