"""The directory that Ray's `Algorithm.save` writes, read as data.

Of the old API stack (Ray 2.0 and later):

    rllib_checkpoint.json                       version, ids of the policies
    algorithm_state.pkl                         the algorithm's class, its config, filters and counters
    policies/ID/policy_state.pkl                weights by name, spaces, settings

Of the new one (Ray 2.40 and later):

    rllib_checkpoint.json, algorithm_state.pkl  version; counters
    class_and_ctor_args.pkl                     the algorithm's class and its config
    learner_group/learner/rl_module/ID/         module_state.pkl: weights by name; class_and_ctor_args.pkl: class,
                                                spaces and settings of the network
    env_runner/env_to_module_connector/...      statistics of MeanStdFilter

Files with weights may only hold arrays, or are refused. The other files name classes and functions of Ray and of the
user, which are read as records of their names, and are not imported.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rllib.errors import DamagedFileError
from rllib.storage.foreign_files import json_object, read_inside
from rllib.storage.pickled_data import Record, read_pickle

METADATA = "rllib_checkpoint.json"
MODULES = "learner_group/learner/rl_module"
CONNECTORS = "env_runner/env_to_module_connector"
_MOST_BYTES = 2**32


@dataclass(frozen=True)
class RayCheckpoint:
    """Content of a checkpoint, of one policy.

    Attributes:
        path: path of the directory.
        version: version of Ray; "" if the checkpoint does not say it.
        algorithm: name of the algorithm's class, such as "PPO".
        weights: parameters by name, of an RLModule or a ModelV2.
        model: settings of the network, by Ray's names.
        config: settings of the algorithm, by Ray's names; values are plain data or records.
        module: class of the network, of the new API stack: "module.Class"; "" of the old one.
        filter: state of the observation filter, as Ray has it; None without one.
        timesteps: environment steps sampled; 0 if they are not known.
    """

    path: Path
    version: str
    algorithm: str
    weights: dict[str, np.ndarray]
    model: Mapping[str, Any]
    config: Mapping[str, Any]
    module: str
    filter: Any
    timesteps: int


def read_ray_checkpoint(path: Path, policy_id: str = "default_policy") -> RayCheckpoint:
    """Reads a checkpoint without running anything in it.

    Args:
        path: the directory.
        policy_id: id of the policy, or module, that is read.

    Raises:
        ValueError: if the directory is no checkpoint, damaged, of another format, has no such policy, or its weights
            name a class.
        OSError: if a file cannot be read.
    """
    if not path.is_dir():
        raise DamagedFileError(f"a checkpoint of Ray is a directory, but {path} is none. Give the one with {METADATA}.")
    metadata = json_object(_content(path, METADATA)) if (path / METADATA).is_file() else {}
    version = str(metadata.get("ray_version", ""))[:20]
    if metadata.get("format") == "msgpack" or any(path.glob("*.msgp*ck")):
        raise DamagedFileError(f"{path} is in msgpack, and checkpoints in Ray's usual form are read, with .pkl files")
    if (path / MODULES).is_dir():
        return _of_new_stack(path, version, policy_id)
    if (path / "policies").is_dir():
        return _of_old_stack(path, version, policy_id)
    raise DamagedFileError(
        f"{path} is no checkpoint of Ray's RLlib: it has neither policies/ nor {MODULES}/. Give the directory that "
        "algorithm.save() named."
    )


def _of_new_stack(path: Path, version: str, policy_id: str) -> RayCheckpoint:
    place = f"{MODULES}/{_known(path / MODULES, policy_id)}"
    weights = _weights(_strict(path, f"{place}/module_state.pkl"), path)
    made = _inert(path, f"{place}/class_and_ctor_args.pkl")
    _, given = _arguments(made)
    whole = _inert_if_there(path, "class_and_ctor_args.pkl")
    config = next(iter(_arguments(whole)[0]), None)
    state = _inert_if_there(path, "algorithm_state.pkl")
    return RayCheckpoint(
        path, version, _class_name(whole), weights, _fields(given.get("model_config")), _fields(config),
        _path_of(made.get("class") if isinstance(made, dict) else None), _connector_state(path), _lifetime_steps(state),
    )  # fmt: skip


def _of_old_stack(path: Path, version: str, policy_id: str) -> RayCheckpoint:
    place = f"policies/{_known(path / 'policies', policy_id)}/policy_state.pkl"
    policy = _inert(path, place)
    if not isinstance(policy, dict) or "weights" not in policy:
        raise DamagedFileError(f"{path / place} holds no weights")
    state = _fields(_inert_if_there(path, "algorithm_state.pkl"))
    spec = _fields(policy.get("policy_spec"))
    config = {**_fields(state.get("config")), **_fields(spec.get("config"))}
    worker = _fields(state.get("worker"))
    filters = worker.get("filters")
    found = filters.get(policy_id) if isinstance(filters, dict) else None
    counters = dict(_fields(state.get("counters")))
    steps = counters.get("num_env_steps_sampled", counters.get("timesteps_total", 0))
    named = _class_name({"class": state.get("algorithm_class")}) or str(spec.get("policy_class", ""))
    return RayCheckpoint(
        path, version, named, _weights(policy["weights"], path), _fields(config.get("model")), config, "",
        found if found is not None else _old_connector(policy.get("connector_configs")),
        int(steps) if isinstance(steps, int | np.integer) and steps >= 0 else 0,
    )  # fmt: skip


def _known(directory: Path, policy_id: str) -> str:
    found = sorted(each.name for each in directory.iterdir() if each.is_dir())
    if policy_id in found:
        return policy_id
    raise DamagedFileError(
        f"{directory} has no policy {policy_id!r}, but {', '.join(found) or 'none'}. Name one of them."
    )


def _content(path: Path, name: str) -> bytes:
    try:
        return read_inside(path, name, _MOST_BYTES)
    except FileNotFoundError:
        raise DamagedFileError(f"{path} has no {name}, which a checkpoint of Ray has") from None


def _strict(path: Path, name: str):
    return read_pickle(_content(path, name), f"the file {path / name}")


def _inert(path: Path, name: str):
    """A pickle whose classes and functions are read as records of their names."""
    return read_pickle(_content(path, name), f"the file {path / name}", lambda named: True)


def _inert_if_there(path: Path, name: str):
    return _inert(path, name) if (path / name).is_file() else None


def _weights(found, path: Path) -> dict[str, np.ndarray]:
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(value, np.ndarray | np.generic | float | int)
        for name, value in found.items()
    ):
        values = found.values() if isinstance(found, dict) else ()
        wrong = next((value for value in values if isinstance(value, Record)), found)
        raise DamagedFileError(f"the weights in {path} are no arrays by name, but hold {wrong!r:.80}")
    return {name: np.asarray(value) for name, value in found.items()}


def _fields(value) -> Mapping[str, Any]:
    """Items of a dict, or attributes of a record."""
    if isinstance(value, Record):
        return {**value.attributes, **{key: item for key, item in _pairs(value.items)}}
    return value if isinstance(value, dict) else {}


def _pairs(items: list) -> list[tuple]:
    return [each for each in items if isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str)]


def _arguments(made) -> tuple[tuple, Mapping[str, Any]]:
    """Positional and keyword arguments in a class_and_ctor_args.pkl; none if it has another form."""
    given = made.get("ctor_args_and_kwargs") if isinstance(made, dict) else None
    is_pair = isinstance(given, tuple) and len(given) == 2
    return given if is_pair and isinstance(given[0], tuple) and isinstance(given[1], dict) else ((), {})


def _path_of(found) -> str:
    """The path of a class that a pickle names."""
    return found.path if isinstance(found, type) and issubclass(found, Record) else ""


def _class_name(made) -> str:
    return _path_of(made.get("class")).rpartition(".")[2] if isinstance(made, dict) else ""


def _lifetime_steps(state) -> int:
    """Steps that the new API stack has counted."""
    for key, item in _items_within(_fields(state).get("metrics_logger")):
        if isinstance(key, str) and key.endswith("num_env_steps_sampled_lifetime"):
            steps = item.get("lifetime_sum", item.get("value")) if isinstance(item, dict) else item
            if isinstance(steps, int | float | np.generic) and np.isfinite(steps) and steps >= 0:
                return int(steps)
    return 0


def _connector_state(path: Path):
    """State of the MeanStdFilter among the connectors; None without one."""
    for place in sorted(path.glob(f"{CONNECTORS}/*MeanStdFilter*/state.pkl")):
        state = _strict(path, str(place.relative_to(path)))
        if isinstance(state, dict) and len(state) == 1:
            return next(iter(state.values()))
    return None


def _old_connector(configs):
    """State of the filter among the connectors of Ray 2.3 to 2.10: a pair of the connector's name and its state."""
    for _, item in _items_within(configs):
        is_pair = isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str)
        if is_pair and item[0].endswith("MeanStdObservationFilterAgentConnector"):
            return item[1]
    return None


def _items_within(value) -> Iterator[tuple[Any, Any]]:
    """Yields key and item of all containers in a value, each container once: a pickle may hold one in itself."""
    waiting, seen = [value], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        items = list(enumerate(each) if isinstance(each, list | tuple) else _fields(each).items())
        yield from items
        waiting += (item for _, item in reversed(items))
