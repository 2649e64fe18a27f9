"""`rllib push`: a trained policy on the Hugging Face Hub, with a model card."""

import contextlib
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import gymnasium
import msgspec

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.videos import drawn_environment, play_episode
from rllib.algorithms.base.wiring import environment_name
from rllib.cli.checkpoints import PLACE, acting_algorithm, latest
from rllib.cli.failures import Mistake, reported, storage_input, user_input
from rllib.cli.played_in import environment_option, refuse_nowhere_to_evaluate, settings_of_environment
from rllib.cli.published_files import published_files
from rllib.cli.run_directory import SPEC
from rllib.cli.spec import RunSpec
from rllib.cli.user_code import load_user_code_option
from rllib.cli.values import LocalPath
from rllib.remote import hub
from rllib.remote.model_card import Published, card, command_of, results_json
from rllib.remote.url import is_url
from rllib.runs.drawing import CurveLogger
from rllib.runs.files import read_params, read_results
from rllib.runs.safe_files import write_whole
from rllib.runs.video import VideoFile, draw_without_display, fps_of
from rllib.serving.loaded_policy import policy_ids
from rllib.storage.checkpoint import read_manifest
from rllib.storage.foreign_files import copy_inside, inside, read_inside
from rllib.storage.local_path import local_path

# Largest picture that is published.
_LARGEST_CURVE_BYTES = 2**24


@click.command("push", short_help="Publish a policy on the Hugging Face Hub.")
@click.argument("checkpoint", type=PLACE)
@click.argument("repository", metavar="ORG/NAME")
@click.option("--seeds", type=click.IntRange(1, 1000), default=10, show_default=True, help="Seeds of the evaluation.")
@click.option("--episodes", type=click.IntRange(min=1), default=10, show_default=True, help="Episodes of each seed.")
@click.option("--video/--no-video", default=True, help="Record an episode [default: where it can be].")
@click.option("--private", is_flag=True, help="Make a new repository visible to its owners alone.")
@click.option("--message", default="Publish a policy", show_default=True, help="Of the commit.")
@click.option("-o", "--output", type=LocalPath(), help="Write the files into this directory instead.")
@click.option("--with-code", is_flag=True, help="Publish the pickled code of CHECKPOINT, too.")
@load_user_code_option("CHECKPOINT")
@environment_option
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors.")
def command(
    checkpoint, repository, seeds, episodes, video, private, message, output, with_code, load_user_code, env, verbose
) -> None:
    """Publish the policy of CHECKPOINT, or of the last checkpoint of a run's directory, as the repository ORG/NAME of
    the Hugging Face Hub: the files of the checkpoint, and a model card with the learning curve, the return in an
    evaluation, a video and the command that repeats the run. `hf auth login`, or HF_TOKEN, logs in. Steps that the run
    has recorded, its replay, stay here, and so do those that were given as arrays, tables or a Dataset.

    All settings are part of the checkpoint, those of environments and trackers among them: look at them with -o first.

    \b
    rllib push results/PPO_CartPole-v1_... my-name/ppo-CartPole-v1
    rllib evaluate hf://my-name/ppo-CartPole-v1
    """
    with reported(verbose):
        with storage_input():
            if output is None:
                hub.check_target(repository)
            elif output.exists():
                raise Mistake(f"{output} exists already; give a new directory")
            else:
                hub.check_id(repository)
        run = None if is_url(checkpoint) else _run_of(checkpoint)
        # The user may name a link; links that are in what he names are not followed.
        checkpoint = latest(checkpoint if is_url(checkpoint) else local_path(checkpoint).resolve())
        with tempfile.TemporaryDirectory(prefix="rllib-") as directory:
            with user_input():
                copy = Path(directory, "checkpoint")  # the run may remove its own meanwhile
                read_manifest(checkpoint)
                copy_inside(checkpoint.parent, checkpoint.name, copy)
                files = published_files(copy, with_code)
                how = load_user_code, settings_of_environment(env)
                returns = _returns(copy, range(seeds), episodes, *how)
                about, extras = _described(copy, run, Path(directory), video, *how)
            published = Published(
                repository,
                **about,
                returns=returns,
                episodes_per_seed=episodes,
                extras=list(extras),
                policies=policy_ids(copy),
                options=[*([] if env is None else ["--env", env]), *["--load-user-code"] * load_user_code],
                has_code=any(name.endswith(".pkl") for name in files),
            )
            files |= {**extras, hub.RESULTS: results_json(published), hub.CARD: card(published).encode()}
            if output is not None:
                _write(files, output)
                click.echo(output)
                return
            with user_input():
                address = hub.push(files, repository, message=message, private=private)
        click.echo(address)
        click.echo(f"evaluate    {published.evaluate}")


def _run_of(checkpoint: Path) -> Path | None:
    """Directory of the run of a checkpoint, or the run that was named; None if it lies in none."""
    places = (checkpoint, local_path(checkpoint).parent)
    return next((place for place in places if (place / "result.json").is_file()), None)


def _returns(
    checkpoint: Path, seeds: Iterable[int], episodes: int, load_user_code: bool, settings: Mapping[str, Any]
) -> dict[int, float]:
    """Seed -> mean return of this number of episodes."""
    returns = {}
    for seed in seeds:
        with acting_algorithm(checkpoint, load_user_code, **settings, seed=seed) as algorithm:
            refuse_nowhere_to_evaluate(algorithm)
            returns[seed] = float(algorithm.evaluate(episodes)["episode_reward_mean"])
        click.echo(f"seed {seed}  return {returns[seed]:.2f}")
    return returns


def _described(
    checkpoint: Path,
    run: Path | None,
    directory: Path,
    video: bool,
    load_user_code: bool,
    settings: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The fields of the card that come from the checkpoint and its run; picture and video by name."""
    with acting_algorithm(checkpoint, load_user_code, **settings) as algorithm:
        config = algorithm.config
        about = {
            "algorithm": type(algorithm).__name__,
            "env": environment_name(config) or environment_name(config.get_evaluation_config_object()),
            "num_steps": int(algorithm.metrics.counters["num_env_steps_sampled"]),
            "command": _command(run) if run is not None else None,
        }
        pictures = {hub.CURVE: _curve(run, directory) if run is not None else None}
        pictures[hub.VIDEO] = _recorded(algorithm, directory / hub.VIDEO) if video else None
    return about, {name: content for name, content in pictures.items() if content}


def _command(run: Path) -> str | None:
    """The command that repeats a run of `rllib train`; None for other runs."""
    try:
        spec = msgspec.json.decode(read_inside(run, SPEC), type=RunSpec)
    except (OSError, ValueError):
        return None
    seed = read_params(run).get("seed")
    return command_of(spec.algorithm, spec.env, spec.config, spec.stop, seed) if spec.env else None


def _curve(run: Path, directory: Path) -> bytes | None:
    """The picture of a run's learning curve, drawn if there is none yet; None without results or matplotlib."""
    with contextlib.suppress(OSError, ValueError):
        return read_inside(run, hub.CURVE, _LARGEST_CURVE_BYTES)
    with contextlib.suppress(ImportError):
        drawing = CurveLogger(directory)
        for result in read_results(run):
            drawing.on_result(result)
        drawing.close()
    return (directory / hub.CURVE).read_bytes() if (directory / hub.CURVE).exists() else None


def _recorded(algorithm: Algorithm, path: Path) -> bytes | None:
    """A video of an episode; None, with the reason printed, where the environment cannot be drawn."""
    draw_without_display()
    try:
        if algorithm.agents is not None:
            raise ValueError("the environment has several agents; rllib record makes one")
        with contextlib.ExitStack() as stack:
            env = stack.enter_context(contextlib.closing(drawn_environment(algorithm.config, "rgb_array")))
            video = stack.enter_context(VideoFile(path, fps_of(env)))
            play_episode(algorithm, env, 0, False, lambda: video.add(env.render()))
    except (ImportError, ValueError, gymnasium.error.Error) as error:
        click.echo(f"no video: {error}", err=True)
        return None
    return path.read_bytes()


def _write(files: Mapping[str, Path | bytes], output: Path) -> None:
    for name, content in files.items():
        path = inside(local_path(output), name, "a file")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content if isinstance(content, bytes) else content.read_bytes(), is_synced=False)
