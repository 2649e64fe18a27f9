"""A table of recorded steps, in the order of their episodes: what all formats are read into and written from."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, flatdim

from rllib import sample_batch as sb
from rllib.models.observations.flat_spaces import parts
from rllib.offline import values
from rllib.offline.assembly import assembled, followed_by_resets
from rllib.offline.files import named, read_records, size_of_files
from rllib.offline.formats import MINARI, is_table, records_of_table
from rllib.offline.nested import is_nested, joined_parts, leaves, nested_space, with_unread_parts
from rllib.offline.options import ReadOptions, read_options
from rllib.offline.records import Records, T, refuse_no_numbers, renamed, without_meaning
from rllib.offline.writing.metadata import (
    ACTIONS_NORMALIZED,
    DENSITIES_NORMALIZED,
    ENVIRONMENT,
    HAS_NEXT,
    NORMALIZED,
    metadata_of,
)
from rllib.offline.writing.step_formats import write_steps
from rllib.replay.memory import free_bytes
from rllib.storage.encoding import space_from_json, space_to_json
from rllib.storage.foreign_files import WRONG_FORM

# Copies of the columns of files in memory while they are read: as found, as checked, and what follows each step.
COPIES = 3


@dataclasses.dataclass(eq=False, repr=False)  # one is itself alone, so that it can be a key of a mixture
class Dataset:
    """Recorded steps, episode after episode.

    Attributes:
        columns: name -> array [rows, ...]. Always there are

            - obs, new_obs [rows, *observation]: as env/spaces/observations.py stores observations of the space;
            - actions [rows, ...]: in units of the environment; of Dict and Tuple spaces one row of numbers an action;
              with the option reads_actions=False they are missing;
            - terminateds, truncateds [rows] bool: one of them is set at the last row of each episode.

            rewards [rows] float32 may be missing; further columns of the source are kept as they are.
        starts: int64 [episodes + 1], first row of each episode, and the number of rows.
        has_next: bool [rows], False where the observation after the step is not known; new_obs is not to be read there.
        observation_space, action_space: spaces of the steps.
        metadata: facts about the data, as JSON has it: "env", "max_episode_steps", and what its writer has added.
        notices: what was repaired while reading, one sentence each.
        source: name of the data, for messages.
    """

    columns: dict[str, np.ndarray]
    starts: np.ndarray
    has_next: np.ndarray
    observation_space: Space
    action_space: Space
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    notices: list[str] = dataclasses.field(default_factory=list)
    source: str = "the data"

    # ------------------------------------------------------------------ making one

    @classmethod
    def from_records(
        cls,
        records: Records,
        options: ReadOptions | None = None,
        *,
        observation_space: Space | None = None,
        action_space: Space | None = None,
    ) -> Self:
        """Makes a dataset of what a reader has found.

        Args:
            records: in the order of their source.
            options: options of reading.
            observation_space, action_space: spaces of the steps; by default what the records say, or seem to hold.

        Raises:
            ValueError: if there are no rows, a column is missing, or a value cannot be right; the message says where.
        """
        options = options or ReadOptions()
        records = renamed(records, options.schema)
        if not options.reads_actions:
            records = _without_actions(records)
        for name in (sb.OBS, sb.ACTIONS) if options.reads_actions else (sb.OBS,):
            if name not in records.columns and not is_nested(records, name):
                raise _lacking(records, name)
            if name in records.columns and (held := records.columns[name].dtype).kind not in "fiub":
                refuse_no_numbers(name, records.columns, str(held), records.source)
        if not len(records):
            raise ValueError(f"{records.source} has no rows")
        said = records.metadata
        refuse_other_spaces(records, None if options.parts_read else observation_space, action_space)
        observation_space, action_space = spaces_of(records, observation_space, action_space)
        if options.parts_read:
            recorded_space = _said_space(said, "observation_space")
            records = with_unread_parts(records, observation_space, options.parts_read, recorded_space)
        records = joined_parts(records, observation_space, action_space)
        episodes = assembled(records, options, options.max_episode_steps)
        records = episodes.records
        columns = dict(records.columns)
        columns[sb.OBS] = values.checked_observations(records, sb.OBS, observation_space, None)
        columns[sb.NEXT_OBS] = values.checked_observations(records, sb.NEXT_OBS, observation_space, episodes.has_next)
        num_clipped = 0
        if options.reads_actions:
            columns[sb.ACTIONS], num_clipped = values.checked_actions(records, action_space, options)
        if sb.REWARDS in columns:
            columns[sb.REWARDS] = values.checked_rewards(records)
        for name in (ACTIONS_NORMALIZED, DENSITIES_NORMALIZED):  # the metadata says it
            columns.pop(name, None)
        metadata = {name: value for name, value in said.items() if name not in _NOT_KEPT}
        for name in [name for name in sb.PROBABILITIES if name in columns and num_clipped]:
            del columns[name]
            records.notices.append(
                f"{name} is left out: {num_clipped:,} actions were clipped, and the densities of what they were before "
                "would make wrong importance ratios at the bounds"
            )
        if _has_densities(action_space) and any(name in columns for name in sb.PROBABILITIES):
            columns, metadata["densities"] = values.with_densities_alike(records, columns, action_space, options)
        spaces = observation_space, action_space
        return cls(columns, episodes.starts, episodes.has_next, *spaces, metadata, records.notices, records.source)

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any], *, source: str = "the columns", **more) -> Self:
        """Makes a dataset of arrays by our names, D4RL's (observations, terminals, timeouts, ...) or Minari's.

        Args:
            columns: name -> array [rows, ...]; of observations and actions of Dict and Tuple spaces dicts and tuples of
                such arrays, as gymnasium's vector environments have them. Or a table of pandas, polars or pyarrow.
            source: their name, for messages.
            more: observation_space, action_space; and fields of ReadOptions.

        Raises:
            ValueError: as for `from_records`.
        """
        given = {name: more.pop(name) for name in ("observation_space", "action_space") if name in more}
        return cls.from_records(records_of_columns(columns, source), ReadOptions(**more), **given)

    @classmethod
    def from_path(cls, paths, *, observation_space: Space | None = None, action_space: Space | None = None, **options):
        """Reads files.

        Args:
            paths: a file, a directory, a pattern such as "data/*.json", "minari:ID", or a list of them.
            observation_space, action_space: as for `from_records`.
            options: fields of ReadOptions.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: as for `from_records`; for files that are damaged or of no known format; and if there is not
                enough memory for them.
            ImportError: if the package that reads a format is not installed.
        """
        chosen = read_options(options)
        _refuse_too_large(paths)
        records = read_records(paths, chosen)
        chosen = dataclasses.replace(chosen, schema=None)
        return cls.from_records(records, chosen, observation_space=observation_space, action_space=action_space)

    @classmethod
    def from_minari(cls, name: str, **more) -> Self:
        """Reads a dataset of Minari that is on this machine.

        Args:
            name: "D4RL/door/human-v2".
            more: as for `from_path`.

        Raises:
            FileNotFoundError: if it is not on this machine.
            ImportError: without minari.
        """
        return cls.from_path(MINARI + name.removeprefix(MINARI), **more)

    @classmethod
    def concat(cls, datasets: Sequence[Self]) -> Self:
        """One dataset after the other; columns that some lack are left out. Densities get the units of the first.

        Raises:
            ValueError: if there is none, or the spaces differ.
        """
        if not datasets:
            raise ValueError("there is no dataset to concatenate")
        first = datasets[0]
        if len(datasets) == 1:
            return first
        for each in datasets[1:]:
            for name in ("observation_space", "action_space"):
                if getattr(each, name) != getattr(first, name):
                    raise ValueError(
                        f"{first.source} has the {name} {getattr(first, name)}, {each.source} {getattr(each, name)}"
                    )
        datasets = [each.with_densities_as(first) for each in datasets]
        names = [name for name in first.columns if all(name in each.columns for each in datasets)]
        offsets = np.cumsum([0] + [len(each) for each in datasets])
        starts = [each.starts[:-1] + offset for each, offset in zip(datasets, offsets)]
        return dataclasses.replace(
            first,
            columns={name: np.concatenate([each.columns[name] for each in datasets]) for name in names},
            starts=np.concatenate([*starts, offsets[-1:]]),
            has_next=np.concatenate([each.has_next for each in datasets]),
            metadata={
                name: value
                for name, value in first.metadata.items()
                if all(each.metadata.get(name) == value for each in datasets)
            },
            notices=list(dict.fromkeys(notice for each in datasets for notice in each.notices)),
            source=", ".join(each.source for each in datasets),
        )

    def with_densities_as(self, other: Self) -> Self:
        """The dataset with recorded densities in the units of another one's."""
        units = other.metadata.get("densities", ENVIRONMENT)
        if self.metadata.get("densities", ENVIRONMENT) == units:
            return self
        columns = values.densities_in(units, self.columns, self.action_space)
        return dataclasses.replace(self, columns=columns, metadata=self.metadata | {"densities": units})

    def with_bounds_of(self, observation_space: Space | None) -> Self:
        """The dataset with another space of observations, if only bounds differ: arrays and files do not say them.

        That is for a Box and one of the same shape and dtype, whose rows are the same with any bounds. All other spaces
        are kept, since the rows of choices (Discrete, MultiDiscrete, MultiBinary) and of joined parts (Dict, Tuple) may
        depend on them: read such data with the space, as in `Dataset.from_path(paths, observation_space=...)`.

        Args:
            observation_space: space of the environment, say; None changes nothing.

        Returns:
            a Dataset with the same arrays; this one where the spaces differ in more than bounds.
        """
        own, other = self.observation_space, observation_space
        are_boxes = isinstance(own, Box) and isinstance(other, Box)
        if not are_boxes or (own.shape, own.dtype) != (other.shape, other.dtype):
            return self
        return dataclasses.replace(self, observation_space=other)

    # ------------------------------------------------------------------ what is in it

    def __repr__(self) -> str:
        return f"Dataset({self.source}: {len(self):,} rows, {self.num_episodes:,} episodes)"

    def __len__(self) -> int:
        """Number of steps."""
        return int(self.starts[-1])

    @property
    def num_episodes(self) -> int:
        """Number of episodes."""
        return len(self.starts) - 1

    @property
    def is_transition(self) -> np.ndarray:
        """Rows of which it is known what followed, if anything did; bool [rows].

        What bootstraps takes an episode whose last row has False as cut before it, at the observation of this row.
        """
        return self.has_next | self.columns[sb.TERMINATEDS]

    @property
    def lengths(self) -> np.ndarray:
        """Steps of each episode, int64 [episodes]."""
        return np.diff(self.starts)

    @property
    def returns(self) -> np.ndarray:
        """Sum of the rewards of each episode, float64 [episodes].

        Raises:
            ValueError: if there are no rewards.
        """
        if sb.REWARDS not in self.columns:
            raise ValueError(f"{self.source} has no rewards, so that its episodes have no returns")
        return np.add.reduceat(self.columns[sb.REWARDS].astype(np.float64), self.starts[:-1])

    def episodes(self) -> Iterator[dict[str, np.ndarray]]:
        """The columns of each episode, views of this dataset's."""
        for start, stop in zip(self.starts[:-1], self.starts[1:]):
            yield {name: column[start:stop] for name, column in self.columns.items()}

    def info(self) -> dict[str, Any]:
        """Facts about the data: sizes, ends, returns, spaces, columns; see `rllib dataset info`."""
        last = self.starts[1:] - 1
        facts = {
            "source": self.source,
            "rows": len(self),
            "episodes": self.num_episodes,
            "terminated": int(self.columns[sb.TERMINATEDS][last].sum()),
            "truncated": int(self.columns[sb.TRUNCATEDS][last].sum()),
            "without_next": int((~self.has_next).sum()),
            "lengths": _spread(self.lengths),
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
            "metadata": self.metadata,
            "notices": self.notices,
            "columns": {name: _described(column) for name, column in self.columns.items()},
        }
        if sb.REWARDS in self.columns:
            facts["returns"] = {**_spread(self.returns), "deciles": np.quantile(self.returns, _DECILES).tolist()}
        return facts

    # ------------------------------------------------------------------ files

    def save(self, path: str | os.PathLike, format_: str | None = None, *, normalized_actions: bool = False) -> None:
        """Writes all steps, so that `from_path` reads the same; a file that is there is replaced.

        Files of JSON do not say the spaces. If several episodes have the same number, as those of several files may,
        all get new ones.

        Args:
            path: path of the file, or "minari:NAMESPACE/NAME-v0".
            format_: "json", "parquet", "npz" or "hdf5"; None: as the ending of the name says.
            normalized_actions: actions of a bounded Box are written in [-1, 1], as RLlib's policies have them.

        Raises:
            ValueError: for a format that there is not, and normalized actions that are of no bounded Box.
            ImportError: without the package of the format.
            OSError: if it cannot be written.
        """
        columns = dict(self.columns)
        if not self._can_be_told_apart:
            columns[sb.EPS_ID] = np.repeat(np.arange(self.num_episodes), self.lengths)
        # The known observation after an end may be the first of the episode that is the next one here.
        like_resets = followed_by_resets(columns[sb.OBS], columns[sb.NEXT_OBS], self.starts)
        if like_resets.any() or not self.has_next.all():
            columns[HAS_NEXT] = self.has_next
        units = ENVIRONMENT
        if normalized_actions:
            columns[sb.ACTIONS], units = values.normalized(columns[sb.ACTIONS], self.action_space), NORMALIZED
        metadata = metadata_of(self.observation_space, self.action_space, units, **self.metadata)
        write_steps(path, columns, self.starts, metadata, format_)

    @property
    def _can_be_told_apart(self) -> bool:
        """Whether the columns say where episodes begin, wherever the rows are read."""
        first = self.starts[:-1]
        if sb.EPS_ID in self.columns:
            return len(np.unique(self.columns[sb.EPS_ID][first])) == len(first)
        if T in self.columns:
            return bool((self.columns[T][first[1:]] <= self.columns[T][first[1:] - 1]).all())
        return True  # flags say it

    # ------------------------------------------------------------------ parts of it

    def taking(self, episodes: Sequence[int] | np.ndarray) -> Self:
        """The dataset of these episodes, in this order.

        Args:
            episodes: numbers of episodes from 0; or bool [episodes], such as `dataset.returns > 100`.

        Raises:
            ValueError: for a number that no episode has, and for flags of another number of episodes.
        """
        episodes = np.asarray(episodes)
        if episodes.dtype == bool:
            if episodes.shape != (self.num_episodes,):
                raise ValueError(
                    f"{self.source} has {self.num_episodes:,} episodes, but the flags have the shape {episodes.shape}"
                )
            episodes = np.flatnonzero(episodes)
        elif wrong := [each for each in episodes.reshape(-1).tolist() if each not in range(self.num_episodes)]:
            raise ValueError(
                f"{self.source} has {self.num_episodes:,} episodes, numbered from 0; there is no {wrong[0]!r:.40}"
            )
        episodes = episodes.astype(np.int64)
        lengths = self.lengths[episodes]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = np.repeat(self.starts[episodes] - starts[:-1], lengths) + np.arange(starts[-1])
        columns = {name: column[rows] for name, column in self.columns.items()}
        return dataclasses.replace(self, columns=columns, starts=starts, has_next=self.has_next[rows])

    def parts(self, rows: int) -> Iterator[Self]:
        """Datasets of consecutive episodes with that many rows, or of one that is longer; views of this dataset."""
        first = 0
        while first < self.num_episodes:
            start = int(self.starts[first])
            last = max(int(np.searchsorted(self.starts, start + rows, "right")) - 1, first + 1)
            some = slice(start, int(self.starts[last]))
            yield dataclasses.replace(
                self,
                columns={name: column[some] for name, column in self.columns.items()},
                starts=self.starts[first : last + 1] - start,
                has_next=self.has_next[some],
            )
            first = last

    def first(self, rows: int) -> Self:
        """The first steps; an episode that continues behind them is truncated there.

        Raises:
            ValueError: if there are no such steps.
        """
        if not 0 < rows <= len(self):
            raise ValueError(f"{self.source} has {len(self):,} steps, of which {rows:,} were asked for")
        columns = {name: column[:rows].copy() for name, column in self.columns.items()}
        columns[sb.TRUNCATEDS][-1] |= not columns[sb.TERMINATEDS][-1]
        starts = np.append(self.starts[self.starts < rows], rows)
        return dataclasses.replace(self, columns=columns, starts=starts, has_next=self.has_next[:rows])

    def filter_top(self, fraction: float) -> Self:
        """The episodes with the highest returns, in their order here: the fraction of them, at least one.

        Raises:
            ValueError: if it is not above 0 and at most 1, or there are no rewards.
        """
        _check_fraction(fraction, "fraction")
        count = max(1, round(fraction * self.num_episodes))
        best = np.argsort(-self.returns, kind="stable")[:count]
        return self.taking(np.sort(best))

    def split(self, fraction: float, seed: int = 0) -> tuple[Self, Self]:
        """Two datasets of whole episodes, drawn at random: the fraction of them, and the others; at least one each.

        Raises:
            ValueError: if the fraction is not between 0 and 1, or there is one episode alone.
        """
        _check_fraction(fraction, "fraction")
        if self.num_episodes < 2:
            raise ValueError(f"{self.source} has one episode, which cannot be split")
        count = min(max(1, round(fraction * self.num_episodes)), self.num_episodes - 1)
        order = np.random.default_rng(seed).permutation(self.num_episodes)
        return self.taking(np.sort(order[:count])), self.taking(np.sort(order[count:]))


def records_of_columns(columns: Mapping[str, Any], source: str) -> Records:
    """The records of arrays or a table; arguments as for `Dataset.from_columns`."""
    if is_table(columns):
        return records_of_table(columns)
    arrays = {path: part for name, column in columns.items() for path, part in leaves(str(name), column).items()}
    if single := [name for name, column in arrays.items() if not column.ndim]:
        raise ValueError(f"{source}: {single[0]} is one value, but a column has one for each row")
    return Records(arrays, source)


def _without_actions(records: Records) -> Records:
    """The records without actions, and without columns about actions."""
    about = {sb.ACTIONS, *sb.PROBABILITIES, sb.ACTION_DIST_INPUTS, ACTIONS_NORMALIZED, DENSITIES_NORMALIZED}
    columns = {name: column for name, column in records.columns.items() if name.partition(".")[0] not in about}
    metadata = {name: value for name, value in records.metadata.items() if name not in ("action_space", "actions")}
    return dataclasses.replace(records, columns=columns, metadata=metadata)


_DECILES = np.linspace(0, 1, 11)
# Metadata about how the records were stored, which is over once they are a dataset.
_NOT_KEPT = ("observation_space", "action_space", "actions", "version")


def _refuse_too_large(paths) -> None:
    needed, free = COPIES * size_of_files(paths), free_bytes()
    if needed > free:
        raise ValueError(
            f"to read {named(paths)} takes about {needed / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB are free. "
            "Keep the rows on a disk: .training(replay_buffer_config={'storage': 'disk'}), or "
            ".offline_data(offline_memory=BYTES), above which files are read in pieces."
        )


def spaces_of(
    records: Records, observation_space: Space | None = None, action_space: Space | None = None
) -> tuple[Space, Space]:
    """The spaces of observations and actions: as given, or else what the records say, or seem to hold."""
    observation_space = observation_space or _said_space(records.metadata, "observation_space")
    action_space = action_space or _said_space(records.metadata, "action_space")
    return (
        observation_space or _seeming_space(records, sb.OBS, values.observation_space_of),
        action_space or _seeming_space(records, sb.ACTIONS, values.action_space_of),
    )


class LackingColumnError(ValueError):
    """The data has no observations, or no actions.

    Attributes:
        column: our name of what is missing.
    """

    def __init__(self, problem: str, column: str):
        super().__init__(problem)
        self.column = column


def _lacking(records: Records, name: str) -> LackingColumnError:
    """The error for records without observations or actions: the columns that could be them, and how to say it."""
    others = without_meaning(records.columns)
    said = repr(others[0] if len(others) == 1 else others) if others else "COLUMN"
    unknown = f" Nothing says what {', '.join(others)} {'is' if len(others) == 1 else 'are'}." if others else ""
    return LackingColumnError(
        f"{records.source} has no {name}; it has {', '.join(sorted(records.columns))}.{unknown} Say which column it "
        f"is, or of which it consists, as in input_read_schema={{{name!r}: {said}}}; columns called {name}_0, "
        f"{name}_1, ... are found by themselves.",
        name,
    )


def _seeming_space(records: Records, name: str, space_of: Callable[..., Space]) -> Space:
    return nested_space(records, name, space_of) if is_nested(records, name) else space_of(records)


def refuse_other_spaces(
    records: Records, observation_space: Space | None = None, action_space: Space | None = None
) -> None:
    """Refuses data that was recorded in an environment of another kind.

    Raises:
        ValueError: if the records say another space, of which more than the bounds differs.
    """
    for name, given in (("observation_space", observation_space), ("action_space", action_space)):
        said = _said_space(records.metadata, name)
        if said is not None and given is not None and _form(said) != _form(given):
            of = f" of {records.metadata['env']}" if records.metadata.get("env") else ""
            raise ValueError(
                f"{records.source} was recorded with the {name} {said}{of}, but it is to be {given}. Use the "
                "environment in which it was recorded, with the same wrappers and keys, or give arrays of this space."
            )


def _form(space: Space) -> tuple:
    """Facts in which spaces of the same environment do not differ; bounds may."""
    return type(space), space.shape, flatdim(space)


def _said_space(metadata: Mapping[str, Any], name: str) -> Space | None:
    if metadata.get(name) is None:
        return None
    try:
        return space_from_json(metadata[name])
    except WRONG_FORM as error:
        raise ValueError(f"the {name} in the metadata of the data cannot be read ({error!r:.80})") from None


def _check_fraction(fraction: float, name: str) -> None:
    if isinstance(fraction, bool) or not 0 < fraction <= 1:
        raise ValueError(f"{name}={fraction!r} must be above 0 and at most 1")


def _has_densities(space: Space) -> bool:
    """Whether actions may have densities, which have units."""
    return isinstance(space, Box) or parts(space) is not None


def _spread(numbers: np.ndarray) -> dict[str, float]:
    return {"mean": float(numbers.mean()), "min": float(numbers.min()), "max": float(numbers.max())}


def _described(column: np.ndarray) -> dict[str, Any]:
    described = {"shape": list(column.shape[1:]), "dtype": str(column.dtype)}
    if column.size and column.dtype.kind in "fiub":
        least, most = column.min(), column.max()
        if column.dtype.kind == "f":
            is_finite = np.isfinite(column) if not np.isfinite(least + most) else np.True_
            described["not_finite"] = 0 if is_finite.all() else int((~is_finite).sum())
            if described["not_finite"]:  # JSON has no other numbers
                least, most = (
                    column.min(where=is_finite, initial=np.inf),
                    column.max(where=is_finite, initial=-np.inf),
                )
        if np.isfinite(least) and np.isfinite(most):
            described |= {"min": float(least), "max": float(most)}
    return described
