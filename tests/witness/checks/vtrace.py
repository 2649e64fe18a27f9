"""V-trace by its definition, a sum of products (arXiv:1802.01561, equation 1), not by the recursion."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rllib import sample_batch as sb
from tests.witness.checks.rows import FRAGMENT, Columns, categorical
from tests.witness.checks.steps import Step, close, following, life_of
from tests.witness.script import Family, decoded


def check_vtrace(
    columns: Columns,
    given: Mapping[str, np.ndarray],
    family: Family,
    values_of: Callable[[Sequence[Step]], np.ndarray],
    inputs_of: Callable[[Sequence[Step]], np.ndarray],
    *,
    gamma: float,
    clip_rho: float = 1.0,
    clip_pg_rho: float = 1.0,
    lambda_: float = 1.0,
    corrected: bool = True,
) -> float:
    """Checks ratios, values, targets and advantages of a minibatch.

    Args:
        columns: of the minibatch.
        given: log_rho, values, targets and advantages of its rows.
        family: of the scripts.
        values_of, inputs_of: values, and parameters of distributions, of the policy that learns.
        gamma, clip_rho, clip_pg_rho, lambda_: settings.
        corrected: whether V-trace is asked for; without it ratios are 1, nothing is clipped, and advantages are GAE's.

    Returns:
        The largest absolute log of a ratio.
    """
    rows = {decoded(columns[sb.OBS][row]): row for row in np.flatnonzero(columns[sb.LOSS_MASK])}
    assert len(rows) == columns[sb.LOSS_MASK].sum(), "a step stands twice in a minibatch"
    places = list(rows)
    value = dict(zip(places, np.asarray(values_of(places), np.float64)))
    next_value = dict(zip(places, np.asarray(values_of([following(step) for step in places]), np.float64)))
    rho = {}
    for step, inputs in zip(places, np.asarray(inputs_of(places), np.float64)):
        row = rows[step]
        acted = categorical(columns[sb.ACTION_DIST_INPUTS][row].astype(np.float64), columns[sb.ACTIONS][row])
        log_rho = categorical(inputs, columns[sb.ACTIONS][row]) - acted
        if corrected:
            close(given["log_rho"][row], log_rho, f"{step}: log of the ratio", 1e-5)
        close(given["values"][row], value[step], f"{step}: value", 1e-5)
        rho[step] = math.exp(log_rho)

    def discount(step):
        life = life_of(family, step)
        return 0.0 if life.terminated and step[3] == life.length - 1 else gamma

    def clipped(step, bar):
        return min(bar, rho[step]) if corrected else 1.0

    def delta(step):
        reward = float(columns[sb.REWARDS][rows[step]])
        return clipped(step, clip_rho) * (reward + discount(step) * next_value[step] - value[step])

    def is_followed(step):
        """Whether the next step is in the same fragment."""
        after = rows.get(following(step))
        return after is not None and columns[FRAGMENT][rows[step]] == columns[FRAGMENT][after]

    def target(step):
        total, weight, at = value[step] + delta(step), 1.0, step
        while is_followed(at):
            weight *= discount(at) * lambda_ * clipped(at, 1.0)
            at = following(at)
            total += weight * delta(at)
        return total

    for step, row in rows.items():
        close(given["targets"][row], target(step), f"{step}: target")
        next_target = target(following(step)) if is_followed(step) else next_value[step]
        reward = float(columns[sb.REWARDS][row])
        wanted = clipped(step, clip_pg_rho) * (reward + discount(step) * next_target - value[step])
        if not corrected:
            wanted = target(step) - value[step]
        close(given["advantages"][row], wanted, f"{step}: advantage")
    return max(abs(math.log(ratio)) for ratio in rho.values())
