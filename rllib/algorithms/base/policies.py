"""The policies of a run, by id. New policies are made here; workers and checkpoints build copies from a spec.

Learners, PolicySettings of the workers, snapshots, and statistics of filters and returns are dicts by policy id. An
algorithm for one agent has one policy, DEFAULT_POLICY.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gymnasium import Space

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.space_rules import NewPolicy, broken_rules
from rllib.config.conflicts import Mistake, Remedy, Unfit, surrounded
from rllib.evaluation import seeding
from rllib.models.dense.network_spec import NetworkSpec
from rllib.policies import PolicySpec
from rllib.policy import Policy


def policy_configs(config: AlgorithmConfig, overrides: Mapping[str, Mapping[str, Any]]) -> dict[str, AlgorithmConfig]:
    """Policy id -> frozen config with the policy's own settings instead of the run's.

    Args:
        config: settings of the run.
        overrides: policy id -> settings in which the policy differs, under any of their names. A dict such as `model`
            changes keys of the run's dict.

    Raises:
        ValueError: with the mistakes in the settings of a policy, and the policy's id.
    """
    configs = {}
    for policy_id, own in overrides.items():
        whose = f"These are settings of the policy {policy_id!r}."
        try:
            changed = config.copy(copy_frozen=False).update_from_dict(own)
        except (TypeError, ValueError) as error:
            raise surrounded(error, after=whose) from error
        if mistakes := list(changed.mistakes()):
            raise config.error(*(_in_run(mistake, config, changed, policy_id, own) for mistake in mistakes))
        configs[policy_id] = changed.freeze()
    return configs


def _in_run(
    mistake: Mistake, config: AlgorithmConfig, changed: AlgorithmConfig, policy_id: str, own: Mapping[str, Any]
) -> Mistake:
    """Converts a mistake in a policy's settings to a mistake of the run, with remedies for the policy's settings.

    Args:
        config, changed: settings of the run, and of the policy.
        own: the settings in which the policy differs.
    """
    defaults = {name: setting.default for name, setting in changed.settings.items()}
    text = mistake.text(lambda remedy: ", ".join(f"{name}={value!r}" for name, value in remedy.items()), defaults)
    remedies: list[Remedy] = []
    for remedy in mistake.remedies:  # a setting that no policy may own stays the run's
        of_policy = {name: value for name, value in remedy.items() if changed.settings[name].of_policy}
        of_run = {name: value for name, value in remedy.items() if name not in of_policy}
        ways = with_settings(config, policy_id, [_with(of_policy, own, defaults)]) if of_policy else ({},)
        remedies += ({**of_run, **way} for way in ways)
    return Mistake(
        mistake.problem,
        ("policies", *mistake.names),
        tuple(remedies),
        advice=text.removeprefix(mistake.problem).strip(),
        note=f"These are settings of the policy {policy_id!r}.",
    )


def _with(remedy: Mapping[str, Any], own: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Applies a remedy to a policy's own settings; keys are added to dicts, as by `ConfigObject.apply`."""
    changed = dict(own)
    for name, value in remedy.items():
        adds = isinstance(value, Mapping) and isinstance(own.get(name), Mapping) and value != defaults[name]
        changed[name] = {**own[name], **value} if adds else value
    return changed


def with_settings(
    config: AlgorithmConfig, policy_id: str, each: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, Any], ...]:
    """Remedies that replace a policy's own settings; none unless the setting `policies` has a spec of the policy.

    Args:
        config: settings of the run.
        policy_id: id of the policy.
        each: the policy's new settings, one dict for each remedy.
    """
    given = config.policies
    if not isinstance(given, Mapping) or policy_id not in given:
        return ()
    spec = PolicySpec.of(given[policy_id], policy_id)
    return tuple({"policies": {**given, policy_id: dataclasses.replace(spec, config=dict(own))}} for own in each)


def described(
    policies: Iterable[NewPolicy],
    config_of: Callable[[str], AlgorithmConfig],
    describe: Callable[[Space, Space, AlgorithmConfig], NetworkSpec],
    check: Callable[[NetworkSpec, AlgorithmConfig], None],
) -> dict[str, NetworkSpec]:
    """Describes the networks of new policies: policy id -> network.

    Args:
        policies: the policies that will be made.
        config_of: function of a policy's id that returns its settings.
        describe: function of spaces and settings that returns the network.
        check: function that raises an error for a network that follows all rules but cannot learn.

    Raises:
        SettingsError: if settings do not fit spaces or networks, with the mistakes of all policies; a mistake in the
            run's settings is listed once.
    """
    specs: dict[str, NetworkSpec] = {}
    found: dict[tuple, Mistake] = {}
    for policy in policies:
        config = config_of(policy.policy_id)
        mistakes = list(broken_rules(config, policy, needs_network=False))
        if not mistakes:
            try:
                spec = describe(policy.observation_space, policy.action_space, config)
                mistakes = list(broken_rules(config, dataclasses.replace(policy, spec=spec), needs_network=True))
                if not mistakes:
                    check(spec, config)
                    specs[policy.policy_id] = spec
            except Unfit as error:
                mistakes = [config.placed(error.mistake)]
        for mistake in mistakes:
            is_own = _is_of(policy.own, mistake)
            if is_own:
                mistake = _in_run(mistake, policy.run, config, policy.policy_id, policy.own)
            found.setdefault((mistake.problem, policy.policy_id if is_own else None), mistake)
    if found:
        raise policy.run.error(*found.values())
    return specs


def settings_of_copy(run: AlgorithmConfig, source: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A policy's own settings, with changes for a copy of it; a dict such as `model` changes keys of the policy's dict.

    Args:
        run: settings of the run.
        source: the policy's own settings.
        given: the changes. Both may be under names of any era.
    """
    own, changes = run.values_in(source), run.values_in(given)
    for name, value in changes.items():
        both = run.settings[name].merged and isinstance(value, Mapping) and isinstance(own.get(name), Mapping)
        # Of two names of one key the later one counts, so given keys come last.
        kept = {key: item for key, item in own[name].items() if key not in value} if both else {}
        own[name] = {**kept, **value} if both else value
    return own


def refuse_other_network(policy_id: str, network: NetworkSpec, asked: NetworkSpec, before: NetworkSpec) -> None:
    """Refuses settings, given for a copy of a policy, that ask for another network than the one that is copied.

    Args:
        policy_id: id of the copy.
        network: that of the copy.
        asked: by the settings of the copy.
        before: by the settings without those that were given.

    Raises:
        ValueError: if given settings change the network, and it does not have what they ask for.
    """
    own, asked, before = (_leaves(each.to_json()) for each in (network, asked, before))
    ignored = [name for name, value in asked.items() if value != own.get(name) and value != before.get(name)]
    if ignored:
        raise ValueError(
            f"add_policy({policy_id!r}, policy=..., config=...): the network of the given policy is kept, but config "
            f"asks for another one: {_differences(ignored, own, asked)}. Leave these settings out, or leave "
            "out policy=... for a new network."
        )


def refuse_to_learn(policy_id: str, network: NetworkSpec, asked: NetworkSpec) -> None:
    """Refuses to train a network that the loss of the policy's settings cannot read.

    Args:
        policy_id: id of the policy.
        network: its network.
        asked: that of its settings.

    Raises:
        ValueError: if what they give for an action differs, or one alone has a value head, a memory or masks.
    """
    own, asked = (_leaves(_read_by_losses(each)) for each in (network, asked))
    if differing := sorted(name for name in own.keys() | asked.keys() if own.get(name) != asked.get(name)):
        raise ValueError(
            f"the policy {policy_id!r} cannot learn, since its settings do not fit its network: "
            f"{_differences(differing, own, asked)}. Give add_policy(..., config=...) the settings that the network "
            "was made with, or leave the policy out of policies_to_train."
        )


def _read_by_losses(network: NetworkSpec) -> dict[str, Any]:
    return {
        "distribution": network.distribution.to_json(),
        "critic": network.critic,
        "memory": network.state_size > 0,
        "masks": network.is_masked,
    }


def _leaves(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Path, such as "distribution.v_min" -> value in a dict of dicts."""
    found = {}
    for name, value in values.items():
        found |= _leaves(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def _differences(names: Iterable[str], own: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} is {own.get(name)!r}, settings ask for {asked.get(name)!r}" for name in names)


@contextlib.contextmanager
def naming_settings_of(
    policy_id: str, run: AlgorithmConfig, config: AlgorithmConfig, own: Mapping[str, Any]
) -> Iterator[None]:
    """Context that raises an Unfit of a part of a policy's training as a SettingsError of the run.

    Args:
        policy_id: id of the policy.
        run, config: settings of the run, and of the policy.
        own: the settings in which the policy differs, which remedies may change.
    """
    try:
        yield
    except Unfit as error:
        mistake = config.placed(error.mistake)
        raise run.error(_in_run(mistake, run, config, policy_id, own) if _is_of(own, mistake) else mistake) from error


def _is_of(own: Mapping[str, Any], mistake: Mistake) -> bool:
    """Whether a mistake is in a policy's own settings."""
    return not own.keys().isdisjoint(mistake.names)


def by_message(configs: Mapping[str, AlgorithmConfig]) -> dict[str, AlgorithmConfig]:
    """Name of a policy in messages -> its settings, as the parts of a run (`ConfigObject.without_effect`)."""
    return {f"policy {policy_id!r}": config for policy_id, config in configs.items()}


def make_policies(
    spaces: Mapping[str, tuple[Space, Space]],
    config_of: Callable[[str], AlgorithmConfig],
    specs: Mapping[str, NetworkSpec],
    seed: int,
    first: int = 0,
) -> dict[str, Policy]:
    """Makes policies with new weights, each drawn from a random stream that does not depend on the other networks.

    Args:
        spaces: policy id -> observation space and action space.
        config_of: function of a policy's id that returns its settings.
        specs: policy id -> its network.
        seed: seed of the run.
        first: number of policies that were made before, whose random streams are not used again.

    Raises:
        ValueError: if a network cannot be built.
    """
    policies = {}
    for index, (policy_id, (observation_space, action_space)) in enumerate(sorted(spaces.items()), first):
        policy = Policy(specs[policy_id], rng=seeding.generator(seed, seeding.INITIAL_WEIGHTS, index))
        policy.observation_space, policy.action_space = observation_space, action_space
        policy.config = config_of(policy_id)
        policies[policy_id] = policy
    return policies
