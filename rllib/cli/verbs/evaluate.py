"""`rllib evaluate`."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from rllib.algorithms.base.registry import get_algorithm_class
from rllib.cli.checkpoints import PLACE, acting_algorithm, latest
from rllib.cli.columns import columns_option, parse_columns
from rllib.cli.estimates import estimated, table_of
from rllib.cli.failures import Mistake, reported, user_input
from rllib.cli.played_in import environment_option, refuse_nowhere_to_evaluate, settings_of_environment
from rllib.cli.policy_table import policy_table
from rllib.cli.rays_flags import rays_options
from rllib.cli.seeds.folder import checkpoints_of_seeds
from rllib.cli.user_code import load_user_code_option
from rllib.cli.values import SEED, LocalPath, parse_mapping
from rllib.cli.verbs.record import write_steps
from rllib.metrics import episode_statistics
from rllib.progress import counted
from rllib.runs.measures import interval, iqm
from rllib.storage.checkpoint import read_checkpoint

# Keys of the result that are printed as JSON.
_IN_JSON = ("episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean", "hist_stats")
_OF_POLICIES = ("policy_reward_mean", "policy_reward_min", "policy_reward_max")


@click.command("evaluate", short_help="Play episodes with a trained policy.")
@click.argument("checkpoint", type=PLACE)
@click.option("--episodes", type=click.IntRange(min=1), default=100, show_default=True, help="How many to play.")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Play episodes until there are N steps.")
@click.option("--out", metavar="PATH", help="Write the steps of these episodes, too, in the formats of rllib "
              "record --to.")  # fmt: skip
@environment_option
@click.option("--algo", "--run", "algorithm_name", metavar="ALGO", help="In Ray's spelling; it has to be CHECKPOINT's.")
@click.option("--config", metavar="MAPPING", help="Settings to change, as JSON or YAML.")
@click.option("--seed", type=SEED, help="Of environments and policy [default: that of the training run].")
@click.option("--explore", is_flag=True, help="Sample actions, instead of taking the most likely ones.")
@click.option("--data", type=LocalPath(), help="Play nothing, and estimate the return from these recorded steps.")
@columns_option
@click.option("--estimators", default="is,wis,dm,dr", show_default=True, help="With --data: how to estimate.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the return and length of each episode.")
@load_user_code_option("CHECKPOINT")
@click.option("-v", "--verbose", count=True, help="Show tracebacks of errors.")
@click.option("--render/--no-render", "renders", hidden=True, help="Option of Ray; rllib play draws.")
@click.option("--video-dir", hidden=True, help="Option of Ray; rllib record writes videos.")
@rays_options
def command(
    checkpoint: Path | str,
    episodes: int,
    steps: int | None,
    out: str | None,
    env: str | None,
    algorithm_name: str | None,
    config: str | None,
    renders: bool,
    video_dir: str | None,
    seed: int | None,
    explore: bool,
    data: Path | None,
    columns: tuple[str, ...],
    estimators: str,
    as_json: bool,
    load_user_code: bool,
    verbose: int,
) -> None:
    """Play whole episodes with the policy of CHECKPOINT: a checkpoint directory, or the directory of a run, whose last
    checkpoint is taken. Its evaluation_config applies, after --env and --seed. The seeds of the environments are ones
    that training has not seen. Where several agents act, the return is the sum of theirs, and a table has those of each
    policy. For the folder of several seeds, or a checkpoint of a trial with several, each is played, and the
    interquartile mean of their mean returns is shown.

    With --data, episodes that another policy has played and recorded give the estimates: importance sampling (is),
    weighted (wis), the direct method over a fitted model (dm), doubly robust (dr).
    """
    with reported(verbose):
        if data is None and _is_given("estimators"):
            raise Mistake("--estimators estimates from recorded steps: name them by --data PATH.")
        if steps is not None and _is_given("episodes"):
            raise Mistake("--steps and --episodes are two lengths of one evaluation; leave one of them out")
        _refuse_drawing(renders, video_dir, checkpoint)
        if out is not None and data is not None:
            raise Mistake("--data plays no episodes, so that --out has nothing to write. Leave out one of the two.")
        if columns and data is None:
            raise Mistake("--columns says what the columns of --data are; give its file")
        if out is not None and Path(out).suffix in (".pkl", ".pickle"):
            raise Mistake(f"--out {out} would be a pickle, and none is written; give a name that ends in .npz")
        if seeds := checkpoints_of_seeds(checkpoint):
            if out is not None or data is not None:
                one = next(iter(seeds.values()))
                raise Mistake(f"{checkpoint} holds {counted(len(seeds), 'seed')}; name one of them, as in {one}")
            with user_input():
                _refuse_other_algorithm(next(iter(seeds.values())), algorithm_name)
                overrides = _overrides(config, env, seed, steps)
            _evaluate_seeds(seeds, load_user_code, overrides, None if steps else episodes, explore, as_json)
            return
        checkpoint = latest(checkpoint)
        with user_input():
            _refuse_other_algorithm(checkpoint, algorithm_name)
            overrides = _overrides(config, env, seed, steps)
        if out is not None:
            length = {"num_steps": steps} if steps else {"num_episodes": episodes}
            how = {**length, "explore": explore, "as_evaluation": True, "is_quiet": as_json}
            _, played = write_steps(checkpoint, out, load_user_code, overrides, **how)
            result = episode_statistics(played)
        else:
            with user_input():
                algorithm = acting_algorithm(checkpoint, load_user_code, **overrides)
            with algorithm:
                if data is not None:
                    with user_input():
                        _refuse_with_data("episodes", "steps", "seed", "explore")
                        found = estimated(algorithm, data, estimators, parse_columns(columns))
                    click.echo(json.dumps(found) if as_json else "\n".join(table_of(found)))
                    return
                refuse_nowhere_to_evaluate(algorithm)
                result = algorithm.evaluate(None if steps else episodes, explore=explore or None)
                played = algorithm._evaluation_episodes
    table = policy_table(played)
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
    if "episode_cost_mean" in result:
        low, high = (result[f"episode_cost_{part}"] for part in ("min", "max"))
        click.echo(f"cost    {result['episode_cost_mean']:.2f} ({low:g} to {high:g})")
    click.echo(f"length  {statistics.fmean(lengths):.1f} steps")
    for line in table:
        click.echo(line)


def _evaluate_seeds(
    seeds: dict[int, Path],
    load_user_code: bool,
    overrides: dict[str, Any],
    episodes: int | None,
    explore: bool,
    as_json: bool,
) -> None:
    """Plays with the policy of each seed, one after the other, and prints their returns and the interquartile mean."""
    found: dict[int, dict] = {}
    for seed, checkpoint in seeds.items():
        with user_input():
            algorithm = acting_algorithm(checkpoint, load_user_code, **overrides)
        with algorithm:
            refuse_nowhere_to_evaluate(algorithm)
            result = algorithm.evaluate(episodes, explore=explore or None)
        found[seed] = {"checkpoint": str(checkpoint), **{key: result[key] for key in _IN_JSON}}
        if not as_json:
            mean, length = result["episode_reward_mean"], result["episode_len_mean"]
            click.echo(f"seed {seed:<4} return {mean:>10.2f}  length {length:>8.1f}")
    means = np.array([each["episode_reward_mean"] for each in found.values()])
    (low,), (high,) = interval(means[:, None])
    if as_json:
        click.echo(json.dumps({"iqm": float(iqm(means)), "low": low, "high": high, "seeds": found}))
        return
    played = counted(sum(len(each["hist_stats"]["episode_reward"]) for each in found.values()), "episode")
    click.echo(f"return    {iqm(means):.2f} [{low:.2f}, {high:.2f}] "
               f"(IQM of {counted(len(means), 'seed')}, 95 % interval; {played})")  # fmt: skip


def _refuse_drawing(renders: bool, video_dir: str | None, checkpoint: Path) -> None:
    """Raises a Mistake for what other commands do."""
    if renders:
        raise Mistake(f"--render is another command here: rllib play {checkpoint}")
    if video_dir:
        raise Mistake(f"--video-dir is another command here: rllib record {checkpoint} -o {video_dir}/video.mp4")


def _refuse_other_algorithm(checkpoint: Path, name: str | None) -> None:
    """Raises a Mistake if the algorithm that was named is not the checkpoint's."""
    if name is None:
        return
    of_checkpoint = read_checkpoint(checkpoint, only="algorithm.json").get("algorithm.json", {}).get("algorithm")
    if get_algorithm_class(name).__name__ != of_checkpoint:
        raise Mistake(f"{checkpoint} is of {of_checkpoint}, not of {name}; leave out --run")


def _overrides(config: str | None, env: str | None, seed: int | None, steps: int | None) -> dict[str, Any]:
    """Settings that differ from those of the training run."""
    settings = settings_of_environment(env) | parse_mapping(config or "{}", "--config")
    if seed is not None:
        settings["seed"] = seed
    if steps is not None:
        settings |= {"evaluation_duration": steps, "evaluation_duration_unit": "timesteps", "num_envs_per_worker": 1}
    return settings


def _refuse_with_data(*options: str) -> None:
    """Raises a Mistake for options of playing that were given together with --data."""
    if given := [name for name in options if _is_given(name)]:
        raise Mistake(f"--data plays no episodes, so that --{given[0]} has no effect. Leave out one of the two.")


def _is_given(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE
