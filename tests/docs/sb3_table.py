"""Writes the table in docs/start/from_sb3.md that says which of Stable-Baselines3's public names work here.

    python tests/docs/sb3_table.py

Each name of sb3_names.json (benchmarks/peers/sb3_surface.py) is executed: a keyword is given to the constructor, an
attribute is read from an algorithm, a name is taken from the package that stands for its module. A second table is of
the same names in programs that run under `rllib.as_sb3`.
"""

import inspect
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import rllib
import rllib.callbacks
import rllib.env.vec_env
from rllib import DQN, PPO, SAC, evaluate_policy, make_vec_env, notices
from rllib.callbacks import BaseCallback, ConvertCallback
from rllib.compat.methods.stable_baselines3.construction import config_from_words
from rllib.compat.programs import lookup
from rllib.compat.programs.sb3 import environments, models, tokens
from rllib.env.vec_env import DummyVecEnv
from rllib.env.vec_env.base import DummyVecEnv as OfProgram

NAMES = json.loads(Path(__file__).with_name("sb3_names.json").read_text())
PAGE = Path(__file__).parents[2] / "docs/start/from_sb3.md"
BEGIN, END = "<!-- table of names: tests/docs/sb3_table.py -->\n", "<!-- end of the table -->\n"
BEGIN_OF_PROGRAMS = "<!-- table of names in programs: tests/docs/sb3_table.py -->\n"

# Outcomes of a name; NOTED: it works, and something is said about it.
WORKS, NOTED, ANSWERED, UNKNOWN = "works", "noted", "answered", "unknown"

# A value of each keyword that asks for something else than the default.
VALUES = {
    "action_noise": None, "batch_size": 16, "buffer_size": 500, "clip_range": 0.3, "clip_range_vf": 0.1,
    "device": "cpu", "ent_coef": 0.01, "exploration_final_eps": 0.1, "exploration_fraction": 0.2,
    "exploration_initial_eps": 0.9, "gae_lambda": 0.9, "gamma": 0.9, "gradient_steps": 2, "learning_rate": 0.01,
    "learning_starts": 50, "max_grad_norm": 1.0, "n_epochs": 2, "n_steps": 8, "normalize_advantage": False,
    "optimize_memory_usage": True, "policy_delay": 3, "policy_kwargs": {"net_arch": [8]}, "replay_buffer_class": dict,
    "replay_buffer_kwargs": {"n_sampled_goal": 2}, "rms_prop_eps": 1e-4, "rollout_buffer_class": dict,
    "rollout_buffer_kwargs": {"x": 1}, "sde_sample_freq": 4, "seed": 1, "stats_window_size": 10,
    "target_entropy": -1.0, "target_kl": 0.1, "target_noise_clip": 0.4, "target_policy_noise": 0.1,
    "target_update_interval": 100, "tau": 0.5, "tensorboard_log": "unused", "train_freq": 8, "use_rms_prop": False,
    "use_sde": True, "use_sde_at_warmup": True, "verbose": 1, "vf_coef": 0.4, "_init_setup_model": True,
}  # fmt: skip
ENVIRONMENTS = {
    "DQN": "CartPole-v1",
    # Of continuous actions, which use_sde needs.
    **dict.fromkeys(("PPO", "A2C", "SAC", "TD3", "DDPG"), "Pendulum-v1"),
}
# Where the names of a module are here.
PACKAGES = (rllib, rllib.callbacks, rllib.env.vec_env)


def keyword(algorithm: str, name: str) -> tuple[str, str]:
    """Outcome of a constructor's keyword, and what was said."""
    if name in ("policy", "env"):
        return WORKS, ""
    config = getattr(rllib, f"{algorithm}Config")()
    try:
        config_from_words(config, "MlpPolicy", ENVIRONMENTS[algorithm], {name: VALUES[name]}).validate()
    except (TypeError, ValueError) as error:
        said = str(error).strip().splitlines()[-1]
        return (UNKNOWN if f"has no {name!r}" in said else ANSWERED), said
    return WORKS, ""


def attribute(owner, name: str) -> tuple[str, str]:
    """Outcome of reading an attribute or a method of an object, and what was said."""
    try:
        getattr(owner, name)
    except AttributeError as error:
        said = str(error).partition(f"{name!r}: ")[2]
        return (ANSWERED if said else UNKNOWN), said
    return WORKS, ""


def argument(function: Callable, name: str) -> tuple[str, str]:
    """Outcome of an argument of a function."""
    return (WORKS if name in inspect.signature(function).parameters else UNKNOWN), ""


def imported(name: str) -> tuple[str, str]:
    """Outcome of a name that programs import from a module: the best that one of our packages has for it."""
    order = WORKS, ANSWERED, UNKNOWN
    return min((attribute(package, name) for package in PACKAGES), key=lambda found: order.index(found[0]))


def outcomes() -> Iterator[tuple[str, str, str, str]]:
    """(group, name, outcome, what was said) of every name."""
    for algorithm, names in NAMES["constructors"].items():
        for name in names:
            yield f"keywords of `{algorithm}(...)`", name, *keyword(algorithm, name)
    kinds = {"DQN": DQN, "SAC": SAC, "PPO": PPO}
    for algorithm, names in NAMES["attributes"].items():
        if algorithm in kinds:
            with kinds[algorithm]("MlpPolicy", ENVIRONMENTS[algorithm]) as model:
                for name in names:
                    yield f"attributes and methods of a `{algorithm}`", name, *attribute(model, name)
    functions = {"evaluate_policy": evaluate_policy, "make_vec_env": make_vec_env}
    for function, names in NAMES["arguments"].items():
        for name in names:
            found = argument(functions.get(function) or getattr(PPO, function), name)
            yield "arguments of `learn`, `predict`, `load`, `evaluate_policy`, ...", f"{function}({name})", *found
    for kind, names in NAMES["callbacks"].items():
        for name in names:
            yield "callbacks, and their arguments", f"{kind}({name})", *argument(getattr(rllib.callbacks, kind), name)
    callback = ConvertCallback(None)
    callback.model = None
    for name in NAMES["callback methods"]:
        found = (WORKS if name in dir(callback) or hasattr(BaseCallback, name) else UNKNOWN), ""
        yield "methods and attributes of a callback", name, *found
    vector = DummyVecEnv([lambda: rllib.make_vec_env("CartPole-v1").envs[0]])
    for name in NAMES["vector environments"]:
        yield "methods and attributes of a vector environment", name, *attribute(vector, name)
    for module, names in NAMES["modules"].items():
        for name in names:
            yield "classes and functions to import", f"{module}.{name}", *imported(name)


def keyword_in_program(algorithm: str, name: str) -> tuple[str, str]:
    """Outcome of a constructor's keyword in a program, and what was said."""
    if name in ("policy", "env"):
        return WORKS, ""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("rllib")
    logger.addHandler(handler)
    notices._noticed.clear()
    kind = getattr(models, algorithm)
    value = tokens.ReplayBuffer if name == "replay_buffer_class" else VALUES[name]
    try:
        words = kind._words_of("MlpPolicy", ENVIRONMENTS[algorithm], {name: value})
        words.config(kind.get_default_config()).validate()
    except (TypeError, ValueError) as error:
        said = str(error).strip().splitlines()[-1]
        return (UNKNOWN if f"has no {name!r}" in said else ANSWERED), said
    finally:
        logger.removeHandler(handler)
    return (NOTED if lines else WORKS), " ".join(lines)


def imported_in_program(module: str, name: str) -> tuple[str, str]:
    """Outcome of a name that a program imports from a module."""
    path = module if module == "stable_baselines3" else f"stable_baselines3.{module}"
    if (ours := lookup.find(path, name)) is not None:
        is_token = ours.module == tokens.__name__
        return (NOTED if is_token else WORKS), "it is given to constructors, and not made" if is_token else ""
    said = lookup.reason_for(f"{path}.{name}")
    return (ANSWERED if said else UNKNOWN), said or ""


def attributes_of_policy(model, algorithm: str) -> Iterator[tuple[str, str, str, str]]:
    """Rows of the attributes of a model's policy."""
    for name in NAMES["policies"][algorithm]:
        try:
            getattr(model.policy, name)
        except AttributeError as error:
            said = str(error).partition(f"{name!r} here: ")[2]
            found = (ANSWERED if said else UNKNOWN), said
        else:
            found = WORKS, ""
        yield f"attributes of the policy of a `{algorithm}`", name, *found


def arguments_in_program(module: str, functions: dict[str, list[str]]) -> Iterator[tuple[str, str, str, str]]:
    """Rows of the arguments of a module's classes and functions, of those that are here and are not models."""
    path = module if module == "stable_baselines3" else f"stable_baselines3.{module}".rstrip(".")
    for function, names in functions.items():
        ours = lookup.find(path, function)
        if ours is None or ours.module in (models.__name__, tokens.__name__):
            continue
        known = inspect.signature(ours.load()).parameters.values()
        takes_all = any(each.kind is each.VAR_KEYWORD for each in known)
        for name in names:
            found = WORKS if takes_all or name in {each.name for each in known} else UNKNOWN
            yield "arguments of classes and functions to import", f"{function}({name})", found, ""


def outcomes_in_programs() -> Iterator[tuple[str, str, str, str]]:
    """(group, name, outcome, what was said) of every name in a program under `rllib.as_sb3`."""
    for algorithm, names in NAMES["constructors"].items():
        for name in names:
            yield f"keywords of `{algorithm}(...)`", name, *keyword_in_program(algorithm, name)
    for algorithm in ("PPO", "DQN", "SAC"):
        with getattr(models, algorithm)("MlpPolicy", ENVIRONMENTS[algorithm]) as model:
            for name in NAMES["attributes"][algorithm]:
                yield f"attributes and methods of a `{algorithm}`", name, *attribute(model, name)
            yield from attributes_of_policy(model, algorithm)
    functions = {"evaluate_policy": evaluate_policy, "make_vec_env": environments.make_vec_env}
    for function, names in NAMES["arguments"].items():
        for name in names:
            found = argument(functions.get(function) or getattr(models.PPO, function), name)
            yield "arguments of `learn`, `predict`, `load`, `evaluate_policy`, ...", f"{function}({name})", *found
    for kind, names in NAMES["callbacks"].items():
        for name in names:
            own = lookup.find("stable_baselines3.common.callbacks", kind).load()
            yield "callbacks, and their arguments", f"{kind}({name})", *argument(own, name)
    callback = ConvertCallback(None)
    callback.model = None
    for name in NAMES["callback methods"]:
        found = (WORKS if name in dir(callback) or hasattr(BaseCallback, name) else UNKNOWN), ""
        yield "methods and attributes of a callback", name, *found
    vector = OfProgram([lambda: rllib.make_vec_env("CartPole-v1").envs[0]])
    for name in NAMES["vector environments"]:
        yield "methods and attributes of a vector environment", name, *attribute(vector, name)
    for module, names in NAMES["modules"].items():
        for name in names:
            yield "classes and functions to import", f"{module}.{name}", *imported_in_program(module, name)
    for module, functions in NAMES["arguments of modules"].items():
        yield from arguments_in_program(module, functions)


def table_in_programs(found: Iterable[tuple[str, str, str, str]]) -> str:
    """The section of the page about programs."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for group, *rest in found:
        groups.setdefault(group, []).append(tuple(rest))
    lines = ["| names | number | work | work with a note | error with what to write | neither |"]
    lines.append("|---|---|---|---|---|---|")
    total = dict.fromkeys((WORKS, NOTED, ANSWERED, UNKNOWN), 0)
    for group, rows in groups.items():
        counts = {outcome: sum(row[1] == outcome for row in rows) for outcome in total}
        total = {outcome: total[outcome] + counts[outcome] for outcome in total}
        lines.append(_row(group, counts))
    lines += [_row("all", total), "", "With an error or a note:", ""]
    for group, rows in groups.items():
        if left := [f"`{name}`" for name, outcome, _ in rows if outcome in (ANSWERED, NOTED)]:
            lines.append(f"- {group}: {', '.join(left)}")
    return "\n".join(lines) + "\n"


def table(found: Iterable[tuple[str, str, str, str]]) -> str:
    """The section of the page."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for group, *rest in found:
        groups.setdefault(group, []).append(tuple(rest))
    lines = [
        f"Every public name of Stable-Baselines3 {NAMES['version']} in a new program, executed by a test.",
        "",
        "| names | number | work | error with what to write | neither |",
        "|---|---|---|---|---|",
    ]
    total = {WORKS: 0, ANSWERED: 0, UNKNOWN: 0}
    for group, rows in groups.items():
        counts = {outcome: sum(row[1] == outcome for row in rows) for outcome in total}
        total = {outcome: total[outcome] + counts[outcome] for outcome in total}
        lines.append(_row(group, counts))
    lines += [_row("all", total), "", "Neither:", ""]
    for group, rows in groups.items():
        if left := [name for name, outcome, _ in rows if outcome == UNKNOWN]:
            lines.append(f"- {group}: {', '.join(f'`{name}`' for name in left)}")
    return "\n".join(lines) + "\n"


def _row(group: str, counts: dict[str, int]) -> str:
    number = sum(counts.values())
    shares = [f"{counts[outcome]} ({100 * counts[outcome] / number:.0f} %)" for outcome in counts]
    return f"| {group} | {number} | {' | '.join(shares)} |"


def with_table(page: str, text: str, begin: str = BEGIN) -> str:
    """The page with another table."""
    before, _, rest = page.partition(begin)
    return before + begin + text + END + rest.partition(END)[2]


if __name__ == "__main__":
    written = with_table(PAGE.read_text(), table(outcomes()))
    PAGE.write_text(with_table(written, table_in_programs(outcomes_in_programs()), BEGIN_OF_PROGRAMS))
