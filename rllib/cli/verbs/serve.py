"""`rllib serve`: actions of a trained policy over HTTP."""

import importlib.util
import os
from pathlib import Path

import click

from rllib.cli.failures import Mistake, reported
from rllib.cli.user_code import load_user_code_option
from rllib.serving.supervisor import ServingError, Supervisor
from rllib.serving.tasks import ServingSettings
from rllib.web.sockets import is_loopback, listen

TOKEN_VARIABLE = "RLLIB_SERVE_TOKEN"
_COUNT = click.IntRange(min=1)


@click.command("serve", short_help="Answer requests for actions over HTTP.")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--workers", type=_COUNT, default=1, show_default=True, help="Processes that answer.")
@click.option("--max-batch", type=_COUNT, default=64, show_default=True, help="Observations of a forward pass.")
@click.option("--max-wait-us", type=click.IntRange(min=0), default=0, show_default=True, help="To wait for others.")
@click.option("--max-queue", type=_COUNT, default=4096, show_default=True, help="Observations that may wait.")
@click.option("--token", envvar=TOKEN_VARIABLE, help=f"That requests carry [default: ${TOKEN_VARIABLE}].")
@click.option("--watch", is_flag=True, help="Take up newer checkpoints of the run as they appear.")
@click.option("--policy", "policy_id", help="Serve it alone, where CHECKPOINT holds several [default: all].")
@load_user_code_option("CHECKPOINT")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors.")
def command(checkpoint, host, port, workers, token, verbose, **settings) -> None:
    """Answer POST /act with the actions of CHECKPOINT: a checkpoint directory, or the directory of a run, whose newest
    checkpoint is taken. GET /spec describes the inputs. An address that other machines reach needs a token. Where
    CHECKPOINT holds several policies, GET /policies lists them, and POST /act/ID asks one.

    \b
    rllib serve results/PPO_CartPole-v1_... --watch
    curl --json '{"observation": [0, 0, 0, 0]}' http://127.0.0.1:8000/act
    """
    with reported(verbose):
        if not all(map(importlib.util.find_spec, ("uvicorn", "httptools"))):
            raise Mistake("serving needs uvicorn and httptools: pip install 'rllib[serve]'")
        if token is None and not is_loopback(host):
            raise Mistake(
                f"--host {host} can be reached from other machines, so a token is needed: set {TOKEN_VARIABLE}, or "
                "give --token. Programs on this machine reach --host 127.0.0.1 without one."
            )
        if token == "":
            raise Mistake("the token is empty; leave it out, or give one that cannot be guessed")
        asked = ServingSettings(source=os.fspath(checkpoint.absolute()), token=token, **settings)
        try:
            listening = listen(host, port)
        except OSError as error:
            raise Mistake(f"cannot listen at {host}:{port}: {_reason(error)}; choose another --port") from error
        try:
            Supervisor(asked, listening, workers, lambda line: click.echo(line)).run()
        except ServingError as error:
            raise Mistake(str(error)) from error


def _reason(error: OSError) -> str:
    """The system's message, without the part that Python adds."""
    return str(error.strerror).partition(" (")[0]
