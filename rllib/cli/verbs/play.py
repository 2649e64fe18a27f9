"""`rllib play`: episodes of a trained policy in a window, or in a video file as for `rllib record`."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import click
import gymnasium

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.videos import (
    drawn_environment,
    key_in_infos,
    play_episode,
    render_modes,
    undrawn_environment,
)
from rllib.cli.agent_slots import SlotAlgorithms, SlotOptions, slot_options
from rllib.cli.checkpoints import PLACE, acting_algorithm, latest, next_to
from rllib.cli.failures import Mistake, reported, user_input, writing
from rllib.cli.human import Human
from rllib.cli.played_in import environment_option, refuse_no_environment, settings_of_environment
from rllib.cli.policy_table import policy_table
from rllib.cli.user_code import load_user_code_option
from rllib.cli.values import SEED, Number
from rllib.env.episodes import Episode
from rllib.runs.video import VideoFile, draw_without_display, fps_of, has_display
from rllib.storage.local_path import local_path


def acting_options(command: Callable) -> Callable:
    """Adds the options that `rllib play` and `rllib record` have."""
    for option in (
        environment_option,
        click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors."),
        load_user_code_option("CHECKPOINT"),
        click.option("--fps", type=Number(min=0.1), help="Frames a second [default: the environment's]."),
        click.option("--explore/--no-explore", help="Sample actions, instead of taking the most likely ones."),
        click.option("--seed", type=SEED, default=0, show_default=True, help="Of the environment."),
        slot_options,
    ):
        command = option(command)
    return command


@click.command("play", short_help="Watch a trained policy.")
@click.argument("checkpoint", type=PLACE)
@click.option("--episodes", type=click.IntRange(min=1), default=3, show_default=True, help="How many to play.")
@click.option("--human", "humans", multiple=True, metavar="AGENT",
              help="With several agents: you play AGENT, by numbers that you type.")  # fmt: skip
@acting_options
def command(checkpoint, humans, policies, against, verbose, **how) -> None:
    """Play episodes with the policy of CHECKPOINT, or of the last checkpoint of a run's directory, in a window. Where
    there is no display, a video is written next to the checkpoint.

    What an environment draws as text is printed. Where several agents act, the returns of all players are shown at the
    end.
    """
    with reported(verbose):
        show(latest(checkpoint), None, SlotOptions(policies, against, humans), **how)


def video_of(checkpoint: Path) -> Path:
    """Default path of a checkpoint's video: next to the checkpoint."""
    return next_to(checkpoint, f"{local_path(checkpoint).name}.mp4")


def show(
    checkpoint: Path,
    output: Path | None,
    slots: SlotOptions,
    *,
    episodes: int,
    seed: int,
    explore: bool,
    fps: float | None,
    load_user_code: bool,
    env: str | None = None,
) -> None:
    """Plays whole episodes and prints the return of each.

    Args:
        checkpoint: of the policy.
        output: file of the video; None shows a window or text, or a video where neither can be.
        slots: who plays which agents.
        episodes: how many.
        seed: seed of the first episode's reset.
        explore: sample the actions.
        fps: frames a second; None takes the environment's `render_fps`.
        load_user_code: as for Algorithm.from_checkpoint.
        env: name of the environment to play in; None: that of the training run.

    Raises:
        Mistake: if the environment cannot be drawn in this way, or videos cannot be written here.
    """
    draw_without_display()
    with user_input():
        algorithm = acting_algorithm(checkpoint, load_user_code, **settings_of_environment(env))
        refuse_no_environment(algorithm)
    with algorithm, contextlib.ExitStack() as stack:
        if slots and algorithm.agents is None:
            raise Mistake("--human, --policy and --against are for several agents, and this run's environment has one")
        modes = ("rgb_array",) if output is not None else _modes(algorithm, slots)
        with user_input():
            config = algorithm.config
            made = drawn_environment(config, *modes) if modes else undrawn_environment(config)
            env = stack.enter_context(contextlib.closing(made))
        mode = env.render_mode if modes else None
        if mode == "rgb_array" and output is None:
            output = video_of(checkpoint)
            why = "It draws no window" if has_display() else "There is no display"
            click.echo(f"{why}, so a video is written: {output}", err=True)
        draw = _drawing(env, mode, output, fps, stack)
        try:
            if algorithm.agents is None:
                for number in range(episodes):
                    total, length = play_episode(algorithm, env, seed if number == 0 else None, explore, draw)
                    click.echo(f"episode {number + 1}  return {total:g}  length {length}")
            else:
                seated = _Agents(algorithm, env, seed, mode is None, stack)
                seated.play(slots, episodes, draw, explore=explore, load_user_code=load_user_code)
        except NotImplementedError as error:  # gymnasium.Env.render
            if mode is None:
                raise
            raise Mistake(
                f"{algorithm.config.env} cannot be drawn: its class has no render(). It needs metadata = "
                '{"render_modes": ["rgb_array"]}, a parameter or a key of its config render_mode, and a render() that '
                "returns an image, uint8 [height, width, 3]. Returns without a video: rllib evaluate"
            ) from error
        except gymnasium.error.DependencyNotInstalled as error:  # pygame, as a rule
            raise Mistake(f"{algorithm.config.env} cannot be drawn: {error}") from error
    if output is not None:
        click.echo(f"video  {output}")


def _modes(algorithm: Algorithm, slots: SlotOptions) -> tuple[str, ...]:
    """The render modes of `rllib play`, the preferred one first; () if nothing is drawn.

    One agent is shown in a window, or in a video where there is no display, and as text if the environment draws that
    alone. Of several, boards are text where a person types, and where there is no display.
    """
    window = ["human"] if has_display() else []
    if algorithm.agents is None:
        return *window, "rgb_array", "ansi"
    with user_input():
        offered = render_modes(algorithm.config)
    wanted = ["ansi", *window] if slots.humans else [*window, "ansi", "rgb_array"]
    return tuple(mode for mode in wanted if mode in offered)[:1]


def _drawing(
    env, mode: str | None, output: Path | None, fps: float | None, stack: contextlib.ExitStack
) -> Callable[[], None]:
    """The function that shows, prints or records what the environment draws."""
    if mode is None:
        return lambda: None
    if mode == "ansi":
        return lambda: click.echo(env.render())
    with user_input():
        fps = fps or fps_of(env)
    if output is None:
        return _Window(env, fps)
    stack.enter_context(writing(output))
    try:
        with user_input():
            video = stack.enter_context(VideoFile(output, fps))
    except ImportError as error:
        raise Mistake(str(error)) from error

    def add() -> None:
        frame = env.render()
        with user_input():
            video.add(frame)

    return add


class _Agents:
    """Plays episodes of several agents, and prints the return of each."""

    def __init__(self, algorithm: Algorithm, env, seed: int, is_unseen: bool, stack: contextlib.ExitStack):
        from rllib.env.multi_agent.played_episodes import PlayedEpisodes

        self._algorithm, self._is_unseen, self._stack = algorithm, is_unseen, stack
        self._episodes = PlayedEpisodes(env, seed, key_in_infos(algorithm.config))

    def play(self, slots: SlotOptions, episodes: int, draw: Callable[[], None], **how) -> None:
        human = Human(self._episodes.action_space, self._algorithm.config.action_mask_key, self._is_unseen)
        seated = SlotAlgorithms(self._algorithm, self._episodes.agents, stack=self._stack, **how)
        player = seated.player(slots, human)
        played: list[Episode] = []
        for number in range(episodes):
            played.append(self._episodes.play(player, draw))
            click.echo(f"episode {number + 1}  return {played[-1].episode_return:g}  length {played[-1].length}")
            for (agent, policy_id), value in played[-1].agent_returns.items():
                click.echo(f"  {agent}  {policy_id}  {value:g}")
        for line in policy_table(played):
            click.echo(line)


class _Window:
    """Draws an environment's window, at a steady rate if the environment sets none."""

    def __init__(self, env, fps: float):
        self._env, self._interval_s, self._next = env, 1 / fps, time.monotonic()

    def __call__(self) -> None:
        self._env.render()
        self._next = max(self._next + self._interval_s, time.monotonic() - self._interval_s)
        time.sleep(max(0.0, self._next - time.monotonic()))
