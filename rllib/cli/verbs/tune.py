"""`rllib tune`."""

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from rllib.cli.completion import complete_run
from rllib.cli.failures import EXIT_FAILURE, Mistake, TakesSettings, reported, typed_settings, user_input
from rllib.cli.folders import Folders, folders_of, storage_option
from rllib.cli.spec import find_file, load_specs, merged_keys, names_data, refuse_one_name
from rllib.cli.user_code import flag_for, load_user_code_option, typed
from rllib.cli.values import (
    SEED,
    LocalPath,
    Number,
    hint_at_stop,
    is_assignment,
    merged,
    nested,
    parse_assignments,
    parse_stop,
    parse_value,
    put_once,
    stop_keys,
)
from rllib.config.conflicts import surrounded
from rllib.progress import counted
from rllib.storage.local_path import expanded
from rllib.tune.checks import check_number
from rllib.tune.experiment.directory import described
from rllib.tune.experiment.spec import ExperimentSpec
from rllib.tune.experiment.trial import Trial
from rllib.tune.objectives import described as described_objectives
from rllib.tune.objectives import is_several, names
from rllib.tune.reporting.analysis import ExperimentAnalysis
from rllib.tune.running.build import prepare
from rllib.tune.running.tuner import continued, raise_for_failures, saved_experiment
from rllib.tune.schedulers import create_scheduler
from rllib.tune.search import create_searcher, domains
from rllib.tune.search.space import is_grid
from rllib.tune.search.wrappers import Seeded

# Largest number of trials of a Pareto front that are printed.
_MOST_ON_FRONT = 10
_RANGES = {
    "uniform": domains.uniform,
    "log": domains.loguniform,
    "int": domains.randint,
    "logint": domains.lograndint,
    "normal": domains.randn,
}
# Arguments of schedulers in which ranges stand.
_OF_RANGES = ("hyperparam_mutations", "hyperparam_bounds")


@click.command("tune", cls=TakesSettings, short_help="Search for the settings of an algorithm.")
@click.argument("words", nargs=-1, metavar="[ALGO [ENV]] [KEY=VALUE]...", shell_complete=complete_run)
@click.option("-f", "--file", metavar="FILE", help="YAML file with algorithm, env, config, search, stop, trials, ...")
@click.option("--search", "is_search", is_flag=True, help="The KEY=... that follow are searched.")
@click.option("--trials", type=click.IntRange(min=1), metavar="N", help="Samples of the space (of each of the grid's "
              "combinations) [default: 1].")  # fmt: skip
@click.option("--num-seeds", type=click.IntRange(min=1), metavar="N", help="Run each trial with N seeds; its results "
              "are their medians.")  # fmt: skip
@click.option("--stop", multiple=True, metavar="KEY=VALUE", help="End a trial when a result reaches this; repeatable. "
              "Short names: return, steps, iterations, time (seconds).")  # fmt: skip
@click.option("--metric", multiple=True, help="Result key by which trials are compared [default: episode_reward_mean]. "
              "Repeat it, with a --mode for each, for a Pareto front.")  # fmt: skip
@click.option("--mode", type=click.Choice(["max", "min"]), multiple=True, help="[default: max]")
@click.option("--scheduler", metavar="NAME", help="fifo, asha, hyperband, median_stopping, pbt or pb2.")
@click.option(
    "--searcher", "search_alg", metavar="NAME", help="random, optuna, tpe, gp, nsga2, bayesopt, cmaes or qmc."
)
@click.option("--concurrent", "max_concurrent_trials", type=click.IntRange(min=1), metavar="N", help="Trials at once.")
@click.option("--time-budget", "time_budget_s", type=Number(min=0, min_open=True), metavar="SECONDS",
              help="Time for the whole experiment.")  # fmt: skip
@click.option("--checkpoint-freq", type=click.IntRange(min=0), metavar="N", help="Save trials every N iterations.")
@click.option("--max-failures", type=click.IntRange(min=-1), metavar="N", help="How often a trial may restart.")
@click.option("--seed", type=SEED, help="Seed of searcher, scheduler and first sample; the next has one more. With "
              "--num-seeds all trials have the seeds from this one on.")  # fmt: skip
@click.option("--name", help="Name of the experiment's directory [default: ALGO_DATE].")
@click.option("--resume", is_flag=True, help="Continue the experiment of this --name, or in this directory. ALGO, ENV "
              "and settings may be left out, or are the same again.")  # fmt: skip
@click.option("--results-dir", type=LocalPath(file_okay=False), default="results", show_default=True,
              help="Directory in which experiments get their own.")  # fmt: skip
@storage_option("each experiment")
@load_user_code_option("FILE, or the experiment that is continued,")
@click.option("-q", "--quiet", is_flag=True, help="Show only the best trial.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors.")
def command(
    words, file, is_search, results_dir, storage_path, quiet, verbose, resume, load_user_code, **options
) -> None:
    """Search for settings of ALGO on ENV, or as a YAML file says. KEY=VALUE are settings that all trials have; after
    --search, KEY=A,B,C tries each (a grid), and KEY=KIND:LOW:HIGH draws from a range: uniform, log, int, logint.

    \b
    rllib tune PPO CartPole-v1 --search lr=log:1e-5:1e-2 gamma=0.95,0.99 --trials 8 --stop steps=1e5
    rllib tune PPO CartPole-v1 --search lr=log:1e-5:1e-2 --trials 20 --scheduler asha --stop iterations=50
    rllib tune -f search.yaml

    Ctrl-C ends the experiment; rllib tune --resume results/NAME, or --name NAME --resume, continues it, with its own
    settings.
    """
    with reported(verbose):
        if resume and (path := _named_directory(words, options["name"])):  # as rllib train --resume has it
            results_dir, options["name"] = path.parent, path.name
            words = tuple(word for word in words if is_assignment(word))
        folders, chosen = folders_of(results_dir, storage_path), _chosen(words)
        with user_input():
            typed(chosen)
            if resume and not (chosen or file):
                _refuse_fixed(words, is_search, options)
                experiments = [{**_given(options), "config": parse_assignments(words, "train_batch_size=2000")}]
            else:
                experiments = [
                    _settings(words, below, is_search, options, load_user_code)
                    for below in (load_specs(find_file(file), chosen) if file else [None])
                ]
                refuse_one_name(experiments, options)
        for settings in experiments:
            search(settings, folders, quiet, resume, load_user_code)


def search(
    settings: dict[str, Any], folders: Folders, quiet: bool, resume: bool = False, load_user_code: bool = False
) -> None:
    """Runs a search, and prints its results.

    Args:
        settings: keys of the file and of the command line, which takes precedence. Without an algorithm, the
            experiment that is continued has its own.
        folders: in which experiments get their own.
        quiet: whether only the best trial is shown.
        resume: whether to continue the experiment of this name.
        load_user_code: as for `tune.run`.

    Raises:
        Mistake: for settings that are unknown or do not fit together.
        TuneError: if a trial has failed.
    """
    config = settings.get("config") or {}
    with user_input(), hint_at_stop(config), _hint_at_search(config):
        if resume and "algorithm" not in settings:
            spec = _saved_spec(settings, folders, quiet, load_user_code)
        else:
            spec = replace(_spec(settings, folders, resume, quiet), load_user_code=load_user_code)
            spec = _with_objective(continued(spec))
        names = spec.config.get("env"), spec.trainable
        flag = flag_for(*(name if isinstance(name, str) else "" for name in names))
        runner, spec = prepare(spec)
    try:
        runner.run()
    finally:
        analysis = ExperimentAnalysis(runner.directory.path, runner.trials, spec.metric, spec.mode)
        _show(analysis, spec.name_of(runner.directory.path), flag)
    raise_for_failures(analysis, with_traceback=False)
    if runner.directory.lacking:
        sys.exit(EXIT_FAILURE)


@contextmanager
def _hint_at_search(config: Mapping[str, Any]) -> Iterator[None]:
    """Adds to a refusal that values which look like a grid or a range are searched behind --search alone."""
    try:
        yield
    except (ValueError, TypeError) as error:
        meant = [
            shlex.quote(f"{key}={value}")
            for key, value in config.items()
            if isinstance(value, str) and ("," in value or value.partition(":")[0] in _RANGES)
        ]
        if not meant or getattr(error, "__notes__", None):
            raise
        raise surrounded(error, after=f"To search, write --search before {' '.join(meant)}.") from error


def _named_directory(words: Sequence[str], name: str | None) -> Path | None:
    """The directory of an experiment that stands where `rllib train --resume` has that of a run; None for others."""
    given = [word for word in words if not is_assignment(word)]
    return Path(expanded(given[0])) if len(given) == 1 and name is None else None


def _settings(
    words: tuple[str, ...], below: dict | None, is_search: bool, options: dict, load_user_code: bool = False
) -> dict[str, Any]:
    """Keys of an experiment, from its file, if there is one, and the command line, which takes precedence."""
    names = [word for word in words if not is_assignment(word)]
    fixed, searched = _split_at_search([word for word in words if is_assignment(word)]) if is_search else (words, ())
    given = {**_given(options), **_chosen(words), "search": {}}
    given["config"] = parse_assignments([word for word in fixed if is_assignment(word)], "train_batch_size=2000")
    for word in searched:
        put_once(given["search"], *word.split("=", 1))
    is_recorded = names_data({**given["config"], **given["search"]})
    accepted = (2,) if below is None else (0, 2)
    if len(names) not in (*accepted, *([1] if below is None and is_recorded else [])):
        raise Mistake(
            "say what to tune: rllib tune ALGO ENV --search lr=log:1e-5:1e-2, rllib tune ALGO input=FILE on recorded "
            "steps, or rllib tune -f FILE.yaml"
        )
    below = below or {}
    typed(given, given["config"], *((below, below.get("config")) if load_user_code else ()))
    return merged_keys(below, given)


def _given(options: dict) -> dict[str, Any]:
    """Keys of an experiment that options give."""
    given = {key: value for key, value in options.items() if value not in (None, ())}
    for key in {"metric", "mode"} & given.keys():
        given[key] = list(given[key]) if len(given[key]) > 1 else given[key][0]
    return {**given, "stop": parse_stop(given.get("stop", ()))}


def _refuse_fixed(words: tuple[str, ...], is_search: bool, options: dict) -> None:
    """Raises a Mistake for what an experiment that is continued, and has its own settings, cannot change."""
    if not options["name"]:
        raise Mistake("say which experiment to continue: rllib tune --name NAME --resume")
    flags = {"seed": "--seed", "num_seeds": "--num-seeds", "scheduler": "--scheduler", "search_alg": "--searcher"}
    given = [f"{flag} {options[name]}" for name, flag in flags.items() if options[name] is not None]
    if is_search:
        given += ["--search", *map(shlex.quote, words)]
    if given:
        raise Mistake(_not_to_be_changed(" ".join(given)))


def _not_to_be_changed(given: str) -> str:
    return f"--resume continues with the settings that the experiment has; leave out {given}"


def _chosen(words: tuple[str, ...]) -> dict[str, str]:
    """Algorithm and environment, if they were typed."""
    return dict(zip(("algorithm", "env"), [word for word in words if not is_assignment(word)]))


def _split_at_search(words: list[str]) -> tuple[list[str], list[str]]:
    """(words before `--search`, which are settings; words after it, which are searched)."""
    before = set()
    arguments = sys.argv[1:]
    if "--search" in arguments:
        before = set(arguments[: arguments.index("--search")])
    return [word for word in words if word in before], [word for word in words if word not in before]


def _spec(settings: dict[str, Any], folders: Folders, resume: bool, quiet: bool) -> ExperimentSpec:
    algorithm, env = settings.pop("algorithm", None), settings.pop("env", None)
    if algorithm is None:
        raise ValueError("the file does not say which algorithm: algorithm: PPO")
    if settings.pop("external", None):
        raise ValueError("clients of external play for a single run, not for a search. Use rllib train.")
    for key in ("measured", "resumed"):  # the settings file of a run has them
        settings.pop(key, None)
    search = {key: parse_range(value) for key, value in settings.pop("search", {}).items()}
    fixed = {"algorithm": algorithm, "config": settings.pop("config", {})}
    config = merged_keys(fixed, {"config": nested(search)})["config"]
    if env is not None:
        config["env"] = env
    seed = settings.pop("seed", None)
    if seed is not None:
        check_number("seed", seed, ">= 0", least=0, whole=True)
    settings["stop"] = stop_keys(settings.get("stop") or {}, config) or None
    searcher = _made(create_searcher, "search_alg", settings.pop("search_alg", None), seed)
    if seed is not None and "seed" not in config:
        if settings.get("num_seeds", 1) != 1:
            config["seed"] = seed  # trials with the same seeds differ less by chance
        else:
            searcher = Seeded(searcher, seed)
    scheduler = _made(create_scheduler, "scheduler", settings.pop("scheduler", None), seed, space=config)
    if "trials" in settings:
        settings["num_samples"] = settings.pop("trials")
    if (experiment := settings.pop("experiment", None)) and "name" not in settings:
        settings["name"] = f"{experiment}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    spec = ExperimentSpec(
        trainable=algorithm,
        **{"checkpoint_at_end": True, **settings},
        config=config, search_alg=searcher, scheduler=scheduler, storage_path=folders.storage,
        local_dir=folders.results, resume=resume, verbose=0 if quiet else 1,
    )  # fmt: skip
    return spec if resume else _with_objective(spec)  # the one that is resumed may have another


def _with_objective(spec: ExperimentSpec) -> ExperimentSpec:
    """The spec with the default metric and mode, where it has none; several metrics need a mode each."""
    if is_several(spec.metric):
        return spec
    return replace(spec, metric=spec.metric or "episode_reward_mean", mode=spec.mode or "max")


def _saved_spec(settings: dict[str, Any], folders: Folders, quiet: bool, load_user_code: bool) -> ExperimentSpec:
    """The experiment that `--name NAME --resume` continues, with its own settings where the options give no others."""
    again = settings["config"]
    own = {"num_samples" if key == "trials" else key: value for key, value in settings.items()}
    del own["stop"], own["config"]
    given = ExperimentSpec(
        **own, stop=stop_keys(settings["stop"], {}) or None, storage_path=folders.storage, local_dir=folders.results,
        resume=True, verbose=0 if quiet else 1, load_user_code=load_user_code,
    )  # fmt: skip
    spec = saved_experiment(given, again)
    if others := {name: value for name, value in again.items() if not _has(spec.config, name, value)}:
        raise Mistake(_not_to_be_changed(typed_settings(others)))
    if load_user_code:
        typed(spec.config)
    return spec


def _has(config: Mapping[str, Any], name: str, value: Any) -> bool:
    """Whether an experiment has this setting, or all these parts of it."""
    return name in config and described(merged(config, {name: value})) == described(config)


def _made(create: Callable[..., Any], key: str, given: Any, seed: int | None, **more: Any) -> Any:
    """Makes a scheduler or searcher of {name: asha, max_t: 20}; with a seed, of a name or None, too."""
    if not isinstance(given, Mapping):
        return given if seed is None else create(given, default_seed=seed, **more)
    if "name" not in given:
        raise ValueError(f"{key}: {given} does not say which, as in {{name: asha, max_t: 20}}")
    settings = {name: _ranges_in(value) if name in _OF_RANGES else value for name, value in given.items()}
    return create(settings.pop("name"), default_seed=seed, **more, **settings)


def _ranges_in(value: Any) -> Any:
    """Replaces the notation of ranges in what a population may change: {lr: log:1e-5:1e-2, gamma: "0.9,0.99"}."""
    if isinstance(value, Mapping):
        return {key: _ranges_in(item) for key, item in value.items()}
    parsed = parse_range(value) if isinstance(value, str) else value
    return parsed["grid_search"] if is_grid(parsed) else parsed


def parse_range(text) -> Any:
    """Parses `0.95,0.99` or a YAML list as a grid, `log:1e-5:1e-2` as a range, and a single value as itself.

    Raises:
        ValueError: for a range of an unknown kind or without two ends.
    """
    if isinstance(text, list):
        return domains.grid_search(text)
    if not isinstance(text, str):
        return text
    if match := re.fullmatch(r"([a-z]+):([^:]+):([^:]+)", text):
        kind, low, high = match.groups()
        if kind not in _RANGES:
            raise ValueError(f"{text}: ranges are {', '.join(_RANGES)}, but got {kind!r}; like lr=log:1e-5:1e-2")
        return _RANGES[kind](parse_value(low), parse_value(high))
    if (kind := text.partition(":")[0]) in _RANGES:
        raise ValueError(f"{text}: a range has two ends, as in {kind}:LOW:HIGH")
    values = parse_value(f"[{text}]")
    if not values:
        raise ValueError("a setting behind --search has no value; give values, as in lr=1e-3,1e-4, or a range")
    return domains.grid_search(values) if len(values) > 1 else values[0]


def _show(analysis: ExperimentAnalysis, name: str, flag: str) -> None:
    """Prints the best trial of the experiment NAME, and the commands that follow, with `flag` to load user code."""
    directory = _short(analysis.experiment_path)
    click.echo(f"results     {directory}")
    unfinished = sum(not trial.is_finished for trial in analysis.trials)
    if unfinished:
        click.echo(f"unfinished  {unfinished} of {counted(len(analysis.trials), 'trial')}; to resume, repeat the "
                   f"command with --name {shlex.quote(name)} --resume{flag}")  # fmt: skip
    if is_several(analysis.default_metric):
        _show_front(analysis, flag)
        click.echo(f"plot        rllib plot {directory}")
        return
    if analysis.default_metric is None:
        click.echo("best        none: the experiment has no metric by which trials are compared. Add --metric KEY")
        click.echo(f"plot        rllib plot {directory}")
        return
    try:
        best = analysis.best_trial
    except ValueError as error:
        click.echo(f"best        none: {error}")
        return
    if analysis.default_metric not in best.metric_analysis:
        click.echo(f"best        none: {best.name} has reported no {analysis.default_metric}")
        return
    value = best.metric_analysis[analysis.default_metric]["last"]
    click.echo(f"best        {best.name}: {analysis.default_metric} {value:,.6g}")
    if chosen := _chosen_settings(best):
        click.echo(f"settings    {chosen}")
    if checkpoint := analysis.get_best_checkpoint(best):
        click.echo(f"evaluate    rllib evaluate {_short(checkpoint.path)}{flag}")
    click.echo(f"plot        rllib plot {directory}")


def _show_front(analysis: ExperimentAnalysis, flag: str) -> None:
    """Prints the Pareto front: the trials, what they reached and how to evaluate them."""
    try:
        front = analysis.best_trials
    except ValueError as error:
        click.echo(f"front       none: {error}")
        return
    objectives = described_objectives(analysis.default_metric, analysis.default_mode)
    click.echo(f"front       {len(front)} of {counted(len(analysis.trials), 'trial')}, by {objectives}:")
    for trial in front[:_MOST_ON_FRONT]:
        values = ((name, trial.metric_analysis[name]["last"]) for name in names(analysis.default_metric))
        click.echo(f"  {trial.name}: {', '.join(f'{name} {value:,.6g}' for name, value in values)}")
        if chosen := _chosen_settings(trial):
            click.echo(f"    settings  {chosen}")
        if trial.checkpoint:
            click.echo(f"    evaluate  rllib evaluate {_short(trial.checkpoint_path(trial.checkpoint))}{flag}")
    if len(front) > _MOST_ON_FRONT:
        click.echo(f"  and {len(front) - _MOST_ON_FRONT} more")


def _chosen_settings(trial: Trial) -> str:
    """Settings that the search has chosen, as one types them."""
    return typed_settings({key.replace("/", "."): value for key, value in trial.evaluated_params.items()})


def _short(path: str) -> str:
    """The path as one would type it in the current directory."""
    relative = os.path.relpath(path)
    return shlex.quote(path if relative.startswith("..") else relative)
