"""Experiments over anything, and over reinforcement learning first: `from rllib import tune`, then `tune.run(...)`."""

import importlib

# Loaded on first use, so that the import stays quick.
_LAZY = {
    **dict.fromkeys(("run", "run_experiments"), "run_experiment"),
    "Experiment": "experiment_spec",
    **dict.fromkeys(("TuneConfig", "RunConfig", "CheckpointConfig", "FailureConfig"), "experiment_spec"),
    "Tuner": "tuner",
    **dict.fromkeys(("ExperimentAnalysis", "ResultGrid"), "analysis"),
    "Trainable": "trainable",
    **dict.fromkeys(("register_trainable", "with_parameters", "with_resources"), "trainables"),
    "PlacementGroupFactory": "resources",
    **dict.fromkeys(
        ("report", "track", "checkpoint_dir", "get_checkpoint", "get_context", "get_trial_id", "get_trial_name",
         "get_trial_dir", "get_trial_resources", "get_experiment_name"),
        "session",
    ),
    "Checkpoint": "trial_checkpoint",
    **dict.fromkeys(("Logger", "DEFAULT_LOGGERS"), "old_loggers"),
    **dict.fromkeys(("Callback", "LoggerCallback"), "experiment_callbacks"),
    **dict.fromkeys(("CSVLoggerCallback", "JsonLoggerCallback", "TBXLoggerCallback"), "logger_callbacks"),
    **dict.fromkeys(("ProgressReporter", "CLIReporter", "JupyterNotebookReporter"), "reporters"),
    **dict.fromkeys(
        ("grid_search", "choice", "uniform", "quniform", "loguniform", "qloguniform", "randint", "qrandint",
         "lograndint", "qlograndint", "randn", "qrandn", "sample_from"),
        "search_space",
    ),
    **dict.fromkeys(
        ("Stopper", "MaximumIterationStopper", "TimeoutStopper", "TrialPlateauStopper", "ExperimentPlateauStopper",
         "CombinedStopper", "FunctionStopper"),
        "stoppers",
    ),
    "create_scheduler": "schedulers",
    "create_searcher": "searchers",
}  # fmt: skip
_ELSEWHERE = {"register_env": "rllib.env.registry", "TuneError": "rllib.errors"}

__all__ = sorted([*_LAZY, *_ELSEWHERE])  # noqa: PLE0605


def __getattr__(name: str):
    if name in _LAZY:
        module = f"{__name__}.{_LAZY[name]}"
    elif name in _ELSEWHERE:
        module = _ELSEWHERE[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
