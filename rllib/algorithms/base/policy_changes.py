"""Policies that are added, removed, frozen or mapped anew while a run goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import Space

from rllib.acting.inference import Inference
from rllib.algorithms.base.agents import (
    Agents,
    PolicyMapping,
    check_policy_id,
    hand_written,
    make_mapping,
    own_settings,
    probed,
    spaces_of,
    trained,
    unknown_policy,
    without_own_class,
)
from rllib.algorithms.base.policies import make_policies, policy_configs
from rllib.policies import PolicySpec
from rllib.policy import Policy


def agents_of(algorithm) -> Agents:
    """The agents of a run.

    Raises:
        ValueError: if it has one agent.
    """
    if algorithm.agents is None:
        raise ValueError(
            "policies are added and removed where several agents act, but this run's environment has one agent. "
            "rllib.env.make_multi_agent(env) makes an environment of several copies of it."
        )
    return algorithm.agents


def add_policy(
    algorithm,
    policy_id: str,
    spec: Sequence[Any],
    *,
    policy: Policy | None = None,
    policy_state: Mapping[str, np.ndarray] | None = None,
    policy_mapping_fn: Any = None,
    policies_to_train: Any = None,
) -> Policy | None:
    """See Algorithm.add_policy; `spec` has the fields of a PolicySpec."""
    agents, spec = agents_of(algorithm), without_own_class(PolicySpec(*spec))
    check_policy_id(policy_id)
    if policy_id in agents.specs:
        raise ValueError(f"there is a policy {policy_id!r} already; the ids are {', '.join(agents.specs)}")
    if policy is not None and spec.observation_space is None:
        spec = replace(spec, observation_space=policy.observation_space, action_space=policy.action_space)
    specs = {**agents.specs, policy_id: spec}
    mapping = agents.mapping
    if policy_mapping_fn is not None:
        mapping = make_mapping(policy_mapping_fn, specs, agents.environment)
    changed = _changed(algorithm, agents, specs, mapping, policies_to_train)
    made = None
    if policy_id in changed.spaces:
        made = _make_policy(algorithm, policy_id, changed, policy_state, policy)
    _take_over(algorithm, changed)
    return made


def remove_policy(algorithm, policy_id: str, *, policy_mapping_fn: Any = None, policies_to_train: Any = None) -> None:
    """See Algorithm.remove_policy."""
    agents = agents_of(algorithm)
    specs = dict(agents.specs)
    if policy_id not in specs:
        raise unknown_policy(f"remove_policy names {policy_id!r}", policy_id, specs)
    del specs[policy_id]
    if not specs:
        raise ValueError(f"{policy_id!r} is the only policy of this run, and cannot be removed")
    given = agents.mapping.function if policy_mapping_fn is None else policy_mapping_fn
    mapping = make_mapping(given, specs, agents.environment)
    if policies_to_train is None and not (agents.to_train is None or callable(agents.to_train)):
        policies_to_train = [each for each in agents.to_train if each != policy_id]
    changed = _changed(algorithm, agents, specs, mapping, policies_to_train)
    by_policy = algorithm.policies, algorithm._inferences, algorithm._return_scales, algorithm._policy_configs
    for of_policies in (*by_policy, algorithm._learner_rngs):
        of_policies.pop(policy_id, None)
    _take_over(algorithm, changed)


def set_mapping(algorithm, policy_mapping_fn: Any) -> None:
    """See Algorithm.set_policy_mapping_fn."""
    agents = agents_of(algorithm)
    mapping = make_mapping(policy_mapping_fn, agents.specs, agents.environment)
    _take_over(algorithm, _changed(algorithm, agents, agents.specs, mapping, None))


def set_trained(algorithm, policies_to_train: Any) -> None:
    """See Algorithm.set_policies_to_train."""
    agents = agents_of(algorithm)
    _take_over(algorithm, _changed(algorithm, agents, agents.specs, agents.mapping, policies_to_train))


def _changed(
    algorithm, agents: Agents, specs: Mapping[str, PolicySpec], mapping: PolicyMapping, policies_to_train: Any
) -> Agents:
    """The agents with these policies and this mapping; policies_to_train of None keeps what there is."""
    examined = agents.environment
    found, num_slots = probed(mapping, specs, examined)
    settings = agents.settings
    spaces = {
        policy_id: settings.spaces.get(policy_id) or spaces_of(policy_id, spec, found, examined)
        for policy_id, spec in specs.items()
    }
    by_hand = {
        policy_id: settings.hand_written.get(policy_id) or hand_written(spec, *spaces[policy_id])
        for policy_id, spec in specs.items()
        if spec.policy_class is not None
    }
    learned = {policy_id: pair for policy_id, pair in spaces.items() if policy_id not in by_hand}
    to_train = agents.to_train if policies_to_train is None else policies_to_train
    names, trains = trained(to_train, specs, learned)
    config = algorithm.config
    overrides = {i: own_settings(i, spec.config, config) for i, spec in specs.items() if spec.config and i in learned}
    numbers = dict(settings.numbers)
    for policy_id in spaces:
        numbers.setdefault(policy_id, max(numbers.values(), default=-1) + 1)
    slots = {i: max(count, settings.num_slots.get(i, 1)) for i, count in num_slots.items()}
    changed = replace(
        settings,
        policy_of=mapping,
        spaces=spaces,
        num_slots=slots if examined.are_known else {},
        trained=frozenset(names),
        hand_written=by_hand,
        numbers={policy_id: numbers[policy_id] for policy_id in spaces},
    )
    return Agents(examined, dict(specs), learned, overrides, mapping, to_train, changed, trains, agents.first_ids)


def _make_policy(
    algorithm, policy_id: str, agents: Agents, state: Mapping[str, np.ndarray] | None, given: Policy | None
) -> Policy:
    """Makes a policy that is a network, with new weights or those that are given."""
    own = {policy_id: agents.overrides[policy_id]} if policy_id in agents.overrides else {}
    algorithm._policy_configs.update(policy_configs(algorithm.config, own))
    spaces: tuple[Space, Space] = agents.spaces[policy_id]
    number = agents.settings.numbers[policy_id]
    if given is None:
        make_spec, seed = algorithm._checked_spec, algorithm.seed
        policy = make_policies({policy_id: spaces}, algorithm.config_of, make_spec, seed, number)[policy_id]
    else:
        policy = Policy(given.spec)
        policy.observation_space, policy.action_space = spaces
        policy.config = algorithm.config_of(policy_id)
        policy.set_state(given.get_state())
    if state is not None:
        policy.set_state(state)
    algorithm.policies[policy_id] = policy
    algorithm.callbacks.on_create_policy(policy_id=policy_id, policy=policy)
    settings = algorithm._acting_settings, algorithm._acting_rng, policy.distribution
    algorithm._inferences[policy_id] = Inference(*spaces, *settings)
    return policy


def _take_over(algorithm, agents: Agents) -> None:
    """Makes the algorithm and its workers go on with these agents."""
    before = list(algorithm.learners)
    algorithm.agents = agents
    policies = {
        policy_id: algorithm._rollout_settings.policies.get(policy_id) or algorithm._policy_settings(policy_id)
        for policy_id in algorithm.policies
    }
    algorithm._rollout_settings = replace(algorithm._rollout_settings, policies=policies, agents=agents.settings)
    for policy_id in algorithm._trained_ids():
        if policy_id not in algorithm.learners:
            algorithm.begin_training(policy_id)
    for policy_id in before:
        if policy_id not in agents.settings.trained:
            algorithm.end_training(policy_id)
    algorithm.workers.change_settings(algorithm._rollout_settings)
    algorithm._evaluations.change_agents(policies, agents.settings)
