"""PolicySpec: what a policy of several agents is made of, and in which settings it differs from the run.

config.multi_agent(
    policies={"fast": PolicySpec(config={"lr": 1e-3}), "slow": None, "random": RandomPolicy},
    policy_mapping_fn={"runner_*": "fast", "walker": "slow", "*": "random"},
)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from gymnasium import Space

from rllib.hand_written import HandWrittenPolicy, HeuristicPolicy, RandomPolicy
from rllib.sample_batch import DEFAULT_POLICY
from rllib.storage.by_arguments import ByArguments

__all__ = ["HandWrittenPolicy", "HeuristicPolicy", "PolicySpec", "RandomPolicy"]

T = TypeVar("T")


def of_only_policy(by_policy: Mapping[str, T], name: str, others: str) -> T:
    """Entry of the only policy of a run, or of the one that has the default name of an only policy.

    Args:
        by_policy: policy id -> the same of each policy.
        name: name of the attribute by which it is asked for.
        others: how it is asked for by policy id.

    Raises:
        ValueError: if there are several policies, or none.
    """
    if DEFAULT_POLICY in by_policy:
        return by_policy[DEFAULT_POLICY]
    if len(by_policy) == 1:
        return next(iter(by_policy.values()))
    having = ", ".join(map(repr, by_policy)) or "none"
    raise ValueError(f"{name} is that of the only policy, but there are {len(by_policy)}: {having}. Use {others}.")


def overrides_of(given: Any) -> Any:
    """Settings that are given as a config: those that were set in it; anything else as it is.

    Of a config that was read from a dict of most settings, as of `to_dict`, those that are no defaults: it does not say
    which of the others were meant.
    """
    if not callable(getattr(given, "given", None)):
        return given
    settings = given.given()
    return given.changes() if 2 * len(settings) > len(given.settings) else settings


def own_settings_of(given: Any) -> Mapping[str, Any]:
    """Settings in which a policy differs from its run, of any value of `policies` (PolicySpec.of); {} without any."""
    own = overrides_of(given[-1] if isinstance(given, tuple) and given else getattr(given, "config", given))
    return own if isinstance(own, Mapping) else {}


@dataclass(frozen=True)
class PolicySpec(ByArguments):
    """Description of one policy of a run with several agents, by Ray's names.

    Args:
        policy_class: a class or object with `compute_actions(observations, state_batches=None, **kwargs)`: a policy
            that is written by hand, and does not learn. None: the algorithm's own, which learns.
        observation_space, action_space: spaces of the policy's agents; None: those of the agents that are mapped to it.
        config: settings in which the policy differs from the run (lr, gamma, model, ...), as a dict, by
            `PPOConfig.overrides(lr=1e-4)`, or a config, of which the settings that were set in it count.
    """

    policy_class: Any = None
    observation_space: Space | None = None
    action_space: Space | None = None
    config: Mapping[str, Any] | None = None

    def __post_init__(self):
        # A config represents the settings that were set in it, as in evaluation_config.
        object.__setattr__(self, "config", overrides_of(self.config))

    @classmethod
    def of(cls, given: Any, policy_id: str) -> "PolicySpec":
        """The spec that a value of `policies` represents.

        Args:
            given: None, a PolicySpec, a dict of settings, a class or object that acts, or Ray's tuple (policy_class,
                observation_space, action_space, config).
            policy_id: for messages.

        Raises:
            ValueError: for anything else.
        """
        if given is None:
            return cls()
        if isinstance(given, PolicySpec):
            return given
        if isinstance(given, tuple) and len(given) == 4:
            return cls(*given)
        if isinstance(given, Mapping):
            return cls(config=given)
        if callable(getattr(given, "compute_actions", None)):
            return cls(policy_class=given)
        raise ValueError(
            f"policies[{policy_id!r}]={given!r:.80} must be None, a PolicySpec, a dict of the policy's own settings, "
            "or a class with compute_actions()"
        )
