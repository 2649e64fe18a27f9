"""Experiments over anything, and over reinforcement learning first: `from rllib import tune`, then `tune.run(...)`."""

from rllib.lazy_names import lazy_names

# Loaded on first use, so that the import stays quick.
_NAMES = {
    "rllib.errors": ["TuneError"],
    "rllib.env.factories.registry": ["register_env"],
    "rllib.offline.readers": ["register_input"],
    "rllib.tune.reporting.analysis": ["ExperimentAnalysis", "Result", "ResultGrid"],
    "rllib.tune.search.domains": [
        "choice", "grid_search", "lograndint", "loguniform", "qlograndint", "qloguniform", "qrandint", "qrandn",
        "quniform", "randint", "randn", "sample_from", "uniform",
    ],
    "rllib.tune.experiment.callbacks": ["Callback", "LoggerCallback"],
    "rllib.tune.experiment.spec": [
        "CheckpointConfig", "Experiment", "FailureConfig", "ResumeConfig", "RunConfig", "SyncConfig", "TuneConfig",
    ],
    "rllib.tune.experiment.loggers": [
        "CSVLoggerCallback", "ClearMLLoggerCallback", "CometLoggerCallback", "DEFAULT_LOGGERS", "JsonLoggerCallback",
        "Logger", "MLflowLoggerCallback", "TBXLoggerCallback", "TrackioLoggerCallback", "WandbLoggerCallback",
        "pretty_print",
    ],
    "rllib.tune.reporting.reporters": ["CLIReporter", "JupyterNotebookReporter", "ProgressReporter"],
    "rllib.tune.trainables.resources": ["PlacementGroupFactory"],
    "rllib.tune.schedulers": ["create_scheduler"],
    "rllib.tune.search": ["create_searcher"],
    "rllib.tune.trainables.session": [
        "TuneContext", "checkpoint_dir", "get_checkpoint", "get_context", "get_experiment_name", "get_trial_dir",
        "get_trial_id", "get_trial_name", "get_trial_resources", "report", "track",
    ],
    "rllib.tune.experiment.stoppers": [
        "CombinedStopper", "ExperimentPlateauStopper", "FunctionStopper", "MaximumIterationStopper", "NoopStopper",
        "Stopper", "TimeoutStopper", "TrialPlateauStopper",
    ],
    "rllib.tune.trainables.trainable": ["Trainable"],
    "rllib.tune.trainables.resolve": ["get_trainable_cls", "register_trainable", "with_parameters", "with_resources"],
    "rllib.tune.trainables.checkpoint": ["Checkpoint"],
    "rllib.tune.running.tuner": ["Tuner", "run", "run_experiments"],
}  # fmt: skip
_LAZY = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_LAZY)  # noqa: PLE0605

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
