"""Failures of the library itself. A user's mistake is a ValueError or TypeError; the runtime has its own errors."""


class RLlibError(Exception):
    """Base of the failures below, for who wants to catch them all."""


class LearnerError(RLlibError):
    """An update broke a rule that always holds: a first minibatch that is not on-policy, a parameter that is NaN."""


class CheckpointError(RLlibError, ValueError):
    """A checkpoint is missing, cut off, changed, foreign, or of a newer format than this library reads."""


class SampleTimeoutError(RLlibError, TimeoutError):
    """No rollout worker has sent anything for as long as the settings allow."""


class NoBestTrialError(RLlibError, RuntimeError, ValueError):
    """No trial of an experiment can be called the best: none has the metric, or none has it as a finite number.

    RuntimeError is what Ray's ResultGrid raises in this case.
    """


class TuneError(RLlibError):
    """An experiment did not succeed: trials failed, or it cannot go on. Ends with the first trial's own traceback."""
