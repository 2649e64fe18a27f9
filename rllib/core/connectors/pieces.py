"""Connectors of the library, by RLlib's names."""

import copy
from collections import deque
from collections.abc import Collection
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib.core.connectors.connector import ConnectorEpisode, ConnectorV2


class ObservationPiece(ConnectorV2):
    """Base of pieces that compute a new observation from the newest one: `changed(observation, episode)`."""

    def changed(self, observation: Any, episode: ConnectorEpisode) -> Any:
        """The new observation."""
        raise NotImplementedError

    def __call__(self, *, batch: dict[str, Any], episodes: list[ConnectorEpisode], **kwargs: Any) -> dict[str, Any]:
        for episode in episodes:
            changed = self.changed(episode.get_observations(-1), episode)
            episode.set_observations(new_data=changed, at_indices=-1)
        return batch


class SingleAgentObservationPreprocessor(ObservationPiece):
    """Base of pieces that change one observation at a time; a subclass defines `preprocess`."""

    def preprocess(self, observation: Any, episode: ConnectorEpisode) -> Any:
        """The new observation for one of the environment's own."""
        raise NotImplementedError(f"{type(self).__name__} must define preprocess(self, observation, episode)")

    def changed(self, observation: Any, episode: ConnectorEpisode) -> Any:
        return self.preprocess(observation=observation, episode=episode)


class MultiAgentObservationPreprocessor(ConnectorV2):
    """Base of pieces that change the observations of all agents at once; a subclass defines `preprocess`.

    `recompute_output_observation_space` gets and returns a Dict of the agents' spaces.
    """

    def preprocess(self, observations: dict[Any, Any], episode: ConnectorEpisode) -> dict[Any, Any]:
        """The new observations, by agent.

        Args:
            observations: of the agents that act next, by agent.
            episode: its observations, actions, rewards and infos are dicts by agent.
        """
        raise NotImplementedError(f"{type(self).__name__} must define preprocess(self, observations, episode)")


class FlattenObservations(ObservationPiece):
    """Observations as one vector of float32: choices one-hot, the parts of a dict in the order of its space.

    Args:
        input_observation_space, input_action_space: as for ConnectorV2.
        keys_to_remove: keys of a Dict observation that are left out.
        agent_ids: of several agents those whose observations are flattened; None: all.
        multi_agent, as_learner_connector: without effect.
    """

    def __init__(
        self,
        input_observation_space: spaces.Space | None = None,
        input_action_space: spaces.Space | None = None,
        *,
        keys_to_remove: Collection[str] | None = None,
        multi_agent: bool = False,
        agent_ids: Collection | None = None,
        as_learner_connector: bool = False,
        **kwargs: Any,
    ):
        self._without, self.multi_agent = frozenset(keys_to_remove or ()), multi_agent
        self._agent_ids = None if agent_ids is None else frozenset(agent_ids)
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def recompute_output_observation_space(self, input_observation_space, input_action_space) -> spaces.Box:
        self._read = self._kept(input_observation_space)
        size = spaces.flatdim(self._read)
        flat = spaces.flatten_space(self._read)
        if isinstance(flat, spaces.Box):
            return spaces.Box(flat.low.astype(np.float32), flat.high.astype(np.float32), (size,), np.float32)
        return spaces.Box(0.0, 1.0, (size,), np.float32)

    def changed(self, observation: Any, episode: ConnectorEpisode) -> np.ndarray:
        if self._without:
            observation = {key: part for key, part in observation.items() if key not in self._without}
        return spaces.flatten(self._read, observation).astype(np.float32)

    def by_agent(self) -> "FlattenedAgents":
        """The piece for environments with several agents."""
        return FlattenedAgents(self, self._agent_ids)

    def _kept(self, space: spaces.Space) -> spaces.Space:
        if not self._without:
            return space
        if not isinstance(space, spaces.Dict):
            raise ValueError(
                f"FlattenObservations(keys_to_remove={sorted(self._without)}) needs Dict observations, not {space}"
            )
        return spaces.Dict({key: part for key, part in space.spaces.items() if key not in self._without})


class FlattenedAgents(MultiAgentObservationPreprocessor):
    """FlattenObservations for each of several agents.

    Args:
        piece: what is done to the observations of one.
        agent_ids: whose observations are flattened; None: those of all.
    """

    def __init__(self, piece: FlattenObservations, agent_ids: Collection | None = None):
        self._piece, self._agent_ids = piece, agent_ids
        self._own: dict[Any, FlattenObservations] = {}
        super().__init__()

    def recompute_output_observation_space(self, input_observation_space, input_action_space) -> spaces.Dict:
        given = input_observation_space.spaces
        self._own = {
            agent: copy.copy(self._piece) for agent in given if self._agent_ids is None or agent in self._agent_ids
        }
        for agent, piece in self._own.items():
            piece.connect(given[agent], input_action_space[agent])
        return spaces.Dict({**given, **{agent: piece.observation_space for agent, piece in self._own.items()}})

    def preprocess(self, observations, episode):
        return {
            agent: self._own[agent].changed(seen, episode) if agent in self._own else seen
            for agent, seen in observations.items()
        }


class FrameStackingEnvToModule(ObservationPiece):
    """The newest observations, joined along the last axis, which has to be 1: [H, W, 1] -> [H, W, num_frames].

    Zeros represent what lies before the reset.

    Args:
        input_observation_space, input_action_space: as for ConnectorV2.
        num_frames: number of observations.
        multi_agent: refused where it is True.
    """

    def __init__(
        self,
        input_observation_space: spaces.Space | None = None,
        input_action_space: spaces.Space | None = None,
        *,
        num_frames: int = 1,
        multi_agent: bool = False,
        **kwargs: Any,
    ):
        self.num_frames, self.multi_agent = num_frames, multi_agent
        self._frames: deque = deque(maxlen=num_frames)
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def recompute_output_observation_space(self, input_observation_space, input_action_space) -> spaces.Box:
        space = input_observation_space
        if not isinstance(space, spaces.Box) or not space.shape or space.shape[-1] != 1:
            raise ValueError(
                "FrameStackingEnvToModule joins observations along a last axis of 1, as in [H, W, 1], but they are "
                f"{space}. For vectors use .environment(env_wrappers=[{{'FrameStackObservation': {{'stack_size': "
                f"{self.num_frames}}}}}, 'FlattenObservation'])."
            )
        low, high = (np.repeat(bound, self.num_frames, axis=-1) for bound in (space.low, space.high))
        return spaces.Box(np.minimum(low, 0), np.maximum(high, 0), dtype=space.dtype.type)

    def changed(self, observation: Any, episode: ConnectorEpisode) -> np.ndarray:
        if not len(episode):
            self._frames.extend([np.zeros_like(observation)] * self.num_frames)
        self._frames.append(observation)
        return np.concatenate(self._frames, axis=-1)


class PrevActionsPrevRewards(ObservationPiece):
    """Observations with the last actions and rewards: {"_orig_obs", "prev_n_actions", "prev_n_rewards"}.

    Actions are flat: choices one-hot, numbers as they are. Zeros represent what lies before the reset.

    Args:
        input_observation_space, input_action_space: as for ConnectorV2.
        multi_agent: refused where it is True.
        n_prev_actions, n_prev_rewards: number of each; 0 leaves them out.
    """

    ORIG_OBS_KEY = "_orig_obs"
    PREV_ACTIONS_KEY = "prev_n_actions"
    PREV_REWARDS_KEY = "prev_n_rewards"

    def __init__(
        self,
        input_observation_space: spaces.Space | None = None,
        input_action_space: spaces.Space | None = None,
        *,
        multi_agent: bool = False,
        n_prev_actions: int = 1,
        n_prev_rewards: int = 1,
        **kwargs: Any,
    ):
        self.n_prev_actions, self.n_prev_rewards, self.multi_agent = n_prev_actions, n_prev_rewards, multi_agent
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def recompute_output_observation_space(self, input_observation_space, input_action_space) -> spaces.Dict:
        parts = {self.ORIG_OBS_KEY: input_observation_space}
        if self.n_prev_actions:
            size = spaces.flatdim(input_action_space) * self.n_prev_actions
            parts[self.PREV_ACTIONS_KEY] = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        if self.n_prev_rewards:
            parts[self.PREV_REWARDS_KEY] = spaces.Box(-np.inf, np.inf, (self.n_prev_rewards,), np.float32)
        return spaces.Dict(parts)

    def changed(self, observation: Any, episode: ConnectorEpisode) -> dict[str, Any]:
        found = {self.ORIG_OBS_KEY: observation}
        if self.n_prev_actions:
            size = spaces.flatdim(self.input_action_space)
            newest = episode.get_actions(slice(-self.n_prev_actions, None))
            rows = [spaces.flatten(self.input_action_space, each) for each in newest]
            missing = [np.zeros(size, np.float32)] * (self.n_prev_actions - len(rows))
            found[self.PREV_ACTIONS_KEY] = np.concatenate([*missing, *rows]).astype(np.float32)
        if self.n_prev_rewards:
            rewards = episode.get_rewards(slice(-self.n_prev_rewards, None))
            found[self.PREV_REWARDS_KEY] = np.array(
                [0.0] * (self.n_prev_rewards - len(rewards)) + list(rewards), np.float32
            )
        return found


class MeanStdFilter(ConnectorV2):
    """Represents the library's observation filter: `.env_runners(observation_filter="MeanStdFilter")`.

    Its statistics are those of all workers, and in checkpoints. It has to be the last piece, except for
    FlattenObservations.

    Args:
        input_observation_space, input_action_space: as for ConnectorV2.
        multi_agent: without effect: each policy has its own filter.
        de_mean_to_zero, de_std_to_one, update_stats: have to be True.
        clip_by_value: bound in standard deviations; None: unbounded.
    """

    def __init__(
        self,
        input_observation_space: spaces.Space | None = None,
        input_action_space: spaces.Space | None = None,
        *,
        multi_agent: bool = False,
        de_mean_to_zero: bool = True,
        de_std_to_one: bool = True,
        clip_by_value: float | None = 10.0,
        update_stats: bool = True,
        **kwargs: Any,
    ):
        if not (de_mean_to_zero and de_std_to_one and update_stats):
            raise ValueError(
                "MeanStdFilter divides by the standard deviation what is left of an observation without its mean, and "
                "always counts new ones in training: de_mean_to_zero, de_std_to_one and update_stats must be True. "
                "Scale observations otherwise in a SingleAgentObservationPreprocessor."
            )
        if clip_by_value is not None and not clip_by_value > 0:
            raise ValueError(f"clip_by_value={clip_by_value!r} must be a number > 0, or None: unbounded")
        self.clip_by_value = clip_by_value
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return batch


class FrameStackingLearner(ConnectorV2):
    """Represents FrameStackingEnvToModule in a learner_connector: rows of a batch have the stacked observations.

    Args:
        kwargs: without effect.
    """

    is_done_by_workers = True

    def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return batch


class DefaultPiece(ConnectorV2):
    """A piece that is always there, so that naming it changes nothing."""

    def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return batch


class AddObservationsFromEpisodesToBatch(DefaultPiece):
    """Batches always have the observations."""


class GetActions(DefaultPiece):
    """Actions are always drawn before pieces between policy and environment see them."""


class NormalizeAndClipActions(DefaultPiece):
    """`.environment(normalize_actions=..., clip_actions=...)` says whether actions are stretched and clipped."""
