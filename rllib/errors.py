"""Failures of the library itself. A user's mistake is a ValueError or TypeError; the runtime has its own errors."""

from typing import Any


class RLlibError(Exception):
    """Base class of the library's own failures."""


class LearnerError(RLlibError):
    """An update violated an invariant: a first minibatch that is not on-policy, a parameter that is NaN."""


class NotFiniteError(LearnerError):
    """A gradient is not finite, so its step was not taken.

    Attributes:
        batch: the columns of the batch that it was computed from, by name; empty where they are not known.
    """

    def __init__(self, message: str):
        super().__init__(message)
        self.batch: dict[str, Any] = {}


class GpuMemoryError(LearnerError):
    """Networks, a batch or observations do not fit into the memory of a GPU."""


class LearnersLostError(RLlibError):
    """All learner processes have ended, and the memory of their optimizers with them."""


class CheckpointError(RLlibError, ValueError):
    """A checkpoint is missing, truncated, modified, not of this library, or of a newer format than it reads."""


class UnknownPolicyError(RLlibError, KeyError, ValueError):
    """A policy is asked for that there is not. KeyError is what RLlib raises in this case."""

    def __str__(self):
        return str(self.args[0])  # a KeyError's own text is in quotation marks


class StorageError(RLlibError, OSError):
    """Remote storage cannot be read or written: it does not answer after several attempts, or refuses."""


class DamagedFileError(RLlibError, ValueError):
    """A file has other content than the library writes, or is no file that lies where its name says."""


class SampleTimeoutError(RLlibError, TimeoutError):
    """No rollout worker has answered within the time that the settings allow."""


class EnvironmentHangsError(RLlibError, TimeoutError):
    """An environment in a separate process has not returned from a call within sub_environment_timeout_s."""


class EnvironmentPackageError(RLlibError, ValueError):
    """A package that an environment needs is not installed; the message says how to install it."""


class InfoColumnError(RLlibError, ValueError):
    """An environment's info lacks the key of a column, or has a value there that does not fit.

    Attributes:
        column: its name.
    """

    def __init__(self, message: str, column: str = ""):
        super().__init__(message)
        self.column = column


class EnvironmentDiedError(RLlibError):
    """The process of an environment has ended by itself."""


class NoBestTrialError(RLlibError, RuntimeError, ValueError):
    """No trial of an experiment can be called the best: none has the metric, or none has it as a finite number.

    It is a RuntimeError, since Ray's ResultGrid raises one in this case.
    """


class TuneError(RLlibError):
    """An experiment did not succeed: trials failed, or it cannot continue. Ends with the first trial's traceback."""


class NoActionError(RLlibError, ValueError):
    """An action cannot be computed from what was given.

    Args:
        problem: what was given, and the rule.
        advice: what a program that uses the library is to write; clients in other languages get the problem alone.

    Attributes:
        problem: the same.
    """

    def __init__(self, problem: str, advice: str = ""):
        super().__init__(f"{problem} {advice}".rstrip())
        self.problem = problem
