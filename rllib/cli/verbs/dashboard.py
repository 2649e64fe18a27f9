"""`rllib dashboard`."""

import errno
import os
import re
import shlex
import socket
import webbrowser
from pathlib import Path

import click

from rllib.cli.failures import Mistake, reported
from rllib.cli.values import LocalPath
from rllib.extras import install_hint


@click.command("dashboard", short_help="Look at runs in the browser.")
@click.argument("directories", metavar="[DIR]", nargs=-1, type=LocalPath())
@click.option("--host", default="127.0.0.1", show_default=True, help="Interface to listen on. Any other than this "
              "machine's own needs a token; one is made if none is given.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=8265, show_default=True, help="0 takes a free one.")
@click.option("--token", metavar="T", help="What the browser must give, as ?token=T in the address: letters, digits, "
              "- and _.")  # fmt: skip
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
def command(directories: tuple[Path, ...], host: str, port: int, token: str | None, opens: bool) -> None:
    """Show the runs of `rllib train` and the trials of `rllib tune` below DIR [default: results] as a page in the
    browser: a table, curves side by side, settings that differ, logs. It changes nothing, and follows runs while they
    train.

    \b
    rllib dashboard
    rllib dashboard results --port 0 --open
    ssh -t -L 8265:127.0.0.1:8265 MACHINE rllib dashboard DIR     then open http://127.0.0.1:8265
    """
    with reported(verbose=False):
        if len(directories) > 1:
            above = os.path.relpath(os.path.commonpath([each.resolve().parent for each in directories]))
            raise Mistake("the dashboard shows one directory, with all runs below it; give the one above these: "
                          f"rllib dashboard {shlex.quote(above)}")  # fmt: skip
        directory = directories[0] if directories else Path("results")
        if not directory.is_dir():
            what = "is a file" if directory.exists() else "does not exist"
            raise Mistake(f"{directory} {what}; give the directory with your runs, or begin with: "
                          "rllib train PPO CartPole-v1")  # fmt: skip
        if token is not None and not re.fullmatch(r"[\w-]+", token, re.ASCII):
            raise Mistake("--token must be letters, digits, - and _")
        server = _server(directory, host, port, token)

        def ready() -> None:
            click.echo(f"dashboard of {directory}: {server.url}  (Ctrl-C ends it)")
            if opens:
                webbrowser.open(server.url)

        try:
            server.run(ready)
        except KeyboardInterrupt:
            click.echo("ended")


def _server(directory: Path, host: str, port: int, token: str | None):
    try:
        from rllib.dashboard.app import Server
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "anyio", "httptools"):
            raise
        raise Mistake(f"the dashboard needs starlette, uvicorn and httptools: {install_hint('dashboard')}") from None
    try:
        return Server(directory, host, port, token)
    except socket.gaierror as error:
        raise Mistake(f"--host {host}: {error.strerror}") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Mistake(f"port {port} is in use; give another with --port, or --port 0 for a free one") from None
        raise Mistake(f"cannot listen on {host}:{port}: {error.strerror}") from None
