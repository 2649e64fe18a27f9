"""Rows of fragments and of replays, computed again from scripts."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from rllib import sample_batch as sb
from rllib.evaluation.postprocess.sequences import BOOTSTRAP_AT, BURN_IN
from tests.witness.checks.steps import Step, Steps, close, following, life_of, reward_of
from tests.witness.script import Family, decoded, observation

Columns = Mapping[str, np.ndarray]
# Column that the reader adds: number of the fragment that a row comes from, beyond whose end no trace goes.
FRAGMENT = "fragment"
# Column of log-probabilities by hand, where a batch's actions are given as numbers, not as they are stored.
EXPECTED_LOGP = "expected_logp"
# Rewards, advantages, targets and values of one kind of reward.
OF_REWARDS = (sb.REWARDS, sb.ADVANTAGES, sb.VALUE_TARGETS, sb.VF_PREDS)


def action_number(action: np.ndarray) -> float:
    """A stored action in the environment's units, where both are the same."""
    return float(action)


def categorical(inputs: np.ndarray, action: np.ndarray) -> float:
    """Log-probability of a choice under logits."""
    return inputs[int(action)] - np.log(np.exp(inputs).sum())


def check_on_policy(
    columns: Columns,
    family: Family,
    steps: Steps,
    values: Callable,
    gamma: float,
    lambda_: float,
    may_cut: bool = False,
) -> None:
    """Checks the rows of fragments.

    Args:
        columns: as the learner gets them.
        family: of the scripts.
        steps: gets the rows.
        values: function of observations [K, size] that gives the policy's values, which have not changed since.
        gamma, lambda_: of generalized advantages (arXiv:1506.02438, eq. 16).
        may_cut: whether a rule may cut lives: `steps.cuts` gets the rows that are truncated before their life's last.
    """
    rows = check_rows(columns, family, steps, may_cut=may_cut)
    if sb.ADVANTAGES in columns:
        values_of = lambda places: values(np.stack([observation(*step) for step in places]))  # noqa: E731
        check_advantages(columns, rows, family, values_of, gamma, lambda_)


def check_rows(
    columns: Columns,
    family: Family,
    steps: Steps,
    *,
    decode: Callable = decoded,
    played: Callable = action_number,
    log_prob: Callable = categorical,
    scaled: Callable[[Step, float], float] | None = None,
    may_cut: bool = False,
) -> dict[Step, int]:
    """Checks rewards, ends and log-probabilities of the rows of fragments; returns the row of each step.

    Args:
        columns: as the learner gets them.
        family: of the scripts.
        steps: gets the rows.
        decode: gives the step of a stored observation.
        played: gives the number in the environment's units of a stored action.
        log_prob: function of parameters of a distribution and a stored action.
        scaled: gives the reward that is learned from, of a step and the environment's reward; None: that one.
        may_cut: as for `check_on_policy`.
    """
    rows: dict[Step, int] = {}
    for row, seen in enumerate(columns[sb.OBS]):
        if sb.LOSS_MASK in columns and not columns[sb.LOSS_MASK][row]:
            continue
        step, action = decode(seen), columns[sb.ACTIONS][row]
        steps.add(step, played(action))
        rows[step] = row
        life = life_of(family, step)
        assert step[3] < life.length, f"{step} comes after the end of its life"
        reward = reward_of(family, step, steps.actions[step])
        reward = reward if scaled is None else scaled(step, reward)
        close(columns[sb.REWARDS][row], reward, f"{step}: reward", 1e-6)
        is_last = step[3] == life.length - 1
        assert bool(columns[sb.TERMINATEDS][row]) == (is_last and life.terminated), f"{step}: terminated"
        if is_last and not life.terminated and not life.is_cut:  # else the cut may have come in a later fragment
            assert columns[sb.TRUNCATEDS][row], f"{step}: the last one, and not truncated"
        if columns[sb.TRUNCATEDS][row] and not is_last:
            assert may_cut, f"{step}: truncated, and not the last one"
            steps.cuts.add(step)
        if sb.ACTION_LOGP in columns:
            if EXPECTED_LOGP in columns:
                expected = columns[EXPECTED_LOGP][row]
            else:
                expected = log_prob(np.asarray(columns[sb.ACTION_DIST_INPUTS][row], np.float64), action)
            close(columns[sb.ACTION_LOGP][row], expected, f"{step}: log-probability", 1e-5)
    return rows


def check_whole(columns: Columns, family: Family, decode: Callable = decoded) -> None:
    """Checks that the lives in a batch are whole, from the first step to the last (batch_mode "complete_episodes")."""
    found: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for row, seen in enumerate(columns[sb.OBS]):
        if sb.LOSS_MASK not in columns or columns[sb.LOSS_MASK][row]:
            *life, step = decode(seen)
            found[tuple(life)].append(step)
    for life, steps in found.items():
        length = life_of(family, (*life, 0)).length
        assert sorted(steps) == list(range(length)), f"a batch of whole episodes has the steps {steps} of {life}"


def check_advantages(
    columns: Columns,
    rows: Mapping[Step, int],
    family: Family,
    values_of: Callable[[Sequence[Step]], np.ndarray],
    gamma: float,
    lambda_: float,
    names: Sequence[str] = OF_REWARDS,
) -> None:
    """Checks generalized advantages, and the targets of values.

    Args:
        columns: as the learner gets them.
        rows: row of each step.
        family: of the scripts.
        values_of: the policy's values of steps, also of those that come after the last one of a life.
        gamma, lambda_: of generalized advantages (arXiv:1506.02438, eq. 16).
        names: columns of the rewards, advantages, targets and values; those that are absent are not checked.
    """
    rewards, *checked = names
    here = np.asarray(values_of(list(rows)), np.float64)
    after = np.asarray(values_of([following(step) for step in rows]), np.float64)
    value, next_value = dict(zip(rows, here)), dict(zip(rows, after))
    advantages: dict[Step, float] = {}
    for step in sorted(rows, reverse=True):
        life, row = life_of(family, step), rows[step]
        is_terminal = life.terminated and step[3] == life.length - 1
        delta = float(columns[rewards][row]) - value[step]
        if not is_terminal:
            delta += gamma * next_value[step]
        after_row = rows.get(following(step))
        goes_on = after_row is not None and (
            FRAGMENT not in columns or columns[FRAGMENT][row] == columns[FRAGMENT][after_row]
        )
        advantages[step] = delta + (gamma * lambda_ * advantages[following(step)] if goes_on else 0.0)
        expected = advantages[step], advantages[step] + value[step], value[step]
        for name, wanted in zip(checked, expected, strict=True):
            if name in columns:
                close(columns[name][row], wanted, f"{step}: {name}")


def transitions_of(columns: Columns) -> Iterable[tuple]:
    """(observation, action, reward, discount, what followed, whether it may have fewer than n steps) of each row."""
    if BURN_IN not in columns:
        for row in range(len(columns[sb.OBS])):
            names = (sb.OBS, sb.ACTIONS, sb.REWARDS, sb.DISCOUNTS, sb.NEXT_OBS)
            yield (*(columns[name][row] for name in names), False)
        return
    for i, (burn_in, length) in enumerate(zip(columns[BURN_IN], columns[sb.SEQ_LENS])):
        seen, count = columns[sb.OBS][i], int(burn_in + length)
        places = [decoded(each) for each in seen[:count]]
        for before, after in itertools.pairwise(places):
            assert after == following(before), f"a sequence goes from {before} to {after}"
        for t in range(int(burn_in), count):
            at = int(columns[BOOTSTRAP_AT][i, t])
            row = (columns[name][i, t] for name in (sb.ACTIONS, sb.REWARDS, sb.DISCOUNTS))
            yield (seen[t], *row, seen[at], at == count)


def check_stored(
    batches: Iterable[Columns],
    family: Family,
    steps: Steps,
    gamma: float,
    n_step: int,
    cuts: Collection[Step] = (),
    *,
    played: Callable = action_number,
) -> None:
    """Checks all rows that replays took in: sums of up to n rewards, what followed, its discount, and their order.

    Args:
        batches: that replays took in.
        family: of the scripts.
        steps: gets the rows.
        gamma: discount per step.
        n_step: rewards that a row sums up, at most.
        cuts: steps before which a rule cuts lives, so that the rows before them have fewer steps.
        played: gives the number in the environment's units of a stored action.
    """
    rows, lengths = {}, Counter()
    for columns in batches:
        for seen, action, reward, discount, after, may_be_short in transitions_of(columns):
            step = decoded(seen)
            steps.add(step, played(action))
            life = life_of(family, step)
            if discount:
                end = decoded(after)
                assert end[:3] == step[:3], f"{step} is followed by {end}"
                end = end[3]
            else:
                assert life.terminated, f"{step}: discount 0 in a life that was not terminated"
                end = life.length
            rows[step] = end, float(reward), float(discount), may_be_short
            lengths[step[:3]] = max(lengths[step[:3]], end)
    for step, (end, reward, discount, may_be_short) in rows.items():
        life, count = life_of(family, step), end - step[3]
        assert 0 < count <= n_step, f"{step}: a row of {count} steps"
        expected = 0.0
        for k in range(count):
            action = steps.actions.get(following(step, k))
            if action is None:  # the row of a later step is still to come
                break
            expected += gamma**k * reward_of(family, following(step, k), action)
        else:
            close(reward, expected, f"{step}: reward")
        is_terminal = life.terminated and end == life.length
        close(discount, 0.0 if is_terminal else gamma**count, f"{step}: discount", 1e-6)
        is_short = count < n_step and not may_be_short
        is_cut = following(step, count) in cuts
        assert not is_short or is_cut or end == lengths[step[:3]], f"{step}: {count} steps, not {n_step}"
