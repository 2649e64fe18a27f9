"""Recorded steps of worlds, sound or with a fault, and what has to become of one that is read.

A world's `data` has a `fault` in some draws: its kind, and where it is, as a share of the lines or files.
"""

import functools
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.offline.dataset import Dataset
from rllib.offline.formats.packed import Unpacker, is_packed
from rllib.offline.larger_than_memory import dataset_on_disk
from tests.generated import worlds

Columns = dict[str, Any]
# What arrays say of next observations (`says_next`): nothing, all, or those of an environment that resets itself.
RESETS = "resets"


def recorded(world: Mapping[str, Any], place: Path):
    """Recorded steps of a world: arrays by name, or the directory of files that a run has written.

    Args:
        place: directory for files with a fault.
    """
    data = world["data"]
    fault = data.get("fault")
    if form_of(data) == "arrays":
        return faulty_arrays(_arrays(world), fault) if fault else _arrays(world)
    directory = _sound_files(world)
    if fault is None:
        return directory
    faulty = place / "faulty"
    if not faulty.exists():
        faulty.mkdir()
        _damage(Path(directory), faulty, fault)
    return str(faulty)


def form_of(data: Mapping[str, Any]) -> str:
    """The form in which the data comes: arrays are not mixed."""
    return "json" if data["form"] == "arrays" and data.get("share") else data["form"]


def _sound_files(world: Mapping[str, Any]) -> str:
    plain = {**world, "kind": "single", "data": {**world["data"], "fault": None}}
    return _recorded_files(json.dumps(plain, sort_keys=True), form_of(world["data"]))


@functools.lru_cache(maxsize=1000)
def _recorded_files(described: str, form: str) -> str:
    """Files with the steps of a world that a run has written; made once in a process."""
    world, directory = json.loads(described), tempfile.mkdtemp(prefix="recorded-")
    config = get_algorithm_config("PG")
    config = config() if isinstance(config, type) else config
    config.environment(worlds.World, env_config=world).rollouts(num_rollout_workers=0)
    config.offline_data(output=directory, output_config={"format": form})
    config.training(model={"fcnet_hiddens": [4]}, train_batch_size=world["length"] * world["data"]["episodes"])
    config.reporting(min_time_s_per_iteration=0).debugging(seed=0)
    with config.build() as algorithm:
        algorithm.train()
    return directory


def _arrays(world: Mapping[str, Any]) -> dict:
    env, rows, says_next = worlds.World(world), [], world["data"].get("says_next")
    env.action_space.seed(0)
    seen, _ = env.reset()
    for _ in range(world["data"]["episodes"]):
        if says_next != RESETS:
            seen, _ = env.reset()
        over = False
        while not over:
            mask = env.action_masks() if world.get("mask") else None
            action = env.action_space.sample()
            while mask is not None and env.choices > 1 and not mask[worlds.first_choice(env.action_space, action)]:
                action = env.action_space.sample()
            after, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            if over and says_next == RESETS:
                after, _ = env.reset()
            rows.append((seen, action, reward, terminated, truncated, after, True))
            seen = after
    names = ["obs", "actions", "rewards", "terminateds", "truncateds"]
    names += [] if not says_next else ["new_obs"] if says_next == RESETS else ["new_obs", "has_next"]
    return {name: _stacked([row[i] for row in rows]) for i, name in enumerate(names)}


def _stacked(rows: list):
    if isinstance(rows[0], dict):
        return {key: _stacked([row[key] for row in rows]) for key in rows[0]}
    if isinstance(rows[0], tuple):
        return tuple(map(_stacked, zip(*rows)))
    return np.stack(rows)


# ------------------------------------------------------------------ faults


@dataclass(frozen=True)
class Kind:
    """A kind of fault of a line of JSON, of a file, or of arrays.

    Attributes:
        change: function that puts it into columns [rows], at a row; None: it is of the file's bytes.
        raised: what becomes of it with on_error="raise": it is "refused", "read", or either of these (None).
        skipped: the same with "skip", where it may be "left out".
        forms: in which it occurs.
        said: a word that its refusal has.
    """

    change: Callable[[Columns, int], None] | None
    raised: str | None
    skipped: str | None
    forms: tuple[str, ...] = ("json", "npz", "parquet")
    said: str = ""


def _texts(columns: Columns, row: int) -> None:
    columns["rewards"] = np.array(list(map(str, columns["rewards"])))


def _is_nan(columns: Columns, row: int) -> None:
    columns["rewards"] = np.array(columns["rewards"], np.float32)
    columns["rewards"][row] = np.nan


def _is_nan_observed(columns: Columns, row: int) -> None:
    """NaN that an observation had when it was seen, and when it was acted on."""
    for name, at in (("obs", row), ("new_obs", row - 1)):
        columns[name] = np.array(columns[name], np.float32)
        columns[name][at] = np.nan


def _flatter(columns: Columns, row: int) -> None:
    columns["new_obs"] = columns["new_obs"].reshape(len(columns["new_obs"]), -1)[:, :-1]


def _shorter(columns: Columns, row: int) -> None:
    columns["rewards"] = columns["rewards"][:-1]


def _wider(columns: Columns, row: int) -> None:
    columns["actions"] = np.zeros((len(columns["rewards"]), 5))


def _without_row(columns: Columns, row: int) -> None:
    for name, column in columns.items():
        if name != "metadata":
            columns[name] = np.delete(column, row, 0)


def _without_actions(columns: Columns, row: int) -> None:
    del columns["actions"]


def _without_rewards(columns: Columns, row: int) -> None:
    del columns["rewards"]


def _with_unknown(columns: Columns, row: int) -> None:
    columns["weather"] = np.arange(len(columns["rewards"]))


def _other_dtypes(columns: Columns, row: int) -> None:
    for name in ("terminateds", "truncateds"):
        columns[name] = np.asarray(columns[name]).astype(np.int64)
    columns["rewards"] = np.asarray(columns["rewards"]).astype(np.float64)
    if isinstance(columns["actions"], np.ndarray):  # of Dict and Tuple spaces there are several
        columns["actions"] = columns["actions"].astype(np.float64)


_ALL = ("json", "npz", "parquet", "arrays")
KINDS: dict[str, Kind] = {
    "texts": Kind(_texts, "refused", "left out", _ALL),
    "no number": Kind(_is_nan, "refused", None, _ALL),
    "shorter": Kind(_shorter, "refused", "left out", ("json", "npz", "arrays")),
    "wider": Kind(_wider, "refused", "left out", ("json",)),
    "wider file": Kind(_wider, "refused", None, ("npz", "parquet", "arrays")),  # either of two may be right
    "without a row": Kind(_without_row, None, None),
    "without actions": Kind(_without_actions, "refused", "left out", ("json",)),
    "file without actions": Kind(_without_actions, "refused", None, ("npz", "parquet", "arrays")),
    "without rewards": Kind(_without_rewards, None, None),
    "unknown column": Kind(_with_unknown, "read", "read", _ALL),
    "other dtypes": Kind(_other_dtypes, "read", "read", _ALL),
    "cut off": Kind(None, "refused", "left out"),
    "repeated key": Kind(None, None, None, ("json",)),
    "empty file": Kind(None, "refused", "left out"),
}
# Faults of arrays of numbers that say all next observations.
OF_OBSERVATIONS: dict[str, Kind] = {
    "no number observed": Kind(_is_nan_observed, "refused", None, ("arrays",), "not finite"),
    "flatter": Kind(_flatter, "refused", None, ("arrays",), "shape"),
}
# Faults of rewards and of actions, which demonstrations need not have.
MAY_BE_UNREAD = (
    *("texts", "no number", "shorter", "without rewards"),
    *("wider", "wider file", "without actions", "file without actions"),
)


def kind_of(fault: Mapping[str, Any]) -> Kind:
    """The kind of a fault."""
    return {**KINDS, **OF_OBSERVATIONS}[fault["kind"]]


def faulty_arrays(columns: Columns, fault: Mapping[str, Any]) -> Columns:
    """The arrays with the fault."""
    kind_of(fault).change(columns, _at(fault, len(columns["rewards"])))
    return columns


def _at(fault: Mapping[str, Any], count: int) -> int:
    return int(fault["at"] * count)


def _damage(sound: Path, directory: Path, fault: Mapping[str, Any]) -> None:
    """Writes the files of a directory with the fault into another one."""
    (path,) = sound.iterdir()
    _WRITERS[path.suffix](path, directory, fault)
    if fault["kind"] == "empty file":
        name = "a" if fault["at"] < 0.5 else "z"  # before the others, or behind
        (directory / f"{name}{path.suffix}").write_bytes(b"")


def _damage_lines(path: Path, directory: Path, fault: Mapping[str, Any]) -> None:
    lines, kind = path.read_text().splitlines(), KINDS[fault["kind"]]
    at = _at(fault, len(lines))
    if kind.change is not None:
        lines[at] = _changed_line(lines[at], kind, fault)
    elif fault["kind"] == "cut off":
        lines[at] = lines[at][: len(lines[at]) // 2]
    elif fault["kind"] == "repeated key":
        lines[at] = f"{lines[at][:-1]}, {json.dumps('rewards')}: {json.dumps(json.loads(lines[at])['rewards'])}}}"
    (directory / "line.json").write_text("\n".join(lines) + "\n")


def _changed_line(line: str, kind: Kind, fault: Mapping[str, Any]) -> str:
    unpack = Unpacker()
    values = json.loads(line)
    columns = {
        name: np.asarray(unpack(value) if isinstance(value, str) and is_packed(value) else value)
        for name, value in values.items()
        if name != "type"
    }
    kind.change(columns, _at(fault, len(columns["rewards"])))
    return json.dumps({"type": values["type"], **{name: column.tolist() for name, column in columns.items()}})


def _halves(columns: Columns) -> list[Columns]:
    """Two parts of some episodes each."""
    begins = np.flatnonzero(np.diff(columns["eps_id"])) + 1
    middle = int(begins[len(begins) // 2])
    return [{name: column[rows] for name, column in columns.items()} for rows in (slice(middle), slice(middle, None))]


def _damage_arrays(path: Path, directory: Path, fault: Mapping[str, Any]) -> None:
    with np.load(path) as file:
        columns = {name: file[name] for name in file}
    metadata = columns.pop("metadata")

    def write(name: str, part: Columns) -> None:
        np.savez(directory / name, **part, metadata=metadata)

    _write_halves(columns, ".npz", write, directory, fault)


def _damage_table(path: Path, directory: Path, fault: Mapping[str, Any]) -> None:
    import pyarrow  # takes long to import
    from pyarrow import parquet

    table = parquet.read_table(path)
    lists = {name: table[name].to_pylist() for name in table.column_names}
    columns = {  # arrays of bytes would lose zeros at their ends
        name: np.array(values, object if isinstance(values[0], bytes) else None) for name, values in lists.items()
    }

    def write(name: str, part: Columns) -> None:
        made = pyarrow.table({name: column.tolist() for name, column in part.items()})
        parquet.write_table(made.replace_schema_metadata(table.schema.metadata), directory / name)

    _write_halves(columns, ".parquet", write, directory, fault)


def _write_halves(columns: Columns, suffix: str, write: Callable, directory: Path, fault: Mapping[str, Any]) -> None:
    """Writes columns as two files, one of which has the fault."""
    parts, kind = _halves(columns), KINDS[fault["kind"]]
    for name, part, is_faulty in zip("bc", parts, (fault["at"] < 0.5, fault["at"] >= 0.5)):
        if is_faulty and kind.change is not None:
            kind.change(part, _at(fault, len(part["rewards"])))
        write(f"{name}{suffix}", part)
        if is_faulty and fault["kind"] == "cut off":
            written = (directory / f"{name}{suffix}").read_bytes()
            (directory / f"{name}{suffix}").write_bytes(written[: len(written) // 2])


_WRITERS = {".json": _damage_lines, ".npz": _damage_arrays, ".parquet": _damage_table}


# ------------------------------------------------------------------ what has to become of them


def expected_messages(world: Mapping[str, Any]) -> tuple[str, ...]:
    """Parts of what a run with a fault in its data may say."""
    return ("left out", "could not be read") if world.get("data", {}).get("fault") else ()


def is_named(world: Mapping[str, Any], message: str) -> bool:
    """Whether a message says where the fault is: the file, and of JSON the line, if a line cannot be read."""
    fault = world["data"]["fault"]
    if form_of(world["data"]) == "arrays":
        return True
    names_line = form_of(world["data"]) == "json" and KINDS[fault["kind"]].skipped == "left out"
    if not names_line or fault["kind"] == "empty file":
        return "faulty" in message
    (sound,) = Path(_sound_files(world)).iterdir()
    at = _at(fault, len(sound.read_text().splitlines()))
    return re.search(rf"line.json line .*\b{at + 1}\b", message) is not None


def wrong_readings(world: Mapping[str, Any], place: Path) -> Iterator[str]:
    """What is wrong with the rows that are read of files with a fault, with either on_error and in pieces."""
    data = world["data"]
    if form_of(data) == "arrays":
        return
    kind, made = KINDS[data["fault"]["kind"]], worlds.World({**world, "kind": "single"})
    spaces = {"observation_space": made.observation_space, "action_space": made.action_space}
    sound = Dataset.from_path(_sound_files(world), **spaces)
    for read in (Dataset.from_path, functools.partial(dataset_on_disk, piece_bytes=1)):
        for on_error, wanted in (("raise", kind.raised), ("skip", kind.skipped)):
            how = f"on_error={on_error!r}" + (" in pieces" if read is not Dataset.from_path else "")
            try:
                dataset = read(recorded(world, place), on_error=on_error, **spaces)
            except ValueError as error:
                if wanted in ("read", "left out"):
                    yield f"{how}: it was refused: {error}"
                elif not is_named(world, str(error)):
                    yield f"{how}: it is not said where: {error}"
                continue
            if wanted == "refused":
                yield f"{how}: it was read"
                continue
            lost = _rows_with_fault(world, sound) if wanted == "left out" else None if wanted is None else 0
            yield from (f"{how}: {each}" for each in _wrong_rows(dataset, sound, lost))


def _rows_with_fault(world: Mapping[str, Any], sound: Dataset) -> int:
    """Rows of the line or file that has the fault."""
    fault = world["data"]["fault"]
    if fault["kind"] == "empty file":
        return 0
    if form_of(world["data"]) == "json":
        (path,) = Path(_sound_files(world)).iterdir()
        lines = path.read_text().splitlines()
        return len(json.loads(lines[_at(fault, len(lines))])["rewards"])
    begins = sound.starts[1:-1]
    first = int(begins[len(begins) // 2])
    return first if fault["at"] < 0.5 else len(sound) - first


def _wrong_rows(dataset: Dataset, sound: Dataset, lost: int | None) -> Iterator[str]:
    """What is wrong with rows that were read; `lost`: number of those that are left out, if it is known."""
    names = [name for name in ("obs", "actions", "rewards", "terminateds") if name in dataset.columns]
    every = np.ones(len(sound), bool)
    if more := _keys(dataset, names, None) - _keys(sound, names, every):
        yield f"{more.total()} rows are none that were recorded"
    known = dataset.has_next
    if more := _keys(dataset, [*names, "new_obs"], known) - _keys(sound, [*names, "new_obs"], sound.has_next):
        yield f"{more.total()} rows have a next observation that is not theirs"
    if lost is not None and len(dataset) != len(sound) - lost:
        yield f"{len(dataset)} rows were read instead of {len(sound)} without {lost}"
    if lost and not dataset.notices:
        yield "rows were left out without a word"


def _keys(dataset: Dataset, names: list[str], rows: np.ndarray | None) -> Counter:
    """Rows by what is in these columns."""
    chosen = [np.asarray(dataset.columns[name], np.float64).reshape(len(dataset), -1) for name in names]
    table = np.concatenate(chosen, 1)
    return Counter(row.tobytes() for row in (table if rows is None else table[rows]))
