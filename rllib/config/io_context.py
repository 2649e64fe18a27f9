"""Facts about a run, for readers and writers of the user's own."""

import os
from collections.abc import Mapping
from typing import Any


class IOContext:
    """Facts about the run for which a reader, or a writer, is made.

    Attributes:
        log_dir: directory of the run's files; the present one where the run has none.
        config: settings of the run, a mapping of their names; {} without a run.
        worker_index: 0 in the process that learns, 1.. in rollout workers.
        worker: the rollout worker, where there is one.
    """

    def __init__(
        self, log_dir: str | None = None, config: Mapping[str, Any] | None = None, worker_index: int = 0, worker=None
    ):
        self.log_dir = log_dir or os.getcwd()
        self.config = {} if config is None else config
        self.worker_index, self.worker = worker_index, worker

    @property
    def input_config(self) -> Mapping[str, Any]:
        """The setting of this name: arguments of a reader."""
        return self.config.get("input_config") or {}

    @property
    def output_config(self) -> Mapping[str, Any]:
        """The setting of this name: arguments of a writer."""
        return self.config.get("output_config") or {}
