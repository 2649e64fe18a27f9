"""The form of a checkpoint's rng.json: states of the run's random streams, and what else resumes them.

learner      policy id -> state of a generator; in an older format the state of the only policy's
inference    state of the generator by which the algorithm itself acts
workers      one list for each worker, with one dict for each stream, or the place in recorded rows; a source that the
             user wrote has its own
"""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from rllib.errors import DamagedFileError
from rllib.storage.foreign_files import WRONG_FORM

# Largest number that a run can have counted, of episodes, fragments or rows.
_MOST = 2**53
# Numbers that count, by their names in the state of a stream, and their least values: -1 before the first episode.
_COUNTS = {"episode": -1, "used": 0, "incarnation": 0, "num_fragments": 0, "epoch": 0, "place": 0}
# Names of which the state of a stream has one at least: of actions, of an environment's episodes, of tensors, of rows.
_KINDS = ("rng", "episode", "num_fragments", "place")


def refuse_damaged_streams(rng: Mapping[str, Any], policies: Collection[str], learned: Collection[str]) -> None:
    """Refuses the content of an rng.json that no run has written.

    Which division of environments among workers, and which policies a restored run has, makes no difference.

    Args:
        rng: the content.
        policies: ids of all policies of the saved run.
        learned: ids of the policies that learned in it.

    Raises:
        DamagedFileError: (a ValueError) with the place in the file.
    """
    for name in ("learner", "inference", "workers"):
        _check(name in rng, name, None, "be there")
    learner, workers = rng["learner"], rng["workers"]
    _check(isinstance(learner, Mapping), "learner", learner, "have states of generators by policy")
    if "bit_generator" in learner:
        _check_generator("learner", learner)
    else:
        missing = sorted(set(learned) - learner.keys())
        _check(not missing, "learner", learner, f"have the policies {', '.join(missing)}, which learned")
        for policy_id, state in learner.items():
            _check_generator(f"learner[{policy_id!r}]", state)
    _check_generator("inference", rng["inference"])
    _check(isinstance(workers, list), "workers", workers, "be a list")
    for index, worker in enumerate(workers):
        place = f"workers[{index}]"
        if isinstance(worker, Mapping) and "place" in worker:
            _check_stream(place, worker, policies)
            continue
        if isinstance(worker, Mapping) and worker:  # of a source that the user wrote, which reads it
            continue
        _check(isinstance(worker, list), place, worker, "be a list")
        for stream, state in enumerate(worker):
            _check_stream(f"{place}[{stream}]", state, policies)
        _check_slots(place, worker)


def _check_stream(place: str, state: Any, policies: Collection[str]) -> None:
    is_one = isinstance(state, Mapping) and any(name in state for name in _KINDS)
    _check(is_one, place, state, f"be a dict with {' or '.join(_KINDS)}")
    for name in _COUNTS.keys() & state.keys():
        least, number = _COUNTS[name], state[name]
        _check(_is_count(number, least), f"{place}.{name}", number, f"be an integer from {least} to {_MOST}")
    if "slots" in state:
        _check(_is_count(state["slots"], 1), f"{place}.slots", state["slots"], "be an integer >= 1")
    if "policy" in state:
        known = isinstance(state["policy"], str) and state["policy"] in policies
        _check(known, f"{place}.policy", state["policy"], f"be one of {', '.join(sorted(map(str, policies)))}")
    for name, generator in _generators(state):
        _check_generator(f"{place}.{name}", generator)
    explored = state.get("exploration", {})
    _check(isinstance(explored, Mapping), f"{place}.exploration", explored, "be a dict")
    if "shared_rng" in explored:
        _check_generator(f"{place}.exploration.shared_rng", explored["shared_rng"])
    scale = explored.get("scale")
    if isinstance(scale, float):
        _check(math.isfinite(scale), f"{place}.exploration.scale", scale, "be finite")


def _generators(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(name, state) of the generators of a stream; a number of used draws needs the state before them."""
    if "rng" in state:
        yield "rng", state["rng"]
    if "used" in state or "drawn_from" in state:
        yield "drawn_from", state.get("drawn_from")


def _check_slots(place: str, worker: list[Mapping[str, Any]]) -> None:
    """Checks that every environment of a worker has all slots of a policy; older formats do not say how many."""
    episodes = sum("episode" in each for each in worker)
    by_policy: dict[str, list] = {}
    for each in worker:
        if "policy" in each:
            by_policy.setdefault(each["policy"], []).append(each.get("slots"))
        else:
            _check(not episodes or "episode" in each, place, sorted(each), "have streams of policies, or of none")
    for policy_id, slots in by_policy.items():
        if set(slots) != {None}:
            count = slots[0]
            fits = set(slots) == {count} and len(slots) == count * episodes
            where = f"{place}, slots of {policy_id!r}"
            _check(fits, where, slots, f"be one number, of which {episodes} environments have {len(slots)}")


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST


def _check_generator(place: str, state: Any) -> None:
    generator = np.random.PCG64(0)
    try:
        generator.state = state
        # What numpy has rounded or cut was no state of it.
        is_one = generator.state == state and state["state"]["inc"] % 2 == 1 and state["has_uint32"] in (0, 1)
    except WRONG_FORM:
        is_one = False
    _check(is_one, place, state, "be the state of numpy's PCG64")


def _check(is_right: bool, place: str, found: Any, rule: str) -> None:
    if not is_right:
        raise DamagedFileError(f"{place} of its rng.json must {rule}, but is {found!r:.100}")
