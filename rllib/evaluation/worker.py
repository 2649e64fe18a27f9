"""Base of every kind of worker, for callbacks, `foreach_worker` and checkpoints."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rllib.compat.names import absent
from rllib.did_you_mean import explains
from rllib.env.disturbances.adaptive import BoundReturn
from rllib.env.disturbances.disturbed import layer_of
from rllib.env.disturbances.settings import Interval
from rllib.env.factories.registry import EnvContext
from rllib.env.streams.base import EnvironmentStream
from rllib.policies import of_only_policy
from rllib.policy import Policy, Snapshot, Snapshots
from rllib.sample_batch import DEFAULT_POLICY

if TYPE_CHECKING:
    from rllib.evaluation.settings import PolicySettings


@explains(absent.WORKER)
class Worker:
    """Environments and a policy, with the attributes that RLlib's RolloutWorker has.

    Args:
        settings: the RolloutSettings.
        worker_index: 0 in the driver, 1... for the remote ones.
        incarnation, allocate: as for RolloutWorker; workers that sample no fragments have no use for them.
        policy: acts; by default one that the settings describe, with weights that come by a snapshot.

    Attributes:
        callbacks: the object with the user's hooks.
        policies: policy id -> policy.
        acts_elsewhere: whether the policy computes on another device (`Policy.act_on`).
        stream: the environments; None where there are none between evaluations.
        kind: its name in messages, before its index.
        if_silent: possible reasons for a missing answer, for messages.
    """

    kind: ClassVar[str] = "rollout worker"
    if_silent: ClassVar[str] = (
        "does an environment hang? A slow one needs a longer sample_timeout_s or a shorter rollout_fragment_length, an "
        "endless episode a time limit (max_episode_steps)"
    )

    stream: EnvironmentStream | None = None

    def __init__(
        self,
        settings,
        worker_index: int = 0,
        incarnation: int = 0,
        allocate: Callable[..., np.ndarray] = np.empty,
        policy: Policy | None = None,
    ):
        self.settings, self.worker_index = settings, worker_index
        self.callbacks = settings.callbacks()
        if policy is not None:
            self.policies = {DEFAULT_POLICY: policy}
        else:
            self.policies = {policy_id: Policy(own.spec) for policy_id, own in settings.policies.items()}
        device = settings.acting_device if worker_index else None
        self.acts_elsewhere = device is not None and all([each.act_on(device) for each in self.policies.values()])
        for policy_id in self.policies if policy is None else ():
            self._announce(policy_id)

    def _announce(self, policy_id: str) -> None:
        """Gives a new policy the config, and calls the user's hook for it."""
        policy = self.policies[policy_id]
        policy.config = self.settings.config
        self.callbacks.on_create_policy(policy_id=policy_id, policy=policy)

    def change_settings(self, settings) -> None:
        """Continues with other settings: policies that were added or removed, or another mapping of agents."""
        self.settings = settings
        for policy_id, own in settings.policies.items():
            if policy_id not in self.policies:
                self.policies[policy_id] = Policy(own.spec)
                self._announce(policy_id)

    @property
    def policy(self) -> Policy:
        """The only policy."""
        return of_only_policy(self.policies, "policy", "policies[POLICY_ID]")

    @property
    def policy_settings(self) -> "PolicySettings":
        """Settings of the only policy."""
        return self.settings.only_policy

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
    def policy_map(self) -> Mapping[str, Any]:
        """The policies by name, those that are written by hand included."""
        return self.policies

    def get_policy(self, policy_id: str = DEFAULT_POLICY) -> Any:
        """The policy with this name; None if there is none."""
        return self.policy_map.get(policy_id)

    def get_weights(self) -> dict[str, np.ndarray]:
        """Policy id -> a copy of its flat parameter vector, as `Algorithm.get_weights`."""
        return {policy_id: policy.weights.copy() for policy_id, policy in self.policies.items()}

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Takes over what `get_weights` gave."""
        for policy_id, policy in self.policies.items():
            policy.set_weights(weights[policy_id])

    @property
    def env(self):
        """The first environment."""
        return self.stream.environments[0]

    def foreach_env(self, function: Callable[[Any], Any]) -> list:
        """function(environment) for each environment."""
        return [function(env) for env in self.stream.environments]

    def foreach_env_with_context(self, function: Callable[[Any, EnvContext], Any]) -> list:
        """function(environment, its EnvContext) for each environment."""
        num_envs = len(self.stream.environments)
        return [
            function(env, EnvContext(self.settings.env_config, self.worker_index, index, self.num_workers, num_envs))
            for index, env in enumerate(self.stream.environments)
        ]

    def set_tasks(self, choose: Callable[[Any, EnvContext], Any]) -> tuple[int, list]:
        """Sets the tasks of the environments, which those that replace them take over.

        Args:
            choose: function (environment, its EnvContext) that sets a task and returns it.

        Returns:
            the index of the worker, and the tasks.
        """
        tasks = self.foreach_env_with_context(choose)
        self.settings.env_tasks.update({(self.worker_index, index): task for index, task in enumerate(tasks)})
        return self.worker_index, tasks

    def take_bound_returns(self) -> tuple[int, list[BoundReturn]]:
        """The index of the worker, and returns of the episodes that have ended at bounds of adapted disturbances."""
        of_environments = (layer_of(env).take_bound_returns() for env in self.stream.environments)
        return self.worker_index, [each for returns in of_environments for each in returns]

    def set_disturbance_ranges(self, ranges: Mapping[str, Interval]) -> None:
        """Sets ranges of the environments' parameters, which those that replace them take over."""
        self.settings.disturbance_ranges.update(ranges)
        for env in self.stream.environments:
            layer_of(env).set_disturbance_ranges(ranges)

    def foreach_policy(self, function: Callable[..., Any], **kwargs) -> list:
        """function(policy, policy id, **kwargs) for each policy."""
        return [function(policy, policy_id, **kwargs) for policy_id, policy in self.policy_map.items()]

    def foreach_policy_to_train(self, function: Callable[..., Any], **kwargs) -> list:
        """function(policy, policy id, **kwargs) for each policy that learns."""
        agents = self.settings.agents
        return [
            function(policy, policy_id, **kwargs)
            for policy_id, policy in self.policy_map.items()
            if agents is None or policy_id in agents.trained
        ]

    def for_policy(self, function: Callable[..., Any], policy_id: str = DEFAULT_POLICY, **kwargs) -> Any:
        """function(policy, **kwargs) for the policy with this name."""
        return function(self.get_policy(policy_id), **kwargs)

    def apply(self, function: Callable[..., Any], *args, **kwargs) -> Any:
        """function(worker, *args, **kwargs)."""
        return function(self, *args, **kwargs)

    def stop(self) -> None:
        """`close`, by RLlib's name."""
        self.close()

    def load_snapshots(self, snapshots: Snapshots) -> None:
        """Uses these versions of the policies from now on."""
        for policy_id, snapshot in snapshots.items():
            if policy_id in self.policies:
                self.policies[policy_id].load_snapshot(snapshot)

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Uses this policy from now on, where the worker has one."""
        self.load_snapshots({DEFAULT_POLICY: snapshot})

    # ------------------------------------------------------------------ calls without a state between them

    def get_state(self) -> list[dict]:
        """The state of the random streams of each environment, JSON-able."""
        return []

    def takes_state(self, state: Any) -> bool:
        """Whether a saved state is one of this kind of worker, with as many environments; that of others may be any."""
        return _form(state) == _form(self.get_state())

    def split_state(self, state: Any) -> list[list[dict]]:
        """The parts of a worker's saved state that another division of environments takes apart; [] for another form.

        They are those of single environments, where workers step these apart.
        """
        return [[each] for each in state] if _form(state) else []

    def set_state(self, state: list[dict]) -> None:
        """Restores what `get_state` returned."""

    def start_over(self, incarnation: int | None = None) -> None:
        """Drops the running episodes; see RolloutWorker."""

    def close(self) -> None:
        """Closes the environments."""
        if self.stream is not None:
            self.stream.close()


def _form(state: Any) -> list | None:
    """Keys of the state of each environment; None for a state of another form."""
    is_of_environments = isinstance(state, list) and all(isinstance(each, dict) for each in state)
    return [sorted(each) for each in state] if is_of_environments else None
