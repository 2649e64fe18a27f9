"""`rllib evaluate`."""

import json
import math
import statistics
from pathlib import Path

import click
from click.core import ParameterSource

from rllib.cli.checkpoints import PLACE, acting_algorithm, latest
from rllib.cli.estimates import estimated, table_of
from rllib.cli.failures import Mistake, reported, user_input
from rllib.cli.policy_table import policy_table
from rllib.cli.user_code import load_user_code_option
from rllib.progress import counted

# Keys of the result that are printed as JSON.
_IN_JSON = ("episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean", "hist_stats")
_OF_POLICIES = ("policy_reward_mean", "policy_reward_min", "policy_reward_max")


@click.command("evaluate", short_help="Play episodes with a trained policy.")
@click.argument("checkpoint", type=PLACE)
@click.option("--episodes", type=click.IntRange(min=1), default=100, show_default=True, help="How many to play.")
@click.option("--seed", type=int, help="Of environments and policy [default: that of the training run].")
@click.option("--explore", is_flag=True, help="Sample actions, instead of taking the most likely ones.")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Play nothing, and estimate the return from these recorded steps."
)
@click.option("--estimators", default="is,wis,dm,dr", show_default=True, help="With --data: how to estimate.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the return and length of each episode.")
@load_user_code_option("CHECKPOINT")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors.")
def command(
    checkpoint: Path | str,
    episodes: int,
    seed: int | None,
    explore: bool,
    data: Path | None,
    estimators: str,
    as_json: bool,
    load_user_code: bool,
    verbose: bool,
) -> None:
    """Play whole episodes with the policy of CHECKPOINT: a checkpoint directory, or the directory of a run, whose last
    checkpoint is taken. The seeds of the environments are ones that training has not seen. Where several agents act,
    the return is the sum of theirs, and a table has those of each policy.

    With --data, episodes that another policy has played and recorded give the estimates: importance sampling (is),
    weighted (wis), the direct method over a fitted model (dm), doubly robust (dr).
    """
    with reported(verbose):
        if data is None and _is_given("estimators"):
            raise Mistake("--estimators estimates from recorded steps: name them by --data PATH.")
        overrides = {} if seed is None else {"seed": seed}
        checkpoint = latest(checkpoint)
        with user_input():
            algorithm = acting_algorithm(checkpoint, load_user_code, **overrides)
        with algorithm:
            if data is not None:
                with user_input():
                    _refuse_with_data("episodes", "seed", "explore")
                    found = estimated(algorithm, data, estimators)
                click.echo(json.dumps(found) if as_json else "\n".join(table_of(found)))
                return
            result = algorithm.evaluate(episodes, explore=explore or None)
            table = policy_table(algorithm._evaluation_episodes)
    returns, lengths = result["hist_stats"]["episode_reward"], result["hist_stats"]["episode_lengths"]
    count = len(returns)
    error = statistics.stdev(returns) / math.sqrt(count) if count > 1 else 0.0
    if as_json:
        summary = {"checkpoint": str(checkpoint), "episodes": count, "episode_reward_standard_error": error}
        keys = _IN_JSON + (_OF_POLICIES if table else ())
        click.echo(json.dumps({**summary, **{key: result[key] for key in keys}}))
        return
    spread = f"{error:.2f} (mean ± standard error of {counted(count, 'episode')})"
    click.echo(f"return  {statistics.fmean(returns):.2f} ± {spread}")
    click.echo(f"        {min(returns):g} to {max(returns):g}, median {statistics.median(returns):g}")
    click.echo(f"length  {statistics.fmean(lengths):.1f} steps")
    for line in table:
        click.echo(line)


def _refuse_with_data(*options: str) -> None:
    """Raises a Mistake for options of playing that were given beside --data."""
    if given := [name for name in options if _is_given(name)]:
        raise Mistake(f"--data plays no episodes, so that --{given[0]} has no effect. Leave out one of the two.")


def _is_given(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE
