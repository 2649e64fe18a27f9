"""`rllib report`."""

from pathlib import Path

import click

from rllib.cli.failures import reported, user_input, writing
from rllib.cli.values import LocalPath, Number
from rllib.reports.page import MOST_VIDEO_MB, write_report
from rllib.runs.drawing import STEPS


@click.command("report", short_help="Write runs into one page to send.")
@click.argument("directories", metavar="RUN...", nargs=-1, required=True, type=LocalPath())
@click.option("-o", "--out", type=LocalPath(), default="report.html", show_default=True, help="The .html file.")
@click.option("--metric", help="Result key or a/b path  [default: the experiment's own, else episode_reward_mean].")
@click.option("--mode", type=click.Choice(["max", "min"]), help="Whether more or less of it is better  [default: as "
              "the experiment, else max].")  # fmt: skip
@click.option("--x", default=STEPS, show_default=True, help="Result key of the horizontal axis.")
@click.option("--title", default="", help="Title of the page  [default: the names of the directories].")
@click.option("--video-mb", type=Number(min=0), default=MOST_VIDEO_MB, show_default=True, help="Largest size of all "
              "videos in the page; larger ones are named only.")  # fmt: skip
def command(directories, out, metric, mode, x, title, video_mb) -> None:
    """Write a report of runs into one HTML file, to send to a colleague: it opens without a network. A RUN is the
    directory of a run, of several seeds, or of an experiment.

    \b
    rllib report results/ppo
    rllib report results/ppo results/a2c -o ppo_and_a2c.html

    It has the curves, what `rllib compare` shows, newest evaluations, the videos that `rllib record` has put into the
    runs' directories, commands, machines, versions, git commit, checkpoints and all settings.
    """
    with reported(verbose=False), user_input(), writing(Path(out)):
        written = write_report(
            *directories, path=out, metric=metric, mode=mode, x=x, title=title, most_video_mb=video_mb
        )
        click.echo(f"report: {written}")
