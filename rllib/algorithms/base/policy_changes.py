"""The agents of a run after policies were added, removed, frozen or remapped."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from rllib.algorithms.base.agents import (
    Agents,
    PolicyMapping,
    check_fit,
    check_policy_id,
    fixed_policies,
    hand_written,
    listed,
    make_mapping,
    mapping_data,
    own_settings,
    probed,
    spaces_of,
    trained,
    unknown_policy,
    without_own_class,
)
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.policies import PolicySpec


def with_policy(
    agents: Agents,
    config: AlgorithmConfig,
    policy_id: str,
    spec: PolicySpec,
    policy_mapping_fn: Any = None,
    policies_to_train: Any = None,
) -> Agents:
    """The agents with a further policy; arguments as for Algorithm.add_policy, None keeps the present value."""
    check_policy_id(policy_id)
    if policy_id in agents.specs:
        raise ValueError(f"there is a policy {policy_id!r} already; the ids are {', '.join(agents.specs)}")
    specs = {**agents.specs, policy_id: without_own_class(spec)}
    mapping = agents.mapping
    if policy_mapping_fn is not None:
        mapping = make_mapping(policy_mapping_fn, specs, agents.environment)
    return _changed(agents, config, specs, mapping, agents.to_train if policies_to_train is None else policies_to_train)


def without_policy(
    agents: Agents,
    config: AlgorithmConfig,
    policy_id: str,
    policy_mapping_fn: Any = None,
    policies_to_train: Any = None,
) -> Agents:
    """The agents without one of their policies; arguments as for Algorithm.remove_policy."""
    specs = dict(agents.specs)
    if policy_id not in specs:
        raise unknown_policy(f"remove_policy names {policy_id!r}", policy_id, specs)
    del specs[policy_id]
    if not specs:
        raise ValueError(f"{policy_id!r} is the only policy of this run, and cannot be removed")
    given = agents.mapping.function if policy_mapping_fn is None else policy_mapping_fn
    mapping = make_mapping(given, specs, agents.environment)
    if policies_to_train is None:
        policies_to_train = agents.to_train
        if not (policies_to_train is None or callable(policies_to_train)):
            policies_to_train = [each for each in listed(policies_to_train) if each != policy_id]
    return _changed(agents, config, specs, mapping, policies_to_train)


def with_mapping(agents: Agents, config: AlgorithmConfig, policy_mapping_fn: Any) -> Agents:
    """The agents with another mapping to the same policies."""
    mapping = make_mapping(policy_mapping_fn, agents.specs, agents.environment)
    return _changed(agents, config, agents.specs, mapping, agents.to_train)


def with_trained(agents: Agents, config: AlgorithmConfig, policies_to_train: Any) -> Agents:
    """The agents with other policies in training."""
    return _changed(agents, config, agents.specs, agents.mapping, policies_to_train)


def check_slots(agents: Agents, policies: Mapping[AgentID, str]) -> None:
    """Checks policies of agents that replace the mapping's.

    Args:
        agents: agents of the run.
        policies: agent -> policy id.

    Raises:
        ValueError: for an unknown agent or policy.
    """
    there = agents.environment
    for agent, policy_id in policies.items():
        if there.are_known and agent not in there.agents:
            raise ValueError(f"policies names the agent {agent!r}, but there are {', '.join(map(repr, there.agents))}")
        if policy_id not in agents.specs:
            raise unknown_policy(f"policies gives agent {agent!r} the policy {policy_id!r}", policy_id, agents.specs)


def restored(agents: Agents, config: AlgorithmConfig, changes: Mapping[str, Any], kept: Collection[str] = ()) -> Agents:
    """The agents of a saved run, independent of the changes in this run.

    Args:
        agents: agents of this run, whose initial agents equal the saved run's.
        config: settings of this run.
        changes: the saved run's changes since it began, as `changes_of` returned them.
        kept: names of further changes of the saved run, for which this run keeps its own values.
    """
    first, numbers_now = agents.beginning, agents.settings.numbers
    own = {policy_id: spec for policy_id, spec in agents.specs.items() if _was_added(agents, policy_id)}
    added, numbered = changes.get("policies", {}), changes.get("numbers", {})
    if "policies" in kept:
        added, numbered = own, numbers_now
    gone = {*changes.get("removed", ()), *added}
    specs = {policy_id: spec for policy_id, spec in first.specs.items() if policy_id not in gone} | dict(added)
    numbers = {i: first.settings.numbers[i] for i in specs if i not in added}
    # Older checkpoints have no numbers.
    numbers |= {i: numbered.get(i, number) for number, i in enumerate(added, len(first.specs))}
    # Policies that this run has, or began with.
    has = {i: agents.settings for i in specs if numbers_now.get(i) == numbers[i]}
    had = {i: first.settings for i in specs if i not in added} | has
    settings = replace(
        agents.settings,
        spaces={i: of.spaces[i] for i, of in had.items()},
        hand_written={i: of.hand_written[i] for i, of in had.items() if i in of.hand_written},
        numbers=numbers,
        num_slots=changes.get("num_slots", first.settings.num_slots),
    )
    made = max(changes.get("num_made", 0), len(first.specs), *(number + 1 for number in numbers.values()))
    mapping, to_train = first.mapping, changes.get("policies_to_train", first.to_train)
    if "policy_mapping_fn" in changes:
        mapping = make_mapping(changes["policy_mapping_fn"], specs, agents.environment)
    elif "policy_mapping_fn" in kept:
        mapping = agents.mapping
    if "policies_to_train" in kept:
        to_train = agents.to_train
    base = replace(agents, settings=settings, num_made=made, first=first)
    return _changed(base, config, specs, mapping, to_train)


def _was_added(agents: Agents, policy_id: str) -> bool:
    """Whether a policy was added after the run began."""
    return agents.settings.numbers[policy_id] >= len(agents.beginning.specs)


def _changed(
    agents: Agents,
    config: AlgorithmConfig,
    specs: Mapping[str, PolicySpec],
    mapping: PolicyMapping,
    to_train: Any,
) -> Agents:
    """The agents with these policies and this mapping; `to_train`: value of policies_to_train."""
    examined = agents.environment
    found, num_slots = probed(mapping, specs, examined)
    settings = agents.settings
    spaces = {
        policy_id: settings.spaces.get(policy_id) or spaces_of(policy_id, spec, found, examined)
        for policy_id, spec in specs.items()
    }
    by_hand = {
        policy_id: settings.hand_written.get(policy_id)
        or hand_written(policy_id, spec, *spaces[policy_id], config.action_mask_key)
        for policy_id, spec in specs.items()
        if spec.policy_class is not None
    }
    learned = {policy_id: pair for policy_id, pair in spaces.items() if policy_id not in by_hand}
    check_fit(learned, found, examined)
    names, trains = trained(to_train, specs, learned, found)
    overrides = {i: own_settings(i, spec.config, config) for i, spec in specs.items() if spec.config and i in learned}
    # Numbers are never reused: by them workers distinguish a policy from an earlier one with the same id.
    new = [policy_id for policy_id in spaces if policy_id not in settings.numbers]
    numbers = {**settings.numbers, **{policy_id: number for number, policy_id in enumerate(new, agents.num_made)}}
    slots = {i: max(count, settings.num_slots.get(i, 1)) for i, count in num_slots.items()}
    changed = replace(
        settings,
        policy_of=mapping,
        spaces=spaces,
        num_slots=slots if examined.are_known else {},
        trained=frozenset(names),
        hand_written=by_hand,
        numbers={policy_id: numbers[policy_id] for policy_id in spaces},
        fixed=fixed_policies(mapping, examined),
    )
    parts = examined, dict(specs), learned, overrides, mapping, to_train, changed, trains, frozenset(found)
    return Agents(*parts, agents.num_made + len(new), agents.beginning)


# ------------------------------------------------------------------ checkpoints


def changes_of(agents: Agents | None) -> dict[str, Any]:
    """Changes since the run began, for checkpoints; empty where there are none.

    Returns:
        "policies": id -> PolicySpec of each added policy; "numbers": id -> number of each added policy; "removed": ids
        of removed initial policies; "num_made"; "policy_mapping_fn", "policies_to_train" and "num_slots", if changed.
    """
    if agents is None:
        return {}
    changes: dict[str, Any] = {}
    settings, first = agents.settings, agents.beginning
    added = {
        policy_id: replace(spec, **dict(zip(("observation_space", "action_space"), settings.spaces[policy_id])))
        for policy_id, spec in agents.specs.items()
        if _was_added(agents, policy_id)
    }
    if added:
        changes |= {"policies": added, "numbers": {policy_id: settings.numbers[policy_id] for policy_id in added}}
    if removed := sorted(first.specs.keys() - (agents.specs.keys() - added.keys())):
        changes["removed"] = removed
    if agents.num_made > len(first.specs):
        changes["num_made"] = agents.num_made
    if (mapping := mapping_data(agents.mapping)) != mapping_data(first.mapping):
        changes["policy_mapping_fn"] = mapping
    if agents.to_train != first.to_train:
        changes["policies_to_train"] = agents.to_train
    if settings.num_slots != first.settings.num_slots:
        changes["num_slots"] = dict(settings.num_slots)
    return changes
