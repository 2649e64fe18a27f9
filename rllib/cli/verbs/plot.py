"""`rllib plot`."""

from pathlib import Path

import click

from rllib.cli.failures import Mistake, reported, user_input, writing
from rllib.cli.values import LocalPath, Number
from rllib.runs.drawing import WIDTH
from rllib.runs.naming import names_apart
from rllib.tune.reporting.plots import KINDS, plot
from rllib.tune.reporting.runs import read_objective, read_runs


@click.command("plot", short_help="Draw runs and experiments.")
@click.argument("directories", metavar="RUN...", nargs=-1, required=True, type=LocalPath())
@click.option("-o", "--out", type=LocalPath(), multiple=True, help="A .html, .png, .svg or .pdf file; may "
              "repeat.")  # fmt: skip
@click.option("--metric", multiple=True, help="Result key or a/b path  [default: the experiment's own, else "
              "episode_reward_mean]; repeat it for a Pareto front.")  # fmt: skip
@click.option("--mode", type=click.Choice(["max", "min"]), multiple=True, help="Best value  [default: as the "
              "experiment, else max].")  # fmt: skip
@click.option("--x", default="timesteps_total", show_default=True, help="Result key of the horizontal axis.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="What to draw  [default: what applies].")
@click.option("--goal", type=Number(), help="A line at this value  [default: the goal at which the runs were to stop].")
@click.option("--width", type=Number(2, 40), default=WIDTH, show_default=True, help="Inches.")
def command(directories, out, metric, mode, x, kinds, goal, width) -> None:
    """Draw the runs in the directories RUN, of `rllib train` or `rllib tune`, into one HTML file or picture.

    \b
    Runs that differ in the seed only become one curve: interquartile mean and 95 % bootstrap interval. Of a single run
    the metric is drawn as a moving mean, its episodes from the 10 % to the 90 % quantile, its goal, and what else it
    reported (details); of the trials of a search also parallel coordinates and the best so far, or the Pareto front of
    several metrics.
    rllib plot results/PPO_CartPole-v1_*
    rllib plot results/my_experiment -o curves.svg --kind curves --width 4
    """
    with reported(verbose=False), user_input():
        runs = read_runs(*directories)
        metric, mode = _one_or_list(metric), _one_or_list(mode)
        if metric is None:
            metric, own_mode = read_objective(*directories)
            mode = mode or own_mode
        title = ", ".join(names_apart([directory.resolve() for directory in directories])[:3])
        if len(directories) > 3:
            title += f" and {len(directories) - 3} more"
        for path in out or [Path("plot.html")]:
            try:
                with writing(path):
                    written = plot(
                        runs, path, metric or "episode_reward_mean", mode or "max", x, kinds, title, goal, width
                    )
            except ImportError as error:
                raise Mistake(str(error)) from None
            click.echo(f"{len(runs)} run{'s' if len(runs) > 1 else ''} drawn: {written}")


def _one_or_list(given: tuple[str, ...]):
    """The values of an option that may repeat: None, one value, or a list."""
    return list(given) if len(given) > 1 else given[0] if given else None
