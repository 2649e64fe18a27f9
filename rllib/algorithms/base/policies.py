"""The policies of a run, by their ids. New ones are made here; workers and checkpoints build theirs from a spec.

Learners, PolicySettings of the workers, snapshots, and statistics of filters and returns go by policy id. An algorithm
for one agent has one policy, DEFAULT_POLICY. docs/architecture.md lists what still holds a single policy.
"""

from collections.abc import Callable, Mapping

from gymnasium import Space

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.evaluation import seeding
from rllib.models.policy_spec import PolicySpec
from rllib.policy import Policy


def make_policies(
    config: AlgorithmConfig,
    spaces: Mapping[str, tuple[Space, Space]],
    make_spec: Callable[[Space, Space], PolicySpec],
    seed: int,
) -> dict[str, Policy]:
    """Makes policies with new weights, each drawn from a random stream that does not depend on the other networks.

    Args:
        config: of the algorithm.
        spaces: policy id -> observation space and action space.
        make_spec: describes the network for these spaces.
        seed: of the run.

    Raises:
        ValueError: if a network cannot be built.
    """
    policies = {}
    for index, (policy_id, (observation_space, action_space)) in enumerate(sorted(spaces.items())):
        spec = make_spec(observation_space, action_space)
        policy = Policy(spec, rng=seeding.generator(seed, seeding.INITIAL_WEIGHTS, index))
        policy.observation_space, policy.action_space = observation_space, action_space
        policy.config = config
        policies[policy_id] = policy
    return policies
