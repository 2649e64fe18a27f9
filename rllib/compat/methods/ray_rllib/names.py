"""Attributes and methods of an algorithm by RLlib's names."""

from typing import TYPE_CHECKING, Any

from rllib.acting.inference import under_plain_names
from rllib.policy import Policy
from rllib.result import Result
from rllib.sample_batch import DEFAULT_POLICY

if TYPE_CHECKING:
    from rllib.algorithms.base.evaluations import Evaluations
    from rllib.algorithms.base.sources import Source
    from rllib.evaluation.worker_set import WorkerSet


@under_plain_names
class RllibNames:
    """The attributes and methods that programs for RLlib use, in addition to those that have the same names anyway.

    Attributes:
        trial_id, trial_name: of the trial of Tune that it runs in.
    """

    directory: Any
    iteration: int
    policies: dict[str, Policy]
    train: Any
    workers: "Source"
    _evaluations: "Evaluations"
    trial_id: str = "default"
    trial_name: str = "default"

    @property
    def training_iteration(self) -> int:
        """The attribute `iteration`."""
        return self.iteration

    @property
    def logdir(self) -> str:
        """The attribute `directory` as a string."""
        return str(self.directory)

    def step(self) -> Result:
        """`train`, by the name that RLlib's algorithms have as trainables of Tune."""
        return self.train()

    def log_result(self, result: Result) -> None:
        """Called with the result of every iteration; a subclass may override it to log them elsewhere."""

    # ------------------------------------------------------------------ of Ray 2.10 and later

    @property
    def env_runner_group(self) -> "Source":
        """The attribute `workers`."""
        return self.workers

    @property
    def env_runner(self) -> Any:
        """The worker in this process; see WorkerSet.local_worker."""
        return self.workers.local_worker()

    @property
    def evaluation_workers(self) -> "WorkerSet | None":
        """The remote workers of evaluation; None where this process evaluates."""
        return self._evaluations.workers

    eval_env_runner_group = evaluation_workers

    def get_module(self, module_id: str = DEFAULT_POLICY) -> Any:
        """The network of a policy with the methods of an RLModule (core/modules); None if there is no such policy.

        It has the present weights, and changes with them. A torch module of the user's is that module.
        """
        from rllib.core.modules.module_of_policy import module_of

        return module_of(self.policies[module_id]) if module_id in self.policies else None

    @property
    def learner_group(self) -> Any:
        """The learners with RLlib's get_weights() and set_weights()."""
        from rllib.core.learner.group_names import LearnerGroupNames

        return LearnerGroupNames(self)
