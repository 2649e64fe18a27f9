"""The description of a policy for processes that act by a copy of it, as plain data.

It has the items of a checkpoint's policy.json, and the exploration of the worker that sends it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from gymnasium import Space

from rllib.acting.inference import ActingSettings
from rllib.exploration import action_noise, epsilon, network_noise
from rllib.exploration.explorers import Exploration, Explorer, Greedy, StochasticSampling, WorkerPosition
from rllib.exploration.intrinsic.settings import RND, Curiosity
from rllib.models.architectures import description_of, spec_from_json
from rllib.models.dense.network_spec import NetworkSpec
from rllib.policy import Policy
from rllib.storage.encoding import decode, encode

_EXPLORATIONS = {
    each.__name__: each
    for each in (
        *(StochasticSampling, epsilon.EpsilonGreedy, epsilon.PerWorkerEpsilonGreedy, epsilon.SoftQ),
        *(epsilon.RandomValues, action_noise.GaussianNoise, action_noise.PerWorkerGaussianNoise),
        *(action_noise.OrnsteinUhlenbeckNoise, action_noise.PerWorkerOrnsteinUhlenbeckNoise),
        *(action_noise.RandomActions, network_noise.NoisyWeights, network_noise.StateDependentNoise),
        *(network_noise.ParameterNoise, RND, Curiosity),
    )
}


class UserCodeError(ValueError):
    """Error for a policy that is made by code of the user's, which is not sent."""


@dataclasses.dataclass(frozen=True)
class SentPolicy:
    """A policy's parts other than its weights.

    Attributes:
        spec: description of the network.
        observation_space, action_space: spaces of the environment.
        settings: conversions of actions.
        exploration: description of the exploration.
        worker_index, num_workers: of the worker that explores in this way.
    """

    spec: NetworkSpec
    observation_space: Space
    action_space: Space
    settings: ActingSettings
    exploration: Exploration
    worker_index: int = 0
    num_workers: int = 0

    def to_json(self) -> dict[str, Any]:
        """JSON-able data; `from_json` reads it.

        Raises:
            UserCodeError: if the network, its action distribution or the exploration are classes of the user's.
        """
        network, kind = description_of(self.spec), type(self.exploration)
        own = [name for name in ("custom", "action_dist") if name in network]
        if own or _EXPLORATIONS.get(kind.__name__) is not kind:
            what = "exploration" if not own else {"custom": "network", "action_dist": "action distribution"}[own[0]]
            raise UserCodeError(
                f"the policy's {what} is code of yours, which is not sent to clients. Use "
                "PolicyClient(inference_mode='remote'), so that the server computes the actions."
            )
        described = {
            **network,
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            **self.settings.to_json(),
            "explorer": {"type": kind.__name__, "settings": msgspec.to_builtins(self.exploration)},
            "worker_index": self.worker_index,
            "num_workers": self.num_workers,
        }
        return encode(described)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "SentPolicy":
        """Reads the result of `to_json`; no code is imported by a name in it.

        Raises:
            ValueError: for a description of another version of the library.
        """
        try:
            items = decode(data)
            explorer = items["explorer"]
            return cls(
                spec_from_json(items["spec"]),
                items["observation_space"],
                items["action_space"],
                ActingSettings.from_json(items),
                msgspec.convert(explorer["settings"], _EXPLORATIONS[explorer["type"]]),
                items["worker_index"],
                items["num_workers"],
            )
        except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
            raise ValueError(
                f"this version of rllib cannot read the server's policy ({error!r:.200}): use the server's version"
            ) from error

    def explorer(self, policy: Policy, rng: np.random.Generator, bounds: tuple | None) -> Explorer:
        """The explorer of one episode at a time.

        Args:
            policy: that acts.
            rng: draws its noise.
            bounds: least and greatest action in the policy's units; None without bounds.
        """
        low, high = bounds or (None, None)
        position = WorkerPosition(self.worker_index, self.num_workers, 1, low, high, shared_rng=rng)
        kind = self.exploration.explorer if self.settings.explore else Greedy
        return kind(self.exploration, policy, [rng], position)
