"""`rllib play` and `rllib record`: episodes of a trained policy in a window, or in a video file."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import click
import gymnasium

from rllib.algorithms.base.videos import drawn_environment, fps_of, play_episode
from rllib.cli.checkpoints import acting_algorithm, latest
from rllib.cli.failures import Mistake, reported, user_input, writing
from rllib.cli.user_code import load_user_code_option
from rllib.video import VideoFile, draw_without_display, has_display


def _options(command: Callable) -> Callable:
    """Adds the options that both commands have."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors."),
        load_user_code_option("CHECKPOINT"),
        click.option("--fps", type=click.FloatRange(min=0.1), help="Frames a second [default: the environment's]."),
        click.option("--explore", is_flag=True, help="Sample actions, instead of taking the most likely ones."),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the environment."),
    ):
        command = option(command)
    return command


@click.command("play", short_help="Watch a trained policy.")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--episodes", type=click.IntRange(min=1), default=3, show_default=True, help="How many to play.")
@_options
def command(checkpoint, episodes, seed, explore, fps, load_user_code, verbose) -> None:
    """Play episodes with the policy of CHECKPOINT, or of the last checkpoint of a run's directory, in a window. Where
    there is no display, a video is written beside the checkpoint.
    """
    with reported(verbose):
        checkpoint, output = latest(checkpoint), None
        if not has_display():
            output = _video_of(checkpoint)
            click.echo(f"There is no display, so a video is written: {output}", err=True)
        _show(checkpoint, output, episodes, seed, explore, fps, load_user_code)


@click.command("record", short_help="Write a video of a trained policy.")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path),
              help="File, .mp4, .webm or .gif [default: CHECKPOINT.mp4].")  # fmt: skip
@click.option("--episodes", type=click.IntRange(min=1), default=1, show_default=True, help="How many to play.")
@_options
def record(checkpoint, output, episodes, seed, explore, fps, load_user_code, verbose) -> None:
    """Write a video of episodes that the policy of CHECKPOINT plays, or that of the last checkpoint of a run's
    directory.
    """
    with reported(verbose):
        checkpoint = latest(checkpoint)
        _show(checkpoint, output or _video_of(checkpoint), episodes, seed, explore, fps, load_user_code)


def _video_of(checkpoint: Path) -> Path:
    """Default path of a checkpoint's video: beside the checkpoint."""
    checkpoint = checkpoint.absolute()
    return checkpoint.with_name(f"{checkpoint.name}.mp4")


def _show(
    checkpoint: Path,
    output: Path | None,
    episodes: int,
    seed: int,
    explore: bool,
    fps: float | None,
    load_user_code: bool,
) -> None:
    """Plays whole episodes and prints the return of each.

    Args:
        checkpoint: of the policy.
        output: file of the video; None shows a window.
        episodes: how many.
        seed: of the first episode's reset.
        explore: sample the actions.
        fps: frames a second; None takes the environment's `render_fps`.
        load_user_code: as for Algorithm.from_checkpoint.

    Raises:
        Mistake: if the environment cannot be drawn in this way, or videos cannot be written here.
    """
    draw_without_display()
    with user_input():
        algorithm = acting_algorithm(checkpoint, load_user_code)
    with algorithm, contextlib.ExitStack() as stack:
        mode = "human" if output is None else "rgb_array"
        with user_input():
            env = stack.enter_context(contextlib.closing(drawn_environment(algorithm.config, mode)))
        fps = fps or fps_of(env)
        if output is None:
            draw = _Window(env, fps)
        else:
            try:
                with user_input():
                    video = stack.enter_context(VideoFile(output, fps))
            except ImportError as error:
                raise Mistake(str(error)) from error
            draw = lambda: video.add(env.render())  # noqa: E731
            stack.enter_context(writing(output))
        for number in range(episodes):
            try:
                total, length = play_episode(algorithm, env, seed if number == 0 else None, explore, draw)
            except gymnasium.error.DependencyNotInstalled as error:  # pygame, as a rule
                raise Mistake(f"{algorithm.config.env} cannot be drawn: {error}") from error
            click.echo(f"episode {number + 1}  return {total:g}  length {length}")
    if output is not None:
        click.echo(f"video  {output}")


class _Window:
    """Draws an environment's window, at a steady rate if the environment sets none."""

    def __init__(self, env, fps: float):
        self._env, self._interval_s, self._next = env, 1 / fps, time.monotonic()

    def __call__(self) -> None:
        self._env.render()
        self._next = max(self._next + self._interval_s, time.monotonic() - self._interval_s)
        time.sleep(max(0.0, self._next - time.monotonic()))
