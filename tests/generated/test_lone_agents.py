"""Drawn runs of a single agent beside the same runs of an environment with several agents that has one: equal bits."""

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rllib.algorithms.base.registry import get_algorithm_class
from rllib.env.multi_agent import make_multi_agent
from tests.generated import worlds
from tests.generated.comparisons import weights_of
from tests.generated.draw import Draw, draw, needs_processes
from tests.generated.refusals import names_in
from tests.generated.teachers import fault_of
from tests.generated.trial import ITERATIONS, configured

# Pairs of runs, of which the first are quick; LONE_SEED=n draws others.
PAIRS, QUICK = 40, 14
FIRST = int(os.environ.get("LONE_SEED", "0"))
MOST_REMEDIES = 12
LONE = make_multi_agent(worlds.World)
# What is computed in other orders, which shows in the last bits: more than eight environments, rows of whole episodes,
# and filters, which have counted one observation more or less where an episode ends.
SAME_ORDER = {
    "num_envs_per_worker": 2,
    "batch_mode": "truncate_episodes",
    "observation_filter": "NoFilter",
    "normalize_observations": False,
}
# Rounds to three digits; and what raises alone.
LEFT_OUT = ("torch_autocast", "restart_failed_sub_environments")


def drawn() -> Iterator[Draw]:
    """Runs of a single agent by algorithms that train several, in this process."""
    for seed in itertools.count(FIRST):
        run = draw(seed)
        world, several = run["world"], get_algorithm_class(run["algorithm"]).trains_several
        fails = world.get("fails") or fault_of(run)
        if world["kind"] != "single" or fails or needs_processes(run) or not several:
            continue
        settings = {name: value for name, value in run["settings"].items() if name not in LEFT_OUT}
        yield {**run, "settings": settings | {name: SAME_ORDER[name] for name in SAME_ORDER if name in settings}}


def trained(run: Draw, remedies: list, place: Path, lone: bool) -> tuple[dict, list]:
    """Weights after two iterations, and counts of the last one."""
    config = configured({**run, "remedies": remedies}, place)
    if lone:
        config.environment(LONE, env_config=run["world"])
    with config.build() as algorithm:
        for _ in range(ITERATIONS):
            result = algorithm.train()
        counts = [result[name] for name in ("timesteps_total", "num_env_steps_trained", "episodes_total")]
        return weights_of(algorithm), counts


def remedied(run: Draw, place: Path) -> list | None:
    """Remedies with which the lone agent trains; None where no setting helps."""
    remedies: list[Mapping[str, Any]] = []
    for _ in range(MOST_REMEDIES):
        config = configured({**run, "remedies": remedies}, place)
        config.environment(LONE, env_config=run["world"])
        try:
            config.build().stop()
            return remedies
        except ValueError as error:
            mistakes = getattr(error, "mistakes", ())
            if any(mistake.no_setting_ends_it for mistake in mistakes):
                return None
            found = next((mistake.remedies for mistake in mistakes if mistake.remedies), ())
            assert found, f"{run}: a refusal without a remedy: {error}"
            # One that undoes another would go round in circles.
            changed = {name for remedy in remedies for name in names_in(remedy)}
            remedies.append(next((each for each in found if changed.isdisjoint(names_in(each))), found[-1]))
    pytest.fail(f"{run}: {MOST_REMEDIES} remedies have not helped: {remedies}")


@pytest.mark.parametrize(
    "number", [*range(QUICK), *(pytest.param(n, marks=pytest.mark.slow) for n in range(QUICK, PAIRS))]
)
def test_a_lone_agent_is_a_single_one(number, tmp_path):
    run = next(itertools.islice(drawn(), number, None))
    remedies = remedied(run, tmp_path / "tried")
    if remedies is None:
        pytest.skip("refused, whatever the settings")
    alone, counts = trained(run, remedies, tmp_path / "alone", lone=False)
    one, counts_of_one = trained(run, remedies, tmp_path / "one", lone=True)
    assert counts_of_one == counts, run
    for policy_id, weights in alone.items():
        for name, values in weights.items() if isinstance(weights, Mapping) else [("", weights)]:
            of_one = one[policy_id][name] if isinstance(weights, Mapping) else one[policy_id]
            np.testing.assert_array_equal(of_one, values, err_msg=f"{run} {name}")
