"""TensorBoard events of an experiment's trials, written by a process next to it (runs/sidecar.py)."""

import atexit
import sys
from pathlib import Path

import msgspec

from rllib.runs.events import TensorBoardLogger
from rllib.runs.follower import Follower, run_beside, until_input_ends, wants_groups
from rllib.runs.sidecar import Sidecar
from rllib.storage.growing_lines import GrowingLines
from rllib.tune.experiment.callbacks import Callback
from rllib.tune.experiment.directory import journal_file

_ENDS = ("TERMINATED", "ERROR")


class TensorBoardCallback(Callback):
    """Starts the process with an experiment's first result, and ends it with the experiment.

    Args:
        directory: the experiment's directory.
        is_awaited: whether the end of the experiment waits for the last events; else the end of the program does.
    """

    def __init__(self, directory: Path, is_awaited: bool = False):
        self._is_awaited = is_awaited
        # Events of a resumed experiment's earlier records have been written.
        before = journal_file(directory).stat().st_size if directory.exists() else 0
        self._sidecar = Sidecar(__name__, [str(directory), str(before)], "TensorBoard events")

    def on_trial_result(self, **info) -> None:
        self._sidecar.start()

    def on_experiment_end(self, **info) -> None:
        if self._is_awaited:
            self._sidecar.close()
            return
        self._sidecar.finish()
        atexit.register(self._sidecar.close)


def follow_experiment(directory: Path, before: int) -> None:
    """Follows the trials of an experiment that run after a position in its journal, until standard input ends."""
    followers: dict[str, Follower] = {}
    journal, records_in = GrowingLines(journal_file(directory)), msgspec.json.Decoder(dict).decode_lines
    known = {record["id"]: record for record in records_in(journal.read(before)) if record["type"] == "trial"}
    for _ in until_input_ends():
        ended = []
        for record in records_in(journal.read()):
            trial = known.get(record.get("id"))
            if record["type"] == "trial":
                known[record["id"]] = record
            elif record["type"] == "status" and record["status"] == "RUNNING" and trial is not None:
                place = directory / trial["dir"]
                follower = Follower(place, lambda place=place: [TensorBoardLogger.fresh(place, wants_groups(place))])
                followers.setdefault(trial["id"], follower)
            elif record["type"] == "status" and record["status"] in _ENDS:
                ended.append(record["id"])
        for follower in followers.values():
            follower.poll()
        for trial_id in ended:
            trial = known.pop(trial_id, None)
            if trial_id in followers:
                followers.pop(trial_id).close(trial["params"])
    for trial_id, follower in followers.items():
        follower.close(known[trial_id]["params"])


if __name__ == "__main__":
    run_beside(follow_experiment, Path(sys.argv[1]), int(sys.argv[2]))
