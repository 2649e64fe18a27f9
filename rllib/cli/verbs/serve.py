"""`rllib serve`: actions of a trained policy over HTTP."""

import contextlib
import errno
import importlib.util
import os
import secrets
import time
from pathlib import Path

import click
import msgspec
from click.core import ParameterSource

from rllib.cli.checkpoints import PLACE, latest
from rllib.cli.failures import Mistake, message_of, reported
from rllib.cli.leftovers import removed_if_unused
from rllib.cli.user_code import load_user_code_option
from rllib.cli.values import LocalPath, Number, parse_assignments
from rllib.extras import install_hint
from rllib.remote.url import is_url
from rllib.serving.learning.progress import holds_first_alone, prepare_directory
from rllib.serving.learning.settings import LearningSettings
from rllib.serving.loaded_policy import LoadedPolicy, load_policy, policy_ids
from rllib.serving.supervisor import ServingError, Supervisor
from rllib.serving.tasks import ServingSettings
from rllib.storage.checkpoint import checkpoint_at, newest_checkpoint
from rllib.storage.local_path import local_path
from rllib.web.sockets import is_loopback, listen

TOKEN_VARIABLE = "RLLIB_SERVE_TOKEN"
_COUNT = click.IntRange(min=1)


@click.command("serve", short_help="Answer requests for actions over HTTP.")
@click.argument("checkpoint", type=PLACE)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--workers", type=_COUNT, default=1, show_default=True, help="Processes that answer.")
@click.option("--max-batch", type=_COUNT, default=64, show_default=True, help="Observations of a forward pass.")
@click.option("--max-wait-us", type=click.IntRange(min=0), default=0, show_default=True, help="To wait for others.")
@click.option("--max-queue", type=_COUNT, default=4096, show_default=True, help="Observations that may wait.")
@click.option("--token", envvar=TOKEN_VARIABLE, help=f"That requests carry [default: ${TOKEN_VARIABLE}].")
@click.option("--watch", is_flag=True, help="Take up newer checkpoints of the run as they appear.")
@click.option("--learn", is_flag=True, help="Learn from the rewards that clients give (POST /reward).")
@click.option("--learn-to", type=LocalPath(), help="Checkpoints of --learn [default: CHECKPOINT_learned].")
@click.option("--set", "words", multiple=True, metavar="SETTING=VALUE", help="Of the algorithm that learns.")
@click.option("--canary-share", type=Number(0, 0.5, min_open=True), default=0.1, show_default=True,
              help="Share of the episodes in which a candidate acts.")  # fmt: skip
@click.option("--trial-episodes", type=click.IntRange(min=2), default=20, show_default=True,
              help="Of a candidate and of the served policy, before they are compared.")  # fmt: skip
@click.option("--margin", type=Number(min=0), default=0.25, show_default=True,
              help="How much worse a candidate may be, in standard deviations.")  # fmt: skip
@click.option("--offer-every", type=_COUNT, default=1000, show_default=True, help="Steps learned per candidate.")
@click.option("--block-episodes", type=click.IntRange(min=5), default=20, show_default=True,
              help="Episodes of the served policy that vouch for a period.")  # fmt: skip
@click.option("--reward-limit", type=Number(min=0, min_open=True), help="Clip rewards to +- it.")
@click.option("--reward-timeout", type=Number(min=0, min_open=True), default=600.0, show_default=True,
              help="Seconds that a reward may take.")  # fmt: skip
@click.option("--max-episode-steps", type=_COUNT, default=1000, show_default=True, help="Longer ones are cut.")
@click.option("--policy", "policy_id", help="Serve it alone, where CHECKPOINT holds several [default: all].")
@load_user_code_option("CHECKPOINT")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors.")
def command(checkpoint, host, port, workers, token, verbose, learn, **settings) -> None:
    """Answer POST /act with the actions of CHECKPOINT: a checkpoint directory, or the directory of a run, whose newest
    checkpoint is taken. GET /spec describes the inputs. An address that other machines reach needs a token. Where
    CHECKPOINT holds several policies, GET /policies lists them, and POST /act/ID asks one. With --learn, an answer has
    an action_id, POST /reward takes the reward for it, and GET /stats says what was learned.

    \b
    rllib serve results/PPO_CartPole-v1_... --watch
    curl --json '{"observation": [0, 0, 0, 0]}' http://127.0.0.1:8000/act
    """
    with reported(verbose):
        if not all(map(importlib.util.find_spec, ("uvicorn", "httptools"))):
            raise Mistake(f"serving needs uvicorn and httptools: {install_hint('serve')}")
        if token is None and not is_loopback(host):
            raise Mistake(
                f"--host {host} can be reached from other machines, so a token is needed: set {TOKEN_VARIABLE}, or "
                "give --token. Programs on this machine reach --host 127.0.0.1 without one."
            )
        if token == "":
            raise Mistake("the token is empty; leave it out, or give one that cannot be guessed")
        given = {name: settings.pop(name) for name in _OF_LEARNING}
        if is_url(checkpoint):
            if settings["watch"] or (learn and given["learn_to"] is None):
                flag = "--watch is for a run on this machine" if settings["watch"] else "--learn needs --learn-to here"
                raise Mistake(f"{checkpoint} is served from a copy, so that {flag}")
            checkpoint = latest(checkpoint)
        asked = ServingSettings(source=os.fspath(local_path(checkpoint)), token=token, **settings)
        with contextlib.ExitStack() as stack:
            if learn:
                directory = local_path(given.pop("learn_to") or asked.path.with_name(asked.path.name + "_learned"))
                stack.enter_context(removed_if_unused(directory, holds_first_alone))
                asked = _learning(asked, directory, **given)
            elif unread := [name for name in _OF_LEARNING if _is_given(name)]:
                flags = " and ".join("--set" if name == "words" else f"--{name.replace('_', '-')}" for name in unread)
                raise Mistake(f"{flags} would have no effect without --learn: add it, or leave {flags} out")
            try:
                listening = listen(host, port)
            except OSError as error:
                wrong = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
                raise Mistake(f"cannot listen at {host}:{port}: {_reason(error)}; choose another {wrong}") from error
            try:
                Supervisor(asked, listening, workers, lambda line: click.echo(line)).run()
            except ServingError as error:
                raise Mistake(str(error)) from error


_OF_LEARNING = (
    "learn_to", "words", "canary_share", "trial_episodes", "margin", "offer_every", "block_episodes", "reward_limit",
    "reward_timeout", "max_episode_steps",
)  # fmt: skip


def _is_given(name: str) -> bool:
    """Whether an option of this command was given."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def _learning(asked: ServingSettings, directory: Path, words, reward_timeout: float, **given) -> ServingSettings:
    """The settings of a server that learns, from a directory with a checkpoint to begin with."""
    if asked.policy_id is not None:
        raise Mistake("--learn is for a checkpoint of one policy, so leave out --policy")
    try:
        overrides = parse_assignments(words, "--set lr=1e-3")
        checkpoint = checkpoint_at(asked.path)
        if len(policy_ids(checkpoint)) > 1:
            raise Mistake(f"--learn is for a checkpoint of one policy, but {checkpoint} has several")
        is_restarted = directory.is_dir() and newest_checkpoint(directory) is not None
        newest = prepare_directory(directory, checkpoint)
        named, there = (load_policy(path, load_user_code=asked.load_user_code) for path in (checkpoint, newest))
    except ValueError as error:  # a CheckpointError as well
        raise Mistake(message_of(error)) from error
    if _kind_of(named) != _kind_of(there):
        raise Mistake(
            f"--learn-to {directory} continues with the policy of {there.of} from {newest}, but {checkpoint} is of "
            f"{named.of}: give a new directory"
        )
    learning = LearningSettings(
        directory=os.fspath(directory),
        overrides=overrides,
        reward_timeout_s=reward_timeout,
        key=secrets.token_bytes(16),
        # Until then a client may continue an episode that began with the earlier server.
        whole_from=time.monotonic() + reward_timeout if is_restarted else 0.0,
        **given,
    )
    return msgspec.structs.replace(asked, source=learning.directory, watch=True, learning=learning)


def _kind_of(policy: LoadedPolicy) -> tuple:
    """What a learned policy has in common with the one that it began from."""
    return policy.metadata["algorithm"], policy.observation_space, policy.action_space


def _reason(error: OSError) -> str:
    """The system's message, without the part that Python adds."""
    return str(error.strerror).partition(" (")[0]
