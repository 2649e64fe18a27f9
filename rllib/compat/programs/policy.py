"""`ray.rllib.policy.policy.Policy`: base class of hand-written policies, and a name for algorithms' policies."""

import os
from abc import ABCMeta
from typing import Any

import rllib.policy
from rllib.hand_written import HandWrittenPolicy


class _ForBoth(ABCMeta):
    """Class of `Policy`, of which the policies of algorithms count as instances."""

    def __instancecheck__(cls, instance) -> bool:
        return super().__instancecheck__(instance) or (cls is Policy and isinstance(instance, rllib.policy.Policy))

    def __subclasscheck__(cls, subclass) -> bool:
        return super().__subclasscheck__(subclass) or (cls is Policy and issubclass(subclass, rllib.policy.Policy))


class Policy(HandWrittenPolicy, metaclass=_ForBoth):
    """Base of policies that act by their own `compute_actions`. As policy_class it represents the algorithm's own.

    Args:
        observation_space, action_space, config: as for HandWrittenPolicy.
    """

    stands_for = rllib.policy.Policy

    @classmethod
    def from_checkpoint(cls, checkpoint: str | os.PathLike, policy_ids: Any = None) -> Any:
        """Policies of a checkpoint by id, or one policy; see rllib.Policy.from_checkpoint.

        Args:
            policy_ids: with several policies, ids of the policies to return; None: all.
        """
        loaded = rllib.policy.Policy.from_checkpoint(checkpoint)
        if policy_ids is None or not isinstance(loaded, dict):
            return loaded
        return {policy_id: policy for policy_id, policy in loaded.items() if policy_id in policy_ids}
