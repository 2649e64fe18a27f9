"""Specifications of runs: from a YAML file, the command line, or both, where the command line takes precedence."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli.files.python_file import python_keys
from rllib.cli.files.zoo import is_zoo, zoo_keys
from rllib.cli.tuned_examples import TUNED_EXAMPLES, example_name
from rllib.cli.values import merged, merged_stops, nested, read_file, refuse_unknown, stop_keys
from rllib.did_you_mean import nearest
from rllib.storage.local_path import expanded
from rllib.tune.experiment.stoppers import ThresholdStopper
from rllib.tune.search.space import holds_domains

# Keys that the file of a search may have.
SEARCH_KEYS = (
    "algorithm", "run", "env", "config", "search", "stop", "metric", "mode", "num_samples", "trials", "scheduler",
    "num_seeds", "search_alg", "seed", "name", "checkpoint_freq", "checkpoint_at_end", "max_failures", "time_budget_s",
    "max_concurrent_trials", "keep_checkpoints_num", "checkpoint_score_attr", "resources_per_trial",
)  # fmt: skip

# Keys that are mappings, with an example. The command line is merged over them, and would replace anything else.
_MAPPINGS = {"config": "{lr: 1e-3}", "search": "{lr: log:1e-5:1e-2}", "stop": "{return: 475}"}
_RAYS = {"run": "algorithm", "num_samples": "trials"}
# Keys of Ray's release tests that have no meaning here.
_IGNORED = ("pass_criteria",)


class Resumed(msgspec.Struct, forbid_unknown_fields=True):
    """How a run was last resumed with other settings.

    Attributes:
        checkpoint: name of the one from which it continued, which has the earlier settings.
        config: the settings that were given.
    """

    checkpoint: str
    config: dict[str, Any]


class RunSpec(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Specification of one run.

    Attributes:
        algorithm: its name.
        env: id of the environment; None where clients step theirs, and where all steps are recorded.
        external: address and spaces of such clients, and further settings of `.external()`; empty without them.
        config: settings of the algorithm, by their names.
        stop: result key -> value at which the run stops; the first one reached ends it.
        seed: seed of everything random; None draws one.
        name: name of the run's directory; None: it consists of algorithm, environment and date.
        experiment: name in a file of Ray's form, which replaces algorithm and environment in the directory's name.
        checkpoint_freq: iterations between checkpoints; 0 saves the last state only.
        keep_checkpoints_num: number of newest checkpoints that are kept; None: all.
        measured: return, steps and minutes that the authors of the file measured. Not used by the program.
        resumed: of a run that was resumed with other settings.
    """

    algorithm: str
    env: str | None = None
    external: dict[str, Any] = {}
    config: dict[str, Any] = {}
    stop: dict[str, float] = {}
    seed: int | None = None
    name: str | None = None
    experiment: str | None = None
    checkpoint_freq: Annotated[int, msgspec.Meta(ge=0)] = 0
    keep_checkpoints_num: Annotated[int, msgspec.Meta(ge=1)] | None = None
    measured: dict[str, Any] = {}
    resumed: Resumed | None = None

    @property
    def world(self) -> str:
        """Name of the environment, or of what takes its place, for titles and files."""
        return self.env or ("external" if self.external else "data")

    @property
    def has_steps(self) -> bool:
        """Whether it says where steps come from: an environment, clients, or recorded data."""
        return bool(self.env or self.external or names_data(self.config))


def names_data(config: Any) -> bool:
    """Whether the settings of a run name recorded steps."""
    return isinstance(config, Mapping) and not config.keys().isdisjoint(("input_", "input"))


def load_specs(path: Path, chosen: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Reads the keys of each experiment in a file: one run, one search (`is_search`), or several in Ray's form.

    Ray's form has the experiment's name around the keys, `run`, `num_samples`, and `env` in `config`. Files of RL
    Baselines3 Zoo have settings by environment (files/zoo.py). A Python file runs (files/python_file.py).

    Args:
        path: path of the file, which the user has typed.
        chosen: keys of the command line, which choose from a file of the Zoo.

    Raises:
        ValueError: if it is not a mapping of known keys.
    """
    if path.suffix == ".py":
        return [python_keys(path)]
    content = read_file(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold keys like algorithm, env, config and stop, but it is {content!r:.60}")
    if is_zoo(content):
        return [zoo_keys(content, path, chosen or {})]
    experiments = [name for name, inner in content.items() if isinstance(inner, dict) and "run" in inner]
    if not experiments or len(experiments) < len(content):
        return [_translated(content, str(path))]
    return [_translated({"experiment": str(name), **content[name]}, f"{path}: {name}") for name in experiments]


def load_spec(path: Path) -> dict[str, Any]:
    """Reads the keys of a YAML file that holds one experiment; see `load_specs`."""
    keys, *others = load_specs(path)
    if others:
        raise ValueError(f"{path} holds {1 + len(others)} experiments, and here one is needed")
    return keys


def _translated(keys: dict[str, Any], where: str) -> dict[str, Any]:
    """Renames Ray's keys to ours, and drops keys without a meaning here."""
    refuse_unknown(keys, dict.fromkeys([*RunSpec.__struct_fields__, *SEARCH_KEYS, *_IGNORED]), where)
    ours = {_RAYS.get(key, key): value for key, value in keys.items() if key not in _IGNORED}
    for key, example in _MAPPINGS.items():
        if ours.get(key) is not None and not isinstance(ours[key], dict):
            raise ValueError(f"{where}: {key} must be a mapping, as in {key}: {example}, but got {ours[key]!r:.60}")
        if wrong := [name for name in ours.get(key) or () if not isinstance(name, str)]:
            raise ValueError(f"{where}: {key} has the key {wrong[0]!r:.60}, which is no name. As in {key}: {example}")
    if isinstance(ours.get("config"), dict):
        ours["config"] = _with_table(ours["config"])
    if isinstance(ours.get("external"), str):
        ours["external"] = {"listen": ours["external"]}
    return {key: value for key, value in ours.items() if value is not None}


def _with_table(config: dict[str, Any]) -> dict[str, Any]:
    """Settings with a table instead of the only mapping of agents that Ray's files name: agent 0 acts by "p0"."""
    section = config.get("multiagent", config)
    given = section.get("policy_mapping_fn") if isinstance(section, dict) else None
    if not (isinstance(given, dict) and str(given.get("type")).endswith(".PolicyMappingFn")):
        return config
    policies = [str(policy_id) for policy_id in section.get("policies") or ()]
    changed = {**section, "policy_mapping_fn": {policy_id.removeprefix("p"): policy_id for policy_id in policies}}
    return {**config, "multiagent": changed} if "multiagent" in config else changed


def is_search(keys: Mapping[str, Any]) -> bool:
    """Whether this is a search over many runs: it samples, draws, compares or schedules them."""
    only_of_a_run = (*RunSpec.__struct_fields__, "checkpoint_at_end")  # the last state of a run is always saved
    if keys.get("trials", 1) != 1 or any(key not in (*only_of_a_run, "trials") for key in keys):
        return True
    return holds_domains([keys.get("env"), keys.get("config")])


def merged_keys(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merges two specifications; `above` takes precedence, also over a setting or stop key under another of its names,
    and over what `below` searches.

    Raises:
        TypeError: if a setting that both have is given twice on one side, under two names.
        ValueError: if `above` gives a setting two values, or a value and what to search.
    """
    name = above.get("algorithm") or below.get("algorithm")
    below = _not_replaced(below, above, name)
    keys = merged(below, above)
    if isinstance(below.get("stop"), Mapping) and isinstance(above.get("stop"), Mapping):
        keys["stop"] = merged_stops(below["stop"], above["stop"])
    lower, upper = below.get("config"), above.get("config")
    if isinstance(lower, Mapping) and isinstance(upper, Mapping):
        with contextlib.suppress(ValueError):  # an unknown algorithm is reported when the config is made
            config = get_algorithm_config(name)
            under, over = config.places(lower), config.places(upper)
            if any(under[setting] != over[setting] for setting in under.keys() & over.keys()):
                keys["config"] = merged(config.overrides(**lower), config.overrides(**upper))
        if isinstance(table := upper.get("policy_mapping_fn"), Mapping):  # whose first pattern that fits counts
            both = keys["config"]["policy_mapping_fn"]
            keys["config"]["policy_mapping_fn"] = {**table, **{key: both[key] for key in both if key not in table}}
    return keys


def _not_replaced(below: Mapping[str, Any], above: Mapping[str, Any], algorithm: str | None) -> Mapping[str, Any]:
    """The keys `below` without what stands at another place there than in `above`, which takes precedence.

    A setting may have a value in `config` or be searched, and `env` and `seed` are keys as well as settings. The key
    `seed` is that of a search, and the setting of its trials.
    """
    given, searched = (above.get(key) if isinstance(above.get(key), Mapping) else {} for key in ("config", "search"))
    has_env = "env" in {**given, **searched}
    if twice := [*_searched(above, given, algorithm), *(["env"] if has_env and "env" in above else [])]:
        raise ValueError(f"{' and '.join(twice)}: there are two values, or a value and what to search. Give one.")
    kept = {key: value for key, value in below.items() if key != "env" or not has_env}
    if isinstance(below.get("config"), Mapping):
        own = [key for key in ("env", "seed") if key in above]
        kept["config"] = {key: value for key, value in below["config"].items() if key not in own}
    if outdone := _searched(below, {**nested(searched), **given}, algorithm):
        kept["search"] = {key: value for key, value in below["search"].items() if key not in outdone}
    return kept


def _searched(keys: Mapping[str, Any], config: Mapping[str, Any], algorithm: str | None) -> list[str]:
    """Names in `search` of these keys that are settings, or parts of settings, to which a config gives values."""
    search = keys.get("search")
    if not isinstance(search, Mapping):
        return []
    given = set(_paths(config, algorithm))
    return [
        key
        for key in search
        for path in _paths(nested({key: None}), algorithm)
        if any(path[: len(other)] == other or other[: len(path)] == path for other in given)
    ]


def _paths(config: Mapping[str, Any], algorithm: str | None) -> Iterator[tuple[str, ...]]:
    """(setting, part, ...) of each value of a config, by the setting's present name."""
    names = {}
    with contextlib.suppress(ValueError):  # an unknown algorithm is reported when the config is made
        if algorithm:
            names = {name: setting for setting, (_, name) in get_algorithm_config(algorithm).places(config).items()}
    for name, value in config.items():
        yield from _parts((names.get(name, name),), value)


def _parts(path: tuple[str, ...], value: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _parts((*path, str(key)), part)
    else:
        yield path


def make_spec(below: dict[str, Any], above: dict[str, Any], where: str) -> RunSpec:
    """Makes the specification of a run from the keys of a file and of the command line; the latter take precedence.

    Raises:
        ValueError: naming the key whose value is missing or of the wrong type.
    """
    keys = merged_keys(below, above)
    _refuse_missing(keys, where)
    if isinstance(above.get("config"), Mapping) and "seed" in above["config"]:
        if "seed" in above:
            raise ValueError(f"seed: there are two values, {above['seed']} and {above['config']['seed']}. Give one.")
        keys.pop("seed", None)
    for key in ("trials", "checkpoint_at_end", "resumed"):  # of a search with one run; of an earlier directory
        keys.pop(key, None)
    config = keys.get("config")
    if isinstance(config, dict) and "env" in config:
        keys.setdefault("env", config["env"])
        keys["config"] = {key: value for key, value in config.items() if key != "env"}
    stop = keys.get("stop")
    for key, value in stop.items() if isinstance(stop, dict) else ():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{where}: stop: {key}={value!r} must be a number, as in --stop {key}=100")
    try:
        spec = msgspec.convert(keys, RunSpec)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {error}") from error
    try:
        spec.stop = stop_keys(spec.stop, spec.config)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    ThresholdStopper(spec.stop)
    return spec


def _refuse_missing(keys: Mapping[str, Any], where: str) -> None:
    if not keys.get("algorithm"):
        raise ValueError(f"{where} does not say which algorithm. Write it there, as in algorithm: PPO.")
    config = keys.get("config")
    env = keys.get("env") or (isinstance(config, Mapping) and config.get("env"))
    if keys.get("external"):
        if env:
            raise ValueError(f"{where}: clients of external step their own environments; leave out env: {env}")
        return
    if not (env or names_data(config)):
        raise ValueError(f"{where} does not say which environment. Write it there, as in env: CartPole-v1.")


def refuse_one_name(experiments: Sequence, options: Mapping[str, Any]) -> None:
    """Raises ValueError for a --name where there are several experiments."""
    if len(experiments) > 1 and options.get("name"):
        raise ValueError(f"the file holds {len(experiments)} experiments, which cannot have one --name; leave it out")


def find_file(name: str) -> Path:
    """Finds the YAML file of that path, or the tuned example of that name (ppo/cartpole or cartpole-ppo).

    Raises:
        ValueError: if there is none; names the file or the tuned examples that may be meant.
    """
    stem = name.removesuffix(".yaml").removeprefix("tuned_examples/")
    env, _, algorithm = stem.rpartition("-")
    given = Path(expanded(name))
    for path in (given, TUNED_EXAMPLES / f"{stem}.yaml", TUNED_EXAMPLES / algorithm / f"{env}.yaml"):
        if path.is_file():
            return path
    meant = (given.with_suffix(".py"), given.with_suffix(".yml"), given / "run.json")  # the last: of a run's directory
    if near_by := next((each for each in meant if each.is_file()), None):
        raise ValueError(f"there is no file {name}. Did you mean {near_by}?")
    known = [example_name(path) for path in sorted(TUNED_EXAMPLES.glob("*/*.yaml")) if path.parent.name != "tune"]
    if near := nearest(stem, known):
        raise ValueError(f"there is no file {name}. Did you mean the tuned example {' or '.join(near)}?")
    raise ValueError(f"there is no file {name}, and no tuned example of that name; `rllib example` lists them.")
