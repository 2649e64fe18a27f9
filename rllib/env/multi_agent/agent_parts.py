"""Further parts of an agent's observation while its policy acts outside of training: the agent's id, the critic's part.

In training the environment is wrapped (augmented.py). Outside of it, values are not computed: what the critic alone
reads is filled, and the policy's layers do not read it (models/dense/separate.py).
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from gymnasium import spaces

from rllib.did_you_mean import did_you_mean
from rllib.env.factories.adapter import Adapter, StepInputs
from rllib.env.multi_agent.multi_agent_env import ENV_STATE
from rllib.errors import NoActionError
from rllib.models.observations.flat_spaces import next_to_zero

# Keys of the Dict observations that the policies get. The critic's part is the last one in the order of a Dict space.
AGENT_ID, OBSERVATION = "agent_id", "observation"


@dataclass(frozen=True)
class AgentParts(Adapter):
    """Observations with the agent's id, a part for a centralised critic, or both.

    Attributes:
        agents: names of all agents, in the order of the one-hot id; empty where observations have no id.
        critic: whether the value reads a part that the policy does not.
    """

    agents: tuple[str, ...] = ()
    critic: bool = False

    json_name = "agents"

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Self | None:
        """None: who the agents are the environment says (augmented.py), not the config."""
        return None

    @property
    def setting(self) -> str:
        return "agent_id_in_observation" if self.agents else "centralized_critic"

    def space(self, observation_space, action_space):
        """The same space; AugmentedEnv has the parts already."""
        return observation_space

    def own_space(self, space):
        added = {AGENT_ID} if self.agents else set()
        added |= {ENV_STATE} if self.critic else set()
        own = {key: part for key, part in space.spaces.items() if key not in added}
        return own[OBSERVATION] if list(own) == [OBSERVATION] else spaces.Dict(own)

    def wrapped(self, env):
        """The same environment; several agents are wrapped by AugmentedEnv."""
        return env

    def lacks(self, observation: Any) -> bool:
        return self.critic and not (isinstance(observation, Mapping) and ENV_STATE in observation)

    def row(self, observation, inputs: StepInputs):
        parts = dict(observation) if isinstance(observation, Mapping) else {OBSERVATION: observation}
        if self.agents and AGENT_ID not in parts:
            parts[AGENT_ID] = self._id(inputs.agent_id)
        if self.critic and ENV_STATE not in parts:
            parts[ENV_STATE] = next_to_zero(inputs.policy_space[ENV_STATE])
        return parts

    def _id(self, agent: Hashable) -> np.ndarray:
        """The one-hot id of an agent."""
        name = str(agent)
        if agent is None or name not in self.agents:
            lacks = "no agent_id was given" if agent is None else f"there is no agent {agent!r}"
            listed = ", ".join(map(repr, self.agents))
            hint = "" if agent is None else did_you_mean(agent, self.agents, repr)
            raise NoActionError(
                "no action can be computed: this policy reads the agent's id in addition to its observation, and "
                f"{lacks}.{hint}",
                "Give agent_id=... to compute_single_action or make_player, agent_ids=[...] or a dict by agent to "
                f"compute_actions; the agents are {listed}.",
            )
        return np.eye(len(self.agents), dtype=np.float32)[self.agents.index(name)]

    def to_json(self) -> dict[str, Any]:
        return {"ids": list(self.agents), "critic": self.critic}

    @classmethod
    def from_json(cls, data) -> Self:
        return cls(tuple(data["ids"]), data["critic"])
