"""`rllib plot`."""

from pathlib import Path

import click

from rllib.cli.failures import Mistake, reported, user_input
from rllib.tune.plots import KINDS, plot, read_runs


@click.command("plot", short_help="Draw runs and experiments.")
@click.argument("directories", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), multiple=True, help="A .html or .png file; may repeat.")
@click.option("--metric", default="episode_reward_mean", show_default=True, help="Result key or a/b path.")
@click.option("--mode", type=click.Choice(["max", "min"]), default="max", show_default=True, help="What is best.")
@click.option("--x", default="timesteps_total", show_default=True, help="Result key of the horizontal axis.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="What to draw.  [default: all]")
def command(directories, out, metric, mode, x, kinds) -> None:
    """Draw the runs in the directories RUN, of `rllib train` or `rllib tune`, into one HTML file or picture.

    \b
    Runs that differ in the seed only become one curve: interquartile mean and 95 % bootstrap interval.
    rllib plot results/PPO_CartPole-v1_*
    rllib plot results/my_experiment -o curves.png --kind curves
    """
    with reported(verbose=False), user_input():
        runs = read_runs(*directories)
        title = ", ".join(directory.resolve().name for directory in directories[:3])
        for path in out or [Path("plot.html")]:
            try:
                written = plot(runs, path, metric, mode, x, kinds or KINDS, title)
            except ImportError as error:
                raise Mistake(str(error)) from None
            click.echo(f"{len(runs)} runs drawn: {written}")
