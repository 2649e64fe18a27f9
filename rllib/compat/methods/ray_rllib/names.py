"""Attributes and methods of an algorithm by RLlib's names."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rllib.acting.inference import under_plain_names
from rllib.evaluation.hooks.env_runner import EnvRunnerNames
from rllib.notices import log_unused_arguments, shortened
from rllib.policy import Policy
from rllib.result import Result
from rllib.sample_batch import DEFAULT_POLICY

if TYPE_CHECKING:
    from rllib.algorithms.base.evaluations import Evaluations
    from rllib.algorithms.base.sources import Source
    from rllib.evaluation.worker_set import WorkerSet

_ALL_PROCESSES = "all processes of a run have all policies"


@under_plain_names
class RllibNames:
    """RLlib's names of attributes and methods, where they differ from this library's names.

    Attributes:
        trial_id, trial_name: id and name of the Tune trial in which the algorithm runs.
    """

    directory: Any
    iteration: int
    policies: dict[str, Policy]
    train: Any
    add_policy: Any
    remove_policy: Any
    set_weights: Any
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
        """Called with the result of every iteration; a subclass may override it to log results elsewhere."""

    # ------------------------------------------------------------------ of Ray 2.10 and later

    @property
    def env_runner_group(self) -> "Source":
        """The attribute `workers`."""
        return self.workers

    @property
    def env_runner(self) -> Any:
        """The worker in this process (WorkerSet.local_worker), whose `env` has `envs`, and with its `module`."""
        worker = self.workers.local_worker()
        return None if worker is None else EnvRunnerNames(worker, self.policies)

    @property
    def evaluation_workers(self) -> "WorkerSet | None":
        """The remote workers of evaluation; None if this process evaluates."""
        return self._evaluations.workers

    eval_env_runner_group = evaluation_workers

    def get_module(self, module_id: str = DEFAULT_POLICY) -> Any:
        """The network of a policy with the methods of an RLModule (core/modules); None if there is no such policy.

        The module always has the present weights. For a user's torch module, it is that module.
        """
        from rllib.core.modules.module_of_policy import module_of

        return module_of(self.policies[module_id]) if module_id in self.policies else None

    def add_module(
        self,
        module_id: str,
        module_spec: Any,
        *,
        config_overrides: Mapping[str, Any] | None = None,
        new_agent_to_module_mapping_fn: Any = None,
        new_should_module_be_updated: Any = None,
        add_to_learners: bool = True,
        add_to_env_runners: bool = True,
        add_to_eval_env_runners: bool = True,
    ) -> None:
        """`add_policy`, by the names of RLlib's new API stack; `new_should_module_be_updated` is its policies_to_train.

        Args:
            module_id: a new id.
            module_spec: RLModuleSpec of the network.
            config_overrides: settings in which the policy differs from the run.
            new_agent_to_module_mapping_fn: replaces the mapping; running episodes keep the old one until they end.
            new_should_module_be_updated: replaces policies_to_train; None keeps the present value.
            add_to_learners, add_to_env_runners, add_to_eval_env_runners: False has no effect, and a warning says so.

        Raises:
            ValueError: as `add_policy`.
        """
        log_unused_arguments(
            "add_module",
            _ALL_PROCESSES,
            add_to_learners=not add_to_learners,
            add_to_env_runners=not add_to_env_runners,
            add_to_eval_env_runners=not add_to_eval_env_runners,
        )
        model = module_spec.to_model()
        self.add_policy(
            module_id,
            observation_space=module_spec.observation_space,
            action_space=module_spec.action_space,
            config={**({"model": model} if model else {}), **(config_overrides or {})},
            policy_mapping_fn=new_agent_to_module_mapping_fn,
            policies_to_train=new_should_module_be_updated,
        )

    def remove_module(
        self,
        module_id: str,
        *,
        new_agent_to_module_mapping_fn: Any = None,
        new_should_module_be_updated: Any = None,
        remove_from_learners: bool = True,
        remove_from_env_runners: bool = True,
        remove_from_eval_env_runners: bool = True,
    ) -> None:
        """`remove_policy`; arguments and errors as for `add_module`."""
        log_unused_arguments(
            "remove_module",
            _ALL_PROCESSES,
            remove_from_learners=not remove_from_learners,
            remove_from_env_runners=not remove_from_env_runners,
            remove_from_eval_env_runners=not remove_from_eval_env_runners,
        )
        self.remove_policy(
            module_id,
            policy_mapping_fn=new_agent_to_module_mapping_fn,
            policies_to_train=new_should_module_be_updated,
        )

    def _set_networks(self, state: Mapping[str, Any]) -> None:
        """`set_state` with a state by components, as in RLlib's new API stack; only networks are supported.

        Args:
            state: {"learner_group": {"learner": {"rl_module": {POLICY: module.get_state()}}}}.

        Raises:
            ValueError: for other components; for an unknown policy.
        """
        given: Any = state
        for name in ("learner_group", "learner", "rl_module"):
            if not isinstance(given, Mapping) or list(given) != [name]:
                raise ValueError(
                    f"set_state({shortened(state)}): it is no state of get_state(), which has 'algorithm.json', nor "
                    "one of networks alone, {'learner_group': {'learner': {'rl_module': {POLICY: STATE}}}}. "
                    "restore(path) continues from a checkpoint."
                )
            given = given[name]
        if missing := [policy_id for policy_id in given if policy_id not in self.policies]:
            raise ValueError(f"set_state(): there is no policy {missing[0]!r}; there are {', '.join(self.policies)}")
        for policy_id, weights in given.items():
            self.get_module(policy_id).set_state(weights)
        self.set_weights({policy_id: self.policies[policy_id].weights for policy_id in given})

    @property
    def learner_group(self) -> Any:
        """The learners with RLlib's get_weights() and set_weights()."""
        from rllib.core.learner.group_names import LearnerGroupNames

        return LearnerGroupNames(self)
