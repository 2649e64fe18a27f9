"""Settings of RLlib's new API stack and of its older forms: checks, and translation to this library's settings."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rllib.algorithms.base.recorded.settings import SAMPLER, OfflineDataConfig
from rllib.env.factories.registry import EnvContext, resolve
from rllib.notices import shortened
from rllib.policies import PolicySpec


def connectors_problem(name: str, given: Any) -> str | None:
    """The mistake in a setting of connectors; None if there is none."""
    is_piece = hasattr(given, "recompute_output_observation_space")
    if given is None or (callable(given) and not is_piece):
        return None
    return (
        f"{name}={shortened(given)} must be a function that makes connectors. Use "
        f".env_runners({name}=lambda env, spaces, device: MyConnector())."
    )


def learner_class_problem(learner_class: Any) -> str | None:
    """The mistake in a value of learner_class that is not None; None if there is none."""
    from rllib.core.learner.torch_learner import learner_problem

    return learner_problem(learner_class)


def take_defaults_of_class(config: Any) -> None:
    """Applies the default network and learner of a user's config class, unless the config names others.

    In RLlib a user's class overrides `get_default_rl_module_spec(self)`, whose RLModuleSpec has its own model_config or
    the config's, and `get_default_learner_class(self)`.

    Args:
        config: an AlgorithmConfig, which is changed.
    """
    cls, own = type(config), config.changes()
    if config.learner_class is None and hasattr(cls, "get_default_learner_class"):
        config.training(learner_class=config.get_default_learner_class())
    model = own.get("model", {})
    if "custom_model" not in model and hasattr(cls, "get_default_rl_module_spec"):
        spec = config.get_default_rl_module_spec()
        if getattr(spec, "model_config", None) is None and hasattr(spec, "to_model"):
            spec = dataclasses.replace(spec, model_config=model)
        config.training(rl_module_spec=spec)


# RLlib's setting with the policies' own settings.
OVERRIDES = "algorithm_config_overrides_per_module"


def with_overrides(policies: Any, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`policies` with further settings of single policies, by RLlib's name OVERRIDES.

    Args:
        policies: value of the setting: ids, or id -> what PolicySpec.of takes.
        overrides: policy id -> its settings, as a dict or by `PPOConfig.overrides(lr=1e-4)`.

    Raises:
        TypeError: if no ids are given, and for a policy that is not among them.
    """
    if policies is None or isinstance(policies, str):
        raise TypeError(
            f"{OVERRIDES} needs the ids of the policies, in the same call or before: .multi_agent(policies="
            f"{set(overrides)!r}, {OVERRIDES}=...). Settings of an only policy are those of the run."
        )
    specs = dict(policies) if isinstance(policies, Mapping) else dict.fromkeys(policies)
    for policy_id, own in overrides.items():
        if policy_id not in specs:
            raise TypeError(f"{OVERRIDES} has settings for {policy_id!r}, but the policies are {', '.join(specs)}")
        given = PolicySpec(config=own).config or {}
        spec = PolicySpec.of(specs[policy_id], policy_id)
        specs[policy_id] = dataclasses.replace(spec, config={**(spec.config or {}), **given})
    return specs


def serve_by_input(config: OfflineDataConfig) -> None:
    """Converts RLlib's form of a policy server, a function in `input_` that returns one, to the setting `listen`."""
    if not callable(config.input_) or config.env is not None or config.listen is not None:
        return
    from rllib.env.policy_server.policy_server_input import PolicyServerInput, made_for_first_worker

    made = made_for_first_worker(config.input_, config)
    if isinstance(made, PolicyServerInput):
        config.external(listen=config.input_).offline_data(input_=SAMPLER)
    else:
        config.keep_input(made)


def filter_by_connectors(config: OfflineDataConfig) -> None:
    """Converts a MeanStdFilter among the connectors to the setting observation_filter."""
    if config.env_to_module_connector is None:
        return
    from rllib.core.connectors.filter_settings import filter_settings

    def make_env():
        return resolve(config.env).make(EnvContext(config.env_config))

    config.rollouts(**filter_settings(config.env_to_module_connector, make_env))
