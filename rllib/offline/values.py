"""Values of recorded steps: whether they can be right, and their units."""

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from rllib import sample_batch as sb
from rllib.env.factories.previous_steps import ACTIONS, REWARDS, SETTINGS
from rllib.env.spaces.actions import action_mapper
from rllib.env.spaces.observations import observation_column
from rllib.models.distributions.choose import distribution_for
from rllib.models.observations.flat_spaces import parts
from rllib.offline.options import ReadOptions
from rllib.offline.records import UNSAID, Records
from rllib.offline.writing.metadata import ACTIONS_NORMALIZED, DENSITIES_NORMALIZED, ENVIRONMENT, NORMALIZED

# A number is at a bound if it is beyond it by no more: float32 rounds.
_ROUNDING = 1e-6
_ALL_ROWS = slice(None)
# An observation is outside of its bounds if it is by more than this share.
_SLACK = 1e-4
# Columns that RLlib writes in addition to actions of its policies, whose units are normalised.
_WRITTEN_BY_POLICIES = (sb.ACTION_DIST_INPUTS, "unroll_id")


# ---------------------------------------------------------------------- spaces


def observation_space_of(records: Records, name: str = sb.OBS) -> spaces.Space:
    """The space that observations, or a part of them, seem to be of: bytes of images, whole or any numbers."""
    obs = records.columns[name]
    if obs.dtype == np.uint8 and obs.ndim == 4:
        return spaces.Box(0, 255, obs.shape[1:], np.uint8)
    if obs.dtype.kind in "iu" and obs.ndim == 1:
        following = records.columns.get(name.replace(sb.OBS, sb.NEXT_OBS, 1), obs)  # may have what is never left
        return spaces.Discrete(int(max(obs.max(), following.max())) + 1)
    return spaces.Box(-np.inf, np.inf, obs.shape[1:], np.float32)


def action_space_of(records: Records, name: str = sb.ACTIONS) -> spaces.Space:
    """The space that actions, or a part of them, seem to be of; noted, as a choice never taken is not seen.

    Raises:
        ValueError: for whole numbers below 0.
    """
    actions = records.columns[name]
    if actions.dtype.kind in "iub":
        if len(actions) and actions.min() < 0:
            raise ValueError(f"{records.source}: actions are whole numbers below 0. Give the action_space.")
        most = actions.max(0) + 1
        space = spaces.Discrete(int(most)) if actions.ndim == 1 else spaces.MultiDiscrete(most)
        records.notices.append(f"the action space was not given; the largest recorded actions make it {space}")
        return space
    if (np.abs(actions) <= 1 + _ROUNDING).all():
        space = spaces.Box(-1, 1, actions.shape[1:], np.float32)
    else:
        space = spaces.Box(-np.inf, np.inf, actions.shape[1:], np.float32)
    if actions.ndim == 1 and actions.size and (actions == np.floor(actions)).all() and actions.min() >= 0:
        records.notices.append(
            f"the actions are whole numbers that are written as floats: they are taken as numbers of {space}. If they "
            f"are choices, give the action_space Discrete({int(actions.max()) + 1})"
        )
    return space


# ---------------------------------------------------------------------- columns


def checked_observations(records: Records, name: str, space: spaces.Space, known: np.ndarray | None) -> np.ndarray:
    """A column of observations as the replay stores them.

    Args:
        records: records of any source.
        name: name of the column.
        space: space of the observations.
        known: bool [rows], the rows that are read; None: all.

    Returns:
        [rows, *stored shape] (env/spaces/observations.py).

    Raises:
        ValueError: for another shape, and for numbers that are not finite or no bytes.
    """
    column, stored = records.columns[name], observation_column(space)
    if isinstance(space, spaces.Discrete) and column.shape[1:] == (space.n,):  # one-hot, as RLlib stores them
        column = _choices_of_one_hot(records, name, column, space, known)
    if isinstance(space, spaces.MultiDiscrete) and column.shape[1:] == space.shape != stored.shape:
        choices = _in_space(records, name, column, space, known)
        column = np.empty((len(column), *stored.shape), stored.dtype)
        stored.write_batch(choices, column)
    if column.shape[1:] != stored.shape:
        if column[:1].size != int(np.prod(stored.shape, dtype=int)):
            raise ValueError(
                f"{records.where(0)}: {name} has the shape {column.shape[1:]}, but those of {space} are stored as "
                f"{stored.shape}. {_advice(name, space)}"
            )
        column = column.reshape(len(column), *stored.shape)
    if column.dtype.kind not in "fiub":
        raise ValueError(f"{records.where(0)}: {name} holds no numbers, but {column.dtype}")
    if isinstance(space, spaces.Discrete | spaces.MultiBinary):
        column = _in_space(records, name, column, space, known)
    _refuse_infinite(records, name, column, known)
    if stored.dtype.kind in "iu" and column.dtype != stored.dtype:
        whole = column.astype(stored.dtype)
        if (wrong := np.flatnonzero(_any(whole != column))).size:
            raise ValueError(f"{records.where(int(wrong[0]))}: {name} is no {stored.dtype}, as {space} wants")
        column = whole
    column = _as_stored(records, name, column, stored.dtype, known)
    if isinstance(space, spaces.Box) and name == sb.OBS:
        _note_outside(records, column, space)
    return column


def _in_space(
    records: Records,
    name: str,
    column: np.ndarray,
    space: spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary,
    known: np.ndarray | None,
) -> np.ndarray:
    """Observations in the environment's own form, [rows, *space.shape], all of which are in the space.

    Networks encode rows that are not read with the others: these get the first choices where they are outside.
    """
    low, count = _bounds_of_choices(space)
    outside = _any((column < low) | (column >= low + count) | (column != np.floor(column)))
    if known is not None:  # what is not read may be anything, and what follows an end is zeros where nothing says it
        unread = outside & (~known | ~_any(column != 0))
        column = np.where(unread.reshape(-1, *[1] * len(space.shape)), low, column)
        outside &= ~unread
    if (wrong := np.flatnonzero(outside)).size:
        row = int(wrong[0])
        raise ValueError(f"{records.where(row)}: the {name} {column[row]} is not in {space}")
    return column


def _bounds_of_choices(space: spaces.Space) -> tuple[np.ndarray, np.ndarray | int]:
    """The first choice, and the number of choices, of a Discrete, MultiDiscrete or MultiBinary space."""
    count = space.n if isinstance(space, spaces.Discrete) else getattr(space, "nvec", 2)
    return np.asarray(getattr(space, "start", 0)), count


def _choices_of_one_hot(
    records: Records, name: str, column: np.ndarray, space: spaces.Discrete, known: np.ndarray | None
) -> np.ndarray:
    """The choices [rows] that one-hot rows represent; rows of zeros that are not read are the first choice.

    Raises:
        ValueError: for a row that is not one-hot.
    """
    is_one_hot = ((column == 0) | (column == 1)).all(1) & (column.sum(1) == 1)
    wrong = ~is_one_hot if known is None else ~is_one_hot & known & _any(column != 0)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{records.where(row)}: the {name} {column[row]} is not one-hot, as {space.n} numbers for {space} have to "
            f"be ({wrong.sum():,} of {len(column):,} rows)"
        )
    return column.argmax(1) + space.start


def _as_stored(
    records: Records, name: str, column: np.ndarray, dtype: np.dtype, known: np.ndarray | None = None
) -> np.ndarray:
    """A column of finite numbers in another dtype.

    Raises:
        ValueError: for numbers that are too large for it.
    """
    if column.dtype == dtype:
        return column
    with np.errstate(over="ignore"):  # the message names the row
        converted = column.astype(dtype)
    lost = _any(~np.isfinite(converted)) if converted.dtype.kind == "f" else np.zeros(len(column), bool)
    if (wrong := np.flatnonzero(lost if known is None else lost & known)).size:
        row = int(wrong[0])
        raise ValueError(f"{records.where(row)}: {name} {column[row]} is beyond {dtype}, in {wrong.size:,} rows")
    return converted


def _advice(name: str, space: spaces.Space) -> str:
    """Advice for recorded observations of another shape."""
    added = [key for key in (ACTIONS, REWARDS) if isinstance(space, spaces.Dict) and key in space.spaces]
    if added:
        return (
            f"The policy reads the step before ({SETTINGS}), and only data that a run with the same model has recorded "
            f"holds {' and '.join(added)}. Leave these settings out, or record such data with output=."
        )
    if parts(space) is not None:
        return f"Give a column for each part ({name}.KEY), or all numbers of a row as gymnasium's flatten gives them."
    return "Give the space that the recorded observations are of, or convert them to the environment's."


def _note_outside(records: Records, obs: np.ndarray, space: spaces.Box) -> None:
    """Counts observations outside of the bounds: environments give them more often than their spaces say."""
    if not (space.bounded_below.any() or space.bounded_above.any()) or obs.dtype.kind in "iu":
        return
    low, high = obs.min(0, initial=np.inf), obs.max(0, initial=-np.inf)
    margin = _SLACK * np.maximum(1, np.maximum(np.abs(low), np.abs(high)))
    if (low >= space.low - margin).all() and (high <= space.high + margin).all():
        return
    outside = _any((obs < space.low - margin) | (obs > space.high + margin))
    if count := int(outside.sum()):
        records.notices.append(f"{count:,} of {len(obs):,} observations lie outside of {space}")


def checked_rewards(records: Records) -> np.ndarray:
    """The rewards, float32 [rows].

    Raises:
        ValueError: for a reward that is no finite number.
    """
    rewards = records.columns[sb.REWARDS]
    if rewards.dtype == object:
        wrong = [row for row, reward in enumerate(rewards) if not isinstance(reward, int | float | np.number)]
        if wrong:
            raise ValueError(f"{records.where(wrong[0])}: the reward {rewards[wrong[0]]!r:.40} is no number")
        rewards = rewards.astype(np.float64)
    if rewards.dtype.kind not in "fiub" or rewards.ndim > 2 or (rewards.ndim == 2 and rewards.shape[1] != 1):
        raise ValueError(
            f"{records.where(0)}: rewards must be a number a row, but are {rewards.dtype} {rewards.shape[1:]}"
        )
    rewards = rewards.reshape(len(rewards))
    _refuse_infinite(records, sb.REWARDS, rewards, None)
    return _as_stored(records, sb.REWARDS, rewards, np.dtype(np.float32))


def checked_actions(records: Records, space: spaces.Space, options: ReadOptions) -> tuple[np.ndarray, int]:
    """The actions in units of the environment.

    Args:
        records: records of any source.
        space: space of the actions.
        options: options of reading.

    Returns:
        [rows, ...] in the dtype of the space; of Dict and Tuple spaces the numbers of the parts, one row an action. And
        the number of rows that had to be clipped to the bounds.

    Raises:
        ValueError: for an action that the space cannot have.
    """
    actions = records.columns[sb.ACTIONS]
    _refuse_infinite(records, sb.ACTIONS, actions, None)
    if parts(space) is not None:
        return actions, 0
    if isinstance(space, spaces.Box):
        return _of_box(records, space, options)
    return _choices(records, space), 0


def _choices(records: Records, space: spaces.Space) -> np.ndarray:
    actions = records.columns[sb.ACTIONS]
    if actions.shape[1:] != space.shape:
        if isinstance(space, spaces.Discrete) and actions.shape[1:] == (space.n,) and space.n > 1:
            raise ValueError(
                f"{records.where(0)}: actions are one-hot {actions.shape[1:]}, but {space} wants a number. Convert "
                "them: actions.argmax(1)."
            )
        if actions[:1].size != int(np.prod(space.shape, dtype=int)):
            raise ValueError(
                f"{records.where(0)}: an action has the shape {actions.shape[1:]}, but {space} has {space.shape}"
            )
        actions = actions.reshape(len(actions), *space.shape)
    with np.errstate(invalid="ignore"):  # too large ones are no integers afterwards either
        whole = actions.astype(np.int64)
    if (wrong := np.flatnonzero(_any(whole != actions))).size:
        row = int(wrong[0])
        raise ValueError(f"{records.where(row)}: the action {actions[row]} is no whole number, as {space} wants")
    least, count = _bounds_of_choices(space)
    outside = (whole < least) | (whole >= least + count)
    if (wrong := np.flatnonzero(_any(outside))).size:
        row = int(wrong[0])
        raise ValueError(f"{records.where(row)}: the action {actions[row]} is not in {space}")
    return whole


def _of_box(records: Records, space: spaces.Box, options: ReadOptions) -> tuple[np.ndarray, int]:
    actions = records.columns[sb.ACTIONS]
    if actions.shape[1:] != space.shape:
        if actions[:1].size != int(np.prod(space.shape, dtype=int)):
            raise ValueError(
                f"{records.where(0)}: an action has the shape {actions.shape[1:]}, but {space} has {space.shape}"
            )
        actions = actions.reshape(len(actions), *space.shape)
    is_normalized = _normalized_rows(records, actions, space, options)
    if space.dtype.kind in "iu":
        is_broken = ~is_normalized & _any(actions != np.floor(actions))
        if (wrong := np.flatnonzero(is_broken)).size:
            row = int(wrong[0])
            raise ValueError(f"{records.where(row)}: the action {actions[row]} is no whole number, as {space} wants")
    low, high = space.low.astype(np.float64) - _ROUNDING, space.high.astype(np.float64) + _ROUNDING
    outside = _any((actions < low) | (actions > high))
    if is_normalized.any():
        outside = np.where(is_normalized, _any(np.abs(actions) > 1 + _ROUNDING) & space.is_bounded(), outside)
    if count := int(outside.sum()):
        bounds = f"the [-1, 1] of {space}" if is_normalized.all() else str(space)
        records.notices.append(
            f"{count:,} of {len(actions):,} actions lie outside of {bounds} and were clipped; the largest number is "
            f"{np.abs(actions).max():,.4g}. Are they in other units? See actions_in_input_normalized."
        )
    mapper = action_mapper(space, distribution_for(space), normalize_actions=True, clip_actions=True)
    if is_normalized.all():
        return mapper.to_env(actions.astype(np.float32)), count
    if is_normalized.any():
        actions = actions.astype(np.float64)
        actions[is_normalized] = mapper.to_env(actions[is_normalized].astype(np.float32))
    return _as_stored(records, sb.ACTIONS, np.clip(actions, space.low, space.high), space.dtype), count


def normalized(actions: np.ndarray, space: spaces.Space) -> np.ndarray:
    """Actions of a Box in units of the environment as numbers in [-1, 1] that span its bounds, float32.

    Raises:
        ValueError: if the space is no Box with bounds.
    """
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f" or not space.is_bounded():
        raise ValueError(f"only actions of a Box of floats with bounds can be normalized, not those of {space}")
    return action_mapper(space, distribution_for(space), normalize_actions=True, clip_actions=True).to_policy(actions)


def said_units(records: Records, options: ReadOptions) -> np.ndarray:
    """Units of actions by options, metadata or columns, int8 [rows]: 1 normalized, 0 the environment's, or UNSAID."""
    if options.actions != "auto":
        return np.full(len(records), options.actions == "normalized", np.int8)
    if (said := records.metadata.get("actions")) is not None:
        return np.full(len(records), said == NORMALIZED, np.int8)
    if ACTIONS_NORMALIZED in records.columns:
        return records.columns[ACTIONS_NORMALIZED].reshape(len(records)).astype(np.int8)
    return np.full(len(records), UNSAID, np.int8)


def _normalized_rows(records: Records, actions: np.ndarray, space: spaces.Box, options: ReadOptions) -> np.ndarray:
    """Rows in which [-1, 1] of the actions spans the bounds of the space, bool [rows].

    Raises:
        ValueError: if the units of some rows are said, and nothing tells the ones of the others.
    """
    said = said_units(records, options)
    is_unsaid = said == UNSAID
    if is_unsaid.all():
        return np.full(len(records), seem_normalized(records, actions, space))
    if is_unsaid.any() and _may_be_normalized(actions[is_unsaid], space):
        raise ValueError(
            f"{records.where(int(is_unsaid.argmax()))}: nothing says the units of its actions, as it is said of other "
            f"rows; all are within [-1, 1], but {space} is wider. Read these files apart, with "
            "actions_in_input_normalized, and join them: Dataset.concat([...])."
        )
    return said == 1


def _may_be_normalized(actions: np.ndarray, space: spaces.Box) -> bool:
    is_wider = (space.low < -1) & (space.high > 1)
    return bool(is_wider.all() and space.is_bounded() and (np.abs(actions) <= 1 + _ROUNDING).all())


def seem_normalized(records: Records, actions: np.ndarray, space: spaces.Box) -> bool:
    """Whether [-1, 1] of the actions seems to span the bounds of the space, of which nothing is said; noted."""
    if not _may_be_normalized(actions, space):
        return False
    normalized = _is_of_a_policy(records)
    why = "there are columns of an RLlib policy, too" if normalized else "nothing says that they are normalized"
    records.notices.append(
        f"all actions are within [-1, 1], but {space} is wider: they are taken "
        f"{'as normalized' if normalized else 'as they are'}, since {why}. Set actions_in_input_normalized to say so."
    )
    return normalized


def with_densities_alike(
    records: Records, columns: Mapping[str, np.ndarray], space: spaces.Space, options: ReadOptions
) -> tuple[dict[str, np.ndarray], str]:
    """The columns with recorded densities that are all in the units of the first row's.

    Returns:
        the columns, and the units: "environment" or "normalized".
    """
    normalized = _rows_of_normalized_densities(records, options)
    units = NORMALIZED if normalized[0] else ENVIRONMENT
    return densities_in(units, columns, space, normalized != normalized[0]), units


def _rows_of_normalized_densities(records: Records, options: ReadOptions) -> np.ndarray:
    """Rows whose recorded densities are of normalized actions, bool [rows]."""
    if options.densities != "auto":
        return np.full(len(records), options.densities == NORMALIZED)
    if (said := records.metadata.get("densities")) is not None:
        return np.full(len(records), said == NORMALIZED)
    seemingly = (said_units(records, options) == 1) | _is_of_a_policy(records)
    if DENSITIES_NORMALIZED not in records.columns:
        return seemingly
    said = records.columns[DENSITIES_NORMALIZED].reshape(len(records)).astype(np.int8)
    return np.where(said == UNSAID, seemingly, said == 1)


def densities_in(
    units: str, columns: Mapping[str, np.ndarray], space: spaces.Space, rows: np.ndarray | slice = _ALL_ROWS
) -> dict[str, np.ndarray]:
    """The columns with their densities in these units: those of normalized actions are larger.

    Args:
        units: "environment" or "normalized".
        columns: by name.
        space: space of the actions.
        rows: bool [rows], those in the other units.
    """
    scale = action_mapper(space, distribution_for(space), normalize_actions=True, clip_actions=True).log_scale
    change = scale if units == NORMALIZED else -scale
    changed = dict(columns)
    for name in changed.keys() & {sb.ACTION_LOGP, sb.ACTION_PROB}:
        column = changed[name] = changed[name].copy()
        if name == sb.ACTION_LOGP:
            column[rows] += np.asarray(change, column.dtype)
        else:
            column[rows] *= np.asarray(np.exp(change), column.dtype)
    return changed


def _is_of_a_policy(records: Records) -> bool:
    """Whether a policy of RLlib has written columns in addition to the actions."""
    return any(name in records.columns for name in _WRITTEN_BY_POLICIES)


def _refuse_infinite(records: Records, name: str, column: np.ndarray, known: np.ndarray | None) -> None:
    if column.dtype.kind != "f":
        return
    if column.size and np.isfinite(column.sum(dtype=np.float64)):  # one pass; what is not finite stays in a sum
        return
    wrong = _any(~np.isfinite(column))
    if known is not None:
        wrong &= known
    if (rows := np.flatnonzero(wrong)).size:
        raise ValueError(
            f"{records.where(int(rows[0]))}: {name} is not finite, in {len(rows):,} of {len(column):,} rows"
        )


def _any(flags: np.ndarray) -> np.ndarray:
    """Rows in which a flag [rows, ...] is set."""
    return flags.any(tuple(range(1, flags.ndim)))
