"""Writes the steps of episodes whose loops are outside of the worker, as these loops report them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import Space

from rllib import sample_batch as sb
from rllib.env.external.checks import AGENT
from rllib.env.multi_agent.agent_spaces import ALL
from rllib.env.multi_agent.stream import AgentStep
from rllib.env.spaces.observations import observation_column
from rllib.evaluation.offline.open_episodes import OpenEpisodes
from rllib.models.observations.flat_spaces import action_form, parts, values_of_leaves
from rllib.offline import values
from rllib.offline.writing.metadata import ENVIRONMENT, HAS_NEXT, NORMALIZED

# Steps of a running episode that are gathered before they become a part of columns.
_STEPS = 256


@dataclass
class _Steps:
    """The newest steps of a running episode.

    Attributes:
        observations: before each step, and after the last one.
        actions, rewards: of each step; the last action may wait for its reward.
    """

    observations: list = field(default_factory=list)
    actions: list = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)


class EpisodeRecorder:
    """Hands over the steps of external episodes with one agent to a writer.

    They are what the loops have reported: actions of others (`log_action`) and episodes with training_enabled=False as
    well. A step without a reported outcome is left out, and the one before it ends its episode without a flag.

    Args:
        observation_space, action_space: spaces of the steps.
        writer: has `write(batch)`, and may have `close()`.
        units: units of the actions of a Box, ENVIRONMENT or NORMALIZED.
        whole_episodes: see Output.

    Attributes:
        episodes: the running ones.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        writer: Any,
        units: str = ENVIRONMENT,
        whole_episodes: bool = True,
    ):
        self._column, self._action_space, self._units = observation_column(observation_space), action_space, units
        self.episodes = OpenEpisodes(writer, whole_episodes)
        self._steps: dict[str, _Steps] = {}

    def acted(self, episode_id: str, observation: Any, action: Any, policy_version: int) -> None:
        """Begins the next step of an episode: its action, by a policy of this version."""
        steps = self._steps.setdefault(episode_id, _Steps())
        if not steps.observations:
            steps.observations.append(observation)
        steps.actions.append(action)
        self.episodes.policy_version = policy_version

    def followed(self, episode_id: str, step: AgentStep) -> None:
        """Ends the step of an episode with what has followed its action.

        Raises:
            OSError: if it cannot be written; the message names the file.
        """
        steps = self._steps.get(episode_id)
        if steps is None or len(steps.actions) == len(steps.rewards):
            return
        steps.observations.append(step.observations[AGENT])
        steps.rewards.append(float(step.rewards.get(AGENT, 0.0)))
        if step.is_over:
            self._add(episode_id, bool(step.terminateds.get(ALL)), bool(step.truncateds.get(ALL)))
            self.dropped(episode_id)
        elif len(steps.rewards) >= _STEPS:
            self._add(episode_id)
            self.episodes.settle(episode_id)

    def dropped(self, episode_id: str) -> None:
        """Ends an episode of which nothing more is known; of none, it does nothing."""
        steps = self._steps.pop(episode_id, None)
        if steps is not None and steps.rewards:
            self._steps[episode_id] = steps
            self._add(episode_id)
            del self._steps[episode_id]
        self.episodes.end(episode_id)
        self.episodes.settle(episode_id)

    def start_over(self) -> None:
        """Ends the running episodes, which were dropped: their last steps have no flag."""
        for episode_id in list(self._steps):
            self.dropped(episode_id)

    def close(self) -> None:
        """Writes the running episodes as far as they have come, and closes the files."""
        self.start_over()
        self.episodes.close()

    def _add(self, episode_id: str, terminated: bool = False, truncated: bool = False) -> None:
        """Hands over the steps of an episode whose outcomes are known; the flags are of the last one."""
        steps = self._steps[episode_id]
        count = len(steps.rewards)
        seen = np.empty((count + 1, *self._column.shape), self._column.dtype)
        self._column.write_rows(steps.observations[: count + 1], seen)
        flags = np.zeros((2, count), bool)
        flags[:, -1] = terminated, truncated and not terminated
        columns = {
            sb.OBS: seen[:-1],
            sb.NEXT_OBS: seen[1:],
            sb.ACTIONS: self._stored(steps.actions[:count]),
            sb.REWARDS: np.array(steps.rewards, np.float32),
            sb.TERMINATEDS: flags[0],
            sb.TRUNCATEDS: flags[1],
            HAS_NEXT: np.ones(count, bool),  # a reader cannot tell a final observation like a reset's
        }
        self.episodes.add(episode_id, columns)
        self._steps[episode_id] = _Steps(steps.observations[count:], steps.actions[count:])

    def _stored(self, actions: list) -> np.ndarray:
        """Actions [steps, ...] in the units of the files."""
        space = self._action_space
        if parts(space) is not None:
            rows = [np.concatenate([np.ravel(leaf) for leaf in values_of_leaves(space, action)]) for action in actions]
            return np.stack(rows).astype(action_form(space)[1])
        taken = np.array(actions, action_form(space)[1])
        return values.normalized(taken, space) if self._units == NORMALIZED else taken
