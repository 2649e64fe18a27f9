"""Teachers of generated runs: functions of any world, networks that read what its environments give, several of both,
and such as fail; and what their labels have to be.

A world's observations follow from the step of its episode alone, so that all answers of a teacher can be listed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rllib import PPOConfig, load_policy
from rllib import sample_batch as sb
from rllib.env.spaces.actions import action_mapper
from rllib.env.spaces.batches import batch_of, rows_of
from rllib.env.spaces.observations import observation_column
from rllib.env.spaces.row_selection import structured
from tests.generated import worlds

# What stands for a teacher in a draw.
MARK = "teacher of"


def with_teacher(settings: Mapping[str, Any], world: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """The settings of a draw with the teachers that they ask for, in a world, or below a directory."""
    settings = dict(settings)
    if isinstance(settings.get("policies"), Mapping):  # of policies of their own
        own = settings["policies"].items()
        settings["policies"] = {policy_id: with_teacher(each, world, place) for policy_id, each in own}
    asked = settings.get("teacher")
    if not (isinstance(asked, Mapping) and MARK in asked):
        return settings
    form = asked[MARK]
    if form == "several":
        teachers = {name: _MADE[name](world, place) for name in NAMES.values()}
        return {**settings, "teacher": dict(zip(NAMES, teachers.values())), "teacher_mapping_fn": by_first_number}
    if form in FAULTS:
        return {**settings, **FAULTS[form].settings(world)}
    return {**settings, "teacher": _MADE[form](world, place)}


# Names of several teachers, of which not all are texts -> what they are.
NAMES = {"function": "function", 1: "network"}


def by_first_number(observation):
    """The name of the teacher of an observation, where there are several."""
    while isinstance(observation, Mapping | tuple):
        observation = next(iter(observation.values())) if isinstance(observation, Mapping) else observation[0]
    return list(NAMES)[int(10 * abs(float(np.ravel(observation)[0]))) // 3 % len(NAMES)]


class Chooser:
    """A function that chooses by the observation's first number, legal actions alone."""

    def __init__(self, world: Mapping[str, Any]):
        self.space = worlds.World(world).action_space

    def __eq__(self, other):
        return isinstance(other, Chooser) and self.space == other.space

    __hash__ = None

    def __call__(self, observations):
        masks, numbers = _mask(observations), _numbers(observations)
        masks = [None] * len(numbers) if masks is None else masks
        actions = [_chosen(self.space, number, mask) for number, mask in zip(numbers, masks)]
        return batch_of(self.space, actions)


def _mask(observations) -> np.ndarray | None:
    return observations.get("action_mask") if isinstance(observations, Mapping) else None


def _numbers(observations) -> list[int]:
    while isinstance(observations, Mapping | tuple):
        observations = next(iter(observations.values())) if isinstance(observations, Mapping) else observations[0]
    return [int(10 * abs(float(np.ravel(row)[0]))) for row in np.asarray(observations)]


def _chosen(space: gymnasium.Space, number: int, mask):
    """An action; the mask's numbers are used up from the front."""
    mask = None if mask is None else list(mask)
    return _part(space, number, mask)


def _part(space: gymnasium.Space, number: int, mask: list | None):
    match space:
        case Discrete():
            return int(space.start) + _choice(int(space.n), number, mask)
        case MultiDiscrete():
            return np.array([_choice(int(n), number, mask) for n in space.nvec], space.dtype)
        case MultiBinary():
            return np.array([_choice(2, number, mask) for _ in range(space.shape[0])], space.dtype)
        case Box() if space.dtype.kind == "i":
            counts = (space.high - space.low + 1).tolist()
            return space.low + np.array([_choice(int(n), number, mask) for n in counts], space.dtype)
        case Box():
            low, high = np.maximum(space.low, -1), np.minimum(space.high, 1)
            return (low + (high - low) * (number % 3) / 2).astype(space.dtype)
        case Dict():
            return {key: _part(part, number, mask) for key, part in space.spaces.items()}
        case Tuple():
            return tuple(_part(part, number, mask) for part in space.spaces)
    raise TypeError(f"no action of {space} is known")


def _choice(count: int, number: int, mask: list | None) -> int:
    if mask is None:
        return number % count
    own = [mask.pop(0) for _ in range(count)]
    legal = [index for index, is_legal in enumerate(own) if is_legal] or [0]
    return legal[number % len(legal)]


def _mapped(change: Callable[[np.ndarray], Any], answer):
    """A batch of actions with each of its arrays changed."""
    if isinstance(answer, dict):
        return {key: _mapped(change, part) for key, part in answer.items()}
    return tuple(_mapped(change, part) for part in answer) if isinstance(answer, tuple) else change(np.asarray(answer))


class Changed:
    """A Chooser whose answers are changed, array by array."""

    def __init__(self, world: Mapping[str, Any], change: Callable[[np.ndarray], Any]):
        self.chooser, self.change = Chooser(world), change

    def __eq__(self, other):
        return isinstance(other, Changed) and (self.chooser, self.change) == (other.chooser, other.change)

    __hash__ = None

    def __call__(self, observations):
        return _mapped(self.change, self.chooser(observations))


def as_tensors(answer):
    """Tensors as networks return them, with a graph where they are numbers."""
    import torch  # takes a second to import

    return torch.as_tensor(answer).requires_grad_(answer.dtype.kind == "f")


def far(answer):
    """Numbers far beyond any bound; choices stay as they are."""
    return answer * 100 if answer.dtype.kind == "f" else answer


def _function(world: Mapping[str, Any], place: Path) -> Chooser:
    return Chooser(world)


def _tensors(world: Mapping[str, Any], place: Path) -> Changed:
    return Changed(world, as_tensors)


def _beyond(world: Mapping[str, Any], place: Path) -> Changed:
    return Changed(world, far)


def _network(world: Mapping[str, Any], place: Path, **model: Any) -> Any:
    """The path of an untrained PPO's policy, of one agent; a function where it cannot be built."""
    path = place / ("teacher with a memory" if model else "teacher")
    if world["kind"] not in ("single", "vector", "agents"):
        return _function(world, place)
    if not path.exists():
        kind = "single" if world["kind"] == "agents" else world["kind"]
        config = PPOConfig().environment(worlds.DOORS[kind], env_config={**world, "kind": kind, "fails": 0})
        config.environment(action_mask_from=world.get("mask") or "observation").debugging(seed=0)
        config.rollouts(num_rollout_workers=0, observation_filter="MeanStdFilter")
        is_image = world["observation"] in worlds.HAS_IMAGE
        layers = {"conv_filters": [[2, 6, 6]], "post_fcnet_hiddens": [6]} if is_image else {}
        with config.training(model={"fcnet_hiddens": [6], **layers, **model}).build() as algorithm:
            algorithm.export_policy_model(path)
    return str(path)


def _remembering(world: Mapping[str, Any], place: Path) -> Any:
    return _network(world, place, use_gru=True, lstm_cell_size=4)


_MADE = {
    "function": _function, "network": _network, "network with a memory": _remembering, "tensors": _tensors,
    "beyond": _beyond,
}  # fmt: skip
FORMS = (*_MADE, "several")


# ------------------------------------------------------------------ teachers that fail


@dataclass(frozen=True)
class TeacherFault:
    """A teacher that cannot be learned from.

    Attributes:
        settings: function of the world that returns them.
        at_build: whether build() refuses it; else the first step does, by naming it.
    """

    settings: Callable[[Mapping[str, Any]], dict[str, Any]]
    at_build: bool = False


def _raising(observations):
    raise ZeroDivisionError("no answer")


def _nowhere(observation):
    return "nowhere"


def _a_list(observation):
    return ["function"]


def _answers(change: Callable[[np.ndarray], Any]) -> Callable:
    return lambda world: {"teacher": Changed(world, change)}


def _mapping(function: Any) -> Callable:
    return lambda world: {"teacher": {"function": Chooser(world)}, "teacher_mapping_fn": function}


FAULTS: dict[str, TeacherFault] = {
    "raising": TeacherFault(lambda world: {"teacher": _raising}),
    "complex": TeacherFault(_answers(lambda answer: answer + 1j)),
    "objects": TeacherFault(_answers(lambda answer: np.array([None] * len(answer), object))),
    "no number": TeacherFault(_answers(lambda answer: answer * np.nan)),
    "too few": TeacherFault(_answers(lambda answer: np.concatenate([answer, answer]))),
    "nowhere": TeacherFault(_mapping(_nowhere)),
    "a list": TeacherFault(_mapping(_a_list)),
    "no mapping": TeacherFault(_mapping("function"), at_build=True),
    "class": TeacherFault(lambda world: {"teacher": Chooser}, at_build=True),
    "number": TeacherFault(lambda world: {"teacher": 3}, at_build=True),
    "number and mapping": TeacherFault(
        lambda world: {"teacher": 3, "teacher_mapping_fn": by_first_number}, at_build=True
    ),
}


def fault_of(draw: Mapping[str, Any]) -> TeacherFault | None:
    """The fault of the run's teacher in a draw; None: it has none."""
    asked = draw["settings"].get("teacher")
    return FAULTS.get(asked.get(MARK)) if isinstance(asked, Mapping) else None


# ------------------------------------------------------------------ what labels have to be


def wrong_labels(algorithm, world: Mapping[str, Any], policy_id: str, batch: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the labels of a batch that a learner gets; nothing where they cannot be known here.

    Each label is one of the teacher's answers in the steps whose observation the row has.
    """
    policy, config = algorithm.policies[policy_id], algorithm.config_of(policy_id)
    seen = _seen_by(policy, config, world)
    if seen is None or sb.TEACHER_ACTIONS not in batch:
        return
    answers = _answers_of(config, world, policy)
    if answers is None:
        return
    rows = batch[sb.LOSS_MASK] if sb.LOSS_MASK in batch else slice(None)
    observations = np.asarray(batch[sb.OBS])[rows].reshape(-1, *seen.shape[1:])
    mapper = action_mapper(
        policy.action_space, policy.distribution, algorithm.config.normalize_actions, algorithm.config.clip_actions
    )
    labels = np.asarray(batch[sb.TEACHER_ACTIONS])[rows].reshape(-1, *policy.action_shape)
    # What a function asks for is clipped; a network's mean may lie beyond the bounds, as its student's may.
    are_functions = not any(isinstance(each, str) for each in _teachers_of(config).values())
    bounds = (algorithm.config.normalize_actions or algorithm.config.clip_actions) and mapper.policy_bounds
    if are_functions and bounds and not ((labels >= bounds[0] - 1e-5) & (labels <= bounds[1] + 1e-5)).all():
        yield f"{policy_id}: a teacher's action is beyond the bounds {bounds}"
    taught = [_flat(row) for row in rows_of(policy.action_space, mapper.to_env(labels))]
    for row, label in zip(observations, taught):
        steps = np.flatnonzero((seen == row).reshape(len(seen), -1).all(-1))
        if not any(np.allclose(label, answers[step], atol=1e-4) for step in steps):
            yield f"{policy_id}: the teacher's action is {label}, and not {[answers[step].tolist() for step in steps]}"
            return
    if config.beta == 1 and sb.ACTIONS in batch and len(labels):
        actions = np.asarray(batch[sb.ACTIONS])[rows].reshape(labels.shape)
        if not np.allclose(actions, labels, atol=1e-5):
            yield f"{policy_id}: with beta=1 an action is not the teacher's"


def _flat(action) -> np.ndarray:
    if isinstance(action, Mapping):
        action = tuple(action.values())
    return np.concatenate(list(map(_flat, action))) if isinstance(action, tuple) else np.ravel(action).astype(float)


def seen_in_steps(space: gymnasium.Space, config, world: Mapping[str, Any]) -> np.ndarray | None:
    """Stored observations of this space in the steps of a world's episode and after it, [length + 1, ...].

    None where settings or masks make others of them.
    """
    changed = config.env_wrappers or config.env_to_module_connector or config.disturbances or config.centralized_critic
    if changed or world.get("mask") or config.agent_id_in_observation:
        return None
    full = worlds.OBSERVATIONS[world["observation"]]
    if space != full and not (
        isinstance(space, Dict) and isinstance(full, Dict) and space.spaces.keys() < full.spaces.keys()
    ):
        return None
    column = observation_column(space)
    return np.stack([column.row(worlds.observed(space, t)) for t in range(world["length"] + 1)])


def _seen_by(policy, config, world: Mapping[str, Any]) -> np.ndarray | None:
    if policy.filters_observations or world["kind"] not in ("single", "vector", "agents"):
        return None
    return seen_in_steps(policy.observation_space, config, world)


def _teachers_of(config) -> dict[Any, Any]:
    """Name -> teacher."""
    return dict(config.teacher) if isinstance(config.teacher, Mapping) else {None: config.teacher}


def _answers_of(config, world: Mapping[str, Any], policy) -> list[np.ndarray] | None:
    """What the teacher does in each step of an episode, as the environment gets it; None: that is not known."""
    given = _teachers_of(config)
    by_name = {name: _answers_in_steps(teacher, config, world, policy) for name, teacher in given.items()}
    if None in by_name.values():
        return None
    space, steps = worlds.OBSERVATIONS[world["observation"]], range(world["length"])
    if len(given) == 1:
        return next(iter(by_name.values()))
    return [by_name[config.teacher_mapping_fn(worlds.observed(space, t))][t] for t in steps]


def _answers_in_steps(teacher: Any, config, world: Mapping[str, Any], policy) -> list[np.ndarray] | None:
    space, steps = worlds.OBSERVATIONS[world["observation"]], range(world["length"])
    action_space = worlds.ACTIONS[world["action"]]
    if isinstance(teacher, Chooser | Changed):
        chooser = teacher.chooser if isinstance(teacher, Changed) else teacher
        rows = np.stack([observation_column(space).row(worlds.observed(space, t)) for t in steps])
        answer = chooser(structured(space, rows))
        if isinstance(teacher, Changed) and teacher.change is far:
            answer = _mapped(far, answer)
        return [_clipped(action_space, action) for action in rows_of(action_space, answer)]
    if not isinstance(teacher, str) or not config.teacher_deterministic or world["kind"] == "agents":
        return None
    player = load_policy(teacher).make_player()
    return [_clipped(action_space, player.act(worlds.observed(space, t), 0.5)) for t in steps]


def _clipped(space: gymnasium.Space, action) -> np.ndarray:
    """An action as numbers, within the bounds of its space."""
    match space:
        case Box() if space.dtype.kind == "f":
            return np.clip(np.asarray(action, float), space.low, space.high).ravel()
        case Dict():
            return np.concatenate([_clipped(part, action[key]) for key, part in space.spaces.items()])
        case Tuple():
            return np.concatenate([_clipped(part, own) for part, own in zip(space.spaces, action)])
    return _flat(action)
