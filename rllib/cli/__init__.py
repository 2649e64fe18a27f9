"""The `rllib` command. Each verb is a module that is imported when it is used, which keeps help fast."""

import contextlib
import importlib
import os
import signal
import sys

import click

import rllib
from rllib import __version__
from rllib.cli.failures import EXIT_FAILURE, EXIT_SIGNAL
from rllib.did_you_mean import did_you_mean

_COMMANDS = {
    "train": "Train an algorithm on an environment.",
    "evaluate": "Play episodes with a trained policy.",
    "play": "Watch a trained policy.",
    "record": "Write a video of a trained policy, or its steps as data.",
    "export": "Write a policy as a file for torch or ONNX.",
    "serve": "Answer requests for actions over HTTP.",
    "client-example": "Show a client of rllib train --external.",
    "tune": "Search for the settings of an algorithm.",
    "example": "List, show and run the tuned examples.",
    "dataset": "Look at recorded steps, check and convert them.",
    "config": "Show every setting of an algorithm.",
    "plot": "Draw runs and experiments.",
    "compare": "Compare algorithms over several seeds.",
    "benchmark": "Compare algorithms on a suite, next to published scores.",
    "report": "Write runs into one page to send.",
    "dashboard": "Look at runs in the browser.",
    "upload": "Bring a run's copy in remote storage up to date.",
    "push": "Publish a policy on the Hugging Face Hub.",
    "check-env": "Check an environment.",
    "convert": "Show a program for Ray with rllib's imports.",
    "import-sb3": "Take over a model of Stable-Baselines3.",
    "import-ray": "Take over a checkpoint of Ray RLlib.",
}
# Commands whose modules are not in `rllib.cli.verbs`.
_PLACES = {
    **dict.fromkeys(("convert", "import-sb3", "import-ray"), "rllib.cli.imports"),
    "compare": "rllib.cli.seeds",
    "benchmark": "rllib.cli.benchmark",
}
# Other names of commands.
_ALIASES = {"enjoy": "play", "rollout": "evaluate"}


@contextlib.contextmanager
def _ended_in_words():
    """Ends the program as every command does after Ctrl-C, also while its module is imported, and on a full disk."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        sys.exit(EXIT_SIGNAL + signal.SIGINT)
    except BrokenPipeError:
        raise  # click ends quietly
    except OSError as error:  # what is printed cannot be written
        click.echo(f"Error: {type(error).__name__}: {error}", err=True)
        sys.exit(EXIT_FAILURE)


class LazyGroup(click.Group):
    """Imports the module of a command when the command runs; help needs the tables above only."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = _ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in _COMMANDS:
            return None
        place = _PLACES.get(cmd_name, "rllib.cli.verbs")
        return importlib.import_module(f"{place}.{cmd_name.replace('-', '_')}").command

    def make_context(self, *args, **kwargs) -> click.Context:
        with _ended_in_words():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context):
        with _ended_in_words():
            return super().invoke(ctx)

    def resolve_command(self, ctx: click.Context, args: list[str]):
        if args[0] not in (*_COMMANDS, *_ALIASES) and not args[0].startswith("-"):
            hint = did_you_mean(args[0], _COMMANDS, repr)
            ctx.fail(f"there is no command {args[0]!r}.{hint} Commands: {', '.join(_COMMANDS)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="rllib %(version)s", help="Show it.")
def command() -> None:
    """Reinforcement learning: train, evaluate, watch, look at settings.

    \b
    rllib train PPO CartPole-v1
    rllib train -f ppo/cartpole
    rllib evaluate results/PPO_CartPole-v1_.../checkpoint_000060
    rllib play results/PPO_CartPole-v1_...
    """


def main() -> None:
    # `python -m rllib` puts the current directory before the standard library, so that a file csv.py there
    # would run. user_code.py decides for which names, and from where, a user's code is imported.
    if not sys.flags.safe_path and sys.path[0] == os.getcwd():
        here = sys.path.pop(0)
        if here == os.path.dirname(os.path.dirname(rllib.__file__)):  # a source tree that is not installed
            sys.path.append(here)
    command(prog_name="rllib")
