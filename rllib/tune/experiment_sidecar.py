"""TensorBoard events of all trials of an experiment, by one process beside it.

It follows the journal for what trials there are, and each trial's result.json until the trial has ended; then it adds
the trial's hyperparameters. Like the sidecar of a single run it ends when its standard input does.
"""

import atexit
import os
import select
import sys
from pathlib import Path

import msgspec

from rllib.tune.experiment import journal_file
from rllib.tune.experiment_callbacks import Callback
from rllib.tune.loggers import TensorBoardLogger, flatten
from rllib.tune.sidecar import Sidecar, complete_lines, thinned

_POLL_INTERVAL_S = 0.5
_ENDS = ("TERMINATED", "ERROR")


class TensorBoardCallback(Callback):
    """Starts the process with the experiment's first result, and ends it with the experiment.

    Args:
        directory: of the experiment.
    """

    def __init__(self, directory: Path):
        self._sidecar = Sidecar(__name__, [str(directory)], "TensorBoard events")
        # What a resumed experiment had written is there already.
        self._before = journal_file(directory).stat().st_size if directory.exists() else 0

    def on_trial_result(self, **info) -> None:
        self._sidecar.start(str(self._before))

    def on_experiment_end(self, **info) -> None:
        # The experiment need not wait for the last events; the program does, when it ends.
        self._sidecar.finish()
        atexit.register(self._sidecar.close)


class _Follower:
    """One trial: its result.json is read on from where it was left."""

    def __init__(self, directory: Path, params: dict):
        self._directory, self._params = directory, params
        self._file = self._logger = None
        self._last: dict = {}

    def poll(self) -> None:
        """Writes what is new."""
        if self._file is None:
            try:
                self._file = open(self._directory / "result.json", "rb")  # noqa: SIM115 (closed in close())
            except FileNotFoundError:
                return
            self._logger = TensorBoardLogger(self._directory)
        results = list(complete_lines(self._file))
        for result in thinned(results, TensorBoardLogger.points_per_poll):
            self._logger.on_result(result)
            self._last = result

    def close(self) -> None:
        """The trial has ended: the rest, and its hyperparameters."""
        self.poll()
        if self._logger is not None:
            metrics = {key: value for key, value in flatten(self._last) if isinstance(value, (int, float))}
            self._logger.add_hparams(self._params, metrics)
            self._logger.close()
            self._file.close()


def main(directory: Path, before: int) -> None:
    """Follows the experiment until standard input ends."""
    os.nice(10)
    followers: dict[str, _Follower] = {}
    with open(journal_file(directory), "rb") as journal:
        known = {r["id"]: r for r in complete_lines(journal, before) if r["type"] == "trial"}
        ended = False
        while not ended:
            ended = bool(select.select([sys.stdin], [], [], _POLL_INTERVAL_S)[0])
            records = list(complete_lines(journal))
            finished = []
            for record in records:
                if record["type"] == "trial":
                    known[record["id"]] = record
                elif record["type"] == "status" and record["status"] == "RUNNING" and record["id"] in known:
                    trial = known[record["id"]]
                    followers.setdefault(record["id"], _Follower(directory / trial["dir"], trial["params"]))
                elif record["type"] == "status" and record["status"] in _ENDS:
                    finished.append(record["id"])
            for follower in followers.values():
                follower.poll()
            for trial_id in finished:
                known.pop(trial_id, None)
                if trial_id in followers:
                    followers.pop(trial_id).close()
    for follower in followers.values():
        follower.close()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]))
    except ImportError:
        print("TensorBoard events need tensorboardX: pip install tensorboardX")
    except (OSError, msgspec.DecodeError) as error:
        print(f"TensorBoard events are incomplete: {type(error).__name__}: {error}")
    sys.stdout.flush()
    os._exit(0)  # all files are closed
