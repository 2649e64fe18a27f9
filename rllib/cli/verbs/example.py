"""`rllib example`."""

import click

from rllib.cli.failures import Mistake, reported, user_input
from rllib.cli.spec import find_file, load_specs
from rllib.cli.tuned_examples import TUNED_EXAMPLES, example_name
from rllib.cli.verbs import train


@click.group("example", short_help="List, show and run the tuned examples.")
def command() -> None:
    """Tuned examples: settings for an algorithm and an environment, with the returns reached (docs/project/results.md).

    \b
    rllib example list --filter ppo
    rllib example get ppo/cartpole
    rllib example run ppo/cartpole --seed 3
    """


@command.command("list", short_help="List them.")
@click.option("-f", "--filter", "part", default="", metavar="TEXT", help="Only those with this in their name.")
def list_(part: str) -> None:
    """List the names of the tuned examples, with algorithm and environment."""
    with reported(False):
        paths = [path for path in sorted(TUNED_EXAMPLES.glob("*/*.yaml")) if part.lower() in example_name(path).lower()]
        if not paths:
            raise Mistake(f"no tuned example has {part!r} in its name; leave out --filter to see all")
        width = max(len(example_name(path)) for path in paths)
        for path in paths:
            keys = load_specs(path)[0]
            env = keys.get("env") or keys.get("config", {}).get("env", "")
            click.echo(f"{example_name(path):<{width}}  {keys['algorithm']} on {env or 'recorded steps'}")


@command.command("get", short_help="Show one.")
@click.argument("name", metavar="NAME")
def get(name: str) -> None:
    """Show the file of a tuned example."""
    with reported(False):
        with user_input():
            path = find_file(name)
        click.echo(path.read_text(), nl=False)


@command.command(
    "run", short_help="Train one.", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("name", metavar="NAME")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[KEY=VALUE]... [OPTIONS]...")
def run(name: str, options: tuple[str, ...]) -> None:
    """Train a tuned example, as rllib train -f NAME does, with the same options."""
    train.command.main(["--file", name, *options], prog_name="rllib train")
