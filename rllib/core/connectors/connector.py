"""Base class of connectors, and the episode that they read.

    class Halved(ConnectorV2):
        def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, **kwargs):
            batch["obs"] = batch["obs"] / 2
            return batch

    config.env_runners(env_to_module_connector=lambda env, spaces, device: Halved())

A connector belongs to one environment and is called for each of its observations, a batch with one row. It may change
the batch, or the newest observation of the episode (`set_observations`), which later pieces and steps then see.
"""

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gymnasium import spaces

from rllib.core.columns import Columns
from rllib.did_you_mean import refuse_slips

# Newest steps that an episode of a connector keeps.
KEPT_STEPS = 1000


class ConnectorEpisode:
    """The running episode of an environment, as its connectors see it: observations as they have changed them.

    The newest KEPT_STEPS steps are kept.

    Args:
        number: number of the episode in its environment.
        observation: of the reset.
        info: of the reset.

    Attributes:
        id_: `number` as a string.
        custom_data: a dict for the user's code.
        is_terminated, is_truncated: of the newest step.
        observation_space, action_space: without effect; RLlib's pieces set them.
    """

    agent_id = module_id = multi_agent_episode_id = None
    is_numpy = False

    def __init__(self, number: int, observation: Any, info: Mapping):
        self.id_ = str(number)
        self.custom_data: dict[str, Any] = {}
        self.is_terminated = self.is_truncated = False
        self.observation_space = self.action_space = None
        self._steps = 0
        self._observations, self._infos = [observation], [info]
        self._actions: list = []
        self._rewards: list = []

    def add_env_step(self, observation: Any, action: Any, reward: Any, info: Mapping) -> None:
        """Adds one step; of several agents all are dicts by agent."""
        self._steps += 1
        self._observations.append(observation)
        self._infos.append(info)
        self._actions.append(action)
        self._rewards.append(dict(reward) if isinstance(reward, Mapping) else float(reward))
        for kept, bound in (
            (self._observations, KEPT_STEPS + 1),
            (self._infos, KEPT_STEPS + 1),
            (self._actions, KEPT_STEPS),
            (self._rewards, KEPT_STEPS),
        ):
            del kept[:-bound]

    def __len__(self) -> int:
        return self._steps

    @property
    def is_done(self) -> bool:
        """Whether the newest step ended the episode."""
        return self.is_terminated or self.is_truncated

    def get_return(self) -> float:
        """Sum of the rewards of the steps that are kept, of all agents."""
        return sum(sum(each.values()) if isinstance(each, Mapping) else each for each in self._rewards)

    def get_observations(self, indices: Any = None, *, fill: Any = None, **without_effect: Any) -> Any:
        """Observations, that of the reset first.

        Args:
            indices: one, a list or a slice; negative ones count from the end. None: all that are kept.
            fill: instead of what lies before the reset; None: such an index is an error.
        """
        return self._of(self._observations, indices, fill)

    def get_infos(self, indices: Any = None, *, fill: Any = None, **without_effect: Any) -> Any:
        """Infos; arguments as for `get_observations`."""
        return self._of(self._infos, indices, fill)

    def get_actions(self, indices: Any = None, *, fill: Any = None, **without_effect: Any) -> Any:
        """Actions as the environment took them; arguments as for `get_observations`."""
        return self._of(self._actions, indices, fill)

    def get_rewards(self, indices: Any = None, *, fill: Any = None, **without_effect: Any) -> Any:
        """Rewards; arguments as for `get_observations`."""
        return self._of(self._rewards, indices, fill)

    def set_observations(self, *, new_data: Any, at_indices: Any = None, **without_effect: Any) -> None:
        """Replaces the newest observation.

        Raises:
            NotImplementedError: for another one, which the policy has seen.
        """
        if at_indices not in (-1, [-1], len(self._observations) - 1):
            raise NotImplementedError(
                f"set_observations(at_indices={at_indices!r}): a connector can change the newest observation alone, "
                "at_indices=-1; the policy has seen the earlier ones"
            )
        self._observations[-1] = new_data[-1] if at_indices == [-1] else new_data

    def set_rewards(self, **given: Any) -> None:
        """Raises a NotImplementedError with the way here."""
        raise NotImplementedError(
            "a connector cannot change rewards. Wrap the environment: .environment(env_wrappers=[{'TransformReward': "
            "{'func': function}}]), or use an exploration with intrinsic rewards (docs/guide/exploration.md)."
        )

    def _of(self, kept: list, indices: Any, fill: Any) -> Any:
        if indices is None:
            return list(kept)
        if isinstance(indices, slice):
            start, stop = indices.start, indices.stop
            if fill is None or start is None or start >= 0 or -start <= len(kept):
                return kept[indices]
            stop = 0 if stop is None else stop
            return [self._at(kept, index, fill) for index in range(start, stop if stop <= 0 else stop - len(kept))]
        if isinstance(indices, Iterable):
            return [self._at(kept, index, fill) for index in indices]
        return self._at(kept, indices, fill)

    def _at(self, kept: list, index: int, fill: Any) -> Any:
        if fill is not None and index < 0 and -index > len(kept):
            return fill
        return kept[index]


class ConnectorV2:
    """Base class of the pieces of a connector; the pieces of the library are in pieces.py.

    Args:
        input_observation_space, input_action_space: what comes in; set when the piece is put into its place.
        kwargs: without effect; RLlib's pieces have more.

    Attributes:
        observation_space, action_space: what goes out.
    """

    def __init__(
        self,
        input_observation_space: spaces.Space | None = None,
        input_action_space: spaces.Space | None = None,
        **kwargs: Any,
    ):
        refuse_slips(type(self).__name__, kwargs, inspect.signature(type(self).__init__).parameters)
        self.input_observation_space, self.input_action_space = input_observation_space, input_action_space
        self.observation_space = self.action_space = None
        if input_observation_space is not None:
            self.connect(input_observation_space, input_action_space)

    def connect(self, observation_space: spaces.Space, action_space: spaces.Space | None) -> None:
        """Puts the piece behind one that gives these spaces."""
        self.input_observation_space, self.input_action_space = observation_space, action_space
        self.observation_space = self.recompute_output_observation_space(observation_space, action_space)
        self.action_space = self.recompute_output_action_space(observation_space, action_space)

    def recompute_output_observation_space(
        self, input_observation_space: spaces.Space, input_action_space: spaces.Space
    ) -> spaces.Space:
        """The space of the observations that the piece gives; override it where it changes them."""
        return input_observation_space

    def recompute_output_action_space(
        self, input_observation_space: spaces.Space, input_action_space: spaces.Space
    ) -> spaces.Space:
        """The space of the actions that the piece takes, where it stands between policy and environment."""
        return input_action_space

    def __call__(
        self,
        *,
        rl_module: Any = None,
        batch: dict[str, Any],
        episodes: list[ConnectorEpisode],
        explore: bool | None = None,
        shared_data: dict | None = None,
        **kwargs: Any,
    ) -> Any:
        """The changed batch.

        Args:
            rl_module: None; connectors here come before the policy, and do not know it.
            batch: {"obs": observations [1, ...]}; between policy and environment {"actions": [1, ...]}.
            episodes: the running one.
            explore: None.
            shared_data: a dict that all pieces of the pipeline share in this call.
        """
        name = type(self).__name__
        raise NotImplementedError(f"{name} must define __call__(self, *, rl_module, batch, episodes, ...)")

    # ------------------------------------------------------------------ helpers that RLlib's pieces use

    @staticmethod
    def single_agent_episode_iterator(
        episodes: Iterable[ConnectorEpisode],
        agents_that_stepped_only: bool = True,
        zip_with_batch_column: Any = None,
    ) -> Iterator[Any]:
        """The episodes, one after the other; with a column, pairs of each and its item."""
        if zip_with_batch_column is None:
            yield from episodes
            return
        items = zip_with_batch_column
        rows = itertools.chain.from_iterable(items.values()) if isinstance(items, Mapping) else items
        yield from zip(episodes, rows)

    @staticmethod
    def add_batch_item(
        batch: dict[str, Any],
        column: str,
        item_to_add: Any,
        single_agent_episode: ConnectorEpisode | None = None,
    ) -> None:
        """Puts an item into a column: an observation takes the place of the newest one."""
        if isinstance(batch.get(column), dict) and single_agent_episode is not None:
            batch[column].setdefault((single_agent_episode.id_,), []).append(item_to_add)
        else:
            batch[column] = [item_to_add]

    @staticmethod
    def foreach_batch_item_change_in_place(
        batch: dict[str, Any], column: str | list[str] | tuple[str, ...], func: Callable[..., Any]
    ) -> None:
        """Replaces each item of a column by func(item, episode id, agent id, module id), the ids None."""
        names = [column] if isinstance(column, str) else list(column)
        rows = list(zip(*(batch[name] for name in names)))
        changed = [func(row[0] if isinstance(column, str) else row, None, None, None) for row in rows]
        for index, name in enumerate(names):
            batch[name] = [row if isinstance(column, str) else row[index] for row in changed]

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Without effect: the state of a piece is in no checkpoint, except that of MeanStdFilter."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Without effect."""


class ConnectorPipelineV2(ConnectorV2):
    """Several pieces as one.

    Args:
        input_observation_space, input_action_space: as for ConnectorV2.
        connectors: the pieces, in their order.
    """

    def __init__(
        self,
        input_observation_space: spaces.Space | None = None,
        input_action_space: spaces.Space | None = None,
        *,
        connectors: Iterable[ConnectorV2] = (),
        **kwargs: Any,
    ):
        self.connectors = list(connectors)
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def append(self, connector: ConnectorV2) -> None:
        """Adds a piece at the end."""
        self.connectors.append(connector)

    def prepend(self, connector: ConnectorV2) -> None:
        """Adds a piece at the beginning."""
        self.connectors.insert(0, connector)

    def connect(self, observation_space: spaces.Space, action_space: spaces.Space | None) -> None:
        self.input_observation_space, self.input_action_space = observation_space, action_space
        for each in self.connectors:
            each.connect(observation_space, action_space)
            observation_space, action_space = each.observation_space, each.action_space
        self.observation_space, self.action_space = observation_space, action_space

    def __call__(self, *, batch: dict[str, Any], **given: Any) -> Any:
        for each in self.connectors:
            batch = each(batch=batch, **given)
        return batch


def observation_column(batch: Any, name: str) -> Any:
    """The observations of a batch that a piece has returned.

    Raises:
        TypeError: if it is no dict with observations.
    """
    if not isinstance(batch, Mapping) or Columns.OBS not in batch:
        raise TypeError(
            f"the connector {name} must return the batch, a dict with {Columns.OBS!r}, but returned {batch!r:.80}"
        )
    return batch[Columns.OBS]
