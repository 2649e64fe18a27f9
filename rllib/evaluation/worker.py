"""The attributes of every kind of worker, for callbacks and `foreach_worker`."""

from collections.abc import Callable
from typing import Any, ClassVar

from rllib.metrics import DEFAULT_POLICY
from rllib.policy import Policy


class Worker:
    """Environments and a policy, with the attributes that RLlib's RolloutWorker has.

    Args:
        settings: the RolloutSettings.
        worker_index: 0 in the driver, 1... for the remote ones.
        policy: acts.
        stream: the environments; None where there are none between evaluations.

    Attributes:
        kind: what it is called in messages, followed by its index.
        if_silent: possible reasons for a missing answer, for messages.
    """

    kind: ClassVar[str] = "rollout worker"
    if_silent: ClassVar[str] = (
        "does an environment hang? A slow one needs a longer sample_timeout_s or a shorter rollout_fragment_length, an "
        "endless episode a time limit (max_episode_steps)"
    )

    def __init__(self, settings, worker_index: int, policy: Policy, stream=None):
        self.settings, self.worker_index, self.policy, self.stream = settings, worker_index, policy, stream

    @property
    def config(self):
        """The algorithm's config; None where no callbacks are set."""
        return self.settings.config

    @property
    def policy_config(self) -> dict:
        """The same as a dict."""
        return self.config.to_dict()

    @property
    def num_workers(self) -> int:
        """Remote workers of the set that this one belongs to."""
        return self.settings.num_workers

    @property
    def policy_map(self) -> dict[str, Policy]:
        """The policies by name: one."""
        return {DEFAULT_POLICY: self.policy}

    def get_policy(self, policy_id: str = DEFAULT_POLICY) -> Policy | None:
        """The policy with this name; None if there is none."""
        return self.policy_map.get(policy_id)

    @property
    def env(self):
        """The first environment."""
        return self.stream.environments[0]

    def foreach_env(self, function: Callable[[Any], Any]) -> list:
        """function(environment) for each environment."""
        return [function(env) for env in self.stream.environments]
