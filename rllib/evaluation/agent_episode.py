"""An agent's part of a running episode, by the names that RLlib's episodes of one agent have."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllib.evaluation.running_episode import RunningEpisode


class AgentEpisode:
    """What one agent of an episode has seen and done, and the rewards that it got.

    Args:
        episode: of all agents.
        agent_id: the agent.

    Attributes:
        agent_id: see the arguments.
    """

    has_several_agents = False

    def __init__(self, episode: "RunningEpisode", agent_id: Hashable):
        self._episode, self.agent_id = episode, agent_id

    @property
    def id_(self) -> str:
        """Id of the episode and the agent, as a string."""
        return f"{self._episode.id_}_{self.agent_id}"

    @property
    def multi_agent_episode_id(self) -> str:
        """Id of the episode of all agents."""
        return self._episode.id_

    @property
    def module_id(self) -> str:
        """Id of the policy that acts for the agent."""
        return self._episode.policy_for(self.agent_id)

    def __len__(self) -> int:
        """Number of its actions; needs all steps, as `get_observations` does."""
        return len(self.get_actions())

    def __bool__(self) -> bool:
        return True  # of length 0 as well

    def get_return(self) -> float:
        """Sum of its raw rewards."""
        return self._episode.slots[self.agent_id].total

    @property
    def is_terminated(self) -> bool:
        """Whether the agent, or the whole episode, was terminated."""
        return self._episode.last_terminated_for(self.agent_id)

    @property
    def is_truncated(self) -> bool:
        """Whether the agent, or the whole episode, was truncated."""
        return self._episode.last_truncated_for(self.agent_id)

    @property
    def is_done(self) -> bool:
        """Whether the agent has ended."""
        return self.is_terminated or self.is_truncated

    def get_observations(self, indices: Any = None) -> Any:
        """Its observations, the first of them first.

        Args:
            indices: one of its own steps, or several; negative ones count from the end. None: all, as a list.

        Raises:
            RuntimeError: where the episode keeps the newest values alone (RunningEpisode.get_observations).
        """
        return self._own("observations", indices)

    def get_infos(self, indices: Any = None) -> Any:
        """The infos of its observations; arguments and errors as for `get_observations`."""
        return self._own("infos", indices)

    def get_actions(self, indices: Any = None) -> Any:
        """Its actions in the environment's units; arguments and errors as for `get_observations`."""
        return self._own("actions", indices)

    def get_rewards(self, indices: Any = None) -> Any:
        """Its raw rewards; arguments and errors as for `get_observations`."""
        return self._own("rewards", indices)

    def _own(self, name: str, indices: Any) -> Any:
        values = getattr(self._episode, f"get_{name}")(agent_ids=self.agent_id).get(self.agent_id, [])
        if indices is None or isinstance(indices, list):
            return values if indices is None else [values[index] for index in indices]
        return values[indices]
