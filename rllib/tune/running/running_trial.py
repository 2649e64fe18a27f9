"""A trial that has a process, and the calls that the process has not answered yet."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rllib.tune.experiment.trial import Trial
from rllib.tune.running import instructions

# Seconds that a trial has to end, unless the experiment ends.
CLOSE_S = 20.0
_DOING = {"start": "its setup", "step": "a step", "save": "saving", "close": "its cleanup"}


@dataclass
class RunningTrial:
    """A trial that has a process.

    Attributes:
        held: resource -> quantity that the trial holds.
        do: takes the instructions that follow (running/instructions.py).
        calls: unanswered calls of the process, the oldest first.
        ending: status and reason with which the trial is about to end; None: it continues.
        patience_s: seconds that it may take to end.
        deadline_s: end of these seconds, counted from the beginning of the experiment; None: not known yet.
        is_restored: whether its process begins from a checkpoint.
    """

    trial: Trial
    held: dict[str, float]
    do: Callable[[tuple], None]
    calls: deque[str] = field(default_factory=deque)
    ending: tuple[str, str | None] | None = None
    patience_s: float = CLOSE_S
    deadline_s: float | None = None
    is_restored: bool = False

    def ask(self, what: str, *arguments) -> None:
        """Calls a method of the process (running/actor.py)."""
        self.calls.append(what)
        self.do(instructions.Ask(self.trial, what, arguments))

    def save(self) -> None:
        """Asks for a checkpoint of the last result, or of the result that the step under way brings."""
        last = self.trial.last_result.get("training_iteration", 0)
        self.ask("save", self.trial.checkpoint_path_at(last + ("step" in self.calls)))

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is being written, or about to be."""
        return "save" in self.calls

    @property
    def doing(self) -> str:
        """The oldest call, in words."""
        return _DOING.get(self.calls[0], "its end") if self.calls else "its end"
