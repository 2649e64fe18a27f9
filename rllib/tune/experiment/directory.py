"""The directory of an experiment and its journal, from which the experiment continues after any end.

The journal, experiment_state-DATE.json, has one JSON object a line and only grows: a header that describes the
experiment, then every new trial, checkpoint and result, every change of a trial's state with its last result, and the
settings that a resumed experiment has changed (experiment/records.py). A line is written by one system call, so that a
killed driver leaves whole lines and at most half a last one. The file is synchronised to the disk once a second and at
the end. The state of searcher and scheduler is in search_state.json, which is replaced in one step at intervals; it has
the number of journal records that the state covers, and later records are replayed (resume.py).
"""

import glob
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from rllib.errors import DamagedFileError
from rllib.notices import shown
from rllib.remote.download import holds, working_copy
from rllib.remote.filesystem import RemoteFolder
from rllib.remote.mirror import Mirror
from rllib.remote.url import joined
from rllib.runs.entries import encode, settings_by_path
from rllib.runs.files import read_results
from rllib.runs.safe_files import AppendedFile, append_text, numbered, write_whole
from rllib.starts import note_start
from rllib.storage.file_locks import lock, sync_directory
from rllib.storage.foreign_files import WRONG_FORM, inside, json_object, read_inside, refuse_links
from rllib.tune.experiment.journal_values import code_in, written
from rllib.tune.experiment.records import (
    apply_record,
    check_record,
    settings_record,
    with_infinite,
    with_numbers,
    with_settings,
)
from rllib.tune.experiment.spec import WATCHING, ExperimentSpec
from rllib.tune.experiment.trial import Trial
from rllib.tune.search.domains import Choice, Domain

logger = logging.getLogger(__name__)

FORMAT = 1
JOURNALS = "experiment_state-*.json"
_SYNC_INTERVAL_S = 1.0
# Time between two writes of the state of searcher and scheduler, as a multiple of the time that one takes.
_SNAPSHOT_SHARE = 20
# Number of places of code that a warning names.
_MOST_NAMED = 5
# Description of a range of numbers in a search space (domains.py).
_RANGE = re.compile(r"q?(?P<log>log)?(uniform|randint)\(")


class Journal:
    """Appends records to a file that belongs to one driver at a time.

    Args:
        path: path of the file, which is made if necessary. Half a line at its end is cut off.

    Attributes:
        num_records: number of records in the file.
        written_at: time.time() of the last write before it was opened.

    Raises:
        ValueError: if another process is writing it.
    """

    def __init__(self, path: Path):
        self.path, self._file = path, AppendedFile(path)
        try:
            lock(self._file)
        except BlockingIOError:
            self._file.close()
            raise ValueError(f"the experiment in {path.parent} is being run by another process") from None
        self.written_at = os.fstat(self._file.fileno()).st_mtime
        self._file.cut_half_line()
        self.num_records = path.read_bytes().count(b"\n")
        self._synced_at, self._dirty = time.monotonic(), False

    def append(self, record: Mapping[str, Any]) -> None:
        """Writes one record.

        Raises:
            OSError: if it cannot be written, on a full disk for instance; half a record is removed again.
        """
        self._file.append(encode(record) + b"\n")
        self.num_records += 1
        self._dirty = True

    def sync(self, now: bool = False) -> None:
        """Synchronises the file to the disk, at most once in a second unless `now`."""
        if self._dirty and (now or time.monotonic() - self._synced_at >= _SYNC_INTERVAL_S):
            os.fsync(self._file.fileno())
            self._synced_at, self._dirty = time.monotonic(), False

    def close(self) -> None:
        """Synchronises the file and unlocks it."""
        try:
            self.sync(now=True)
        finally:
            self._file.close()


class ExperimentDirectory:
    """An experiment's directory, open for one driver. Make one by `create` or `reopen`.

    Attributes:
        path: path of the directory.
        journal: closed by `close`, so that another process may open it.
        header: first record of the journal, which describes the experiment, with its present settings.
        past: records that the journal had when it was opened, without the header; [] for a new one.
        lacking: message about files that have not arrived in remote storage; None if all have.
    """

    def __init__(self, path: Path, journal: Journal, header: dict[str, Any], past: list[dict]):
        self.path, self.journal, self.header, self.past = path, journal, header, past
        self.lacking: str | None = None
        self._mirror: Mirror | None = None
        self._snapshot_due = 0.0

    @classmethod
    def create(cls, path: Path, header: Mapping[str, Any]) -> "ExperimentDirectory":
        """Makes a new experiment in a directory without one."""
        path.mkdir(parents=True, exist_ok=True)
        file = path / f"experiment_state-{datetime.now():%Y-%m-%d_%H-%M-%S}.json"
        header = {"type": "experiment", "format": FORMAT, "created": time.time(), **header}
        # In one step: where a killed program or a full disk left an empty journal, resume="AUTO" would never start.
        write_whole(file, encode(header) + b"\n")
        sync_directory(path)
        journal = Journal(file)
        note_start(path)
        return cls(path, journal, header, [])

    @classmethod
    def reopen(cls, path: Path) -> "ExperimentDirectory":
        """Opens an experiment to continue it.

        Raises:
            ValueError: if there is no experiment, it is damaged, or another process runs it.
        """
        file = journal_file(path)
        refuse_links(path)
        journal = Journal(file)
        try:
            header, *records = read_records(file)
            if not (isinstance(header.get("id"), str) and isinstance(header.get("trainable"), str)):
                raise DamagedFileError(f"{file} is damaged: its first record does not say what the experiment is")
            refuse_links(path, *(Path(trial.logdir) for trial in _trials_of(records, file)))
        except BaseException:
            journal.close()
            raise
        note_start(path)
        return cls(path, journal, header, records)

    def keep_copy(self, url: str) -> None:
        """Keeps a copy of the directory at a URL until `close`; raises as `Mirror.start`."""
        mirror = Mirror(self.path, url)
        mirror.start()
        self._mirror = mirror

    def close(self) -> None:
        """Closes the journal, and waits until the copy is whole; a second call does nothing."""
        try:
            self.journal.close()
        finally:
            if self._mirror is not None and (lacking := self._mirror.close()):
                self.lacking = lacking
                logger.warning("%s", lacking)

    def note_settings(self, spec: ExperimentSpec, settings: Mapping[str, dict | None]) -> None:
        """Writes the settings of an experiment that is resumed into its journal, if they are others than before.

        Else the next program that resumes it, without naming them, would go back to those of the first start. What only
        watches the experiment is left out: it may be code, without which the experiment continues.

        Args:
            spec: the experiment's settings, complete.
            settings: as for `open_directory`.
        """
        given = {name: value for name, value in settings.items() if name not in WATCHING}
        now = {
            **self.header,
            "settings": {**(self.header.get("settings") or {}), **given},
            "metric": spec.metric,
            "mode": spec.mode,
            "num_samples": spec.num_samples,
        }
        now = msgspec.json.decode(encode(now))
        if now == msgspec.json.decode(encode(self.header)):
            return
        _name_code(given)
        self.header = now
        self.journal.append(settings_record(now))
        self.journal.sync(now=True)

    def write_text(self, name: str, text: str, append: bool = False) -> None:
        path = inside(self.path, name, "a file of the experiment")
        if append:
            append_text(path, text)
        else:
            write_whole(path, text.encode(), is_synced=False)

    def complete_text(self, name: str, text: str, append: bool = False) -> None:
        """Writes a text of `write_text` again if a killed driver has not, or only a part of it."""
        path = inside(self.path, name, "a file of the experiment")
        if append and path.exists():
            file = AppendedFile(path)
            file.cut_half_line()
            file.close()
            if text.encode(errors="replace") in path.read_bytes():
                return
        self.write_text(name, text, append)

    def snapshot(self, state: Callable[[], Mapping[str, Any]], now: bool = False) -> None:
        """Writes the state of searcher and scheduler, unless the last write is too recent for its cost.

        All records of the journal must have been reported to them.
        """
        began = time.monotonic()
        if not now and began < self._snapshot_due:
            return
        content = {"position": self.journal.num_records, "time": time.time(), **state()}
        write_whole(self.path / "search_state.json", encode(content))
        self._snapshot_due = began + _SNAPSHOT_SHARE * (time.monotonic() - began)

    def read_snapshot(self) -> dict[str, Any]:
        """The state that `snapshot` has written; {} without one."""
        try:
            return json_object(read_inside(self.path, "search_state.json"))
        except FileNotFoundError:
            return {}
        except DamagedFileError as error:
            raise DamagedFileError(f"{self.path / 'search_state.json'} is damaged: {error}") from None


# ---------------------------------------------------------------------- reading


def lock_held(path: Path) -> bool | None:
    """Whether a process holds the lock of a journal, or of the directory of a run; None if that is unknown.

    The test takes a free lock for some microseconds: call it only when something has changed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return False if lock(descriptor, shared=True) else None
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def journal_file(path: Path) -> Path:
    """The newest journal in a directory.

    Raises:
        ValueError: if there is none.
    """
    files = sorted(path.glob(JOURNALS))
    if not files:
        raise ValueError(f"there is no experiment in {shown(str(path))}: it has no experiment_state-*.json")
    return files[-1]


def read_journal(file: Path) -> tuple[dict[str, Any], list[Trial]]:
    """Header and trials, with their configurations as people read them: no code is run.

    The journal has the last result and the statistics of trials that have ended. Those of the others, which run or were
    interrupted, come from their result.json, if it is there.

    Raises:
        ValueError: if it is not a journal, damaged, or of a newer format; if a result.json is no regular file.
    """
    header, *records = read_records(file)
    trials = _trials_of(records, file)
    for trial in trials:
        if not trial.is_finished:
            _read_progress(trial)
    return header, trials


def _read_progress(trial: Trial) -> None:
    """Takes the results in the trial's result.json; without any, the trial stays as it is."""
    *earlier, last = with_infinite(read_results(Path(trial.logdir)), trial) or [None]
    if last is None:
        return
    trial.go_back(earlier, trial.checkpoints)
    # A number that is null in the last result is NaN, so that it does not count with an earlier value.
    names = {*trial.metric_analysis, *(key for checkpoint in trial.checkpoints for key in checkpoint.metrics)}
    trial.take({**with_numbers(last, dict.fromkeys(names, math.nan)), "config": trial.config})


def read_records(file: Path) -> list[dict[str, Any]]:
    """All records of a journal, the header first, with its present settings; half a line at its end is left out.

    Raises:
        ValueError: if it is not a journal, or of a newer format.
    """
    try:
        content = read_inside(file.parent, file.name)
        records = msgspec.json.Decoder(dict).decode_lines(content[: content.rfind(b"\n") + 1])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise DamagedFileError(f"{file} is damaged: {error}") from error
    if not records or records[0].get("type") != "experiment":
        raise ValueError(f"{file} is not the journal of an experiment")
    header = records[0]
    if not isinstance(header.get("format"), int) or header["format"] > FORMAT:
        raise ValueError(f"{file} is of format {header.get('format')}, and this version reads {FORMAT}")
    for number, record in enumerate(records, 1):
        if record.get("type") == "settings":
            try:
                records[0] = with_settings(records[0], record)
            except ValueError as error:
                raise DamagedFileError(f"{file} is damaged: record {number}: {error}") from error
    return records


def _trials_of(records: list[dict[str, Any]], file: Path) -> list[Trial]:
    """The trials in the records of a journal.

    Raises:
        DamagedFileError: naming the first record that has a wrong form, or names an unknown trial.
    """
    trials: dict[str, Trial] = {}
    for number, record in enumerate(records, 2):
        try:
            check_record(record, trials)
            apply_record(record, trials, file.parent)
        except WRONG_FORM as error:
            raise DamagedFileError(f"{file} is damaged: record {number}: {error}") from error
    return list(trials.values())


def for_header(value) -> dict[str, Any] | None:
    """A value in the form of the header; None if it cannot be pickled."""
    try:
        return written(value)
    except Exception:  # any error of a user's object
        return None


# ---------------------------------------------------------------------- names


def _latest_path(results: Path, name: str) -> Path | None:
    """The last experiment of this name; None without one."""
    found = {}
    place = inside(results, name, "the experiment's directory")  # the name may have "/"
    for path in _experiments(place.parent, f"{glob.escape(place.name)}*"):
        if match := re.fullmatch(re.escape(place.name) + r"(?:_(\d+))?", path.name):
            found[int(match.group(1) or 1)] = path
    return found[max(found)] if found else None


def _experiments(results: Path, pattern: str) -> list[Path]:
    return [path for path in results.glob(pattern) if any(path.glob(JOURNALS))]


# ---------------------------------------------------------------------- opening


def open_directory(
    spec: ExperimentSpec, trainable: str, space: dict, settings: Mapping[str, dict | None], at: Path | None = None
) -> ExperimentDirectory:
    """Opens the experiment's directory: a new one, or the one to continue.

    Args:
        spec: the experiment's settings.
        trainable: name of the trainable.
        space: the search space.
        settings: name -> value as `for_header` returns it, for `Tuner.restore`; written into a new directory.
        at: directory of the experiment to continue; None: the last one of the spec's name, if that resumes.

    Raises:
        ValueError: if there is no experiment to resume, it is another one, or the name leads out of the results.
    """
    results, storage = spec.results_dir, spec.storage_url
    if spec.name:
        inside(results, spec.name, "the experiment's directory")
    if spec.resume:
        if found := at or path_to_resume(spec, trainable):
            return _copied(_reopened(found, trainable, space), spec)
        if "AUTO" not in str(spec.resume):
            places = f"{results} or {storage}" if storage else results
            raise ValueError(
                f"there is no experiment {spec.name or trainable!r} in {places} to resume. Give its name and "
                'storage_path, or resume="AUTO" to start it where there is none'
            )
    return _copied(_created(results, spec, trainable, space, settings), spec)


def path_to_resume(spec: ExperimentSpec, trainable: str) -> Path | None:
    """The experiment that `resume` continues, which is fetched from remote storage if need be; None without one.

    Args:
        spec: the experiment's settings.
        trainable: name of the trainable, by whose default names one without a name is found.
    """
    results, storage = spec.results_dir, spec.storage_url
    if not spec.name:
        paths = _experiments(results, f"{glob.escape(trainable)}_*")
        return max(paths, key=lambda path: path.stat().st_mtime, default=None)
    if storage and not _latest_path(results, spec.name):
        _fetch(joined(storage, spec.name), (results / spec.name).parent)
    return _latest_path(results, spec.name)


def _copied(directory: ExperimentDirectory, spec: ExperimentSpec) -> ExperimentDirectory:
    """The directory, of which a copy is kept below a URL if there is one."""
    if spec.storage_url:
        try:
            directory.keep_copy(joined(spec.storage_url, spec.name_of(directory.path)))
        except BaseException:
            directory.journal.close()
            raise
    return directory


def _fetch(url: str, results: Path) -> None:
    """Copies the experiment at a URL into the results, if there is one."""
    if holds(RemoteFolder(url), JOURNALS):
        working_copy(url, results, JOURNALS)


def _created(results: Path, spec: ExperimentSpec, trainable: str, space: dict, settings) -> ExperimentDirectory:
    name = spec.name or f"{trainable}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    numbers = numbered(inside(results, name, "the experiment's directory"))  # NAME, NAME_2, ...
    path = next(path for path in numbers if _is_free(path, spec))
    if spec.name and path != inside(results, name, "the experiment's directory"):
        logger.warning("%s exists already, so this experiment goes to %s, which resume=True continues from now on",
                       results / name, path)  # fmt: skip
    records = {"config": for_header(space), **settings}
    _name_code(records)
    header = {
        "id": secrets.token_hex(3)[:5],
        "name": spec.name_of(path),
        "trainable": trainable,
        "space": records["config"],
        "described": described(space),
        "settings": settings,
        "metric": spec.metric,
        "mode": spec.mode,
        "num_samples": spec.num_samples,
    }
    return ExperimentDirectory.create(path, header)


def _name_code(records: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Warns of code in settings that are about to be written."""
    if code := [f"{key}: {name}" for key, record in records.items() for name in code_in(record)]:
        more = f" and {len(code) - _MOST_NAMED} more" if len(code) > _MOST_NAMED else ""
        logger.warning(
            "this experiment holds code, which is loaded from no file unasked (%s%s). To continue it, use "
            "load_user_code=True; or give it again, in the arguments of run with resume=True, or as param_space, "
            "tune_config and run_config of restore.", ", ".join(code[:_MOST_NAMED]), more,
        )  # fmt: skip


def _is_free(path: Path, spec: ExperimentSpec) -> bool:
    """Whether a new experiment can have this path, and its name in remote storage."""
    is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    return is_free and not (spec.storage_url and RemoteFolder(joined(spec.storage_url, spec.name_of(path))).names())


def _reopened(path: Path, trainable: str, space: dict) -> ExperimentDirectory:
    directory = ExperimentDirectory.reopen(path)
    header = directory.header
    differs = (
        f"it ran {header['trainable']}, not {trainable}" if header["trainable"] != trainable
        else difference(header.get("described", {}), described(space)) if "described" in header
        else None
    )  # fmt: skip
    if differs:
        directory.journal.close()
        raise ValueError(
            f"{path} is the directory of another experiment: {differs}. Give this one another name, or continue with "
            "the same configuration; only num_samples may grow"
        )
    return directory


# ---------------------------------------------------------------------- descriptions of search spaces


def described(node) -> Any:
    """A search space as JSON that is equal for equal spaces: domains by their repr, functions by their names."""
    if isinstance(node, Mapping):
        return {str(key): described(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [described(value) for value in node]
    if isinstance(node, Choice):
        return {"choice": described(node.values)}
    if isinstance(node, float):
        return float(node) if math.isfinite(node) else repr(float(node))
    if node is None or isinstance(node, (bool, int, str)):
        return node
    if isinstance(node, Domain) or type(node).__module__ == "numpy":
        return repr(node)
    return getattr(node, "__qualname__", type(node).__qualname__)


def logarithmic(header: Mapping[str, Any]) -> dict[str, bool]:
    """Maps the "a/b" path of each setting that was drawn from a range to whether its logarithm was uniform."""
    space = header.get("described")
    texts = settings_by_path(space if isinstance(space, Mapping) else {})
    found = {path: _RANGE.match(text) for path, text in texts if isinstance(text, str)}
    return {path: bool(match["log"]) for path, match in found.items() if match}


def difference(before, now, path: str = "") -> str | None:
    """The first difference between two descriptions of search spaces, in words; None if they are equal."""
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        return None if before == now else f"its {path} was {before!r:.100}, and is {now!r:.100} now"
    if before.keys() != now.keys():
        where = path or "configuration"
        return f"its {where} has {', '.join(sorted(before)) or 'nothing'}, not {', '.join(sorted(now)) or 'nothing'}"
    inside = (difference(before[key], now[key], f"{path}/{key}" if path else key) for key in before)
    return next(filter(None, inside), None)
