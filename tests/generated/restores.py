"""Checkpoints that are restored into something else than the run that has written them.

A run with other settings has the new ones, and what is stored fits to them: it is converted, dropped with a sentence,
or refused with a remedy. A checkpoint of another run, put where a run's own was, is refused, and the run stays as it
was.
"""

import functools
import json
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rllib import Algorithm
from tests.generated import worlds
from tests.generated.comparisons import equal

# How a run is restored with other settings: by a checkpoint alone, or into an algorithm that was built with them.
WAYS = ("from_checkpoint", "restore")
# Checkpoints that take the place of a run's own: of another algorithm, of the same one in a world with other spaces,
# with another network, or with other policies, of earlier versions of the library, of a policy alone, and a mixture of
# the files of two runs.
OTHERS = ("algorithm", "spaces", "network", "policies", "earlier", "policy alone", "mixture")
_KEPT = Path(__file__).parents[1] / "checkpoints"

State = Mapping[str, Any]
Rows = Mapping[str, np.ndarray]


def state_of(algorithm: Algorithm) -> dict[str, Any]:
    """What a checkpoint would hold, and all rows of replays; copies."""
    state = _copied(algorithm.get_state())
    for policy_id, rows in rows_of(algorithm).items():
        state[f"rows of {policy_id}"] = rows
    return state


def rows_of(algorithm: Algorithm) -> dict[str, Rows]:
    """Policy id -> the rows in its replay that the run has sampled itself."""
    own = {policy_id: each.own_rows() for policy_id, each in algorithm.trainees.items() if hasattr(each, "own_rows")}
    return {policy_id: _copied(replay.get_state()) for policy_id, replay in own.items() if replay is not None}


def _copied(value):
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value
    return np.array(value) if isinstance(value, np.ndarray) else value


def changed_files(before: State, after: State) -> list[str]:
    """Files of two states that differ."""
    return sorted(name for name in before.keys() | after.keys() if not equal(before.get(name), after.get(name)))


# ------------------------------------------------------------------ other settings


def lost_files(before: State, after: State) -> list[str]:
    """Files of networks, optimizers and statistics that differ, though no setting changes them."""
    return [name for name in before if name.endswith(_KEPT_FILES) and not equal(before[name], after.get(name))]


_KEPT_FILES = ("weights.safetensors", "learner.safetensors")


def wrong_rows(before, after, saved: Rows, restored: Rows) -> Iterator[str]:
    """What is wrong with the rows of a replay that were saved by one run and are in another one.

    Args:
        before, after: settings of the policy in these runs.
        saved, restored: states of the replay.
    """
    if not _count(restored):
        if _count(saved) and before.store_buffer_in_checkpoints and after.store_buffer_in_checkpoints:
            yield "rows that are to be stored have been dropped"
        return
    for name in (name for name in saved if "columns." in name):
        column = name.rpartition("columns.")[2]
        rows = saved[name]
        if column in _DISCOUNTS:
            of_setting = _DISCOUNTS[column]
            gammas = of_setting(before), of_setting(after)
            if gammas[0] != gammas[1]:
                if before.n_step > 1 or not gammas[0]:
                    yield f"rows of {before.n_step} steps have the discount {gammas[0]}, but their run has {gammas[1]}"
                    continue
                rows = np.where(rows > 0, np.float32(gammas[1]), np.float32(0))
        if not np.array_equal(rows, restored[name], equal_nan=True):
            yield f"{name} of the replay differs from what was saved"
    old, new = _exponent(before), _exponent(after)
    for name in (name for name in restored if name.endswith(("priorities", "largest_priority"))):
        if not old or new is None or name not in saved:
            continue
        errors = np.abs(saved[name]) ** (1 / old) - _epsilon(before) + _epsilon(after)
        expected = np.where(saved[name] > 0, np.maximum(errors, 0) ** new, 0)
        if not np.allclose(restored[name], expected, rtol=1e-6):
            yield f"{name} has not the exponent {new}: {restored[name]} instead of {expected}"


def wrong_discounts(before, after, rows: Rows) -> Iterator[str]:
    """What is wrong with the discounts of rows after an iteration with the settings `after`."""
    most = max(before.n_step, after.n_step)
    for name in (name for name in rows if name.rpartition("columns.")[2] in _DISCOUNTS):
        gamma = _DISCOUNTS[name.rpartition("columns.")[2]](after)
        allowed = np.array([0.0, *(gamma**k for k in range(1, most + 1))])
        if not np.isclose(rows[name][..., None], allowed, rtol=1e-5).any(-1).all():
            yield f"{name} has {np.unique(rows[name])[:6]}, which are no powers of {gamma}"


# Column of a replay -> the discount per step by the settings.
_DISCOUNTS = {
    "discounts": lambda config: config.gamma,
    "cost_discounts": lambda config: config.get_cost_gamma(),
}


def _count(rows: Rows) -> int:
    return sum(int(rows[name]) for name in rows if name.endswith("added"))


def _exponent(config) -> float | None:
    settings = config.replay_settings()
    return settings.prioritized_replay_alpha if settings.has_priorities else None


def _epsilon(config) -> float:
    return config.replay_settings().prioritized_replay_eps


# ------------------------------------------------------------------ another checkpoint


def put_in_place(path: Path, kind: str, draw: Mapping[str, Any], build, rng: random.Random) -> bool:
    """Replaces a run's checkpoint by another one; False where there is none of this kind.

    Args:
        kind: one of OTHERS.
        build: function of a draw that returns its algorithm, or None if it is refused.
    """
    with tempfile.TemporaryDirectory(prefix="draw-") as place:
        if (other := _other_checkpoint(kind, draw, build, Path(place), rng)) is None:
            return False
        if kind == "mixture":
            for file in other.rglob("*"):
                if file.is_file() and file.name != "manifest.json":
                    (path / file.relative_to(other)).parent.mkdir(exist_ok=True, parents=True)
                    shutil.copy(file, path / file.relative_to(other))
        else:
            shutil.rmtree(path)
            shutil.copytree(other, path)
    return True


def _other_checkpoint(kind: str, draw: Mapping[str, Any], build, place: Path, rng: random.Random) -> Path | None:
    if kind == "earlier":
        found = [each.parent for each in sorted(_KEPT.rglob("manifest.json"))]
        return rng.choice([each for each in found if _algorithm_of(each) != draw["algorithm"]])
    made = _changed_draw(kind, draw)
    with worlds.others():
        algorithm = None if made is None else build(made)
    if algorithm is None:
        return None
    try:
        if kind == "policy alone":
            return algorithm.export_policy_model(place / "other", policy_id=next(iter(algorithm.policies)))
        return Path(algorithm.save(place / "other"))
    finally:
        algorithm.stop()


def _changed_draw(kind: str, draw: Mapping[str, Any]) -> dict[str, Any] | None:
    """The draw of another run."""
    world, settings = draw["world"], draw["settings"]
    made = {**draw, "seed": draw["seed"] + 1, "changes": []}
    short = {
        name: value for name, value in settings.items() if name in ("num_rollout_workers", "min_time_s_per_iteration")
    }
    if kind in ("algorithm", "mixture"):
        other = "PG" if draw["algorithm"] != "PG" else "A2C"
        plain = {"kind": "single", "observation": "numbers", "action": "choice", "length": 5}
        return {"seed": 0, "algorithm": other, "world": plain, "settings": {**short, "model": {"fcnet_hiddens": [4]}}}
    if kind == "spaces":
        other = "number" if world["observation"] != "number" else "numbers"
        return {**made, "world": {**world, "observation": other}}
    if kind == "network":
        return {**made, "settings": {**settings, "model": {**settings.get("model", {}), "fcnet_hiddens": [3]}}}
    if kind == "policies":
        if world["kind"] not in worlds.OF_AGENTS:
            return None
        mapping = {"agent_*": "other"}
        return {**made, "settings": {**settings, "policies": ["other", "unused"], "policy_mapping_fn": mapping}}
    return made


def fits(checkpoint: State, own: State) -> bool:
    """Whether a checkpoint is one that a run of this state can go on from: of its kind, policies and networks."""
    if checkpoint["algorithm.json"]["algorithm"] != own["algorithm.json"]["algorithm"]:
        return False
    names = {name for state in (checkpoint, own) for name in state if name.endswith("/policy.json")}
    specs = [[json.dumps(_spec(state.get(name)), default=str) for name in sorted(names)] for state in (checkpoint, own)]
    return specs[0] == specs[1]


def _spec(description) -> Any:
    return None if description is None else {"spec": description["spec"], "action": repr(description["action_space"])}


@functools.cache
def _algorithm_of(path: Path) -> str:
    return json.loads((path / "algorithm.json").read_text()).get("algorithm", "")  # the first format has none
