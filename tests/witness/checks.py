"""Checks that compute every number of a batch again, from the scripts alone, in float64."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rllib import sample_batch as sb
from rllib.evaluation.postprocess.sequences import BOOTSTRAP_AT, BURN_IN
from tests.witness.script import ACTION_REWARD, Family, Life, decoded, episode, observation

# Column of log-probabilities that the reader has computed.
EXPECTED_LOGP = "expected_logp"
Columns = Mapping[str, np.ndarray]
# Name of a step: (serial, number, agent, step).
Step = tuple[int, int, int, int]


def life_of(family: Family, step: Step) -> Life:
    """The life in which a step is, by the script."""
    serial, number, agent, index = step
    life = episode(family, serial, number).lives.get(agent)
    assert life is not None and index <= life.length, f"the script has no such step: {step}"
    return life


def following(step: Step, count: int = 1) -> Step:
    """The step of the same life that comes `count` later."""
    return (*step[:3], step[3] + count)


@dataclass
class Steps:
    """Steps that batches had, each once.

    Attributes:
        counts: how often each was there.
        cuts: steps whose life was cut after them where its script goes on, because the environment was replaced.
        actions: of each.
    """

    counts: Counter = field(default_factory=Counter)
    cuts: set[Step] = field(default_factory=set)
    actions: dict[Step, float] = field(default_factory=dict)

    def add(self, step: Step, action: float) -> None:
        """Notes a row of a step.

        Raises:
            AssertionError: it was there before.
        """
        self.counts[step] += 1
        assert self.counts[step] == 1, f"{step} came twice"
        self.actions[step] = action

    def check_complete(self, family: Family, num_open: int = 0, agents: Container[int] | None = None) -> int:
        """Each life has all of its steps, but for the newest of each environment, which may lack its end.

        Args:
            family: of the scripts.
            num_open: number of episodes before the newest that may lack their end as well.
            agents: those whose steps batches hold; None: all.

        Returns:
            Number of lives that are complete.
        """
        by_life: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for *life, index in self.counts:
            by_life[tuple(life)].append(index)
        newest = Counter()
        for serial, number, _ in by_life:
            newest[serial] = max(newest[serial], number)
        complete = 0
        assert not (resumed := {step for step in self.cuts if following(step) in self.counts}), (
            f"after a cut: {resumed}"
        )
        for serial, last in newest.items():
            for number in range(last + 1):
                for agent, life in episode(family, serial, number).lives.items():
                    if agents is not None and agent not in agents:
                        continue
                    steps = sorted(by_life[serial, number, agent])
                    assert steps == list(range(len(steps))), f"steps of {serial, number, agent}: {steps}"
                    assert len(steps) <= life.length
                    is_complete = len(steps) == life.length
                    assert is_complete or number >= last - num_open, (
                        f"{serial, number, agent} has {len(steps)} of {life.length} steps"
                    )
                    complete += is_complete
        return complete


def check_on_policy(
    columns: Columns,
    family: Family,
    steps: Steps,
    values: Callable,
    gamma: float,
    lambda_: float,
    may_cut: bool = False,
) -> None:
    """Checks the rows of one fragment of each environment.

    Args:
        columns: as the learner gets them.
        family: of the scripts.
        steps: gets the rows.
        values: function of observations [K, size] that gives the policy's values, which have not changed since.
        gamma, lambda_: of generalized advantages (arXiv:1506.02438, eq. 16).
        may_cut: whether an environment may be replaced where its script goes on: another one of its vector has failed.
    """
    rows: dict[Step, int] = {}
    for row, seen in enumerate(columns[sb.OBS]):
        if sb.LOSS_MASK in columns and not columns[sb.LOSS_MASK][row]:
            continue
        step = decoded(seen)
        steps.add(step, float(columns[sb.ACTIONS][row]))
        rows[step] = row
        life = life_of(family, step)
        reward = life.rewards[step[3]] + ACTION_REWARD * float(columns[sb.ACTIONS][row])
        assert abs(columns[sb.REWARDS][row] - reward) <= 1e-6 * reward, (
            f"{step}: reward {columns[sb.REWARDS][row]}, not {reward}"
        )
        is_last = step[3] == life.length - 1
        assert bool(columns[sb.TERMINATEDS][row]) == (is_last and life.terminated), f"{step}: terminated"
        if is_last and not life.terminated and not life.is_cut:  # else the cut may have come in a later fragment
            assert columns[sb.TRUNCATEDS][row], f"{step}: the last one, and not truncated"
        if columns[sb.TRUNCATEDS][row] and not is_last:
            assert may_cut, f"{step}: truncated, and not the last one"
            steps.cuts.add(step)
        if sb.ACTION_LOGP in columns:
            error = columns[EXPECTED_LOGP][row] - columns[sb.ACTION_LOGP][row]
            assert abs(error) < 1e-5 * (1 + abs(columns[sb.ACTION_LOGP][row])), f"{step}: log-probability"
    if sb.ADVANTAGES not in columns:
        return
    here = np.asarray(values(np.stack([observation(*step) for step in rows])), np.float64)
    after = np.asarray(values(np.stack([observation(*following(step)) for step in rows])), np.float64)
    value, next_value = dict(zip(rows, here)), dict(zip(rows, after))
    advantages: dict[Step, float] = {}
    for step in sorted(rows, reverse=True):
        life, row = life_of(family, step), rows[step]
        is_terminal = life.terminated and step[3] == life.length - 1
        delta = float(columns[sb.REWARDS][row]) - value[step]
        if not is_terminal:
            delta += gamma * next_value[step]
        advantages[step] = delta + gamma * lambda_ * advantages.get(following(step), 0.0)
        scale = 1 + abs(advantages[step])
        for name, expected in ((sb.ADVANTAGES, 0.0), (sb.VALUE_TARGETS, value[step])):
            given, wanted = float(columns[name][row]), advantages[step] + expected
            assert abs(given - wanted) < 1e-4 * scale, f"{step}: {name} {given}, not {wanted}"
        assert abs(float(columns[sb.VF_PREDS][row]) - value[step]) < 1e-5, f"{step}: value"


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


def check_stored(batches: Iterable[Columns], family: Family, steps: Steps, gamma: float, n_step: int) -> None:
    """Checks all rows that replays took in: sums of up to n rewards, what followed, its discount, and their order."""
    rows, lengths = {}, Counter()
    for columns in batches:
        for seen, action, reward, discount, after, may_be_short in transitions_of(columns):
            step = decoded(seen)
            steps.add(step, float(action))
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
            played = steps.actions.get(following(step, k))
            if played is None:  # the row of a later step is still to come
                break
            expected += gamma**k * (life.rewards[step[3] + k] + ACTION_REWARD * played)
        else:
            assert abs(reward - expected) < 1e-4 * (1 + abs(expected)), f"{step}: reward {reward}, not {expected}"
        is_terminal = life.terminated and end == life.length
        assert abs(discount - (0.0 if is_terminal else gamma**count)) < 1e-6, f"{step}: discount {discount}"
        is_short = count < n_step and not may_be_short
        assert not is_short or end == lengths[step[:3]], f"{step}: {count} steps, not {n_step}"
