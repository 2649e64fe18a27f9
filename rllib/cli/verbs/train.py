"""`rllib train`."""

import contextlib
import importlib
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click
import msgspec

from rllib.algorithms.base.registry import algorithm_names, get_algorithm_class, get_algorithm_config
from rllib.cli.display import LineDisplay, PanelDisplay, QuietDisplay, shown_logs
from rllib.cli.failures import EXIT_SIGNAL, Mistake, reported, user_input
from rllib.cli.run_directory import RunDirectory, refuse_used_name
from rllib.cli.spec import RunSpec, find_file, is_search, load_specs, make_spec, merged_keys, refuse_one_name
from rllib.cli.user_code import flag_for, load_user_code_option, typed
from rllib.cli.values import parse_assignments, parse_mapping, parse_stop
from rllib.errors import GpuMemoryError, LearnersLostError, NotFiniteError
from rllib.progress import counted, elapsed, mean_rate, number
from rllib.result import Result
from rllib.runs.files import keep_failing_batch, read_results
from rllib.tune.experiment.stoppers import ThresholdStopper
from rllib.tune.running.runner import Interrupts

_FIRST_INTERRUPT = "Finishing this iteration, then saving a checkpoint. Once more: stop at once, without."


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: algorithms first, then the settings of the one that was named."""
    words = ctx.params.get("words") or ()
    if not words:
        return [name for name in algorithm_names() if name.lower().startswith(incomplete.lower())]
    names = [f"{row.name}=" for row in get_algorithm_config(words[0]).describe()] if len(words) > 1 else []
    return [name for name in names if name.startswith(incomplete)]


@click.command("train", short_help="Train an algorithm on an environment.")
@click.argument("words", nargs=-1, metavar="[ALGO ENV] [KEY=VALUE]...", shell_complete=_complete)
@click.option("-f", "--file", metavar="FILE", help="YAML file, or name of a tuned example, like ppo/cartpole.")
@click.option("--algo", "--run", "algorithm", metavar="ALGO", help="As ALGO, in Ray's spelling.")
@click.option("--env", metavar="ENV", help="As ENV, in Ray's spelling.")
@click.option("--config", metavar="MAPPING", help="Settings as JSON or YAML; KEY=VALUE takes precedence.")
@click.option("--stop", multiple=True, metavar="KEY=VALUE", help="Stop when a result reaches this; repeatable. Short "
              "names: return, steps, iterations, time (seconds).")  # fmt: skip
@click.option("--seed", type=int, help="Of everything random; equal seeds give equal runs.")
@click.option("--resume", metavar="RUN", type=click.Path(path_type=Path), help="Go on with the run of this "
              "directory, from its newest checkpoint; KEY=VALUE, --stop and --checkpoint-freq may change.")  # fmt: skip
@click.option("--name", "--experiment-name", help="Of the run's directory [default: ALGO_ENV_DATE].")
@click.option("--results-dir", "--local-dir", type=click.Path(path_type=Path, file_okay=False), default="results",
              show_default=True, help="Where runs get their directories.")  # fmt: skip
@click.option("--checkpoint-freq", type=click.IntRange(min=0), metavar="N", help="Save every N iterations [default: "
              "after the first, then ever more rarely, every five minutes at last, and only the newest is kept]; the "
              "last state is always saved.")  # fmt: skip
@click.option("--keep-best", is_flag=True, help="Save whenever the return (of the evaluation, where there is one) is "
              "the best so far, and keep that checkpoint beside the newest.")  # fmt: skip
@click.option("--checkpoint-at-end", is_flag=True, hidden=True, help="Ray's; it is always done.")
@click.option("--num-samples", "trials", type=click.IntRange(min=1), metavar="N", help="Runs of a search.")
@click.option("--profile", is_flag=True, help="Record what every process does when: profile.json, a Chrome trace, "
              "and what limits the run.")  # fmt: skip
@load_user_code_option("RUN or FILE")
@click.option("-q", "--quiet", is_flag=True, help="Show where the results are, and nothing else.")
@click.option("-v", "--verbose", is_flag=True, help="Show debug messages, and tracebacks of errors.")
def command(
    words, file, resume, results_dir, quiet, verbose, profile, keep_best, load_user_code, checkpoint_at_end, **options
) -> None:
    """Train ALGO on ENV, or what a YAML file says. KEY=VALUE are settings (see `rllib config ALGO`); they take
    precedence over the file's. With grid_search or several samples it is a search, as by `rllib tune`.

    \b
    rllib train PPO CartPole-v1 lr=1e-3 num_rollout_workers=2 --stop return=475
    rllib train PPO CartPole-v1 model.fcnet_hiddens=[64,64] --stop steps=1e5
    rllib train -f ppo/cartpole --seed 3
    rllib train --resume results/PPO_CartPole-v1_... --stop steps=2e5
    rllib train --run PPO --env CartPole-v1 --config '{"lr": 0.001}' --stop '{"timesteps_total": 100000}'

    Ctrl-C saves a checkpoint and ends the run with exit code 130; --resume goes on with it.
    """
    how = {"quiet": quiet, "verbose": verbose, "profile": profile, "keep_best": keep_best}
    how["load_user_code"] = load_user_code
    with reported(verbose):
        if resume is not None:
            with user_input():
                run, spec, changed = _take_up(resume, words, {"file": file, **options}, load_user_code)
            _run(spec, results_dir, run, changed, **how)
            return
        todo = []  # all are checked before the first one runs
        for below, given in _keys(words, file, options, load_user_code):
            with user_input():
                keys = merged_keys(below, given)
            if is_search(keys):
                if profile:
                    raise Mistake("--profile is for a single run; leave out grid_search and --num-samples")
                search = importlib.import_module("rllib.cli.verbs.tune").search  # a single run does without
                todo.append(partial(search, keys, results_dir, quiet))
                continue
            with user_input():
                spec = make_spec(below, given, file or "command line")
            refuse_used_name(results_dir, spec)
            todo.append(partial(_run, spec, results_dir, **how))
        for experiment in todo:
            experiment()


def _run(
    spec: RunSpec, results_dir: Path, run: RunDirectory | None = None, changed: dict | None = None, *,
    quiet: bool, verbose: bool, profile: bool, keep_best: bool, load_user_code: bool,
) -> None:  # fmt: skip
    """Trains, and says how it went; a signal ends the program.

    Args:
        run: an earlier run to go on with, and `changed`, the settings that it is to have from now on.
    """
    profile = profile or bool(spec.config.get("profile"))
    display = _display(quiet)
    with shown_logs(display, verbose, quiet):
        algorithm = _build(spec, profile) if run is None else _restore(spec, run, changed, profile, load_user_code)
        try:
            run = run or RunDirectory.new(results_dir, spec)
            outcome = _train(algorithm, spec, run, display, profile, keep_best or run.best is not None)
        finally:
            algorithm.stop()
    _tell(outcome)
    if outcome.signal:
        sys.exit(EXIT_SIGNAL + outcome.signal)


def _keys(words: tuple[str, ...], file: str | None, options: dict, load_user_code: bool) -> list[tuple[dict, dict]]:
    """For each experiment: its keys in the file, and those of the command line, which stand over them."""
    names = [word for word in words if "=" not in word]
    if not file and len(names) == 2 and names[0] == "file":  # Ray's spelling
        file, names = names[1], []
    flags = [key for key in ("algorithm", "env") if options[key] is not None]
    with user_input():
        settings = parse_mapping(options.pop("config") or "{}", "--config")
        words = [word for word in words if "=" in word]
        words_given = parse_assignments(words, "lr=1e-3 or model.fcnet_hiddens=[64,64]")
        given = {key: value for key, value in options.items() if value is not None}
        given["stop"] = parse_stop(options["stop"])
        if names and not flags and len(names) == 2:
            given.update(algorithm=names[0], env=names[1])
        elif names or not (file or {*flags, *settings, *words_given} >= {"algorithm", "env"}):
            raise Mistake("say what to train: rllib train ALGO ENV [key=value ...], or rllib train -f FILE.yaml")
        experiments = load_specs(find_file(file)) if file else [{}]
        refuse_one_name(experiments, given)
        trusted = [keys for below in experiments for keys in (below, below.get("config"))] if load_user_code else ()
        typed(given, settings, words_given, *trusted)
        return [(below, _over(below, given, settings, words_given)) for below in experiments]


def _over(below: dict, given: dict, settings: dict, words_given: dict) -> dict:
    """What was typed, where KEY=VALUE stands over what --config says."""
    options = {"config": settings, "algorithm": given.get("algorithm") or below.get("algorithm")}
    return {**given, "config": merged_keys(options, {"config": words_given})["config"]}


def _display(quiet: bool) -> QuietDisplay:
    if quiet:
        return QuietDisplay()
    return PanelDisplay() if sys.stdout.isatty() else LineDisplay()


def _build(spec: RunSpec, profile: bool):
    """The algorithm, its workers started.

    Raises:
        Mistake: for settings that are unknown or do not fit together.
    """
    with user_input():
        _refuse_log_dir(spec.config)
        config = get_algorithm_config(spec.algorithm).environment(spec.env)
        config.update_from_dict({**spec.config, "profile": True} if profile else spec.config)
        if spec.seed is not None:
            config.debugging(seed=spec.seed)
        return config.build()


def _refuse_log_dir(settings: dict) -> None:
    if settings.get("log_dir"):
        raise Mistake("rllib train makes a directory below --results-dir; leave out log_dir, and give --name")


def _take_up(
    path: Path, words: tuple[str, ...], options: dict, load_user_code: bool
) -> tuple[RunDirectory, RunSpec, dict]:
    """An earlier run: its directory, the arguments of this call, and the settings that change.

    Raises:
        Mistake: if there is none, or something is given that cannot change.
    """
    if names := [word for word in words if "=" not in word]:
        raise Mistake(f"--resume goes on with the same algorithm and environment; leave out {' '.join(names)}")
    fixed = [name for name, value in options.items() if value and name not in ("stop", "checkpoint_freq", "algorithm")]
    if fixed:
        flags = ", ".join(f"--{'num-samples' if name == 'trials' else name}" for name in fixed)
        raise Mistake(f"--resume goes on with what the run was begun with; leave out {flags}")
    given = {"config": parse_assignments(words, "num_rollout_workers=4")}
    if stop := parse_stop(options["stop"]):
        given["stop"] = stop
    if options["checkpoint_freq"] is not None:
        given["checkpoint_freq"] = options["checkpoint_freq"]
    run = RunDirectory.taken_up(path)
    before = msgspec.to_builtins(run.read_spec())
    if algorithm := options["algorithm"]:
        if algorithm != before["algorithm"]:
            raise Mistake(f"--resume goes on with the same algorithm, {before['algorithm']}; leave out --algo")
        typed(options)
    if load_user_code:
        typed(before)
    if stop:
        del before["stop"]
    return run, make_spec(before, given, "--resume"), given["config"]


def _restore(spec: RunSpec, run: RunDirectory, changed: dict, profile: bool, load_user_code: bool):
    """The algorithm as it was at the run's newest checkpoint.

    Raises:
        Mistake: for settings that are unknown or do not fit together, and for a damaged checkpoint.
    """
    with user_input(), contextlib.ExitStack() as unless_restored:
        unless_restored.callback(run.log.close)
        _refuse_log_dir(changed)
        algorithm = get_algorithm_class(spec.algorithm).from_checkpoint(
            run.checkpoint, {**changed, "profile": profile}, load_user_code=load_user_code
        )
        unless_restored.pop_all()
        return algorithm


@dataclass
class Outcome:
    """How a run ended.

    Attributes:
        directory: where its files are.
        checkpoint: the last one; None if there is none.
        best: the one with the best return, if it is kept.
        result: of the last iteration; None if there was none.
        reached: the threshold that ended it; None if something else did.
        signal: number of the one that interrupted it; None if none did.
        notices: what could not be written.
        profile: where the time went, and where the timeline is; empty: it was not recorded.
        flag: what the commands that go on from here need, since environment or algorithm are code of the user's.
    """

    directory: Path
    checkpoint: Path | None = None
    best: Path | None = None
    result: dict | None = None
    reached: str | None = None
    signal: int | None = None
    notices: list[str] = field(default_factory=list)
    profile: str = ""
    flag: str = ""


def _train(
    algorithm, spec: RunSpec, run: RunDirectory, display: QuietDisplay, profiles: bool, keep_best: bool
) -> Outcome:
    """Trains until the stop criterion, Ctrl-C or an error; the files are whole in each case.

    Raises:
        Mistake: if the results have no such key as the stop criterion names.
    """
    directory, iteration, log = run.path, run.iteration, run.log
    outcome, stop = Outcome(directory, flag=flag_for(spec.env, spec.algorithm)), ThresholdStopper(spec.stop)
    title, is_first = f"{spec.algorithm} on {spec.env}", True
    algorithm.directory = directory
    interrupts = Interrupts(signal.SIGINT, signal.SIGTERM, on_first=lambda: display.note(_FIRST_INTERRUPT))
    for result in read_results(directory)[-1:]:
        with user_input():
            stop.check_keys(Result(result))
    run.begin(spec, {**algorithm.config.to_dict(), "seed": algorithm.seed}, title)
    try:
        display.start(title, str(stop), str(directory))
        with interrupts:
            while outcome.reached is None and interrupts.seen is None:
                result = outcome.result = algorithm.train()
                iteration = result["training_iteration"]
                log.on_result(result)
                display.on_result(result, stop.progress(result))
                if is_first:
                    is_first = False
                    with user_input():
                        stop.check_keys(result)
                outcome.reached = stop.reached("", result)
                run.save_if_due(algorithm, iteration, spec.checkpoint_freq)
                if keep_best:
                    run.save_if_best(algorithm, iteration, result, spec.checkpoint_freq)
            log.finish()
            run.save(algorithm, iteration)
            if profiles:
                profile = algorithm.profile()
                profile.save(directory / "profile.json")
                outcome.profile = f"{profile}\nprofile     {directory / 'profile.json'} (open it in ui.perfetto.dev)"
            algorithm.stop()
    except KeyboardInterrupt:  # the second, or one while this begins: what has been saved is what there is
        interrupts.seen = interrupts.seen or signal.SIGINT
    except Exception as error:
        if isinstance(error, NotFiniteError):
            keep_failing_batch(directory, error)
        if isinstance(error, GpuMemoryError | LearnersLostError) and run.checkpoint is not None:
            error.add_note(f"Go on from there: rllib train --resume {directory}{outcome.flag}")
        with suppress(OSError):  # the disk is full, which is what has ended the run
            (directory / "error.txt").write_text(traceback.format_exc())
        raise
    finally:
        display.close()
        log.close()
    outcome.signal, outcome.notices, outcome.checkpoint = interrupts.seen, log.notices, run.checkpoint
    outcome.best = run.best
    return outcome


def _tell(outcome: Outcome) -> None:
    """Where everything is, and what to do next."""
    for notice in outcome.notices:
        click.echo(notice, err=True)
    if result := outcome.result:
        why = outcome.reached or ("interrupted" if outcome.signal else "ended")
        steps, seconds = result["timesteps_total"], result["time_total_s"]
        click.echo(
            f"{why} after {counted(result['training_iteration'], 'iteration')}, {counted(steps, 'step')}, "
            f"{elapsed(seconds)} ({number(mean_rate(steps, seconds), 0)} steps/s on average)"
        )
    if outcome.profile:
        click.echo(outcome.profile)
    click.echo(f"results     {outcome.directory}")
    if (curve := outcome.directory / "curve.png").exists():
        click.echo(f"curve       {curve}")
    if outcome.checkpoint is None:
        click.echo("checkpoint  none: the run was interrupted before the first")
        return
    click.echo(f"checkpoint  {outcome.checkpoint}")
    if outcome.best:
        click.echo(f"best        {outcome.best}")
    click.echo(f"evaluate    rllib evaluate {outcome.best or outcome.checkpoint}{outcome.flag}")
    if outcome.signal:
        click.echo(f"go on       rllib train --resume {outcome.directory}{outcome.flag}")
