"""The option --env of commands that play episodes of a checkpoint, and runs that have no environment of their own."""

import click

from rllib.algorithms.base.algorithm import Algorithm
from rllib.cli.failures import Mistake
from rllib.cli.user_code import typed

environment_option = click.option(
    "--env", metavar="ENV", help="Play there [default: in the environment of the training run]."
)


def settings_of_environment(env: str | None) -> dict[str, str | None]:
    """The settings that --env represents, which is not simulated as the run's was; none without it."""
    if env is None:
        return {}
    typed({"env": env})
    return {"env": env, "simulator": None}


def refuse_no_environment(algorithm: Algorithm) -> None:
    """Raises a Mistake for an algorithm that has no environment which can be stepped, and stops it."""
    config = algorithm.config
    if config.env is not None and not algorithm._rollout_settings.is_external:
        return
    why = "it has learned from recorded steps" if config.env is None else "its environment drives its own loop"
    why = "its clients stepped theirs" if config.listen else why
    algorithm.stop()
    raise Mistake(f"the run has no environment to play in, since {why}. Name one: --env ENV.")


def refuse_nowhere_to_evaluate(algorithm: Algorithm) -> None:
    """Calls refuse_no_environment unless the settings of evaluations name an environment."""
    if "env" not in (algorithm.config.evaluation_config or {}):
        refuse_no_environment(algorithm)
