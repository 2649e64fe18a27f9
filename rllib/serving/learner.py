"""The process that learns: python -m rllib.serving.learner, started by the supervisor in addition to those that answer.

It inherits a socket to the supervisor and one to each process that answers. It writes the candidate's checkpoint, which
the others take up as they take up newer checkpoints, and makes it the newest checkpoint when it is promoted.
"""

import gc
import logging
import os
import socket
import sys
import threading
import time
from typing import Any

import msgspec

from rllib.errors import RLlibError
from rllib.serving.learning.canary import Verdict
from rllib.serving.learning.dispatcher import Dispatcher
from rllib.serving.learning.progress import Progress
from rllib.serving.learning.results import LearnerResults
from rllib.serving.learning.trainer import Trainer
from rllib.serving.learning.training_loop import TrainingLoop
from rllib.serving.loaded_policy import load_policy
from rllib.serving.tasks import Report, Task, send_report

# Seconds after which the learner looks for candidates and expired decisions, though nothing has arrived.
_LOOK_S = 0.5
# A thread that computes holds the interpreter at most so long while rewards wait (seconds).
_SWITCH_S = 0.0005


def main(control: int, *channels: int) -> int:
    """Learns until the supervisor has ended, or ends it.

    Args:
        control, channels: descriptors of the sockets.

    Returns:
        the exit status.
    """
    logging.basicConfig(level=logging.WARNING, format="rllib serve: %(message)s")
    channel = socket.socket(fileno=control)
    task = msgspec.json.decode(channel.makefile("rb").readline(), type=Task)
    threading.Thread(target=_await_end, args=(channel,), daemon=True).start()
    sys.setswitchinterval(_SWITCH_S)
    try:
        learner = Learner(task, [socket.socket(fileno=each) for each in channels], channel)
    except (ValueError, FileNotFoundError, RLlibError) as error:  # of the user: recorded data that was moved, too
        send_report(channel, Report(error=str(error)))
        return 1
    except Exception as error:
        send_report(channel, Report(error=f"the learner cannot start: {type(error).__name__}: {error}"))
        raise
    gc.freeze()
    version = learner.training_loop.served
    send_report(channel, Report(event=f"Learning into {learner.directory}, from version {version}"))
    learner.run()
    return 0


def _await_end(channel: socket.socket) -> None:
    """Ends the process when the supervisor has ended: everything that is kept is written in one step."""
    while channel.recv(1024):
        pass
    os._exit(0)


class Learner:
    """Learns from the episodes that the training loop releases, and carries out what it decides.

    Args:
        task: of the server.
        channels: sockets to the processes that answer.
        control: socket to the supervisor.

    Attributes:
        training_loop: its decisions.
        directory: directory of its checkpoints.
    """

    def __init__(self, task: Task, channels: list[socket.socket], control: socket.socket):
        self._settings, self._control = task.settings.learning, control
        self.directory = self._settings.directory
        self._files = Progress(self._settings)
        load_user_code = task.settings.load_user_code
        policy = load_policy(self._files.served, load_user_code=load_user_code)
        self._trainer = Trainer(policy, self._settings.overrides, load_user_code)
        version = self._trainer.version
        self.training_loop = TrainingLoop(self._settings, version, self._files.history(version))
        self._dispatcher = Dispatcher(channels, self.training_loop, self._stats)
        self._written = self.training_loop.vetting.history
        self._results = LearnerResults(self._settings.path, self._trainer.params())

    def run(self) -> None:
        """Learns for ever."""
        self._dispatcher.start()
        while True:
            self._dispatcher.news.wait(_LOOK_S)
            self._dispatcher.news.clear()
            self._follow()
            while True:
                with self._dispatcher.lock:
                    episode = self.training_loop.next_episode()
                if episode is None:
                    break
                self._trainer.learn(episode)
                self._follow()

    def _follow(self) -> None:
        """Carries out what the training loop has decided."""
        verdict = self.training_loop.verdict
        if verdict is Verdict.PROMOTE:
            self._files.promote()
            with self._dispatcher.lock:
                self.training_loop.promoted()
        elif verdict is not None:
            self._files.drop_candidate()
            if verdict is Verdict.WORSE:
                self._trainer.go_back(self._files.served)
            with self._dispatcher.lock:
                self.training_loop.dropped()
        elif self.training_loop.wants_candidate and self._trainer.version > self.training_loop.served:
            self._trainer.save(self._settings.candidate)
            with self._dispatcher.lock:
                self.training_loop.offered(self._trainer.version, time.monotonic())
        self._report()

    def _report(self) -> None:
        with self._dispatcher.lock:
            loop = self.training_loop
            events, history, served = loop.events(), loop.vetting.history, loop.served
            stats = {**loop.stats(), **self._stats()}
        for event in events:
            send_report(self._control, Report(event=event))
        if history != self._written:
            self._files.write_history(served, history)
            self._written = history
        self._results.add(stats, self._settings.canary_share, has_event=bool(events))

    def _stats(self) -> dict[str, Any]:
        metrics = self._trainer.algorithm.metrics
        return {"learner": {"version": self._trainer.version, "steps": metrics.timesteps}}


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
