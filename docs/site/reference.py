"""The reference: pages made of what the code declares - settings, commands, docstrings."""

import importlib
import inspect
import itertools
from collections.abc import Iterable, Iterator

import click
from docstrings import as_markdown, prose, signature

import rllib
import rllib.callbacks
from rllib import cli, tune
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.registry import ALGORITHMS, algorithm_names, get_algorithm_class
from rllib.algorithms.base.settings.exploration import KINDS
from rllib.cli.default_differences import default_differences
from rllib.compat.names import aliases
from rllib.config.conflicts import RuleRow
from rllib.config.sections import SettingRow
from rllib.models.model_settings import ModelSettings
from runtime.engines.zeromq.cli import main as runtime_command

_WIDTH = 100
_RUNTIME = (
    *("init", "shutdown", "is_initialized", "remote", "method", "put", "get", "wait", "as_completed", "cancel", "kill"),
    *("get_actor", "exit_actor", "empty", "available_resources", "cluster_resources", "nodes", "timeline"),
    *("get_runtime_context", "get_gpu_ids"),
)


def pages() -> dict[str, str]:
    """Path of each page below the site's root, without its ending -> its Markdown."""
    return {
        "reference/settings": _settings(),
        "reference/model_settings": _model_settings(),
        "reference/rllib_names": _rllib_names(),
        **{f"reference/algorithms/{name}": _algorithm(name) for name in algorithm_names()},
        "reference/commands": _commands(),
        "reference/api": _api(),
        "reference/tune": _package("`rllib.tune`", tune, tune.__all__),
        "reference/callbacks": _package("`rllib.callbacks`", rllib.callbacks, rllib.callbacks.__all__),
        "reference/runtime": _package("`runtime`", importlib.import_module("runtime"), _RUNTIME),
    }


# ---------------------------------------------------------------------- settings


def _settings() -> str:
    lines = [
        "# Settings that all algorithms have",
        "",
        "Defaults come from the base class; an algorithm's page lists where its own differ, and what it adds. "
        "`rllib config ALGO` prints the same in the terminal. A setting is given to the method of its section, "
        "`PPOConfig().training(lr=3e-4)`, as `lr=3e-4` on the command line, or as a key of a dict of settings.",
    ]
    for name, rows in itertools.groupby(AlgorithmConfig.describe(), key=lambda row: row.section):
        lines += ["", f"## .{name}()", "", prose(AlgorithmConfig.sections[name].doc), "", *_table(rows)]
    lines += [
        "",
        "## What excludes what",
        "",
        "`build()` raises one `SettingsError` for all mistakes in the settings; its `mistakes` name the settings, and "
        "hold what ends each as settings (`remedies`), which `config.apply(remedy)` sets. An algorithm's page lists "
        "its own rules.",
        "",
        *_rules(AlgorithmConfig.describe_rules()),
    ]
    return "\n".join(lines)


def _table(rows: Iterable[SettingRow]) -> Iterator[str]:
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    for row in rows:
        others = ", ".join(map(_code, aliases.other_names(row.name)))
        meaning = _cell(row.meaning) + (f". Also: {others}" if others else "")
        yield f"| {_code(row.name)} | {_code(row.type)} | {_code(repr(row.default))} | {meaning} |"


def _rules(rows: Iterable[RuleRow]) -> Iterator[str]:
    yield "| rule | why | what ends it |"
    yield "|---|---|---|"
    for row in rows:
        yield f"| {' | '.join(map(_rule_cell, (row.rule, row.why, row.ends)))} |"


def _rule_cell(text: str) -> str:
    """A sentence with settings in backquotes, in which only the rest is escaped."""
    parts = text.split("`")
    return "`".join(part.replace("|", "\\|") if index % 2 else _cell(part) for index, part in enumerate(parts))


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return prose(text).replace("|", "\\|").replace("[", "\\[").replace("*", "\\*")


def _rllib_names() -> str:
    lines = [
        "# RLlib's names",
        "",
        "Settings of all versions of RLlib, next to the ones with the same name here. from_rllib.md shows their use.",
        "",
        "## Other names",
        "",
        "| RLlib | here |",
        "|---|---|",
        *(f"| {_code(other)} | {_code(name)} |" for other, name in aliases.ALIASES.items()),
        "",
        "## Without effect",
        "",
        "| RLlib | why |",
        "|---|---|",
        *(f"| {_code(name)} | {_cell(why)} |" for name, why in aliases.IGNORED.items()),
        "",
        "## Refused, unless the value asks for nothing",
        "",
        "| RLlib | accepted | what to do |",
        "|---|---|---|",
    ]
    for name, refused in aliases.UNAVAILABLE.items():
        harmless = ", ".join(_code(repr(value)) for value in refused.harmless)
        lines.append(f"| {_code(name)} | {harmless} | {_cell(refused.sentence)} |")
    return "\n".join(lines)


def _algorithm(name: str) -> str:
    algorithm = get_algorithm_class(name)
    config = algorithm.config_class
    common = {row.name: row for row in AlgorithmConfig.describe()}
    own = [row for row in config.describe() if row != common.get(row.name)]
    module = importlib.import_module(ALGORITHMS[name])
    lines = [
        f"# {name}",
        "",
        as_markdown(module.__doc__),
        "",
        f"`rllib train {name} ENV` or `{config.__name__}()`. Ways to explore: "
        f"{', '.join(map(_code, config.exploration_kinds))}.",
        "",
        "## Settings",
        "",
        f"What {name} adds to the [settings that all algorithms have](../settings.md), and its own defaults.",
    ]
    for section, rows in itertools.groupby(own, key=lambda row: row.section):
        lines += ["", f"### .{section}()", "", *_table(rows)]
    common_rules = AlgorithmConfig.describe_rules()
    own_rules = [row for row in config.describe_rules() if row not in common_rules]
    if own_rules:
        lines += ["", "## What excludes what", "", *_rules(own_rules)]
    return "\n".join([*lines, *_differences(name)])


def _differences(name: str) -> Iterator[str]:
    found = default_differences(name)
    if not found:
        return
    yield from ("", "## Defaults that are not RLlib's", "", "| setting | here | RLlib 2.6 | why |", "|---|---|---|---|")
    for each in found:
        yield f"| {_code(each.setting)} | {_code(repr(each.ours))} | {_code(repr(each.rllib))} | {_cell(each.reason)} |"


def _model_settings() -> str:
    lines = [
        "# Keys of `model` and `exploration_config`",
        "",
        "## `.training(model={...})`",
        "",
        "Only the keys that are given change. networks.md and algorithms.md have examples.",
        "",
        *_table(ModelSettings.describe()),
        "",
        "## `.exploration(exploration_config={...})`",
        "",
        "`type` is one of these; an algorithm's page says which of them it takes, exploration.md what they are for.",
    ]
    for name, kind in KINDS.items():
        lines += ["", f"### {name}", "", *_documented(kind, name)]
    return "\n".join(lines)


# ---------------------------------------------------------------------- commands


def _commands() -> str:
    lines = ["# Commands", "", "Every option, as `--help` prints it."]
    for name, command in (("rllib", cli.command), ("runtime", runtime_command)):
        lines += _command(click.Context(command, info_name=name, terminal_width=_WIDTH, max_content_width=_WIDTH))
    return "\n".join(lines)


def _command(context: click.Context) -> Iterator[str]:
    """The help of a command, then of its subcommands."""
    command, path = context.command, context.command_path
    yield from ("", f"{'#' * (path.count(' ') + 2)} {path}", "", f"```text\n{command.get_help(context)}\n```")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            yield from _command(click.Context(inner, context, info_name=name))


# ---------------------------------------------------------------------- Python


def _api() -> str:
    configs = {f"{name}Config" for name in ALGORITHMS}
    return _package("`rllib`", rllib, [name for name in rllib.__all__ if name not in {*ALGORITHMS, *configs}])


def _package(title: str, package, names: Iterable[str]) -> str:
    lines = [f"# {title}", "", as_markdown(package.__doc__)]
    for name in names:
        member = getattr(package, name)
        if inspect.isclass(member):
            lines += _class(name, member)
        elif callable(member):
            lines += ["", f"## {name}", "", *_documented(member, name)]
    return "\n".join(lines)


def _documented(function, name: str) -> list[str]:
    return [f"```python\n{signature(function, name)}\n```", "", as_markdown(function.__doc__)]


def _class(name: str, member: type) -> Iterator[str]:
    yield from ("", f"## {name}", "", f"```python\n{signature(member, name)}\n```", "")
    documented = "__doc__" in vars(member) and not (member.__doc__ or "").startswith(f"{member.__name__}(")
    yield as_markdown(member.__doc__ if documented else None)
    for method, function in _methods(member):
        yield from ("", f"### {name}.{method}", "", *_documented(function, method))


def _methods(member: type) -> Iterator[tuple[str, object]]:
    """Public methods with a docstring, own or of bases in this repository; no section methods."""
    sections = getattr(member, "sections", {}).keys() | getattr(member, "section_aliases", {}).keys()
    for name, function in inspect.getmembers(member, callable):
        here = getattr(function, "__module__", None) or ""
        if name.startswith("_") or name in sections or not function.__doc__ or inspect.isclass(function):
            continue
        if here.partition(".")[0] in ("rllib", "runtime"):
            yield name, function
