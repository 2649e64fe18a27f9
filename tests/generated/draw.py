"""Draws runs: from a seed, an algorithm, a world and settings, as a dict that JSON can hold.

    {"seed": 7, "algorithm": "PPO", "world": {"kind": "single", ...}, "settings": {"lr": 0.001, ...}}

and where there are several agents, mostly "changes" of its policies, with settings "of the new" one. Some have a fault
in their recorded data, other settings at a restore ("restored with"), or another checkpoint "in its place"; some name
their algorithm as a shell does ("typed"), and give restores their present mapping ("mapped").

Settings come from their declarations (`Config.settings`): any that is new is drawn by its type and its range.
"""

import math
import random
import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.registry import ALGORITHMS, algorithm_names, get_algorithm_config
from rllib.algorithms.base.settings.exploration import KINDS
from rllib.config.sections import Setting
from rllib.models.model_settings import MODEL_DEFAULTS
from tests.generated import recorded, restores, teachers, values
from tests.generated.worlds import CONTINUOUS, DISCRETE, HAS_IMAGE, MASKED, OBSERVATIONS, OF_AGENTS, OTHERS

Draw = dict[str, Any]

# What makes a run short, where an algorithm has the setting: name -> values to choose among.
SMALL: dict[str, tuple] = {
    "train_batch_size": (20, 40, 60), "sgd_minibatch_size": (10, 20), "num_sgd_iter": (1, 2), "hiddens": ([6],),
    "num_steps_sampled_before_learning_starts": (0, 20, 30), "replay_buffer_config": (), "model": (),
    "q_model_config": ({"fcnet_hiddens": [8]},), "num_replay_buffer_shards": (1,), "noise_size": (10_000,),
    "episodes_per_batch": (4,), "num_rollouts": (2, 4), "rollouts_used": (2,), "v_min": (-5.0,), "v_max": (5.0,),
    "num_rollout_workers": (0,) * 14 + (1, 2), "min_time_s_per_iteration": (0,), "seed": (0, 1, 7),
    "min_sample_timesteps_per_iteration": (0, 40), "min_train_timesteps_per_iteration": (0, 1),
    "cg_iterations": (3,), "training_intensity": (1.0, 1.0, 2.0),
    "evaluation_interval": (None, None, None, 1), "evaluation_duration": (2,),
    "store_buffer_in_checkpoints": (True, True, False),
    "discriminator_model": ({"fcnet_hiddens": [6]},), "discriminator_updates": (1, 2),
    "discriminator_batch_size": (8,),
}  # fmt: skip
# Settings that meet many others: name -> probability.
FREQUENT = {
    "num_envs_per_worker": 0.5, "rollout_fragment_length": 0.3, "batch_mode": 0.2, "observation_filter": 0.15,
    "exploration_config": 0.35, "n_step": 0.3, "normalize_returns": 0.1, "learner": 0.1, "opt_type": 0.15,
    "grad_clip": 0.1, "lr": 0.3, "cost_limit": 0.05, "count_steps_by": 0.05, "gym_env_vectorize_mode": 0.05,
    "output": 0.04, "num_learners": 0.04, "torch_autocast": 0.04, "restart_failed_sub_environments": 0.05,
    "sample_async": 0.03, "sample_quorum": 0.1, "teacher": 0.08, "teacher_coeff": 0.1, "beta": 0.1, "aggregate": 0.3,
    "actor_warmup_updates": 0.05, "evaluate_teacher": 0.03,
    "bc_coeff": 0.3, "bc_pretrain_updates": 0.3, "disturbances": 0.06,
}  # fmt: skip
# Drawn often where several agents act.
OF_SEVERAL = ("policies", "centralized_critic", "agent_id_in_observation")
# What a policy's network may not go with.
OF_NETWORKS = ("exploration_config", "noisy", "num_atoms", "n_step")
# The largest integers that are drawn, but for tables: more would cost time alone.
MOST = 20
# Algorithms by the actions that they can take; all others take any.
OF_CHOICES = ("DQN", "SimpleQ", "Rainbow", "ApexDQN", "R2D2", "PQN", "QMix", "VDN", "SQILDQN")
OF_NUMBERS = ("TQC", "CrossQ", "TD3", "DDPG", "ApexDDPG", "TD3BC", "ReBRAC", "CQL")
OF_BOTH = ("SAC", "IQL", "AWAC", "SQIL", "GAILSAC")
OF_GROUPS = ("QMix", "VDN")


def draw(seed: int) -> Draw:
    """The run of this seed."""
    rng = random.Random(seed)
    algorithm = rng.choice(algorithm_names())
    config = get_algorithm_config(algorithm)
    world = _world(rng, algorithm, config)
    settings = {}
    for name in drawn_names(rng, config, world):
        settings[name] = value_in(rng, name, config, world)
    if "first" in (settings.get("policies") or ()):
        settings["policy_mapping_fn"] = rng.choice([{"agent_*": "first"}, {"agent_0": "first", "agent_*": "second"}])
    if config.get("teacher_coeff"):  # it needs one
        settings["teacher"] = value_in(rng, "teacher", config, world)
    if world["kind"] == "client":
        settings["num_rollout_workers"] = 0  # the server of the only client
    run = {"seed": seed, "algorithm": algorithm, "world": world, "settings": settings}
    if world["kind"] in OF_AGENTS and rng.random() < 0.6:
        run["changes"] = _changes(rng)
    run = _with_more(random.Random(f"more of {seed}"), run, config)
    run = _with_imitation(random.Random(f"imitation of {seed}"), run, config)
    return _with_quorum(random.Random(f"quorum of {seed}"), run, config)


# Settings that make processes.
_PROCESSES = ("num_rollout_workers", "evaluation_num_workers", "num_learners", "num_aggregation_workers")


def needs_processes(run: Draw) -> bool:
    """Whether a drawn run starts processes, which takes ten times as long."""
    settings = run["settings"]
    asks = any(settings.get(name) for name in _PROCESSES) or settings.get("gym_env_vectorize_mode") == "async"
    return asks or run["algorithm"].startswith("Apex")


# ------------------------------------------------------------------ worlds

# Pictures cost time, so that there are fewer of them.
_OBSERVATIONS = [name for name in OBSERVATIONS for _ in range(1 if name in HAS_IMAGE else 3)]


def _world(rng: random.Random, algorithm: str, config) -> dict[str, Any]:
    kinds = (
        ["single"] * 12
        + ["vector"] * 3
        + ["agents"] * 4
        + ["parallel", "aec", "external", "external agents", "client", "tensors"]
    )
    if algorithm in OF_GROUPS:
        kinds = ["group"] * 30 + ["agents"]
    elif config.learns_from_data:
        kinds += ["data"] * 6
    if config.needs_data or "demonstrations" in config.settings:
        kinds = ["data"]
    elif config.get("teacher_coeff"):  # all others are refused
        kinds = kinds[:15] * 3 + kinds[15:]
    kind = rng.choice(kinds)
    actions = rng.choice([*DISCRETE, *CONTINUOUS, *OTHERS, *OTHERS])
    if rng.random() < 0.97:
        choices, numbers = algorithm in (*OF_CHOICES, *OF_BOTH), algorithm in (*OF_NUMBERS, *OF_BOTH)
        actions = rng.choice([*(DISCRETE if choices else ()), *(CONTINUOUS if numbers else ())] or [actions])
    world = {"kind": kind, "observation": rng.choice(_OBSERVATIONS), "action": actions}
    world |= {"length": rng.choice([5, 8, 10]), "end": rng.choice(["terminated", "truncated", "mixed", "both"])}
    if rng.random() < 0.3:
        world["uneven"] = True
    if kind == "single" and actions in MASKED and rng.random() < 0.4:
        world["mask"] = rng.choice(["observation", "info", "method"])
    elif kind in ("vector", "external", "data", "client") and actions in MASKED and rng.random() < 0.2:
        world["mask"] = "observation"
    if kind in ("vector", "tensors"):
        world["autoreset"] = "SAME_STEP" if kind == "tensors" else rng.choice(["NEXT_STEP", "SAME_STEP", "DISABLED"])
    if kind == "tensors" and actions in ("dict", "tuple"):
        world["action"] = "numbers"  # an action of tensors is one
    if kind in (*OF_AGENTS, "group"):
        world |= {"agents": rng.choice([1, 2, 3]), "style": rng.choice(["all", "turns", "dying"])}
        if kind != "agents" and world["style"] == "turns":
            world["style"] = "all"
        if kind == "group":
            world |= {"agents": 2, "style": "all"}
    if kind == "data":
        world["data"] = {"form": rng.choice(["json", "parquet", "npz", "arrays"]), "episodes": rng.choice([6, 12])}
        if world["data"]["form"] == "arrays":
            world["data"]["says_next"] = rng.random() < 0.5
        if config.mixes_data and rng.random() < 0.3:
            world["data"]["share"] = 0.5
    if kind == "single" and rng.random() < 0.04:
        world["fails"] = rng.choice([17, 31])  # more steps than those that check an environment
    return world


def _changes(rng: random.Random) -> list[str]:
    """What becomes of the policies of a run, one after the other (`trial.Trial`): one comes, is frozen, and goes."""
    changes = [rng.choice(["added", "copied"]), "removed"]
    changes[1:1] = rng.sample(["first frozen", "new frozen", "restored", "all learn"], rng.choice([1, 2, 3]))
    if rng.random() < 0.5:
        changes.insert(rng.randrange(len(changes) + 1), "first frozen")
    return [*changes, "added"] if rng.random() < 0.3 else changes  # its id is used again


# ------------------------------------------------------------------ faults in recorded data, and restores


def _with_more(rng: random.Random, run: Draw, config) -> Draw:
    """The run with a fault in its data, other settings at a restore, or another checkpoint in its own's place."""
    world, settings = run["world"], run["settings"]
    if "data" in world and "demonstrations" not in config.settings and rng.random() < 0.4:
        form = recorded.form_of(world["data"])
        fault = {
            "kind": rng.choice([name for name, kind in recorded.KINDS.items() if form in kind.forms]),
            "at": rng.random(),
        }
        world = {**world, "data": {**world["data"], "fault": fault}}
        if form != "arrays":
            given = {**settings.get("input_config", {}), "on_error": rng.choice(["raise", "skip"])}
            settings = {**settings, "input_config": given}
        run = {**run, "world": world, "settings": settings}
    if world["kind"] != "client" and rng.random() < 0.3:
        run = {
            **run,
            "restored with": {"by": rng.choice(restores.WAYS), "settings": _other_settings(rng, config, world)},
        }
    if rng.random() < 0.15:
        run = {**run, "in its place": rng.choice(restores.OTHERS)}
    if rng.random() < 0.1:
        run = {**run, "typed": rng.choice(["rllib", ALGORITHMS[run["algorithm"]]]) + f":{run['algorithm']}"}
    if rng.random() < 0.1:
        run = {**run, "settings": {**run["settings"], "callbacks_class": rng.choice(values.NESTED)}}
    if run.get("changes"):
        if rng.random() < 0.4:
            run = {**run, "of the new": _own_settings(rng, config, world, rng.choice([(), OF_NETWORKS]))}
        if rng.random() < 0.4:
            run = {**run, "mapped": rng.choice(["policy_mapping_fn", "policies_to_train", "both"])}
    if rng.random() < 0.03:
        bound = [name for name in run["settings"] if float in _types(config.settings[name].type)]
        run = {**run, "settings": {**run["settings"], **dict.fromkeys(rng.sample(bound, min(len(bound), 1)), math.inf)}}
    if world["kind"] == "single" and rng.random() < 0.15:
        forms = ["arrays"] if world.get("mask") == "info" else ["arrays", "old"]  # the old reset() has no info
        run = {**run, "world": {**run["world"], "form": rng.choice(forms)}}
    if world["kind"] in ("agents", "group") and rng.random() < 0.15:
        run = {**run, "world": {**run["world"], "form": "old"}}
    return run


def _other_settings(rng: random.Random, config, world: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a run is restored with."""
    often = [name for name in CHANGED if name in config.settings and name not in config.unused]
    kept = NOT_CHANGED | (OF_WHAT_IS_RECORDED if "data" in world else set())
    others = [name for name in drawable(config, world) if name not in kept and name not in config.unused]
    names = rng.sample(often, min(rng.choice([1, 2, 3]), len(often))) + rng.sample(others, rng.choice([0, 0, 1]))
    changed = {name: value_in(rng, name, config, world) for name in names}
    if "replay_buffer_config" in changed:
        keys = config.settings["replay_buffer_config"].keys.of.settings
        some = rng.sample([name for name in CHANGED_OF_REPLAYS if name in keys], 1)
        changed["replay_buffer_config"] = {name: value_of(rng, keys[name]) for name in some}
    return changed


# Settings that are often other ones at a restore.
CHANGED = (
    *("gamma", "gamma", "n_step", "replay_buffer_config", "replay_buffer_config", "lr", "train_batch_size", "lambda_"),
    *("clip_param", "grad_clip", "vf_clip_param", "entropy_coeff", "num_envs_per_worker", "rollout_fragment_length"),
    *("target_network_update_freq", "tau", "cost_gamma", "cost_limit", "store_buffer_in_checkpoints", "batch_mode"),
    *("exploration_config", "normalize_returns", "num_rollout_workers", "opt_type", "training_intensity"),
    "disturbances",
)
CHANGED_OF_REPLAYS = (
    *("prioritized_replay_alpha", "prioritized_replay_beta", "prioritized_replay_eps", "capacity"),
    *("prioritized_replay_alpha", "replay_burn_in"),
)
QUORUMS = values.TABLES["sample_quorum"]
# Not changed: other networks, which are no restore.
NOT_CHANGED = {"model", "hiddens", "q_model_config", "policy_model_config", "policies", "seed"}
# Nor what recorded steps show: other data would be needed.
OF_WHAT_IS_RECORDED = {"env_wrappers", "ignore_observation_keys", "env_to_module_connector"}


# ------------------------------------------------------------------ teachers and demonstrations


def _with_imitation(rng: random.Random, run: Draw, config) -> Draw:
    """The run with further forms of teachers, teachers of policies, and forms of demonstrations, where it has any."""
    if "demonstrations" in config.settings:
        run = _with_demonstrations(rng, run, config)
    if "teacher" not in config.settings:
        return run
    world, settings = run["world"], dict(run["settings"])
    is_asked = "teacher" in settings
    if config.get("needs_teacher", False) and world["kind"] in ("single", "vector") and rng.random() < 0.25:
        world = {name: value for name, value in world.items() if name not in ("mask", "autoreset", "fails")}
        world |= {"kind": "agents", "agents": 2, "style": rng.choice(["all", "turns", "dying"])}
    if world["kind"] == "agents" and (is_asked or rng.random() < 0.1):
        kinds = [name for name in teachers.FORMS if name != "several"]
        first = {"teacher": {teachers.MARK: rng.choice(kinds)}, "teacher_coeff": 1.0}
        second = {"teacher": {teachers.MARK: "function"}, "beta": rng.choice([0.0, 0.5, 1.0])} if is_asked else {}
        settings |= {"policies": {"first": first, "second": {**first, **second}}, "teacher_coeff": 1.0}
        settings["policy_mapping_fn"] = {"agent_0": "first", "agent_*": "second"}
        for name in ("teacher", "policies_to_train", "evaluate_teacher"):
            settings.pop(name, None)
    elif is_asked and rng.random() < 0.6:
        faulty = rng.random() < 0.25
        settings["teacher"] = {teachers.MARK: rng.choice([*teachers.FAULTS] if faulty else teachers.FORMS)}
    hidden = {"dict": "choice", "image and numbers": "numbers"}.get(world["observation"])
    if hidden is not None and is_asked and rng.random() < 0.5:
        for name in ("teacher_observation_keys", "critic_observation_keys"):
            if name in config.settings and rng.random() < 0.6:
                settings[name] = [hidden]
    if config.get("needs_teacher", False) and world["action"] in CONTINUOUS and rng.random() < 0.5:
        deviation = {"free_log_std": rng.random() < 0.5, "log_std_init": rng.choice([0.0, -2.0, 0.5])}
        some = rng.sample(sorted(deviation), rng.choice([1, 2]))
        settings["model"] = {**settings.get("model", {}), **{name: deviation[name] for name in some}}
    if world["kind"] == "agents" and run.get("changes") and rng.random() < 0.4:  # perhaps the first one of the run
        given = {"teacher": {teachers.MARK: rng.choice(["function", "network"])}, "teacher_coeff": 1.0}
        run = {**run, "of the new": {**run.get("of the new", {}), **given}}
        if hidden is not None:
            settings["teacher_observation_keys"] = [hidden]
    return {**run, "world": world, "settings": settings}


# Observations that are arrays of several numbers.
_OF_NUMBERS = ("numbers", "doubles", "rows", "cube", "unbounded")


def _with_demonstrations(rng: random.Random, run: Draw, config) -> Draw:
    """The run with demonstrations of other forms, some with a fault, and settings that read them otherwise."""
    world, settings, data = run["world"], dict(run["settings"]), dict(run["world"]["data"])
    if data["form"] == "arrays":
        data["says_next"] = rng.choice([False, True, recorded.RESETS])
    form = data["form"]
    is_plain = world["observation"] in _OF_NUMBERS and not world.get("mask")
    observed = recorded.OF_OBSERVATIONS if is_plain and data.get("says_next") is True else {}
    if rng.random() < (0.6 if observed else 0.3):
        names = [name for name, kind in recorded.KINDS.items() if form in kind.forms]
        names = [name for name in names if name not in recorded.MAY_BE_UNREAD]
        data["fault"] = {"kind": rng.choice([*observed] or names), "at": rng.uniform(0.1, 0.9)}
        if form != "arrays":
            settings["input_config"] = {**settings.get("input_config", {}), "on_error": rng.choice(["raise", "skip"])}
    more = {
        "discriminator_inputs": (0.4, ["obs", "next_obs"]), "time_limit_ends_episode": (0.1, True),
        "observation_filter": (0.3, "MeanStdFilter"), "custom_loss": (0.1, values.named("with_small_outputs")),
        "normalize_actions": (0.1, False), "num_envs_per_worker": (0.3, 3),
    }  # fmt: skip
    for name, (chance, value) in more.items():
        if rng.random() < chance and name in config.settings:
            settings[name] = value
    return {**run, "world": {**world, "data": data}, "settings": settings}


# ------------------------------------------------------------------ rounds that wait for some workers


def _with_quorum(rng: random.Random, run: Draw, config) -> Draw:
    """The run with workers of which a round waits for a share, which may be another one at a restore."""
    has_rounds = "sample_quorum" in config.settings and "sample_quorum" not in config.refuses
    if not has_rounds or run["world"]["kind"] == "client":
        return run
    is_drawn_so = "sample_quorum" in run["settings"]
    if rng.random() > (0.5 if is_drawn_so else 0.1):
        return run
    settings = {"num_rollout_workers": rng.choice([2, 2, 3, 4]), "sample_quorum": rng.choice(QUORUMS)}
    run = {**run, "settings": {**run["settings"], **settings}}
    if "restored with" in run and rng.random() < 0.7:
        given = {**run["restored with"]["settings"], "sample_quorum": rng.choice([*QUORUMS, 1.0])}
        if rng.random() < 0.5:
            given["num_rollout_workers"] = rng.choice([0, 1, 3])
        run = {**run, "restored with": {**run["restored with"], "settings": given}}
    return run


# ------------------------------------------------------------------ settings


def drawn_names(rng: random.Random, config, world: Mapping[str, Any]) -> list[str]:
    """Names of the settings that a run gives: those that keep it small, frequent ones, and some of all others."""
    # Most runs give none of those that are of no use to the algorithm, which are refused.
    known = config.settings.keys() - (config.unused if rng.random() < 0.95 else ())
    small = [name for name in SMALL if name in known and (rng.random() < 0.9 or name in ALWAYS)]
    if world["kind"] == "data" and not world["data"].get("share"):
        # An iteration has so many updates, or lasts as long as these say.
        small = [name for name in small if not name.startswith("min_")] + ["dataset_num_iters_per_learner"]
    frequent = [name for name, chance in FREQUENT.items() if name in known and rng.random() < chance]
    if world["kind"] in OF_AGENTS:
        frequent += [name for name in OF_SEVERAL if rng.random() < 0.3]
    if world.get("fails"):
        frequent.append("restart_failed_sub_environments")
    others = [name for name in drawable(config, world) if name in known]
    extra = [_one_of(rng, others, config) for _ in range(rng.choice([0, 1, 2, 3, 4, 6]))]
    return list(dict.fromkeys([*small, *frequent, *extra]))


def drawable(config, world: Mapping[str, Any]) -> list[str]:
    """Names of all settings of a config that runs in this world may give."""
    several = world["kind"] in OF_AGENTS
    settings = config.settings.items()
    return sorted(name for name, each in settings if is_drawn(each) and (several or each.section != "multi_agent"))


def _one_of(rng: random.Random, names: list[str], config) -> str:
    """One of the algorithm's own settings, one of any section, so that short ones are drawn as often, or any one."""
    choice = rng.random()
    if choice < 0.4:
        return rng.choice([name for name in names if name not in AlgorithmConfig.settings] or names)
    if choice < 0.7:
        section = rng.choice(sorted({config.settings[name].section for name in names}))
        return rng.choice([name for name in names if config.settings[name].section == section])
    return rng.choice(names)


# Without these a run takes minutes, or cannot be repeated.
ALWAYS = {
    *("model", "replay_buffer_config", "noise_size", "episodes_per_batch", "num_rollouts", "rollouts_used", "seed"),
    *("num_rollout_workers", "min_time_s_per_iteration", "num_replay_buffer_shards"),
    *("num_steps_sampled_before_learning_starts", "train_batch_size", "training_intensity", "evaluation_duration"),
    *("sgd_minibatch_size", "num_sgd_iter", "q_model_config", "min_sample_timesteps_per_iteration"),
}
# Their other values cost time alone.
COSTLY = {"train_batch_size", "training_intensity", "num_sgd_iter", "sgd_minibatch_size", "min_time_s_per_iteration"}


def is_drawn(setting: Setting) -> bool:
    """Whether the generator gives this setting values."""
    return setting.not_yet is None and setting.name not in values.NOT_DRAWN


def value_in(rng: random.Random, name: str, config, world: Mapping[str, Any]):
    """A value of a setting in a run of this config and world.

    Raises:
        LookupError: if neither a table nor the declaration says one.
    """
    setting = config.settings[name]
    if name == "model":
        return values.model(rng, MODEL_DEFAULTS, world, memory=_memory_chance(config))
    if name == "replay_buffer_config":
        has_goals = world["observation"] == "goal" and rng.random() < 0.7
        return values.replay(rng, setting.keys.of.settings, has_goals, value_of)
    if name == "exploration_config":
        kinds = [kind for kind in config.exploration_kinds if kind in KINDS]
        return values.exploration(rng, kinds, KINDS, config.needs_probabilities, value_of)
    if name == "policies" and rng.random() < 0.4:
        return {"first": _own_settings(rng, config, world), "second": {}}
    if name == "output":
        return {"directory": "steps"}
    if name in SMALL and SMALL[name] and (name in COSTLY or rng.random() < 0.9):
        return rng.choice(SMALL[name])
    if name == "dataset_num_iters_per_learner":
        return rng.choice([1, 3])
    if name in values.TABLES:
        return rng.choice(values.TABLES[name])
    return value_of(rng, setting)


def _own_settings(rng: random.Random, config, world: Mapping[str, Any], among: tuple = ()) -> dict[str, Any]:
    """Settings in which a policy differs from its run; `among`: those to choose from where it has any, or all."""
    names = sorted(name for name, each in config.settings.items() if each.of_policy and is_drawn(each))
    names = [name for name in among if name in names] or names
    return {
        name: value_in(rng, name, config, world) for name in rng.sample(names, min(len(names), rng.choice([1, 2, 3])))
    }


def _memory_chance(config) -> float:
    """Probability of a memory in the network: in most runs of algorithms that need one, in few of those without."""
    if "use_h_function" in config.settings:
        return 0.97
    return 0.25 if config.on_policy or "zero_init_states" in config.settings or "burn_in" in config.settings else 0.03


def value_of(rng: random.Random, setting: Setting):
    """A value that the declaration allows, other than the default where there is another."""
    found = [value for value in candidates(setting.type, setting) if setting.problem(value) is None]
    other = [value for value in found if value != setting.default]
    if not found:
        raise LookupError(f"{setting.name}: no value of {setting.type} is known; give it a table in values.py")
    return rng.choice(other or found)


def candidates(type_, setting: Setting) -> Iterator[Any]:
    """Values of a type, some of which may lie outside of the setting's range."""
    origin = get_origin(type_)
    if origin is Literal:
        yield from get_args(type_)
    elif origin in (Union, types.UnionType):
        for alternative in get_args(type_):
            yield from candidates(alternative, setting)
    elif type_ is bool:
        yield from (True, False)
    elif type_ is int:
        low = _low(setting)
        yield from (number for number in (low, low + 1, low + 2, low + 6, setting.default) if _is_small(number))
    elif type_ is float:
        low = _low(setting)
        default = setting.default if isinstance(setting.default, float) and math.isfinite(setting.default) else 1.0
        yield from (low, low + 0.1, low + 0.9, default / 2, default * 2)
        if setting.range and setting.range.high < math.inf:
            yield setting.range.high
    elif type_ is list:
        yield from ([[0, 0.1], [50, 0.01]], {"type": "linear", "initial": 0.1, "final": 0.0, "timesteps": 80})
    elif type_ is types.NoneType:
        yield None


def _types(type_) -> tuple:
    """The types of which a value may be."""
    return get_args(type_) if get_origin(type_) in (Union, types.UnionType) else (type_,)


def _low(setting: Setting):
    return setting.range.low if setting.range and setting.range.low > -math.inf else -1


def _is_small(number) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number <= MOST
