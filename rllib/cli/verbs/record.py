"""`rllib record`."""

from pathlib import Path

import click

from rllib.cli.checkpoints import latest
from rllib.cli.failures import reported
from rllib.cli.verbs.play import options, show, video_of


@click.command("record", short_help="Write a video of a trained policy.")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path),
              help="File, .mp4, .webm or .gif [default: CHECKPOINT.mp4].")  # fmt: skip
@click.option("--episodes", type=click.IntRange(min=1), default=1, show_default=True, help="How many to play.")
@options
def command(checkpoint, output, episodes, seed, explore, fps, load_user_code, verbose) -> None:
    """Write a video of episodes that the policy of CHECKPOINT plays, or that of the last checkpoint of a run's
    directory.
    """
    with reported(verbose):
        checkpoint = latest(checkpoint)
        show(checkpoint, output or video_of(checkpoint), episodes, seed, explore, fps, load_user_code)
