"""The architectures of the library, and the descriptions of networks that checkpoints hold."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from rllib.models.attention.spec import Attention
from rllib.models.dense.batch_renorm import BatchRenorm
from rllib.models.dense.network_spec import Architecture, NetworkSpec, UserArchitecture
from rllib.models.dense.spec import Dense
from rllib.models.distributions.choose import distribution_from_json
from rllib.models.groups.spec import Group
from rllib.models.implicit.spec import ImplicitQuantiles
from rllib.models.memory.spec import Memory
from rllib.models.observations.encoders import encoder_from_json
from rllib.models.observations.torso import torso_from_json
from rllib.models.residual.spec import Residual
from rllib.storage.checkpoint import CheckpointError, UserCode
from rllib.storage.json_dataclass import as_tuples, from_json

# A checkpoint names one by its `kind`.
ARCHITECTURES: tuple[type[Architecture], ...] = (Dense, Residual, Memory, Attention, ImplicitQuantiles, Group)


def spec_from_json(data: Mapping) -> NetworkSpec:
    """Reads a result of `NetworkSpec.to_json`; attributes that an earlier version did not have take their defaults."""
    data = dict(data)
    if "activation" in data:  # of checkpoints from before each layer had its own
        data["activations"] = [data.pop("activation")] * len(data["hiddens"])
    if "policy_inputs" in data:  # of checkpoints from before the policy could read others than the first
        count = data.pop("policy_inputs")
        data["policy_columns"] = count and [[0, count]]
    if "architecture" not in data:
        data = _with_architecture(data)
    return NetworkSpec(**{name: _READERS.get(name, as_tuples)(value) for name, value in data.items()})


def _with_architecture(data: dict) -> dict:
    """The JSON of a description from before its architecture was one attribute."""
    others = [data.pop(name, None) for name in ("residual", "implicit", "members", "memory")]
    if others[0]:
        others[0] = {"name" if key == "network" else key: value for key, value in others[0].items()}
    dense = {each.name: data.pop(each.name) for each in dataclasses.fields(Dense) if each.name in data}
    return data | {"architecture": next(filter(None, others), {"kind": Dense.kind, **dense})}


# Attribute -> reader of its `to_json`; the others are numbers, texts, and tuples of them.
_READERS = {
    "encoder": encoder_from_json,
    "distribution": distribution_from_json,
    "torso": torso_from_json,
    "architecture": lambda data: from_json(data, (*ARCHITECTURES, UserArchitecture, BatchRenorm)),
}


def description_of(spec: NetworkSpec) -> dict[str, Any]:
    """The part of a checkpoint's policy.json about network and distribution; `described_spec` reads it.

    Where the architecture or the distribution is a class of the user's, it names the class, and holds the fields of the
    architecture.
    """
    own, code = spec.architecture, {}
    if not own.is_built_in:
        code["custom"] = {"class": type(own), **vars(own)}
    if user_class := spec.distribution.user_class:
        code["action_dist"] = user_class
    return {"spec": spec.to_json(), **code}


def spec_without_code(description: Mapping[str, Any]) -> NetworkSpec:
    """The spec that `description_of` described, without what the user's code adds."""
    spec = spec_from_json(description["spec"])
    # Descriptions from before architectures say nothing of them in their "spec".
    return dataclasses.replace(spec, architecture=UserArchitecture()) if "custom" in description else spec


def described_spec(description: Mapping[str, Any], path: str | os.PathLike) -> NetworkSpec:
    """The spec that `description_of` described.

    Args:
        description: a checkpoint's policy.json.
        path: path of the checkpoint, for messages.

    Raises:
        CheckpointError: if it names code of the user's that was not loaded.
    """
    spec, own = spec_without_code(description), dict(description.get("custom", {}))
    action_dist = description.get("action_dist")
    used = own | {"action_dist": action_dist}
    if any(isinstance(value, UserCode) for value in used.values()):
        code = ", ".join(f"{name}={each.reference}" for name, each in used.items() if isinstance(each, UserCode))
        raise CheckpointError(
            f"the policy of the checkpoint {os.fspath(path)} is made by code of yours ({code}), which runs only when "
            "you ask for it: give load_user_code=True if you trust where it comes from."
        )
    if action_dist is not None:
        spec = dataclasses.replace(spec, distribution=dataclasses.replace(spec.distribution, user_class=action_dist))
    return dataclasses.replace(spec, architecture=own.pop("class")(**own)) if own else spec
