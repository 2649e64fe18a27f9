"""Covering arrays: few cases of several axes, in which all values of some of them occur together."""

import itertools
from types import MappingProxyType

import numpy as np
import pytest


class Combinations:
    """Cases of axes whose values go together by rules, as bits: each value of an axis has one.

    Args:
        axes: name -> values.
        rules: of (axis, its values, other axis -> the values that go with these).
        costly: axis -> its value that cases are to have less often than others.
    """

    def __init__(self, axes, rules=(), costly=MappingProxyType({})):
        self.axes, self._costly = axes, costly
        places = [(name, value) for name, values in axes.items() for value in values]
        self.bits = {place: 1 << i for i, place in enumerate(places)}
        self._against = dict.fromkeys(places, 0)
        for axis, values, others in rules:
            for value, (other, allowed) in itertools.product(values, others.items()):
                for refused in set(axes[other]) - set(allowed):
                    self._against[axis, value] |= self.bits[other, refused]
                    self._against[other, refused] |= self.bits[axis, value]

    def fit(self, places):
        """Whether these (axis, value) go together."""
        bits = sum(self.bits[place] for place in places)
        return not any(self._against[place] & bits for place in places)

    def filled(self, places, rng):
        """A case with values of all axes that go with these; None if a draw of them ended where nothing fits."""
        case, bits = dict(places), sum(self.bits[place] for place in places)
        for name in rng.permutation([name for name in self.axes if name not in case]):
            fitting = [value for value in self.axes[name] if not self._against[name, value] & bits]
            if not fitting:
                return None
            if len(fitting) > 1 and rng.random() < 0.7:
                fitting = [value for value in fitting if value != self._costly.get(name)]
            case[name] = fitting[rng.integers(len(fitting))]
            bits |= self.bits[name, case[name]]
        return {name: case[name] for name in self.axes}


def covering(axes, seed=0, *, strength=2, rules=(), costly=MappingProxyType({})):
    """Few cases, in which each `strength` values of different axes occur together that the rules admit.

    Args:
        axes, rules, costly: as for Combinations.
        seed: of the draws.
        strength: number of axes.
    """
    rng, groups = np.random.default_rng(seed), list(itertools.combinations(axes, strength))
    all_of = Combinations(axes, rules, costly)
    missing = dict.fromkeys(
        tuple(zip(names, values))
        for names in groups
        for values in itertools.product(*(axes[name] for name in names))
        if all_of.fit(tuple(zip(names, values)))
    )
    cases = []
    while missing:
        wanted = next(iter(missing))
        drawn = [case for _ in range(12) if (case := all_of.filled(wanted, rng))]
        missing.pop(wanted)  # where no case was drawn, these fit, but not with a value of another axis
        found = [[key for names in groups if (key := tuple((n, case[n]) for n in names)) in missing] for case in drawn]
        if found:
            best = max(range(len(drawn)), key=lambda i: len(found[i]))
            cases.append(drawn[best])
            for key in found[best]:
                del missing[key]
    return cases


def parameters(cases, axis, every=1):
    """The cases as parameters of a test.

    A case with processes, of workers or of environments, takes some twenty times as much CPU as another: such cases are
    slow, but for the first one with each value of an axis, and the first with environments in processes and each end.
    Of the others one in `every` is quick, and the first one with each value of each axis; the rest are slow.
    """
    made, seen, in_quick, alone = [], set(), set(), 0
    for case in cases:
        kind = case[axis] if case["workers"] else None
        if not case["workers"] and case["door"] == "processes":
            kind = "processes", case["ends"]
        is_slow = kind is not None and kind in seen
        if kind is None:
            is_slow = alone % every != 0 and in_quick >= set(case.items())
            alone += 1
        seen.add(kind)
        in_quick |= set() if is_slow else set(case.items())
        name = "-".join(map(str, case.values())).replace(" ", "_")
        made.append(pytest.param(case, id=name, marks=[pytest.mark.slow] if is_slow else []))
    return made
