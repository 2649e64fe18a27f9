"""The policies of a run, by their ids. New ones are made here; workers and checkpoints build theirs from a spec.

Learners, PolicySettings of the workers, snapshots, and statistics of filters and returns go by policy id. An algorithm
for one agent has one policy, DEFAULT_POLICY.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import Space

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.evaluation import seeding
from rllib.models.policy_spec import PolicySpec
from rllib.policy import Policy


def policy_configs(config: AlgorithmConfig, overrides: Mapping[str, Mapping[str, Any]]) -> dict[str, AlgorithmConfig]:
    """Policy id -> frozen config with the policy's own settings in the place of the run's.

    Args:
        config: of the run.
        overrides: policy id -> settings in which the policy differs, under any of their names. A dict such as `model`
            changes the run's by its keys.

    Raises:
        ValueError: with the mistakes in the settings of a policy, and its id.
    """
    configs = {}
    for policy_id, own in overrides.items():
        try:
            changed = config.copy(copy_frozen=False).update_from_dict(own)
            changed.validate()
        except (TypeError, ValueError) as error:
            error.add_note(f"These are settings of the policy {policy_id!r}.")
            raise
        configs[policy_id] = changed.freeze()
    return configs


def by_message(configs: Mapping[str, AlgorithmConfig]) -> dict[str, AlgorithmConfig]:
    """The settings of policies as parts of a run, by how messages name them (`ConfigObject.without_effect`)."""
    return {f"policy {policy_id!r}": config for policy_id, config in configs.items()}


def make_policies(
    spaces: Mapping[str, tuple[Space, Space]],
    config_of: Callable[[str], AlgorithmConfig],
    make_spec: Callable[[Space, Space, AlgorithmConfig], PolicySpec],
    seed: int,
    first: int = 0,
) -> dict[str, Policy]:
    """Makes policies with new weights, each drawn from a random stream that does not depend on the other networks.

    Args:
        spaces: policy id -> observation space and action space.
        config_of: settings of a policy, by its id.
        make_spec: describes the network for these spaces by these settings.
        seed: of the run.
        first: number of policies that were made before, whose streams are taken.

    Raises:
        ValueError: if a network cannot be built.
    """
    policies = {}
    for index, (policy_id, (observation_space, action_space)) in enumerate(sorted(spaces.items()), first):
        config = config_of(policy_id)
        spec = make_spec(observation_space, action_space, config)
        policy = Policy(spec, rng=seeding.generator(seed, seeding.INITIAL_WEIGHTS, index))
        policy.observation_space, policy.action_space = observation_space, action_space
        policy.config = config
        policies[policy_id] = policy
    return policies
