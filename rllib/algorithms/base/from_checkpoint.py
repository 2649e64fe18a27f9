"""Reads an algorithm's class, config and state from checkpoints, earlier formats included."""

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.places import SettingsOfFile, is_equal, is_inside, refuse_places
from rllib.algorithms.base.registry import ALGORITHMS, get_algorithm_class
from rllib.compat.methods.ray_rllib.settings import OVERRIDES
from rllib.config.conflicts import Unfit
from rllib.env.factories.registry import named_environment, register_typed_function
from rllib.env.factories.wrapped import named_class
from rllib.errors import DamagedFileError
from rllib.evaluation.postprocess.transitions import n_step_returns
from rllib.evaluation.random_states import refuse_damaged_streams
from rllib.moved import present_name
from rllib.policies import PolicySpec
from rllib.runs.files import is_run
from rllib.sample_batch import DEFAULT_POLICY
from rllib.storage.by_arguments import is_library_path
from rllib.storage.checkpoint import (
    CheckpointError,
    UserCode,
    naming_damage,
    read_checkpoint,
    written_by_this_run,
)
from rllib.storage.encoding import import_path, importable_path
from rllib.storage.foreign_files import WRONG_FORM

logger = logging.getLogger(__name__)

State = Mapping[str, Mapping[str, Any]]
LEARNER_FILE = f"policies/{DEFAULT_POLICY}/learner.safetensors"
REPLAY_FILE, STORE_FILE = "replay.safetensors", "store.safetensors"
# Files with a run's stored steps: without them a run continues with an empty replay.
FILES_OF_STEPS = (REPLAY_FILE, STORE_FILE)
# Files of the single policy in training, in the format before they moved to the policy's folder.
_FILES_OF_ONE_POLICY = tuple(f"{name}.safetensors" for name in ("replay", "temperature", "multiplier", "observed"))
# Entries of an algorithm's state that were a number, of its single policy, before they became dicts by policy id.
_OF_ONE_POLICY = ("updates_owed", "replay_empty_at", "critic_updates")
# Keys of algorithm.json that are read here.
_OF_AN_ALGORITHM = {"algorithm", "class", "metrics", "seed", "state"}
# Settings with user code that are separate arguments of `from_checkpoint`.
_ARGUMENTS = ("policy_mapping_fn", "policies_to_train")
# File of the target network in APPO's checkpoints, before it became a part of the learner's state.
OLD_TARGET_FILE = f"policies/{DEFAULT_POLICY}/target.safetensors"


def read_state(path: str | os.PathLike, load_user_code: bool = False) -> dict[str, dict[str, Any]]:
    """Reads the state that `Algorithm.get_state` returned when the checkpoint was written.

    Raises:
        CheckpointError: if the checkpoint is missing, cut off, or not one of an algorithm.
    """
    state = read_checkpoint(path, load_user_code=load_user_code)
    lacks = _OF_AN_ALGORITHM - state.get("algorithm.json", {}).keys()
    if lacks or "config.json" not in state:
        what = f"its algorithm.json has no {', '.join(sorted(lacks))}" if lacks else "it has no config.json"
        raise CheckpointError(
            f"{os.fspath(path)} is a checkpoint, but not one of an algorithm: {what}. Give what Algorithm.save() or "
            "`rllib train` wrote; rllib.load_policy() reads a policy alone."
        )
    with naming_damage(path):
        _modernise(state)
        of_learners = [name.split("/") for name in state if name.endswith("/learner.safetensors")]
        learned = [policy_id for _, policy_id, _ in of_learners]
        refuse_damaged_streams(state["rng.json"], _policy_ids(state), learned)
    return state


def _policy_ids(state: State) -> set[str]:
    """Ids of the policies of a saved run, of hand-written ones too."""
    given, added = state["config.json"].get("policies"), state["algorithm.json"]["agents"].get("policies", {})
    folders = {name.split("/")[1] for name in state if name.startswith("policies/")}
    return {*folders, *(given if isinstance(given, Collection) else ()), *added}


def _modernise(state: dict[str, dict[str, Any]]) -> None:
    """Moves the entries of older formats, which had one policy, to their present places."""
    own, target = state["algorithm.json"]["state"], None
    if "agents" not in state["algorithm.json"]:  # the format with only the ids of added policies, none of which learned
        state["algorithm.json"]["agents"] = _earlier_additions(state)
    if state["algorithm.json"]["algorithm"] == "ARS":  # its policies had a bias before this setting existed
        state["config.json"]["model"].setdefault("output_layer_use_bias", True)
    own |= {name: {DEFAULT_POLICY: own[name]} for name in _OF_ONE_POLICY if isinstance(own.get(name), int | float)}
    for name in state.keys() & set(_FILES_OF_ONE_POLICY):
        state[f"policies/{DEFAULT_POLICY}/{name}"] = state.pop(name)
    spec = state.get(f"policies/{DEFAULT_POLICY}/policy.json", {}).get("spec", {})
    has_memory = spec.get("memory") or spec.get("architecture", {}).get("kind") == "memory"
    if has_memory and spec.get("critic", True) and spec["vf_share_layers"]:  # True was the default once
        state["config.json"]["model"].setdefault("vf_share_memory", True)
    if "learner.safetensors" in state:
        state[LEARNER_FILE] = state.pop("learner.safetensors")
        own |= {name: {DEFAULT_POLICY: own[name]} for name in own.keys() & {"kl_coeff"}}
    if "target.safetensors" in state:  # of Q-learning
        target, moved_at = state.pop("target.safetensors"), own["target_updated_at"]
    elif OLD_TARGET_FILE in state:
        target, moved_at = state.pop(OLD_TARGET_FILE), _last_move(state)
    if target is not None:
        state[LEARNER_FILE] |= {
            "target_policy.weights": target["weights"],
            "target_policy.moved_at": np.array(moved_at),
        }


def _earlier_additions(state: State) -> dict[str, Any]:
    """Changes of the agents' policies, from a format that lists only the added policies."""
    added = dict.fromkeys(state["algorithm.json"].get("added_policies", ()))
    if not added:
        return {}
    learned = {name.split("/")[1] for name in state if name.endswith("/learner.safetensors")}
    return {"policies": added, "policies_to_train": sorted(learned)}


def _last_move(state: State) -> int:
    """Number of the update after which APPO last updated its target network."""
    config, updates = state["config.json"], state["algorithm.json"]["metrics"]["counters"].get("num_updates", 0)
    ring = config["minibatch_buffer_size"]
    every = config["target_update_frequency"] * (ring * config["num_sgd_iter"] if ring > 1 else 1)
    return updates - updates % every


def rows_of_steps(replay: dict[str, np.ndarray], gamma: float, n_step: int, capacity: int) -> dict[str, np.ndarray]:
    """The state of a replay of rows; the state of an older version, steps [T, E] in lockstep, is converted to rows."""
    if "steps" not in replay:
        return replay
    if "stacks.frames" in replay:
        raise ValueError(
            "the checkpoint holds a replay of stacked frames in a format that is no longer read. Remove its file "
            "replay.safetensors, and that name from manifest.json, to continue with an empty replay."
        )
    oldest, added = replay["steps"].tolist()
    if not 0 <= oldest <= added <= oldest + len(replay["columns.obs"]):
        raise DamagedFileError(
            f"steps of a replay are at most the {len(replay['columns.obs'])} that its columns have, but are said to be "
            f"{oldest} to {added}"
        )
    order = np.arange(oldest, added) % len(replay["columns.obs"])
    steps = {name.removeprefix("columns."): part[order] for name, part in replay.items() if part.ndim > 1}
    valid, ends = steps[sb.LOSS_MASK], (steps[sb.TERMINATEDS], steps[sb.TRUNCATEDS])
    rewards, discounts, last = n_step_returns(steps[sb.REWARDS], *ends, gamma, n_step, valid)
    rows = {name: steps[name] for name in (sb.OBS, sb.ACTIONS)} | {
        sb.NEXT_OBS: steps[sb.NEXT_OBS][last, np.arange(valid.shape[1])],
        sb.REWARDS: rewards.astype(np.float32),
        sb.DISCOUNTS: discounts.astype(np.float32),
    }
    state = {f"columns.{name}": column[valid][-capacity:] for name, column in rows.items()}
    if "priorities" in replay:
        state["priorities"] = replay["priorities"].reshape(-1, valid.shape[1])[order][valid][-capacity:]
        state["largest_priority"] = replay["largest"]
    return {**state, "added": np.array(len(state["columns.obs"])), "capacity": np.array(capacity)}


def saved_class(state: State, path: str | os.PathLike, base: type) -> type:
    """The class of a checkpoint's algorithm: one that was loaded, one of this library, or `base` if it is the user's.

    Args:
        state: the state that read_checkpoint returned.
        path: path of the checkpoint, for error messages.
        base: class from which the algorithm's class must be derived.

    Raises:
        CheckpointError: if the class is not derived from `base`, or is a user's class that was not loaded.
    """
    name, saved = state["algorithm.json"]["algorithm"], state["algorithm.json"]["class"]
    if isinstance(saved, UserCode):
        module, _, class_name = saved.reference.partition(":")
        own = get_algorithm_class(name) if name in ALGORITHMS else None
        if own is not None and importable_path(own) == f"{present_name(module)}:{class_name}":
            saved = own
        elif saved.reference == importable_path(base) or name == base.__name__:
            saved = base
        else:
            raise CheckpointError(
                f"the checkpoint is of {name}, an algorithm of your own ({saved.reference}). Use "
                f"{name}.from_checkpoint(path), or from_checkpoint(path, load_user_code=True) if you trust its origin."
            )
    if not issubclass(saved, base):
        raise CheckpointError(
            f"the checkpoint {os.fspath(path)} is of {name}, not of {base.__name__}. Use {name}.from_checkpoint(path), "
            "or Algorithm.from_checkpoint(path) for any algorithm."
        )
    return saved


def saved_config_class(state: State, algorithm_class: type) -> type[AlgorithmConfig]:
    """The class of a checkpoint's config: the algorithm's, or a user's class with its own settings.

    Raises:
        CheckpointError: if it is a user's class that was not loaded.
    """
    saved = state["algorithm.json"].get("config_class", algorithm_class.config_class)
    if not isinstance(saved, UserCode):
        return saved
    default = type(algorithm_class.get_default_config())
    if saved.reference == importable_path(default):
        return default
    raise CheckpointError(
        f"the checkpoint's settings are of a class of your own ({saved.reference}). Use from_checkpoint(path, "
        "load_user_code=True) if you trust its origin."
    )


def saved_config(
    state: State,
    path: str | os.PathLike,
    config_class: type[AlgorithmConfig],
    changes: Sequence[Mapping[str, Any]],
    load_user_code: bool,
) -> AlgorithmConfig:
    """The config of a checkpoint's algorithm, with these changes; its environment's class is imported.

    Args:
        state: the state that read_checkpoint returned.
        path: path of the checkpoint, for error messages.
        config_class: the algorithm's config class.
        changes: dicts of settings to change, which are applied one after another; all but a SettingsOfFile are the
            user's.
        load_user_code: whether user code was loaded.

    Raises:
        CheckpointError: if the settings still name user code that was not loaded, or, in a checkpoint of another run,
            what `refuse_places` refuses.
        DamagedFileError: if links lead out of a directory of another run that would be written to.
    """
    try:
        config = config_class.from_dict(state["config.json"]).debugging(seed=state["algorithm.json"]["seed"])
    except WRONG_FORM as error:
        raise CheckpointError(f"the checkpoint {os.fspath(path)} is damaged: its config.json: {error}") from error
    given = values_in(config, changes)
    config.note_as_warned(config.keys() - given.keys())
    if isinstance(config.policies, Mapping):  # before settings of single policies are added to them
        config.multi_agent(policies={policy_id: _known_policy(spec) for policy_id, spec in config.policies.items()})
    world = _without_saved_world(config, state, given)
    config.update_from_dict({name: world[name] for name in world.keys() - given.keys()})
    for each in changes:
        config.update_from_dict(each)
    if load_user_code and isinstance(config.env, str):
        register_typed_function(config.env)
    elif isinstance(config.env, UserCode):
        config.environment(named_environment(config.env))
    if not load_user_code:
        is_own = written_by_this_run(path)
        run = _directory_of(path, is_own)
        if config.log_dir is not None and "log_dir" not in given and not is_inside(config.log_dir, run):
            logger.warning(
                "the run of %s wrote to %s, outside of %s: give log_dir for its files",
                path,
                config.log_dir,
                run,
            )
            config.reporting(log_dir=None)
        if not is_own:
            added = state["algorithm.json"]["agents"].get("policies", {})
            again, own = config_class(), []
            for each in (each for each in changes if not isinstance(each, SettingsOfFile)):
                again.update_from_dict({name: value for name, value in each.items() if name != OVERRIDES})
                own += map(config_class.from_dict, (each.get(OVERRIDES) or {}).values())
            refuse_places(
                [config, config.copy(copy_frozen=False).multi_agent(policies=added)],
                run,
                [again, *own],
                f"the checkpoint {os.fspath(path)}",
            )
    config.environment(env_wrappers=_known_wrappers(config.env_wrappers))
    _refuse_unloaded_code(config, path)
    return config


def unfit_by(problem: str, config: AlgorithmConfig, saved: Mapping[str, Any], *groups: Iterable[str]) -> Unfit | None:
    """An error that refuses a checkpoint, with the saved values of changed settings as remedy; None if none differs.

    Args:
        problem: a sentence.
        config: settings of the run that continues.
        saved: the settings in the checkpoint's config.json.
        groups: groups of names of settings; the first group with a difference is the remedy.
    """
    for names in groups:
        if remedy := as_saved(config, saved, names):
            said = ", ".join(f"{name}={value!r:.80}" for name, value in remedy.items())
            return Unfit(f"{problem.removesuffix('.')}.", f"It was saved with {said}.", remedy)
    return None


def as_saved(config: AlgorithmConfig, saved: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Saved values of the settings in `names` whose values differ in the config; of merged dicts, the differing keys.

    User code that was not loaded is left out: only the user can give it.
    """
    found = {}
    for name in (name for name in names if name in saved and name in config.settings):
        setting, before, own = config.settings[name], saved[name], config[name]
        if setting.merged and isinstance(before, Mapping) and isinstance(own, Mapping):
            defaults = {key: each.default for key, each in setting.keys.of.settings.items()} if setting.keys else {}
            both = [{**defaults, **setting.default, **each} for each in (before, own)]
            keys = {key: value for key, value in both[0].items() if not is_equal(value, both[1].get(key))}
            found |= {name: keys} if keys else {}
        elif not isinstance(before, UserCode) and not is_equal(before, own):
            found[name] = before
    return found


def settings_of_world(config_class: type[AlgorithmConfig]) -> tuple[str, ...]:
    """Settings of clients that step the environment, and of its spaces; `env` replaces them."""
    return ("observation_space", "action_space", *config_class.sections["external"].names)


def _without_saved_world(config: AlgorithmConfig, state: State, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that take back the saved environment, or the saved clients, in whose place others are given."""
    if given.get("env") is not None:
        defaults = type(config)()
        return {name: defaults[name] for name in settings_of_world(type(config))}
    if given.get("listen") is None or config.env is None:
        return {}
    description = state.get(f"policies/{DEFAULT_POLICY}/policy.json", {})
    spaces = {name: description[name] for name in ("observation_space", "action_space") if name in description}
    return {"env": None, "env_config": {}, "env_wrappers": None, **spaces}


def values_in(config: AlgorithmConfig, changes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Setting -> what the last of several dicts sets, under names of any era; raises as `update_from_dict`."""
    return {name: value for each in changes for name, value in config.values_in(each).items()}


def _directory_of(checkpoint: str | os.PathLike, is_own: bool) -> Path:
    """The directory that a checkpoint may write to: of its run; its own one if it lies alone, as in a home directory.

    Args:
        checkpoint: its path.
        is_own: whether this program has written it; it may have written no files of the run yet.
    """
    path = Path(checkpoint).absolute()
    return path.parent if is_own or is_run(path.parent) else path


def names_changed_policies(state: State, given: Collection[str]) -> bool:
    """Whether settings that name policies are given, and the saved run has added or removed policies."""
    changes = state["algorithm.json"]["agents"]
    return any(name in given for name in (*_ARGUMENTS, OVERRIDES)) and ("policies" in changes or "removed" in changes)


def take_policies(
    state: State, path: str | os.PathLike, policy_ids: Collection[str] | None, given: Mapping[str, Any]
) -> None:
    """Changes the state to that of a run which began with these of the saved policies and made no changes since.

    Args:
        state: the state that read_checkpoint returned.
        path: path of the checkpoint, for error messages.
        policy_ids: ids of the policies; None: all policies of the checkpoint.
        given: settings that replace the saved ones.

    Raises:
        CheckpointError: if there is no such policy, or the saved mapping names others and is not replaced.
    """
    own, settings = state["algorithm.json"], state["config.json"]
    changes, own["agents"] = own["agents"], {}
    first = settings["policies"] if isinstance(settings["policies"], Mapping) else {}
    there = {name.split("/")[1] for name in state if name.startswith("policies/")}
    gone = {*changes.get("removed", ())} - there
    specs = {**{i: spec for i, spec in first.items() if i not in gone}, **changes.get("policies", {})}
    known = sorted(there | specs.keys())
    if policy_ids is None:
        policy_ids = [*specs, *sorted(there - specs.keys())]
    if not isinstance(policy_ids, Collection) or not policy_ids:
        raise CheckpointError(f"policy_ids={policy_ids!r:.80} must be ids of policies; there are {', '.join(known)}")
    wanted = [policy_ids] if isinstance(policy_ids, str) else list(policy_ids)
    for policy_id in wanted:
        if policy_id not in known:
            raise CheckpointError(
                f"policy_ids names {policy_id!r}, but the checkpoint {os.fspath(path)} has {', '.join(known)}"
            )
    if settings["policies"] is not None or known != [DEFAULT_POLICY]:  # else it is the only one, also of one agent
        settings["policies"] = {policy_id: specs.get(policy_id) for policy_id in wanted}
    networks = settings["model"].get("of_policies", {})
    settings["model"] = {**settings["model"], "of_policies": {i: networks[i] for i in networks if i in wanted}}
    settings |= {name: changes[name] for name in _ARGUMENTS if name in changes}
    if isinstance(settings["policies_to_train"], list | tuple | set | frozenset):
        settings["policies_to_train"] = [each for each in settings["policies_to_train"] if each in wanted]
    mapping = settings["policy_mapping_fn"]
    left = sorted({*mapping.values()} - {*wanted}) if isinstance(mapping, Mapping) else []
    if left and "policy_mapping_fn" not in given:
        raise CheckpointError(
            f"policy_ids={wanted} leaves out {', '.join(map(repr, left))}, which the saved policy_mapping_fn names: "
            f"from_checkpoint(path, policy_ids={wanted}, policy_mapping_fn=...) says who acts by these."
        )


def _known_policy(value):
    """The value of a policy in the setting `policies`, with this library's class instead of a reference to it."""
    if isinstance(value, UserCode) and is_library_path(value.reference):
        return import_path(value.reference)
    return value


def keep_changes(state: State, path: str | os.PathLike, given: Mapping[str, Any]) -> None:
    """Removes saved changes of agents' policies that given settings replace, and checks that user code is loaded.

    Args:
        state: the state that read_checkpoint returned.
        path: path of the checkpoint, for error messages.
        given: settings that replace the saved ones.

    Raises:
        CheckpointError: if a change is user code that was not loaded.
    """
    own = state["algorithm.json"]
    own["agents"] = _known_changes({name: value for name, value in own["agents"].items() if name not in given})
    _refuse_unloaded_code(own["agents"], path)


def loaded_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of agents' policies, except for user code that was not loaded, which is named in a logged warning."""
    changes = _known_changes(changes)
    left = {name: value for name, value in changes.items() if not any(_unloaded(name, value))}
    if missing := sorted(changes.keys() - left.keys()):
        logger.warning(
            "the saved run has changed %s to code of yours, which restore() does not load: this run keeps its own. Use "
            "from_checkpoint(path, load_user_code=True), or set_policy_mapping_fn and set_policies_to_train.",
            " and ".join(missing),
        )
    return left


def _known_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of agents' policies, with this library's classes instead of references to them."""
    if "policies" not in changes:
        return dict(changes)
    policies = {
        policy_id: spec if isinstance(known := _known_policy(spec), UserCode) else PolicySpec.of(known, policy_id)
        for policy_id, spec in changes["policies"].items()
    }
    return {**changes, "policies": policies}


def _refuse_unloaded_code(settings: Mapping[str, Any], path: str | os.PathLike) -> None:
    code = [(name, *each) for name, value in settings.items() for each in _unloaded(name, value)]
    if not code:
        return
    named = ", ".join(f"{place} ({reference if ':' in reference else 'pickled'})" for _, place, reference in code)
    names = {name for name, _, _ in code}
    arguments = [f"{name}=..." for name in _ARGUMENTS if name in names]
    if not names <= set(_ARGUMENTS):
        arguments.append("overrides={...}")
    raise CheckpointError(
        f"the checkpoint {os.fspath(path)} holds code of yours, which runs only when you ask for it: {named}. Use "
        "from_checkpoint(path, load_user_code=True) if you trust where it comes from, or give these settings yourself: "
        f"from_checkpoint(path, {', '.join(arguments)})."
    )


def _known_wrappers(value):
    """The setting env_wrappers with gymnasium's classes instead of their references."""
    if isinstance(value, UserCode):
        return (":" in value.reference and named_class(value.reference)) or value
    if isinstance(value, list | tuple):
        return type(value)(map(_known_wrappers, value))
    return value


def _unloaded(place: str, value) -> Iterator[tuple[str, str]]:
    """(place, reference) of each UserCode within a setting."""
    if isinstance(value, UserCode):
        yield place, value.reference
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _unloaded(f"{place}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _unloaded(f"{place}[{index}]", item)
