"""Trainables: classes of either generation, functions of any signature, and algorithms.

The class's methods, and the names that they had before Ray 1.0: setup (_setup), step (_train), save_checkpoint (_save),
load_checkpoint (_restore), cleanup (_stop), reset_config.
"""

import os
import socket
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rllib.compat.names import absent
from rllib.did_you_mean import explains
from rllib.errors import NotFiniteError
from rllib.runs.files import PROFILE, keep_failing_batch
from rllib.storage.foreign_files import inside
from rllib.storage.local_path import local_path
from rllib.tune.trainables import checkpoint as checkpoints
from rllib.tune.trainables import session
from rllib.tune.trainables.session import TrialContext

# Seconds that a function whose trial is stopped may take to leave its report.
_STOP_FUNCTION_S = 1.0
_COUNTERS = ("timesteps_total", "episodes_total")


@explains(absent.TRAINABLE)
class Trainable:
    """Base of classes that are trained step by step, and can be saved and restored.

    A subclass defines `setup`, `step`, and for checkpoints `save_checkpoint` and `load_checkpoint`.

    Args:
        config: the trial's configuration.
        context: identity and place of the trial; None if the class is used without Tune.

    Attributes:
        config, iteration, logdir, trial_id, trial_name: for use in the methods.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, context: TrialContext | None = None):
        self.config = {} if config is None else config
        self._context = context
        self._count_from()
        self.setup(self.config)

    # ------------------------------------------------------------------ methods of subclasses

    def setup(self, config: dict[str, Any]) -> None:
        """Called once, before the first step."""
        self._setup(config)

    def step(self) -> dict[str, Any]:
        """Runs one iteration; returns its metrics. `done: True` among them ends the trial."""
        return self._train()

    def save_checkpoint(self, checkpoint_dir: str) -> str | dict | None:
        """Writes into the directory; returns it, the path of a file in it, or a dict to be saved."""
        return self._save(checkpoint_dir)

    def load_checkpoint(self, checkpoint: str | dict, /) -> None:
        """Restores the state from a return value of `save_checkpoint`."""
        self._restore(checkpoint)

    def cleanup(self) -> None:
        """Called once, at the end."""
        self._stop()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Starts over with another configuration; False: it cannot, and a new object is made."""
        return False

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        """Exports the trained state in these formats; returns format -> path."""
        raise NotImplementedError(f"{type(self).__name__} cannot be exported: write _export_model(formats, directory)")

    def log_result(self, result: dict[str, Any]) -> None:
        """Called with every result before it leaves the trial's process."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]):
        """Resources of a trial with this configuration; None: one CPU."""
        return None

    def _setup(self, config: dict[str, Any]) -> None:
        pass

    def _train(self) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} needs a method step() that returns a dict of metrics")

    def _save(self, checkpoint_dir: str) -> str | dict | None:
        raise NotImplementedError(
            f"{type(self).__name__} cannot be saved: write save_checkpoint(checkpoint_dir) and load_checkpoint"
        )

    def _restore(self, checkpoint: str | dict) -> None:
        raise NotImplementedError(f"{type(self).__name__} cannot be restored: write load_checkpoint(checkpoint)")

    def _stop(self) -> None:
        pass

    # ------------------------------------------------------------------ methods for the trial's process

    @property
    def iteration(self) -> int:
        """Number of steps, those before a restore included."""
        return self._iteration

    training_iteration = iteration

    @property
    def logdir(self) -> str:
        """The trial's directory."""
        return self._context.trial_dir if self._context else os.getcwd()

    @property
    def trial_id(self) -> str:
        return self._context.trial_id if self._context else "default"

    @property
    def trial_name(self) -> str:
        return self._context.trial_name if self._context else "default"

    def train(self) -> dict[str, Any]:
        """Runs one step; returns its metrics and the automatic keys (training_iteration, time_total_s, ...).

        Raises:
            TypeError: if the step returned no dict.
        """
        began = time.perf_counter()
        metrics = self.step()
        if not isinstance(metrics, Mapping):
            raise TypeError(f"{type(self).__name__}.step() must return a dict of metrics, but returned {metrics!r:.80}")
        result = self._completed(metrics, time.perf_counter() - began)
        self.log_result(result)
        return result

    def _completed(self, metrics: Mapping[str, Any], took_s: float) -> dict[str, Any]:
        result = metrics if isinstance(metrics, dict) else dict(metrics)
        self._iteration += 1
        self._iterations_since_restore += 1
        took_s = result.get("time_this_iter_s", took_s)
        self._time_total += took_s
        self._time_since_restore += took_s
        self._count(result)
        now = datetime.now()
        filled = {
            "training_iteration": self._iteration,
            "time_this_iter_s": took_s,
            "time_total_s": self._time_total,
            "time_since_restore": self._time_since_restore,
            "iterations_since_restore": self._iterations_since_restore,
            "timesteps_since_restore": self._timesteps_since_restore,
            "done": False,
            "date": now.strftime("%Y-%m-%d_%H-%M-%S"),
            "timestamp": int(now.timestamp()),
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "node_ip": "127.0.0.1",
        }
        for key, value in filled.items():
            result.setdefault(key, value)
        result["trial_id"] = self.trial_id
        if self._context is not None:
            result["experiment_tag"] = self._context.experiment_tag
        return result

    def _count_from(self, iteration: int = 0, time_total_s: float = 0.0, totals: Mapping | None = None) -> None:
        """Sets the counters to the values of a checkpoint, or of the beginning."""
        self._iteration, self._time_total, self._totals = iteration, time_total_s, dict(totals or {})
        self._time_since_restore, self._iterations_since_restore, self._timesteps_since_restore = 0.0, 0, 0

    def _count(self, result: dict[str, Any]) -> None:
        """Computes totals from the numbers of this iteration, and vice versa."""
        for total, this in zip(_COUNTERS, ("timesteps_this_iter", "episodes_this_iter")):
            before = self._totals.get(total, 0)
            if result.get(total) is None and result.get(this) is not None:
                result[total] = before + result[this]
            if result.get(total) is not None:
                self._totals[total] = result[total]
                if total == "timesteps_total":
                    result.setdefault(this, result[total] - before)
                    self._timesteps_since_restore += result[this]

    def save(self, checkpoint_dir: str | Path | None = None) -> str:
        """Writes a checkpoint directory in one step; returns its path."""
        place = local_path(checkpoint_dir or Path(self.logdir) / f"checkpoint_{self._iteration:06d}")
        temporary = checkpoints.temporary_directory(place.parent)
        try:
            own = self.save_checkpoint(str(temporary))
            return str(checkpoints.put_in_place(temporary, place, self._metadata(own, temporary)))
        except BaseException:
            checkpoints.shutil.rmtree(temporary, ignore_errors=True)
            raise

    def _metadata(self, own, directory: Path) -> dict[str, Any]:
        metadata = {"iteration": self._iteration, "time_total_s": self._time_total, "totals": self._totals}
        if isinstance(own, Mapping):
            checkpoints.write_dict(directory, own)
            return {**metadata, "kind": "dict"}
        if own is None:
            return {**metadata, "kind": "path", "path": "."}
        inside = os.path.relpath(own, directory)
        if inside.startswith(".."):
            raise ValueError(
                f"{type(self).__name__}.save_checkpoint returned {own}, which does not lie in the directory that it "
                "was given; write there"
            )
        return {**metadata, "kind": "path", "path": inside}

    def restore(self, checkpoint_path: str | Path, load_user_code: bool = False) -> None:
        """Continues from a directory of `save`, or from one of its files.

        Args:
            checkpoint_path: path of the directory or file.
            load_user_code: unpickle a dict of `save_checkpoint` that is no data, even if another run has written it.
                That runs code: only for checkpoints whose origin you trust.

        Raises:
            ValueError: if its dict is a pickle of another run.
        """
        checkpoint_path = checkpoints.checkpoint_of(checkpoint_path)
        metadata = checkpoints.read_metadata(checkpoint_path)
        if metadata.get("kind") == "dict":
            may_load = load_user_code or (self._context is not None and self._context.load_user_code)
            self.load_checkpoint(checkpoints.read_dict(checkpoint_path, may_load))
        else:
            within = metadata.get("path", ".")
            path = local_path(checkpoint_path)
            self.load_checkpoint(str(path if within == "." else inside(path, within, "what a checkpoint holds")))
        self._count_from(metadata.get("iteration", 0), metadata.get("time_total_s", 0.0), metadata.get("totals"))

    def export_model(self, export_formats: str | list[str], export_dir: str | None = None) -> dict[str, str]:
        """Exports the trained state for other programs; returns format -> path.

        Args:
            export_formats: see `check_export`.
            export_dir: the trial's directory by default.
        """
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        self.check_export(formats)
        return self._export_model(formats, str(export_dir or self.logdir)) or {}

    @classmethod
    def check_export(cls, formats) -> None:
        """Refuses formats that cannot be exported; a class that exports overrides it to check its own formats.

        Raises:
            TypeError: if `formats` is no list of strings.
            ValueError: if the class exports nothing.
        """
        if isinstance(formats, str):
            raise TypeError(f"export_formats must be a list of formats, as in [{formats!r}]")
        for name in formats:
            if not isinstance(name, str):
                raise TypeError(f"export_formats must be a list of strings, but it has {name!r}")
        exports = (cls._export_model, cls.export_model) != (Trainable._export_model, Trainable.export_model)
        if formats and not exports:
            raise ValueError(
                f"{cls.__name__} cannot be exported as {', '.join(formats)}: it has no _export_model(formats, "
                "directory). Functions save their own state, with tune.report(..., checkpoint=...)"
            )

    def stop(self) -> None:
        self.cleanup()


class FunctionTrainable(Trainable):
    """Runs a function in a thread, from report to report. See `wrap_function`."""

    function: Any
    saves_itself = True

    def setup(self, config: dict[str, Any]) -> None:
        self._session: session.FunctionSession | None = None
        self._restored: str | None = None
        self.reported: Path | None = None  # checkpoint of the last report, under its temporary name
        self._last: dict[str, Any] = {}

    def step(self) -> dict[str, Any]:
        if self._session is None:
            self._session = session.FunctionSession(self._call, self._restored)
        session.activate(self._context, self._session)
        kind, value, self.reported = self._session.step()
        if kind == "report":
            self._last = value
            return dict(value)
        if value is None and (self._last or self._restored):
            return {"done": True, "no_report": True}
        return {**_final(value), "done": True}

    def train(self) -> dict[str, Any]:
        result = self.step()
        if result.get("no_report"):
            return result
        now = time.time()
        took_s, self._reported_at = now - self._reported_at, now
        return self._completed(result, took_s)

    def __init__(self, config=None, context=None):
        self._reported_at = time.time()
        super().__init__(config, context)

    def _call(self):
        """Calls the function; a generator is run to its end."""
        returned = type(self).function(self.config, self._restored)
        if hasattr(returned, "__next__"):
            return _reported_all(returned)
        return returned

    def take_reported(self) -> str | None:
        """Gives the checkpoint of the last report its name; returns its path, None without a checkpoint."""
        if self.reported is None:
            return None
        place = Path(self.logdir) / f"checkpoint_{self._iteration:06d}"
        temporary, self.reported = self.reported, None
        return str(checkpoints.put_in_place(temporary, place, self._metadata(None, temporary)))

    def load_checkpoint(self, checkpoint: str | dict) -> None:
        pass

    def restore(self, checkpoint_path: str | Path, load_user_code: bool = False) -> None:
        super().restore(checkpoint_path, load_user_code)
        self._restored = str(checkpoints.checkpoint_of(checkpoint_path))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        if self._session is not None and not self._session.stop(_STOP_FUNCTION_S):
            return False
        self.__init__(new_config, self._context)
        return True

    def cleanup(self) -> None:
        if self._session is not None:
            self._session.stop(_STOP_FUNCTION_S)


def _final(value) -> dict[str, Any]:
    """The return value of a function as a result."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (int, float)) or hasattr(value, "item"):
        return {"_metric": float(value)}
    raise TypeError(f"a function trainable returns a dict of metrics, a number or nothing, but returned {value!r:.80}")


def _reported_all(generator):
    """Reports the values of a generator; its return value is the final result."""
    while True:
        try:
            metrics = next(generator)
        except StopIteration as end:
            return end.value
        session.report(_final(metrics))


class AlgorithmTrainable(Trainable):
    """Runs an algorithm of this library; made by `resolve_trainable`, with `algorithm_class` set."""

    algorithm_class: Any

    def setup(self, config: dict[str, Any]) -> None:
        self.check_settings(config)
        self.algorithm = self.algorithm_class(dict(config))
        self.algorithm.directory = Path(self.logdir)
        self.algorithm.trial_id, self.algorithm.trial_name = self.trial_id, self.trial_name

    @property
    def seed(self) -> int:
        """Seed of all random choices; drawn if the configuration has none."""
        return self.algorithm.seed

    @classmethod
    def check_settings(cls, config: Mapping[str, Any]) -> None:
        """Refuses settings that are invalid in every trial, whatever a search draws."""
        if config.get("log_dir") is not None:
            raise ValueError("log_dir is for a single run: Tune writes the files of each trial. Leave it out.")

    def step(self) -> dict[str, Any]:
        try:
            result = self.algorithm.train()
        except NotFiniteError as error:
            keep_failing_batch(Path(self.logdir), error)
            raise
        result.pop("config", None)  # the experiment has it
        return result

    def _count(self, result: dict[str, Any]) -> None:
        """The algorithm has its own counters."""
        self._iteration = result["training_iteration"]

    def save_checkpoint(self, checkpoint_dir: str) -> str:
        self.algorithm.save(checkpoint_dir)
        return checkpoint_dir

    def load_checkpoint(self, checkpoint: str) -> None:
        self.algorithm.restore(checkpoint)

    @classmethod
    def check_export(cls, formats) -> None:
        super().check_export(formats)
        for name in formats:
            if name not in ("checkpoint", "model"):
                raise ValueError(f'an algorithm is exported as "checkpoint" or "model", but not as {name!r}')

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        write = {"checkpoint": self.algorithm.save, "model": self.algorithm.export_policy_model}
        return {name: str(write[name](Path(export_dir) / name)) for name in export_formats}

    def cleanup(self) -> None:
        try:
            if self.algorithm.spans_directory is not None:  # with the setting `profile`
                self.algorithm.profile().save(Path(self.logdir) / PROFILE)
        finally:
            self.algorithm.stop()

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]):
        return cls.algorithm_class.default_resource_request(config)
