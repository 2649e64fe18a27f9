"""`rllib train`."""

import sys
from pathlib import Path

import click

from rllib.algorithms.registry import algorithm_names, get_algorithm_config
from rllib.cli import session
from rllib.cli.display import LineDisplay, QuietDisplay, elapsed
from rllib.cli.failures import EXIT_SIGNAL, Mistake, reported, user_input
from rllib.cli.spec import RunSpec, find_file, load_spec, make_spec
from rllib.cli.values import parse_assignments
from rllib.env.registry import register_typed_function

# What people write -> result key.
_SHORT_STOP_KEYS = {
    "return": "episode_reward_mean",
    "reward": "episode_reward_mean",
    "steps": "timesteps_total",
    "iterations": "training_iteration",
    "time": "time_total_s",
}


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
@click.option("--stop", multiple=True, metavar="KEY=VALUE", help="Stop when a result reaches this; repeatable. Short "
              "names: return, steps, iterations, time (seconds).")  # fmt: skip
@click.option("--seed", type=int, help="Of everything random; equal seeds give equal runs.")
@click.option("--name", help="Of the run's directory [default: ALGO_ENV_DATE].")
@click.option("--results-dir", type=click.Path(path_type=Path, file_okay=False), default="results", show_default=True,
              help="Where runs get their directories.")  # fmt: skip
@click.option("--checkpoint-freq", type=click.IntRange(min=0), metavar="N", help="Save every N iterations; the last "
              "state is always saved.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Show where the results are, and nothing else.")
@click.option("-v", "--verbose", is_flag=True, help="Show debug messages, and tracebacks of errors.")
def command(words, file, results_dir, quiet, verbose, **options) -> None:
    """Train ALGO on ENV, or what a YAML file says. KEY=VALUE are settings (see `rllib config ALGO`); they take
    precedence over the file's.

    \b
    rllib train PPO CartPole-v1 lr=1e-3 num_rollout_workers=2 --stop return=475
    rllib train PPO CartPole-v1 model.fcnet_hiddens=[64,64] --stop steps=1e5
    rllib train -f ppo/cartpole --seed 3

    Ctrl-C saves a checkpoint and ends the run with exit code 130.
    """
    with reported(verbose):
        spec = _spec(words, file, options)
        display = _display(quiet)
        with session.shown_logs(display, verbose):
            session.refuse_used_name(results_dir, spec)
            outcome = session.Session(_build(spec), spec, results_dir, display).run()
        _tell(outcome)
    if outcome.signal:
        sys.exit(EXIT_SIGNAL + outcome.signal)


def _spec(words: tuple[str, ...], file: str | None, options: dict) -> RunSpec:
    """The file's keys, with those of the command line over them."""
    names = [word for word in words if "=" not in word]
    if len(names) not in (0, 2) or not (names or file):
        raise Mistake("say what to train: rllib train ALGO ENV [key=value ...], or rllib train -f FILE.yaml")
    with user_input():
        settings = parse_assignments([word for word in words if "=" in word], "lr=1e-3 or model.fcnet_hiddens=[64,64]")
        stop = parse_assignments(options.pop("stop"), "--stop episode_reward_mean=475")
        given = {key: value for key, value in options.items() if value is not None}
        if names:
            register_typed_function(names[1])
            given.update(algorithm=names[0], env=names[1])
        given.update(config=settings, stop={_SHORT_STOP_KEYS.get(key, key): value for key, value in stop.items()})
        below = load_spec(find_file(file)) if file else {}
        return make_spec(below, given, file or "command line")


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
