"""Descriptions of modules: the class of a network, and the settings that it is made by."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymnasium import spaces

from rllib.core.modules.built_in import BuiltInCatalog, BuiltInRLModule, without_layers


@dataclass
class RLModuleSpec:
    """Names the network of a policy: `.rl_module(rl_module_spec=RLModuleSpec(module_class=MyModule, ...))`.

    Args:
        module_class: derived from TorchRLModule; None, or RLlib's default such as DefaultPPOTorchRLModule: a built-in
            network, by `model_config`.
        observation_space, action_space: for `build` and `algo.add_module`; a policy's are those of its environment.
        inference_only, learner_only: without effect in a run, whose processes all have the whole module.
        model_config: the module's settings, a dict that JSON can hold, or a dataclass; of a built-in network the
            `model` settings.
        catalog_class, load_state_path: refused where a run reads the description, but for a default such as PPOCatalog.
        model_config_dict: another name of model_config.
    """

    module_class: Callable[..., Any] | None = None
    observation_space: spaces.Space | None = None
    action_space: spaces.Space | None = None
    inference_only: bool = False
    learner_only: bool = False
    model_config: Any = None
    catalog_class: type | None = None
    load_state_path: str | None = None
    model_config_dict: dict[str, Any] | None = None

    @classmethod
    def from_module(cls, module: Any) -> "RLModuleSpec":
        """The description of a module that is made already, such as `algo.get_module()`: another like it."""
        is_built_in = not hasattr(module, "named_parameters")
        return cls(
            None if is_built_in else type(module),
            module.observation_space,
            module.action_space,
            model_config=dict(module.model_config or {}),
        )

    def build(self) -> Any:
        """Makes the module.

        Raises:
            ValueError: without a class.
        """
        if self.module_class in (None, BuiltInRLModule):
            raise ValueError(
                "RLModuleSpec.build() needs a module_class; an algorithm makes built-in networks: algo.get_module()"
            )
        return self.module_class(
            observation_space=self.observation_space,
            action_space=self.action_space,
            inference_only=self.inference_only,
            learner_only=self.learner_only,
            model_config=self.settings(),
            catalog_class=self.catalog_class,
        )

    def settings(self) -> dict[str, Any]:
        """The module's settings as a dict."""
        given = self.model_config if self.model_config is not None else self.model_config_dict
        is_given = dataclasses.is_dataclass(given) and not isinstance(given, type)
        return dataclasses.asdict(given) if is_given else dict(given or {})

    def to_model(self) -> dict[str, Any]:
        """The `model` settings that ask for this network.

        Raises:
            TypeError: for a catalog, a path of a state or a class derived from a default module, with the way here.
        """
        if self.catalog_class not in (None, BuiltInCatalog):
            raise TypeError(
                f"rl_module_spec: catalog_class={self.catalog_class!r:.80} cannot be used: there are no catalogs. "
                "Build the layers in the setup() of a TorchRLModule, or use the settings of the built-in networks."
            )
        if self.load_state_path is not None:
            raise TypeError(
                f"rl_module_spec: load_state_path={self.load_state_path!r} cannot be used. Load weights after build(): "
                'algo.set_weights({"default_policy": other.get_policy().weights}).'
            )
        if self.module_class in (None, BuiltInRLModule):
            return self.settings()
        if isinstance(self.module_class, type) and issubclass(self.module_class, BuiltInRLModule):
            raise TypeError(without_layers(self.module_class))
        if hasattr(self.module_class, "named_parameters") and not isinstance(self.module_class, type):
            name = type(self.module_class).__name__
            raise TypeError(
                f"module_class={name}(...) is a module that is made already. Give its class, "
                f"RLModuleSpec(module_class={name}); a run makes the weights."
            )
        own = self.settings()
        of_sequences = {name: own[name] for name in ("max_seq_len",) if name in own}
        return {"custom_model": self.module_class, "custom_model_config": own, **of_sequences}


@dataclass
class MultiRLModuleSpec:
    """Names the networks of several policies, by their ids.

    Args:
        rl_module_specs: policy id -> description of its network.
        multi_rl_module_class: refused where a run reads it: policies here share no layers.
        observation_space, action_space, inference_only, model_config: without effect.
        load_state_path, modules_to_load: refused.
        module_specs: another name of rl_module_specs.
    """

    multi_rl_module_class: type | None = None
    observation_space: spaces.Space | None = None
    action_space: spaces.Space | None = None
    inference_only: bool | None = None
    model_config: dict[str, Any] | None = None
    rl_module_specs: dict[str, RLModuleSpec] = field(default_factory=dict)
    load_state_path: str | None = None
    modules_to_load: set[str] | None = None
    module_specs: dict[str, RLModuleSpec] | None = None

    def __contains__(self, policy_id: str) -> bool:
        return policy_id in self._specs

    def __getitem__(self, policy_id: str) -> RLModuleSpec:
        return self._specs[policy_id]

    @property
    def _specs(self) -> Mapping[str, RLModuleSpec]:
        return self.module_specs or self.rl_module_specs

    def to_models(self) -> dict[str, dict[str, Any]]:
        """Policy id -> the `model` settings that ask for its network.

        Raises:
            TypeError: for a class of shared layers or a path of a state, with the way here.
        """
        if self.multi_rl_module_class is not None:
            raise TypeError(
                f"rl_module_spec: multi_rl_module_class={self.multi_rl_module_class!r:.80} cannot be used: networks of "
                "different policies share no layers. Let the agents act by one policy (policy_mapping_fn), or give "
                "each policy its own module."
            )
        if self.load_state_path is not None:
            raise TypeError(
                f"rl_module_spec: load_state_path={self.load_state_path!r} cannot be used. Load weights after build(): "
                "algo.set_weights({policy_id: weights})."
            )
        if not isinstance(self._specs, Mapping) or not all(hasattr(each, "to_model") for each in self._specs.values()):
            raise TypeError(
                f"rl_module_specs={self._specs!r:.120} must be a dict of policy id -> RLModuleSpec, as in "
                "{'p0': RLModuleSpec(module_class=MyModule)}."
            )
        return {policy_id: spec.to_model() for policy_id, spec in self._specs.items()}
