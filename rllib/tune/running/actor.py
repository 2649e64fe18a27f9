"""The process of a trial: an actor that makes, steps, saves and ends the trainable."""

import functools
import os
import socket
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rllib.storage.local_path import SCRIPT_DIRECTORY
from rllib.storage.signatures import join_run
from rllib.tune.trainables import session
from rllib.tune.trainables.session import TrialContext
from rllib.tune.trainables.trainable import AlgorithmTrainable
from runtime.util.closing import ClosingActor, ends_early


@dataclass(frozen=True)
class Definition:
    """Settings that all trials of an experiment share; sent once.

    Attributes:
        trainable_class: class that they run.
        registered: environments and models that were registered in the driver; `register` registers them here.
        chdir_to_trial_dir: whether a trial's process works in the trial's directory.
        run_key: key with which the run signs its pickles.
    """

    trainable_class: type
    registered: Sequence
    chdir_to_trial_dir: bool
    run_key: bytes = field(repr=False)


def _unless_it_failed(method):
    """Makes a method return None after an earlier call of the trial has raised; the driver ignores its answer then.

    Calls are sent before earlier ones are answered: a step of a trainable that could not be made would raise a second
    error, and a checkpoint of a failed one would be wrong.
    """

    @functools.wraps(method)
    def call(self, *arguments):
        if self._has_failed:
            return None
        try:
            return method(self, *arguments)
        except BaseException:
            self._has_failed = True
            raise

    return call


class TrialActor(ClosingActor):
    """Runs one trial, and after `reset` another one. After a call has raised, all but `close` do nothing."""

    def __init__(self, driver_pid: int):
        self._shares_process = os.getpid() == driver_pid  # the runtime's local engine
        self._trainable = None
        self._moves = self._has_failed = False

    @ends_early
    @_unless_it_failed
    def start(self, definition: Definition, config: dict, context: TrialContext, restore: str | None, log_to_file):
        """Makes the trainable, from a checkpoint if one is given; returns process and host."""
        self._log_to(log_to_file, context)
        if not self._shares_process:
            join_run(definition.run_key)
            for entry in definition.registered:
                entry.register()
        self._moves = definition.chdir_to_trial_dir and not self._shares_process
        self._enter(context)
        self._trainable = definition.trainable_class(config, context)
        if restore:
            self._trainable.restore(restore)
        return self._identity()

    @ends_early
    @_unless_it_failed
    def step(self) -> tuple[dict, str | None]:
        """Runs one step; returns its result, and the path of a checkpoint that came with it."""
        if self._shares_process:  # between two steps it is the user's script again
            session.activate(self._trainable._context, None)
        try:
            result = self._trainable.train()
        finally:
            if self._shares_process:
                session.activate(None, None)
        path = self._trainable.take_reported() if hasattr(self._trainable, "take_reported") else None
        return result, path

    @ends_early
    @_unless_it_failed
    def save(self, path: str) -> str:
        """Writes a checkpoint; returns its path."""
        return self._trainable.save(path)

    @ends_early
    @_unless_it_failed
    def export(self, formats: list[str]) -> dict[str, str]:
        """Exports the trainable into the trial's directory; returns format -> path."""
        return self._trainable.export_model(formats)

    @ends_early
    @_unless_it_failed
    def reset(self, config: dict, context: TrialContext, restore: str | None, log_to_file) -> dict | None:
        """Switches to another trial and returns process and host.

        Returns None if the trainable cannot, which then ends where it was; later calls do nothing.
        """
        trainable, before = self._trainable, self._trainable._context
        self._log_to(log_to_file, context)
        self._enter(context)
        trainable._context = context
        if not trainable.reset_config(config):
            self._log_to(log_to_file, before)
            self._enter(before)
            trainable._context = before
            self._has_failed = True
            self.close()
            return None
        trainable.config = config
        trainable._count_from()
        if restore:
            trainable.restore(restore)
        return self._identity()

    def _identity(self) -> dict:
        """Process id, host, and the seed of an algorithm."""
        seed = self._trainable.seed if isinstance(self._trainable, AlgorithmTrainable) else None
        return {"pid": os.getpid(), "hostname": socket.gethostname(), "seed": seed}

    def _log_to(self, log_to_file, context: TrialContext) -> None:
        """Lets the process print to files in the trial's directory, if the experiment asks for that."""
        if log_to_file and not self._shares_process:
            _redirect(log_to_file, context.trial_dir)

    def _enter(self, context: TrialContext) -> None:
        """Makes the trial's directory the working directory, and the trial the one that functions report to."""
        if self._moves:
            os.environ.setdefault(SCRIPT_DIRECTORY, os.getcwd())  # for scripts, and settings, that name files there
            sys.path[:] = map(os.path.abspath, sys.path)  # keeps the import path valid
            os.chdir(context.trial_dir)
        session.activate(context, None)

    def rest(self) -> None:
        """Has no effect, but is answered after all earlier calls: the trial has ended."""

    def close(self) -> str | None:
        """Ends the trainable, once; returns the traceback if it could not end well."""
        trainable, self._trainable = self._trainable, None
        try:
            if trainable is not None:
                trainable.stop()
        except Exception:
            return traceback.format_exc()
        return None


def _redirect(log_to_file, directory: str) -> None:
    """Redirects output to files: True for stdout and stderr, one name for both, or two names."""
    names = ("stdout", "stderr") if log_to_file is True else log_to_file
    names = (names, names) if isinstance(names, str) else names
    sys.stdout.flush()
    sys.stderr.flush()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    for number, name in zip((1, 2), names):
        descriptor = os.open(Path(directory) / name, flags, 0o644)
        os.dup2(descriptor, number)
        os.close(descriptor)
