"""`rllib train`."""

import importlib
import sys
from pathlib import Path

import click

from rllib.algorithms.registry import algorithm_names, get_algorithm_config
from rllib.cli import session
from rllib.cli.display import LineDisplay, QuietDisplay, elapsed
from rllib.cli.failures import EXIT_SIGNAL, Mistake, reported, user_input
from rllib.cli.spec import RunSpec, find_file, is_search, load_spec, make_spec
from rllib.cli.values import merged, parse_assignments, parse_mapping, parse_stop
from rllib.env.registry import register_typed_function


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
@click.option("--name", "--experiment-name", help="Of the run's directory [default: ALGO_ENV_DATE].")
@click.option("--results-dir", "--local-dir", type=click.Path(path_type=Path, file_okay=False), default="results",
              show_default=True, help="Where runs get their directories.")  # fmt: skip
@click.option("--checkpoint-freq", type=click.IntRange(min=0), metavar="N", help="Save every N iterations; the last "
              "state is always saved.")  # fmt: skip
@click.option("--checkpoint-at-end", is_flag=True, hidden=True, help="Ray's; it is always done.")
@click.option("--num-samples", "trials", type=click.IntRange(min=1), metavar="N", help="Runs of a search.")
@click.option("-q", "--quiet", is_flag=True, help="Show where the results are, and nothing else.")
@click.option("-v", "--verbose", is_flag=True, help="Show debug messages, and tracebacks of errors.")
def command(words, file, results_dir, quiet, verbose, checkpoint_at_end, **options) -> None:
    """Train ALGO on ENV, or what a YAML file says. KEY=VALUE are settings (see `rllib config ALGO`); they take
    precedence over the file's. With grid_search or several samples it is a search, as by `rllib tune`.

    \b
    rllib train PPO CartPole-v1 lr=1e-3 num_rollout_workers=2 --stop return=475
    rllib train PPO CartPole-v1 model.fcnet_hiddens=[64,64] --stop steps=1e5
    rllib train -f ppo/cartpole --seed 3
    rllib train --run PPO --env CartPole-v1 --config '{"lr": 0.001}' --stop '{"timesteps_total": 100000}'

    Ctrl-C saves a checkpoint and ends the run with exit code 130.
    """
    with reported(verbose):
        below, given = _keys(words, file, options)
        if is_search(keys := merged(below, given)):
            importlib.import_module("rllib.cli.tune").search(keys, results_dir, quiet)  # a single run does without
            return
        with user_input():
            spec = make_spec(below, given, file or "command line")
        display = _display(quiet)
        with session.shown_logs(display, verbose):
            session.refuse_used_name(results_dir, spec)
            outcome = session.Session(_build(spec), spec, results_dir, display).run()
        _tell(outcome)
    if outcome.signal:
        sys.exit(EXIT_SIGNAL + outcome.signal)


def _keys(words: tuple[str, ...], file: str | None, options: dict) -> tuple[dict, dict]:
    """The file's keys, and those of the command line, which stand over them."""
    names = [word for word in words if "=" not in word]
    if not file and len(names) == 2 and names[0] == "file":  # Ray's spelling
        file, names = names[1], []
    flags = [key for key in ("algorithm", "env") if options[key] is not None]
    with user_input():
        settings = parse_mapping(options.pop("config") or "{}", "--config")
        words = [word for word in words if "=" in word]
        settings = merged(settings, parse_assignments(words, "lr=1e-3 or model.fcnet_hiddens=[64,64]"))
        given = {key: value for key, value in options.items() if value is not None}
        given.update(config=settings, stop=parse_stop(options["stop"]))
        if names and not flags and len(names) == 2:
            given.update(algorithm=names[0], env=names[1])
        elif names or not (file or {*flags, *settings} >= {"algorithm", "env"}):
            raise Mistake("say what to train: rllib train ALGO ENV [key=value ...], or rllib train -f FILE.yaml")
        if typed := given.get("env"):
            register_typed_function(typed)
        return load_spec(find_file(file)) if file else {}, given


def _display(quiet: bool) -> QuietDisplay:
    if quiet:
        return QuietDisplay()
    if not sys.stdout.isatty():
        return LineDisplay()
    from rllib.cli.panel import PanelDisplay  # needs rich, which lines do without

    return PanelDisplay()


def _build(spec: RunSpec):
    """The algorithm, its workers started.

    Raises:
        Mistake: for settings that are unknown or do not fit together.
    """
    with user_input():
        config = get_algorithm_config(spec.algorithm).environment(spec.env).update_from_dict(spec.config)
        if spec.seed is not None:
            config.debugging(seed=spec.seed)
        return config.build()


def _tell(outcome: session.Outcome) -> None:
    """Where everything is, and what to do next."""
    for notice in outcome.notices:
        click.echo(notice, err=True)
    if result := outcome.result:
        why = outcome.reached or ("interrupted" if outcome.signal else "ended")
        rate = result["timesteps_total"] / max(result["time_total_s"], 1e-9)
        click.echo(
            f"{why} after {result['training_iteration']} iterations, {result['timesteps_total']:,} steps, "
            f"{elapsed(result['time_total_s'])} ({rate:,.0f} steps/s)"
        )
    click.echo(f"results     {outcome.directory}")
    if (curve := outcome.directory / "curve.png").exists():
        click.echo(f"curve       {curve}")
    click.echo(f"checkpoint  {outcome.checkpoint}")
    click.echo(f"evaluate    rllib evaluate {outcome.checkpoint}")
