"""The description of a policy in a checkpoint: its spec as JSON, and classes of the user's by name."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from rllib.models.policy_spec import PolicySpec
from rllib.storage.checkpoint import CheckpointError, UserCode


def description_of(spec: PolicySpec) -> dict[str, Any]:
    """The part of a checkpoint's policy.json about network and distribution; `described_spec` reads it.

    Where the spec or the distribution is a class of the user's, it names the class and holds what the class adds.
    """
    common = {field.name for field in dataclasses.fields(PolicySpec)}
    own = {each.name: getattr(spec, each.name) for each in dataclasses.fields(spec) if each.name not in common}
    code = {} if type(spec) is PolicySpec else {"custom": {"class": type(spec), **own}}
    if user_class := getattr(spec.distribution, "user_class", None):
        code["action_dist"] = user_class
    return {"spec": spec.to_json(), **code}


def described_spec(description: Mapping[str, Any], path: str | os.PathLike) -> PolicySpec:
    """The spec that `description_of` described.

    Args:
        description: a checkpoint's policy.json.
        path: of the checkpoint, for messages.

    Raises:
        CheckpointError: if it names code of the user's that was not loaded.
    """
    spec, own = PolicySpec.from_json(description["spec"]), dict(description.get("custom", {}))
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
    return own.pop("class")(**vars(spec), **own) if own else spec
