"""`rllib train`."""

import importlib
import logging
import shlex
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from rllib.algorithms.base.places import SettingsOfFile
from rllib.algorithms.base.recorded.settings import LOG_DIR
from rllib.algorithms.base.registry import get_algorithm_class, get_algorithm_config
from rllib.cli.checkpoints import PLACE
from rllib.cli.columns import columns_option, parse_columns, refuse_loose
from rllib.cli.completion import complete_run
from rllib.cli.display import LineDisplay, PanelDisplay, QuietDisplay, phase_shares, shown_logs
from rllib.cli.failures import (
    EXIT_FAILURE,
    EXIT_SIGNAL,
    Mistake,
    TakesSettings,
    as_typed,
    reported,
    user_input,
)
from rllib.cli.folders import Folders, folders_of, storage_option
from rllib.cli.rays_flags import rays_options
from rllib.cli.run_directory import RunDirectory, refuse_used_name
from rllib.cli.seeds.folder import SeedFolder, refuse_one_seed
from rllib.cli.spec import (
    Resumed,
    RunSpec,
    find_file,
    is_search,
    load_specs,
    make_spec,
    merged_keys,
    names_data,
    refuse_one_name,
)
from rllib.cli.tuned_examples import is_tuned_example, tuned_settings
from rllib.cli.user_code import flag_for, load_user_code_option, typed
from rllib.cli.values import (
    SEED,
    LocalPath,
    hint_at_code,
    hint_at_stop,
    is_assignment,
    iteration_goal,
    parse_assignments,
    parse_mapping,
    parse_stop,
)
from rllib.errors import GpuMemoryError, LearnersLostError, NotFiniteError
from rllib.notices import shown
from rllib.progress import can_redraw, counted, elapsed, mean_rate, number
from rllib.result import Result
from rllib.runs.files import PROFILE, keep_failing_batch, read_results
from rllib.runs.profiling import longer_steps
from rllib.runs.safe_files import is_of_full_disk, write_whole
from rllib.tune.experiment.stoppers import ThresholdStopper
from rllib.tune.running.runner import Interrupts

logger = logging.getLogger(__name__)

# Options whose flags are not their names.
_FLAG_NAMES = {
    "trials": "num-samples", "mapping": "map", "observation_space": "observation-space", "action_space": "action-space",
    "input_": "input",
}  # fmt: skip
_FIRST_INTERRUPT = "Finishing this iteration, then saving a checkpoint. Once more: stop at once, without."
# Share of an iteration's time in updates from which on there is advice to shorten them.
_MOSTLY_UPDATES = 0.8


@dataclass(frozen=True)
class Flags:
    """Flags of the command line that hold for each run that it starts."""

    quiet: bool
    verbose: bool
    profile: bool
    keep_best: bool
    load_user_code: bool


class _Experiment(NamedTuple):
    """A run or a search, as the command line asks for it.

    Attributes:
        below: keys of the file, or of the tuned example for algorithm and environment.
        given: keys of the command line, which take precedence.
        is_tuned: whether a tuned example has chosen the settings.
        notice: line that says where settings come from that the user has not named; "" if there are none.
    """

    below: dict[str, Any]
    given: dict[str, Any]
    is_tuned: bool = False
    notice: str = ""


@click.command("train", cls=TakesSettings, short_help="Train an algorithm on an environment.")
@click.argument("words", nargs=-1, metavar="[ALGO ENV] [KEY=VALUE]...", shell_complete=complete_run)
@click.option("-f", "--file", metavar="FILE", help="YAML file (RL Zoo's, too), Python file with config and "
              "stop, or name of a tuned example, like ppo/cartpole.")  # fmt: skip
@click.option("--algo", "--run", "algorithm", metavar="ALGO", help="As ALGO, in Ray's spelling, with RLlib's defaults.")
@click.option("--env", metavar="ENV", help="As ENV, in Ray's spelling, with RLlib's defaults.")
@click.option("--external", metavar="HOST:PORT", help="Answer clients there, which step environments of their own, in "
              "place of ENV; see rllib client-example.")  # fmt: skip
@click.option("--observation-space", metavar="SPACE", help="Of such clients, like 'Box(-inf, inf, (4,))'; without it "
              "the first client says both spaces. Of --input without ENV; without it as the data tells.")  # fmt: skip
@click.option("--action-space", metavar="SPACE", help="The same of actions, like 'Discrete(2)'.")
@click.option("--input", "input_", multiple=True, metavar="PATH", help="Learn from recorded steps: a file, a directory "
              "or a pattern; repeatable. ENV may be left out.")  # fmt: skip
@columns_option
@click.option("--policies", metavar="IDS", help="Policies of several agents: shared, own (one for each agent), or ids "
              "like p0,p1.")  # fmt: skip
@click.option("--map", "mapping", multiple=True, metavar="AGENTS=ID", help="Policy of the agents whose names fit, as "
              "in 'agent_*=p0'; repeatable, the first that fits counts.")  # fmt: skip
@click.option("--framework", metavar="NAME", help="As framework=NAME, in Ray's spelling: torch.")
@click.option("--torch", is_flag=True, hidden=True, help="As --framework torch.")
@click.option("--defaults", is_flag=True, help="Take RLlib's defaults for ALGO on ENV, also where a tuned example has "
              "settings for both.")  # fmt: skip
@click.option("--config", metavar="MAPPING", help="Settings as JSON or YAML; KEY=VALUE takes precedence. No "
              "tuned example is used with them.")  # fmt: skip
@click.option("--stop", multiple=True, metavar="KEY=VALUE", help="Stop when a result reaches this; repeatable. Short "
              "names: return, steps, iterations, time (seconds).")  # fmt: skip
@click.option("--seed", type=SEED, help="Seed of everything random; equal seeds give equal runs.")
@click.option("--seeds", type=click.IntRange(min=2), metavar="N", help="Train N seeds, from --seed or 0 on, side by "
              "side on the cores that are there, each in a directory of one folder.")  # fmt: skip
@click.option("--resume", metavar="RUN", type=PLACE, help="Continue the run in this directory, or at this URL, from "
              "its newest checkpoint; KEY=VALUE, --stop, --checkpoint-freq and --keep-checkpoints-num may "
              "change.")  # fmt: skip
@click.option("--name", "--experiment-name", help="Name of the run's directory [default: ALGO_ENV_DATE].")
@click.option("--results-dir", "--local-dir", type=LocalPath(file_okay=False), default="results",
              show_default=True, help="Directory in which runs get their own.")  # fmt: skip
@storage_option("each run")
@click.option("--checkpoint-freq", type=click.IntRange(min=0), metavar="N", help="Save every N iterations [default: "
              "after the first, then ever more rarely, every five minutes at last, and only the newest is kept]; the "
              "last state is always saved.")  # fmt: skip
@click.option("--keep-checkpoints-num", type=click.IntRange(min=1), metavar="N",
              help="With --checkpoint-freq: keep the newest N checkpoints [default: all].")  # fmt: skip
@click.option("--keep-best", is_flag=True, help="Save whenever the return is the best so far, and keep that checkpoint "
              "and the newest; in a run that evaluates, the return of evaluations.")  # fmt: skip
@click.option("--checkpoint-at-end", is_flag=True, hidden=True, help="Option of Ray; the last state is always saved.")
@click.option("--num-samples", "trials", type=click.IntRange(min=1), metavar="N", help="Runs of a search.")
@click.option("--profile", is_flag=True, help="Record a timeline of all processes in profile.json, a Chrome trace, and "
              "say what limits the run.")  # fmt: skip
@load_user_code_option("RUN or FILE")
@click.option("-q", "--quiet", is_flag=True, help="Show only where the results are.")
@click.option("-v", "--verbose", count=True, help="Show debug messages, and tracebacks of errors.")
@rays_options
def command(
    words, file, resume, results_dir, storage_path, quiet, verbose, profile, keep_best, load_user_code,
    checkpoint_at_end, seeds, **options,
) -> None:  # fmt: skip
    """Train ALGO on ENV, or as a YAML file says. KEY=VALUE are settings (see `rllib config ALGO`); they take
    precedence over the file's. Where a tuned example has settings for ALGO on ENV, it is taken as the file; --defaults
    takes RLlib's defaults. With grid_search or several samples it is a search, as by `rllib tune`.

    \b
    rllib train PPO CartPole-v1
    rllib train PPO CartPole-v1 lr=1e-3 num_rollout_workers=2 --stop return=475 --defaults
    rllib train PPO CartPole-v1 model.fcnet_hiddens=[64,64] --stop steps=1e5
    rllib train -f ppo/cartpole --seed 3
    rllib train PPO CartPole-v1 --seeds 5
    rllib train PPO pettingzoo:mpe2.simple_spread_v3 --policies shared --stop steps=1e5
    rllib train PPO --external 127.0.0.1:9900 --observation-space 'Box(-inf, inf, (4,))' --action-space 'Discrete(2)'
    rllib train BC --input logs.csv --columns obs=position,speed --stop iterations=5
    rllib train --resume results/PPO_CartPole-v1_... --stop steps=2e5
    rllib train --run PPO --env CartPole-v1 --config '{"lr": 0.001}' --stop '{"timesteps_total": 100000}'

    Ctrl-C saves a checkpoint and ends the run with exit code 130; --resume continues it. With --seeds each seed is a
    separate run, and --resume, `rllib plot` and `rllib evaluate` take the folder of all.
    """
    flags = Flags(quiet, verbose, profile, keep_best, load_user_code)
    with reported(verbose):
        folders = folders_of(results_dir, storage_path)
        if resume is not None:
            given = {"file": file, "seeds": seeds, **options}
            if isinstance(resume, Path) and (folder := SeedFolder.at(resume)):
                _resume_seeds(folder, folders, words, given, flags)
                return
            if isinstance(resume, Path):
                refuse_one_seed(resume)
            with user_input():
                run, spec, changed = _earlier_run(resume, folders, words, given, load_user_code)
            run_spec(spec, folders, flags, run, changed)
            return
        todo = []  # all are checked before the first one runs
        for experiment in _experiments(words, file, options, load_user_code):
            with user_input():
                keys = merged_keys(experiment.below, experiment.given)
            if is_search(keys):
                if keys.get("external"):
                    raise Mistake("clients play for a single run; leave out grid_search and --num-samples")
                if profile:
                    raise Mistake("--profile is for a single run; leave out grid_search and --num-samples")
                if seeds is not None:
                    raise Mistake("--seeds is for a single run; leave out grid_search and --num-samples")
                if keep_best:
                    raise Mistake(
                        "--keep-best is for a single run; leave out grid_search and --num-samples, or give "
                        "keep_checkpoints_num and checkpoint_score_attr in a file"
                    )
                search = importlib.import_module("rllib.cli.verbs.tune").search  # slow to import, and rare
                todo.append(partial(search, keys, folders, quiet))
                continue
            with user_input():
                spec = make_spec(experiment.below, experiment.given, file or "command line")
            refuse_used_name(folders.results, spec, folders.storage)
            if seeds is not None:
                todo.append(partial(_run_seeds, spec, seeds, folders, flags, experiment.notice))
                continue
            todo.append(partial(run_spec, spec, folders, flags, is_tuned=experiment.is_tuned, notice=experiment.notice))
        if seeds is not None and len(todo) > 1:
            raise Mistake(f"--seeds is for a single run, but {file} holds {len(todo)} experiments")
        for run in todo:
            run()


# ---------------------------------------------------------------------- the specification


def _experiments(words: tuple[str, ...], file: str | None, options: dict, load_user_code: bool) -> list[_Experiment]:
    """The experiments of the command line, or of the file that it names."""
    names = [word for word in words if not is_assignment(word)]
    if not file and len(names) == 2 and names[0] == "file":  # Ray's spelling
        file, names = names[1], []
    flags = [key for key in ("algorithm", "env") if options[key] is not None]
    wants_defaults, has_config = options.pop("defaults"), options["config"] is not None
    with user_input():
        settings = parse_mapping(options.pop("config") or "{}", "--config")
        assigned = parse_assignments(filter(is_assignment, words), "lr=1e-3 or model.fcnet_hiddens=[64,64]")
        assigned |= _agent_settings(options.pop("policies"), options.pop("mapping"), assigned)
        assigned |= _input_settings(options.pop("input_"), options.pop("columns"), assigned)
        is_recorded = names_data({**settings, **assigned})
        if is_recorded and options["external"] is None:
            assigned |= _given_spaces(options, assigned)
        external = _external_section(options)
        assigned |= _framework(options.pop("framework"), options.pop("torch"), assigned)
        given = {key: value for key, value in options.items() if value is not None}
        given["stop"] = parse_stop(options["stop"])
        if external:
            given["external"] = external
        if names and not flags and len(names) == 2:
            given.update(algorithm=names[0], env=names[1])
        elif ("listen" in external or is_recorded) and (len(names) == 1) != ("algorithm" in flags or bool(file)):
            given.update(zip(["algorithm"], names))
        elif len(names) > 2 and not file:
            meant = "=".join(names[2:]) if len(names) == 4 else "lr=1e-3"  # of "lr 1e-3"
            raise Mistake(f"{names[2]!r} is no setting; a setting is key=value, like {meant}")
        elif names or not (file or {*flags, *settings, *assigned} >= {"algorithm", "env"}):
            raise Mistake(
                "say what to train: rllib train ALGO ENV [key=value ...], rllib train ALGO --input FILE on recorded "
                "steps, or rllib train -f FILE.yaml"
            )
        if file and "env" in assigned:  # as for every other setting, what is typed takes precedence
            given.setdefault("env", assigned.pop("env"))
        typed(given)
        if file and wants_defaults:
            raise Mistake("--defaults is for ALGO ENV; settings that a file leaves out are RLlib's defaults already")
        path = find_file(file) if file else None
        in_file = load_specs(path, given) if path else [{}]
        refuse_one_name(in_file, given)
        trusted = [keys for below in in_file for keys in (below, below.get("config"))] if load_user_code else ()
        typed(given, settings, assigned, *trusted)
        experiments = []
        for below in in_file:
            algorithm = given.get("algorithm") or below.get("algorithm")
            config = merged_keys({"algorithm": algorithm, "config": settings}, {"config": assigned})["config"]
            experiments.append(_Experiment(below, {**given, "config": config}, bool(path) and is_tuned_example(path)))
        if names and not (flags or path or has_config or wants_defaults):
            experiments = [_by_tuned_example(each) for each in experiments]
        return experiments


def _by_tuned_example(experiment: _Experiment) -> _Experiment:
    """The experiment with the settings of the tuned example for its algorithm and environment, if there is one.

    A search, clients and recorded steps have none: examples are for a run that samples in the environment. A stop
    criterion of the command line replaces the example's.
    """
    given = experiment.given
    if "external" in given or names_data(given["config"]) or is_search(given):
        return experiment
    tuned = tuned_settings(given["algorithm"], given["env"])
    if tuned is None:
        return experiment
    has_stop = bool(given["stop"])
    below = {"config": dict(tuned.config), "stop": {} if has_stop else dict(tuned.stop)}
    return _Experiment(below, given, tuned.name is not None, tuned.notice(has_stop))


def _external_section(options: dict[str, Any]) -> dict[str, Any]:
    """The section `external` that --external and the flags of spaces represent; they are removed from the options."""
    flags = {"listen": "external", "observation_space": "observation_space", "action_space": "action_space"}
    given = {name: options.pop(flag, None) for name, flag in flags.items()}
    return {name: value for name, value in given.items() if value is not None}


def _agent_settings(policies: str | None, mapping: Sequence[str], assigned: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that --policies and --map represent; policies.p0.lr=1e-3 is merged into the ids of --policies.

    Raises:
        Mistake: if one of them is assigned as well, or --map is no AGENTS=ID.
    """
    settings: dict[str, Any] = {}
    if policies is not None:
        ids = [each.strip() for each in policies.split(",")]
        settings["policies"] = policies if policies in ("shared", "own") else ids
    for entry in mapping:
        agents, is_pair, policy_id = entry.partition("=")
        if not (agents and is_pair and policy_id):
            raise Mistake(f"--map {entry} must be AGENTS=ID, as in --map 'agent_*=p0'")
        settings.setdefault("policy_mapping_fn", {})[agents] = policy_id
    ids, own, twice = settings.get("policies"), assigned.get("policies"), settings.keys() & assigned.keys()
    if isinstance(ids, list) and isinstance(own, Mapping) and own.keys() <= set(ids):
        settings["policies"] = {policy_id: own.get(policy_id, {}) for policy_id in ids}
        twice -= {"policies"}
    if twice:
        raise Mistake(f"{', '.join(sorted(twice))} is given both as a setting and as a flag; leave one of them out")
    return settings


def _input_settings(paths: Sequence[str], columns: Sequence[str], assigned: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that --input and --columns represent.

    Raises:
        Mistake: if one of them is assigned as well, or --columns is given without data.
    """
    if paths and names_data(assigned):
        raise Mistake("input_ is given both as a setting and as a flag; leave one of them out")
    settings: dict[str, Any] = {"input_": paths[0] if len(paths) == 1 else list(paths)} if paths else {}
    if columns:
        if "input_read_schema" in assigned:
            raise Mistake("input_read_schema is given both as a setting and as --columns; leave one of them out")
        if not (paths or names_data(assigned)):
            raise Mistake("--columns says what the columns of recorded steps are; give their files by --input")
        refuse_loose([f"{name}={value}" for name, value in assigned.items()])
        settings["input_read_schema"] = parse_columns(columns)
    return settings


def _given_spaces(options: dict[str, Any], assigned: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the flags of spaces represent in a run on recorded steps; they are removed from the options."""
    given = {name: options.pop(name) for name in ("observation_space", "action_space")}
    settings = {name: text for name, text in given.items() if text is not None}
    if twice := settings.keys() & assigned.keys():
        raise Mistake(f"{', '.join(sorted(twice))} is given both as a setting and as a flag; leave one of them out")
    return settings


def _framework(name: str | None, is_torch: bool, assigned: Mapping[str, Any]) -> dict[str, Any]:
    """The setting that --framework and --torch represent."""
    chosen = name or ("torch" if is_torch else None)
    if chosen and assigned.get("framework", chosen) != chosen:
        raise Mistake("framework is given both as a setting and as a flag; leave one of them out")
    return {"framework": chosen} if chosen else {}


def _earlier_run(
    place: Path | str, folders: Folders, words: tuple[str, ...], options: dict, load_user_code: bool
) -> tuple[RunDirectory, RunSpec, dict]:
    """Directory of the run that --resume names, its specification from now on, and the settings that are typed.

    Raises:
        Mistake: if there is no such run, or something is given that cannot change.
    """
    _refuse_fixed(words, options)
    run = RunDirectory.taken_up(place, folders.results, folders.storage)
    saved = run.read_spec()
    before = msgspec.to_builtins(saved)
    changed, given = _changes(words, options, before, load_user_code)
    spec = make_spec(before, given, "--resume")
    changes = changed
    if (resumed := saved.resumed) and resumed.checkpoint == run.checkpoint.name:
        # It has ended before a checkpoint had the settings that were given at the last time.
        changes = merged_keys({"algorithm": spec.algorithm, "config": resumed.config}, {"config": changed})["config"]
    spec.resumed = Resumed(run.checkpoint.name, changes) if changes else None
    return run, spec, changed


def _changes(words: tuple[str, ...], options: dict, before: dict, load_user_code: bool) -> tuple[dict, dict]:
    """(settings that change, all keys that change) of a run that is resumed; takes out of `before` what they replace.

    Raises:
        Mistake: if another algorithm is given.
    """
    given = {"config": parse_assignments(words, "num_rollout_workers=4")}
    for name in ("checkpoint_freq", "keep_checkpoints_num"):
        if options[name] is not None:
            given[name] = options[name]
    if algorithm := options["algorithm"]:
        if algorithm != before["algorithm"]:
            raise Mistake(f"--resume continues with the same algorithm, {before['algorithm']}; leave out --algo")
        typed(options)
    if load_user_code:
        typed(before)
    if stop := parse_stop(options["stop"]):
        given["stop"] = stop
        del before["stop"]
    return given["config"], given


def _refuse_fixed(words: tuple[str, ...], options: dict) -> None:
    """Raises a Mistake for what a resumed run cannot change."""
    if names := [word for word in words if not is_assignment(word)]:
        raise Mistake(f"--resume continues with the same algorithm and environment; leave out {' '.join(names)}")
    may_change = ("stop", "checkpoint_freq", "keep_checkpoints_num", "algorithm")
    given = [name for name, value in options.items() if value not in (None, ()) and value is not False]  # 0 is given
    fixed = [name for name in given if name not in may_change]
    if fixed:
        flags = ", ".join(f"--{_FLAG_NAMES.get(name, name)}" for name in fixed)
        raise Mistake(f"--resume continues with what the run was started with; leave out {flags}")


# ---------------------------------------------------------------------- several seeds


def _run_seeds(spec: RunSpec, count: int, folders: Folders, flags: Flags, notice: str) -> None:
    """Trains several seeds, each in its own process."""
    if spec.external:
        raise Mistake("clients play for a single run; leave out --seeds")
    if spec.config.get("seed") is not None:
        raise Mistake(f"--seeds counts from --seed; leave out the setting seed={spec.config['seed']}")
    with user_input():
        config = _config(spec, flags)
        _refuse_unreachable(spec.stop, config)
        config.validate()
    if notice and not flags.quiet:
        click.echo(notice, err=True)
    first = spec.seed or 0
    with shown_logs(QuietDisplay(), flags.verbose, flags.quiet):
        _seed_training().train_seeds(
            spec, range(first, first + count), folders, flags.quiet, flags.profile, flags.keep_best
        )


def _resume_seeds(folder: SeedFolder, folders: Folders, words: tuple[str, ...], options: dict, flags: Flags) -> None:
    """Resumes the seeds of a folder."""
    with user_input():
        _refuse_fixed(words, options)
        before = msgspec.to_builtins(folder.spec())
        changed, given = _changes(words, options, before, flags.load_user_code)
        _refuse_log_dir(changed)
        if "seed" in changed:
            raise Mistake(f"--resume continues with the seeds that are there; leave out seed={changed['seed']}")
        spec = make_spec(before, given, "--resume")
        if changed:
            config = get_algorithm_config(spec.algorithm)
            with suppress(TypeError, ValueError):  # objects of a program, which run.json names only
                config.update_from_dict(before["config"])
            names = config.update_from_dict(changed).places(changed)
            if mistakes := [mistake for mistake in config.mistakes() if not names.keys().isdisjoint(mistake.names)]:
                raise config.error(*mistakes)
    if flags.profile:
        changed["profile"] = True
    with shown_logs(QuietDisplay(), flags.verbose, flags.quiet):
        _seed_training().resume_seeds(
            folder, spec, changed, folders, flags.quiet, flags.keep_best, flags.load_user_code
        )


def _seed_training():
    return importlib.import_module("rllib.cli.seeds.training")  # slow to import, and most runs have one seed


# ---------------------------------------------------------------------- one run


def run_spec(
    spec: RunSpec,
    folders: Folders,
    flags: Flags,
    run: RunDirectory | None = None,
    changed: dict | None = None,
    is_tuned: bool = False,
    notice: str = "",
) -> None:
    """Trains, and prints how the run ended; a signal ends the program.

    Args:
        spec, folders, flags: from the command line.
        run: the earlier run to continue; None starts a new one.
        changed: settings that are typed for the earlier run.
        is_tuned: whether a tuned example has chosen the settings.
        notice: line that comes before the run; "" for none.
    """
    if spec.config.get("profile"):
        flags = replace(flags, profile=True)
    display = QuietDisplay() if flags.quiet else PanelDisplay() if can_redraw() else LineDisplay()
    with shown_logs(display, flags.verbose, flags.quiet):
        if notice:
            logger.info("%s", notice)
        if (spec.keep_checkpoints_num or 1) > 1 and not spec.checkpoint_freq:
            logger.warning(
                "keep_checkpoints_num=%d needs a checkpoint_freq, as in --checkpoint-freq 10: without one the newest "
                "checkpoint alone is kept", spec.keep_checkpoints_num,
            )  # fmt: skip
        algorithm = _build(spec, flags, display) if run is None else _restore(spec, flags, run, changed)
        try:
            run = run or RunDirectory.new(folders.results, spec, folders.storage)
            outcome = _train(algorithm, spec, flags, run, display, advises=not is_tuned)
        finally:
            algorithm.stop()
    _show(outcome)
    if outcome.signal:
        sys.exit(EXIT_SIGNAL + outcome.signal)
    if outcome.run.lacking:
        sys.exit(EXIT_FAILURE)


def _build(spec: RunSpec, flags: Flags, display: QuietDisplay):
    """Builds the algorithm, which starts its workers. A run of clients may wait for the first of them.

    Raises:
        Mistake: for settings that are unknown or do not fit together.
    """
    with user_input(), hint_at_code(spec.config):
        config = _config(spec, flags)
        if spec.external:
            _open_to_clients(config, spec, display)
        _refuse_unreachable(spec.stop, config)
        try:
            return config.build()
        except FileNotFoundError as error:
            if names_data(spec.config) and not getattr(error, "__notes__", None):  # else a user's environment raised it
                raise Mistake(str(error)) from error
            raise


def _refuse_unreachable(stop: Mapping[str, float], config) -> None:
    """Raises a Mistake for a stop criterion that a run on recorded steps never reaches, so that it would not end."""
    of_episodes = [key for key in stop if key.startswith("episode_")]
    if len(of_episodes) == len(stop) > 0 and getattr(config, "is_offline", False):
        raise Mistake(
            f"--stop {of_episodes[0]}={stop[of_episodes[0]]:g} is never reached: a run on recorded steps plays no "
            f"episodes. Use --stop evaluation/{of_episodes[0]}={stop[of_episodes[0]]:g} with evaluation_interval=1, or "
            "--stop iterations=100."
        )


def _config(spec: RunSpec, flags: Flags):
    """The settings of a run."""
    _refuse_log_dir(spec.config)
    config = get_algorithm_config(spec.algorithm)
    if spec.env is not None:
        config.environment(spec.env)
    with hint_at_stop(spec.config):
        config.update_from_dict({**spec.config, "profile": True} if flags.profile else spec.config)
    if spec.seed is not None:
        config.debugging(seed=spec.seed)
    return config


def _open_to_clients(config, spec: RunSpec, display: QuietDisplay) -> None:
    external = importlib.import_module("rllib.cli.external")  # slow to import, and most runs have an environment
    try:
        external.open_to_clients(config, spec.external, config.places(spec.config), display.note)
    except OSError as error:
        place = spec.external["listen"]
        raise Mistake(f"the policy server cannot begin: {error.strerror or error} ({place})") from error


def _restore(spec: RunSpec, flags: Flags, run: RunDirectory, changed: dict):
    """Restores the algorithm from the run's newest checkpoint.

    Args:
        spec, flags, run: of the run that continues.
        changed: settings that are typed; `spec.resumed` has them too, and those that run.json has of the last time.

    Raises:
        Mistake: for settings that are unknown or do not fit together, and for a damaged checkpoint.
    """
    try:
        with user_input():
            changes = spec.resumed.config if spec.resumed else {}
            _refuse_log_dir(changes)
            settings = SettingsOfFile({**changes, "profile": flags.profile, "log_dir": None})
            with hint_at_stop(changes):
                return get_algorithm_class(spec.algorithm).from_checkpoint(
                    run.checkpoint, settings, config=changed, load_user_code=flags.load_user_code
                )
    except BaseException:
        run.log.close()
        raise


def _refuse_log_dir(settings: dict) -> None:
    if settings.get("log_dir"):
        raise Mistake("rllib train makes a directory below --results-dir; leave out log_dir, and give --name")
    if settings.get("output") == LOG_DIR:
        raise Mistake("rllib train makes the run's directory later; give the path of one for output")


@dataclass
class _Outcome:
    """The end of a run.

    Attributes:
        run: its directory and checkpoints.
        flag: option that commands on this run need where environment or algorithm are the user's code, or "".
        result: result of the last iteration; None if there was none.
        reached: the threshold that ended it; None if something else did.
        signal: number of the signal that interrupted it, or None.
        profile: where the time went, and where the timeline is; empty if it was not recorded.
        is_played_here: whether `rllib evaluate` can play in its environment.
    """

    run: RunDirectory
    flag: str
    is_played_here: bool
    result: dict | None = None
    reached: str | None = None
    signal: int | None = None
    profile: str = ""


def _train(algorithm, spec: RunSpec, flags: Flags, run: RunDirectory, display: QuietDisplay, advises: bool) -> _Outcome:
    """Trains until the stop criterion, Ctrl-C or an error; the files are whole in each case.

    With `advises` it logs once what would shorten the updates, if they take most of the time.

    Raises:
        Mistake: if the stop criterion names a key that results do not have.
    """
    # A process has one simulation of Isaac Lab, and `rllib evaluate` would make two: rllib.isaaclab names `play`.
    is_played_here = spec.env is not None and not str(spec.env).startswith("isaaclab:")
    outcome, stop = _Outcome(run, flag_for(spec.env, spec.algorithm), is_played_here), ThresholdStopper(spec.stop)
    title, iteration, is_first = f"{spec.algorithm} on {spec.world}", run.iteration, True
    algorithm.directory = run.path
    algorithm.goal = iteration_goal(spec.stop)
    interrupts = Interrupts(signal.SIGINT, signal.SIGTERM, on_first=lambda: display.note(_FIRST_INTERRUPT))
    for result in read_results(run.path)[-1:]:
        with user_input():
            stop.check_keys(Result(result))
    run.begin(spec, {**algorithm.config.to_dict(), "seed": algorithm.seed}, title)
    for result in read_results(run.path)[-1:]:
        if result["training_iteration"] == run.iteration:  # the rest of an iteration after which the run was killed
            outcome.reached, outcome.result = stop.reached("", result), result
            if flags.keep_best or run.best is not None:
                run.save_if_best(algorithm, run.iteration, result, spec.checkpoint_freq)
    try:
        display.start(title, str(stop), str(run.path))
        with interrupts:
            while outcome.reached is None and interrupts.seen is None:
                result = outcome.result = algorithm.train()
                iteration = result["training_iteration"]
                run.log.on_result(result)
                display.on_result(result, stop.progress(result))
                if advises and not is_first and (advice := _advice(result)):  # the first one warms up
                    advises = False
                    logger.info("%s", advice)
                if is_first:
                    is_first = False
                    with user_input():
                        stop.check_keys(result)
                outcome.reached = stop.reached("", result)
                run.save_if_due(algorithm, iteration, spec.checkpoint_freq)
                if spec.checkpoint_freq and spec.keep_checkpoints_num:
                    run.keep_newest(spec.keep_checkpoints_num)
                if flags.keep_best or run.best is not None:
                    run.save_if_best(algorithm, iteration, result, spec.checkpoint_freq)
            run.log.finish()
            run.save(algorithm, iteration)
            if flags.profile:
                profile, path = algorithm.profile(), run.path / PROFILE
                profile.save(path)
                outcome.profile = f"{as_typed(str(profile))}\nprofile     {path} (open it in ui.perfetto.dev)"
            algorithm.stop()
    except KeyboardInterrupt:  # the second, or one during the start: nothing more is saved
        interrupts.seen = interrupts.seen or signal.SIGINT
    except Exception as error:
        if isinstance(error, NotFiniteError):
            keep_failing_batch(run.path, error)
        if isinstance(error, GpuMemoryError | LearnersLostError) and run.checkpoint is not None:
            error.add_note(f"Resume from there: {run.resume_command}{outcome.flag}")
        if is_of_full_disk(error) and run.checkpoint is not None:
            error.add_note(f"Make room, then resume: {run.resume_command}{outcome.flag}")
        with suppress(OSError):  # the full disk has ended the run
            write_whole(run.path / "error.txt", traceback.format_exc().encode(errors="replace"), is_synced=False)
        raise
    finally:
        display.close()
        run.close()
    outcome.signal = interrupts.seen
    return outcome


def _advice(result: Mapping) -> str | None:
    """A sentence on how updates would take less time; None if they leave most of it to other phases."""
    share, longer = phase_shares(result).get("learn", 0.0), longer_steps(result["config"])
    return f"{share:.0%} of the time goes into updates. {longer}" if longer and share > _MOSTLY_UPDATES else None


def _show(outcome: _Outcome) -> None:
    """Prints how the run ended, where its files are, and the commands that follow."""
    run, result = outcome.run, outcome.result
    for notice in run.log.notices:
        click.echo(notice, err=True)
    if result:
        why = outcome.reached or ("interrupted" if outcome.signal else "ended")
        steps, seconds = result["timesteps_total"], result["time_total_s"]
        click.echo(
            f"{why} after {counted(result['training_iteration'], 'iteration')}, {counted(steps, 'step')}, "
            f"{elapsed(seconds)} ({number(mean_rate(result), 0)} steps/s on average)"
        )
    if result and result.get("longest_running_episode") and not result.get("episodes_total"):
        click.echo("return      none: no episode has ended; rllib check-env says whether the environment ends them")
    if outcome.profile:
        click.echo(outcome.profile)
    click.echo(f"results     {run.path}")
    if run.url:
        click.echo(f"storage     {shown(run.url)}{' (incomplete)' if run.lacking else ''}")
    if (curve := run.path / "curve.png").exists():
        click.echo(f"curve       {curve}")
    if run.checkpoint is None:
        click.echo("checkpoint  none: the run was interrupted before the first")
        return
    click.echo(f"checkpoint  {run.checkpoint}")
    if run.best:
        click.echo(f"best        {run.best}")
    if outcome.is_played_here:
        click.echo(f"evaluate    rllib evaluate {shlex.quote(str(run.best or run.checkpoint))}{outcome.flag}")
    if outcome.signal:
        click.echo(f"resume      {run.resume_command}{outcome.flag}")
