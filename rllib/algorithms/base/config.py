"""The settings that all algorithms share, in the sections of Ray 2.6's AlgorithmConfig.

    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=4).training(lr=3e-4)
    algo = config.build()

Each setting is declared once, as a parameter of a section: below, in settings/ or in recorded/. Names of other versions
of RLlib (`.env_runners(...)`, dicts with `num_workers`) are in aliases.py. `build` checks everything before anything
starts, and passes a frozen copy to the algorithm; the parts below the algorithm receive values. Only hooks see the
config (`Worker.config`, `Policy.config`).
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Never, Self

import numpy as np

from rllib.algorithms.base.recorded.settings import OfflineDataConfig
from rllib.algorithms.base.registry import algorithm_names, get_algorithm_class
from rllib.algorithms.base.settings.evaluation import EvaluationConfig
from rllib.algorithms.base.settings.exploration import KINDS, exploration_mistake, exploration_settings
from rllib.algorithms.base.settings.sampling import SamplingConfig
from rllib.algorithms.base.settings.updates import UpdatesConfig
from rllib.algorithms.base.space_rules import NewPolicy, of_network, of_spaces, rows_of_policies
from rllib.compat.methods.ray_rllib.settings import (
    OVERRIDES,
    filter_by_connectors,
    serve_by_input,
    take_defaults_of_class,
    with_overrides,
)
from rllib.compat.names import aliases
from rllib.config.config_object import relation
from rllib.config.conflicts import Mistake, Remedy, RuleRow, conflict
from rllib.config.sections import Merged, NotYet, OfPolicy, above, at_least, only_with, section, section_alias
from rllib.evaluation.callbacks import callbacks_problem
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.model_settings import OF_MEMORIES
from rllib.runs.run_log import refuse_earlier_run
from rllib.runs.trackers import TRACKERS
from rllib.storage.local_path import local_path
from rllib.web.sockets import host_and_port

# Defaults that are dicts; every config gets a copy.
_EMPTY: dict = {}
_SAMPLING = {"type": "StochasticSampling"}

# Settings that start other processes, or need some -> value without other processes.
_PROCESSES = ("num_rollout_workers", "evaluation_num_workers", "num_learners", "num_gpus_per_worker")
_NEED_PROCESSES = {"evaluation_parallel_to_training": False, "num_aggregation_workers": 0, "sample_async": False}
_NO_PROCESSES = "there is no other process, such as num_rollout_workers=2 makes"
# Settings of some algorithms that start processes.
_MAKE_PROCESSES = "evaluation_num_workers", "num_learners", "num_aggregation_workers", "num_replay_buffer_shards"

# Share of train_batch_size by which whole fragments of a fixed length may exceed it, as in Ray.
_BATCH_TOLERANCE = 0.1


def alone(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Changes to these settings by which an algorithm does everything in its own process, and logs to no tracker."""
    changes: dict[str, Any] = dict.fromkeys(_PROCESSES, 0)
    changes |= {name: None for name in TRACKERS if settings.get(name) is not None}
    changes |= {name: value for name, value in _NEED_PROCESSES.items() if settings.get(name)}
    if settings.get("evaluation_duration") == "auto":  # as long as the parallel training
        changes["evaluation_duration"] = AlgorithmConfig.settings["evaluation_duration"].default
    return changes


class AlgorithmConfig(EvaluationConfig, UpdatesConfig, SamplingConfig, OfflineDataConfig):
    """Settings of an algorithm: set them by section, then `build()`.

    Settings are read as attributes (`config.lr`) or items (`config["lr"]`), by their names in any version of RLlib.

    Args:
        algo_class: the algorithm that `build` makes, a class or its name; subclasses have a default. Called on this
            class itself, AlgorithmConfig(algo_class=PPO) gives a PPOConfig.

    Raises:
        TypeError: if settings are given here; the message names the sections that take them.
    """

    algo_class: type | str | None = None
    # Whether each train batch is made of whole fragments that are sampled for this batch: then the sizes must agree.
    on_policy: ClassVar[bool] = False
    # The types of exploration_config that the algorithm supports, and its default.
    exploration_kinds: ClassVar[tuple[str, ...]] = ("StochasticSampling",)
    default_exploration: ClassVar[dict] = _SAMPLING
    # Whether the algorithm learns from the probabilities of the actions that were taken.
    needs_probabilities: ClassVar[bool] = True
    # Reason why policies cannot be recurrent, a clause; empty: they can be.
    without_memory: ClassVar[str] = ""
    # Whether policies must be recurrent.
    needs_memory: ClassVar[bool] = False
    # Whether workers sample the next round of fragments while the learner learns from the present one.
    samples_ahead: ClassVar[bool] = False
    # Whether a round of fragments may end before all workers have answered.
    leaves_stragglers: ClassVar[bool] = False

    def __new__(cls, algo_class: type | str | None = None, **settings: Never):
        if cls is AlgorithmConfig and algo_class is not None:
            algorithm = get_algorithm_class(algo_class) if isinstance(algo_class, str) else algo_class
            cls = getattr(algorithm, "config_class", cls)
        return super().__new__(cls)

    def __init__(self, algo_class: type | str | None = None, **settings: Never):
        super().__init__()
        if isinstance(algo_class, Mapping):
            raise TypeError(f"{type(self).__name__}() takes no dict of settings. Use {type(self).__name__}.from_dict.")
        if settings:
            raise TypeError(self._not_in_constructor(settings))
        if algo_class is not None:
            self.algo_class = algo_class

    # ------------------------------------------------------------------ sections

    @section
    def multi_agent(
        self,
        *,
        policies: Annotated[
            Any,
            "ids, or id -> PolicySpec, its own settings, or a class that acts; 'own': one for each agent; None: one "
            "policy, default_policy, by which all agents act",
        ] = None,
        policy_mapping_fn: Annotated[
            Any,
            "function (agent_id, episode, worker, **kwargs) -> policy id, a table {'agent_*': id}, or an id; None: the "
            "only policy, or that of the agent's name",
        ] = None,
        policies_to_train: Annotated[
            Any, "ids of the policies that learn, or a function (policy_id, batch) -> bool; None: all"
        ] = None,
        count_steps_by: Annotated[
            Literal["env_steps", "agent_steps"], "what train_batch_size and rollout_fragment_length count"
        ] = "env_steps",
        agent_id_in_observation: Annotated[
            bool, "add a one-hot of the agent's position in possible_agents to flat observations"
        ] = False,
        centralized_critic: Annotated[
            Literal[False, True, "state"],
            'the value reads the observations of all agents, or the environment\'s state ("state"); the policy its own',
        ] = False,
    ) -> Self:
        """Policies of environments with several agents: which there are, who acts by which, and which learn."""

    @section
    def external(
        self,
        *,
        listen: Annotated[
            Any,
            '"HOST:PORT" where clients ask for actions, "tcp://HOST:PORT" over ZeroMQ, or a function that returns a '
            "PolicyServerInput; port 0: a free one; None: there are none",
        ] = None,
        token_file: Annotated[
            str | None,
            "file with the token that clients send; None: that of the variable RLLIB_TOKEN, if it is set",
            only_with("listen"),
        ] = None,
        tls_certificate: Annotated[
            str | None,
            "PEM file of the server's certificate, for https:// in place of http://; None: no encryption",
            only_with("listen"),
        ] = None,
        tls_key: Annotated[
            str | None,
            "PEM file of the certificate's private key; None: it is in the certificate's file",
            only_with("listen"),
        ] = None,
        episode_timeout_s: Annotated[
            float, "an episode whose client is silent for so long is given up (seconds)", above(0), only_with("listen")
        ] = 300.0,
        max_clients: Annotated[int, "most clients of one server", at_least(1), only_with("listen")] = 1024,
        inference: Annotated[
            Literal["both", "local", "remote"],
            '"remote": the server computes the actions of its clients; "local": they do, by copies of the policy',
            only_with("listen"),
        ] = "both",
        max_lag_updates: Annotated[
            int | Literal["auto"] | None,
            "rows of clients by weights that are older by more updates are dropped; None: no rows are; "
            '"auto": 1 for PPO, A2C and PG, None for all others',
            at_least(0),
            only_with("listen"),
        ] = "auto",
        max_episodes_per_client: Annotated[
            int, "most episodes that a client has under way", at_least(1), only_with("listen")
        ] = 1000,
    ) -> Self:
        """Clients in other processes, which step their own environments and ask for actions (rllib.client)."""

    @section
    def exploration(
        self,
        *,
        explore: Annotated[bool, "sample actions; False: take the most likely ones", OfPolicy] = True,
        exploration_config: Annotated[dict, "how it explores: {'type': ...}", OfPolicy] = _SAMPLING,
    ) -> Self:
        """Exploration: whether and how actions are varied."""

    @section
    def callbacks(
        self,
        callbacks_class: Annotated[Any, "class derived from DefaultCallbacks, or a list of them"] = None,
        *,
        callback_functions: Annotated[
            dict, "name of a hook -> a function, or a list of them; also by name: on_episode_end=f", Merged
        ] = _EMPTY,
    ) -> Self:
        """Hooks of your own."""

    @section
    def checkpointing(
        self,
        *,
        export_native_model_files: Annotated[bool, "write the network as torch saves it, too", NotYet()] = False,
        checkpoint_trainable_policies_only: Annotated[bool, "leave out policies that do not train", NotYet()] = False,
    ) -> Self:
        """Contents of checkpoints."""

    @section
    def debugging(
        self,
        *,
        seed: Annotated[int | None, "of everything random; None: a fresh one each time", at_least(0)] = None,
        log_level: Annotated[
            Literal["DEBUG", "INFO", "WARN", "WARNING", "ERROR"], "least level that the logger rllib lets through"
        ] = "WARN",
        log_sys_usage: Annotated[bool, "report CPU, memory and GPU in the results' perf"] = True,
    ) -> Self:
        """Seed and logging."""

    @section
    def fault_tolerance(
        self,
        *,
        recreate_failed_workers: Annotated[
            bool | None,
            "replace workers that die or whose environment raises; None: those that die, an exception ends the run",
            only_with("has_processes", otherwise=_NO_PROCESSES),
        ] = None,
        ignore_worker_failures: Annotated[
            bool,
            "continue with the other workers when one dies or its environment raises, if it is not replaced",
            only_with("has_processes", otherwise=_NO_PROCESSES),
        ] = False,
        max_num_worker_restarts: Annotated[
            int,
            "replaced workers of each kind per run, at most",
            at_least(0),
            only_with("has_processes", otherwise=_NO_PROCESSES),
        ] = 1000,
        delay_between_worker_restarts_s: Annotated[
            float,
            "pause before a worker that failed twice in a row is replaced (seconds)",
            at_least(0),
            only_with("has_processes", otherwise=_NO_PROCESSES),
        ] = 1.0,
        num_consecutive_worker_failures_tolerance: Annotated[
            int,
            "failures of one worker without a sample in between, at most",
            at_least(0),
            only_with("has_processes", otherwise=_NO_PROCESSES),
        ] = 3,
        restart_failed_sub_environments: Annotated[
            bool, "replace an environment that raises by a new one; the worker and its other environments continue"
        ] = False,
    ) -> Self:
        """Reaction to a worker whose process dies, or whose environment raises."""

    @section
    def reporting(
        self,
        *,
        min_time_s_per_iteration: Annotated[
            float | None, "least length of an iteration (seconds)", at_least(0, finite=True)
        ] = None,
        min_sample_timesteps_per_iteration: Annotated[
            int | None, "least number of steps that an iteration samples", at_least(0)
        ] = 0,
        min_train_timesteps_per_iteration: Annotated[
            int | None, "least number of steps that an iteration trains on", at_least(0)
        ] = 0,
        metrics_num_episodes_for_smoothing: Annotated[int, "episodes that means are taken over", at_least(1)] = 100,
        keep_per_episode_custom_metrics: Annotated[bool, "lists instead of means of custom metrics", NotYet()] = False,
        profile: Annotated[bool, "record what every process does when, for Algorithm.profile()"] = False,
        log_dir: Annotated[
            str | None,
            "directory of the run: train() writes params.json, result.json, progress.csv and TensorBoard events there",
        ] = None,
        wandb: Annotated[dict | None, "log to Weights & Biases; arguments of wandb.init: project, ..."] = None,
        mlflow: Annotated[dict | None, "log to MLflow: tracking_uri, experiment_name, tags"] = None,
        trackio: Annotated[dict | None, "log to Trackio; arguments of trackio.init: project, group, space_id"] = None,
        comet: Annotated[dict | None, "log to Comet; arguments of comet_ml.start, and tags"] = None,
        clearml: Annotated[dict | None, "log to ClearML; arguments of Task.create, tags, offline"] = None,
        tensorboard_groups: Annotated[
            bool, "TensorBoard curves by the groups and names of Stable-Baselines3: rollout/, train/, time/, eval/"
        ] = False,
    ) -> Self:
        """Length of an iteration, its results, and where they are written."""

    env_runners = section_alias("rollouts", aliases.RAY_2_10)

    rl_module = section_alias("training", aliases.RAY_2_10)

    def experimental(self, **switches) -> Self:
        """Accepts RLlib's migration switches, which have no effect here."""
        return self._assign("experimental", switches)

    def api_stack(
        self,
        enable_rl_module_and_learner: bool | None = None,
        enable_env_runner_and_connector_v2: bool | None = None,
        **switches,
    ) -> Self:
        """Accepts RLlib's migration switches, which have no effect here."""
        switches["enable_rl_module_and_learner"] = enable_rl_module_and_learner
        switches["enable_env_runner_and_connector_v2"] = enable_env_runner_and_connector_v2
        return self._assign("api_stack", {name: value for name, value in switches.items() if value is not None})

    @classmethod
    def defaults_elsewhere(cls, name: str) -> list:
        """Defaults of a setting in the algorithms that have one of this name."""
        return _defaults_of_all().get(name, [])

    @classmethod
    def describe_rules(cls) -> list[RuleRow]:
        return [*super().describe_rules(), *rows_of_policies(cls)]

    def _resolved(self, given: Mapping[str, Any], section_name: str | None = None) -> dict[str, Any]:
        if not (isinstance(given.get(OVERRIDES), Mapping) and given[OVERRIDES]):
            return super()._resolved(given, section_name)
        own = {name: value for name, value in given.items() if name != OVERRIDES}
        resolved = super()._resolved(own, section_name)
        return {**resolved, "policies": with_overrides(resolved.get("policies", self.policies), given[OVERRIDES])}

    def values_in(self, given: Mapping[str, Any]) -> dict[str, Any]:
        given = given.given() if isinstance(given, AlgorithmConfig) else given
        # Overrides of policies are added to the policies that are there, which they do not give.
        return super().values_in({name: value for name, value in given.items() if name != OVERRIDES})

    # ------------------------------------------------------------------ build

    def build(self, env: Any = None):
        """Checks all settings and returns the algorithm, built on a frozen copy of this config.

        Args:
            env: the environment, where `.environment()` has not named it.

        Raises:
            ValueError: with a line for every mistake.
        """
        config = frozen(type(self), self, env)
        if config.log_dir is not None:
            refuse_earlier_run(local_path(config.log_dir))
        return config._algorithm_class()(config=config)

    build_algo = build

    def get_rollout_settings(self, env: Any = None) -> tuple[Any, np.ndarray]:
        """RolloutSettings and initial weights of the policy, for RolloutWorker.from_config.

        Args:
            env: as for `build`.

        Raises:
            as `build`.
        """
        config = self.copy(copy_frozen=False)
        config.note_as_warned(name for name in self.changes() if not self.why_without_effect(name))
        config.update_from_dict(alone(self.to_dict())).reporting(log_dir=None)
        with config.build(env) as algorithm:
            # This algorithm has no workers; workers that the caller makes of the settings may have a GPU.
            device = "cuda" if self.num_gpus_per_worker else None
            return replace(algorithm._rollout_settings, acting_device=device), algorithm.policy.weights.copy()

    def _algorithm_class(self) -> type:
        if isinstance(self.algo_class, str):
            return get_algorithm_class(self.algo_class)
        if self.algo_class is None:
            name = type(self).__name__
            raise ValueError(f"{name} belongs to no algorithm. Use PPOConfig(), or {name}(algo_class=...).")
        return self.algo_class

    # ------------------------------------------------------------------ relations between settings

    conflicts = (
        conflict(
            "listen",
            "env",
            why="the clients step the environment",
            remedies=[{"listen": None}],
            note="Or leave env out, and give observation_space and action_space.",
        ),
        *(
            conflict(
                "listen",
                name,
                why="the clients step the environment, and hand over observations as they are",
                remedies=[{name: None}],  # without its clients, the run would have nothing to learn from
            )
            for name in ("env_wrappers", "env_to_module_connector", "module_to_env_connector")
        ),
    )

    @relation("listen")
    def _check_listen(self) -> Mistake | None:
        """`listen` is HOST:PORT, tcp://HOST:PORT, or a function."""
        if self.listen is None or callable(self.listen):
            return None
        try:
            host_and_port(str(self.listen).removeprefix("tcp://"))
        except ValueError as error:
            problem = f'listen: {error}; or "tcp://HOST:PORT".'
            return Mistake(problem, ("listen",), ({"listen": "127.0.0.1:9900"},))
        return None

    @relation("callbacks_class", "callback_functions")
    def _check_callbacks(self) -> Mistake | None:
        """Hooks have the names and arguments of DefaultCallbacks'."""
        problem = callbacks_problem(self.callbacks_class, self.callback_functions)
        if not problem:
            return None
        nothing = {"callbacks_class": None, "callback_functions": {}}
        return Mistake(problem, ("callbacks_class", "callback_functions"), (nothing,), advice=None)

    @relation("exploration_config")
    def _check_exploration(self) -> Mistake | None:
        """The type of exploration is one of the algorithm's, and takes these settings."""
        given, default = self.exploration_config, self.default_exploration
        if mistake := exploration_mistake(given, default, self.exploration_kinds):
            return mistake
        samples = given.get("type", default["type"]) == "StochasticSampling"
        if not (samples and self.needs_probabilities and given.get("random_timesteps")):
            return None
        return Mistake(
            f"exploration_config: random_timesteps={given['random_timesteps']} plays actions that the policy did not "
            "draw, and this algorithm needs their probabilities.",
            ("exploration_config",),
            ({"exploration_config": {**given, "random_timesteps": 0}},),
            "Leave it out, or use SAC, TD3 or DQN.",
        )

    @relation("train_batch_size", "rollout_fragment_length", "num_rollout_workers", "num_envs_per_worker")
    def _check_batch_of_fragments(self) -> Mistake | None:
        """On-policy, whole rounds of fragments meet `train_batch_size` within 10 %, as in Ray."""
        if not self.on_policy or self.rollout_fragment_length == "auto" or self.batch_mode == "complete_episodes":
            return None
        size, environments = self.train_batch_size, self._num_environments
        per_round = self.rollout_fragment_length * environments
        if self.total_train_batch - size <= _BATCH_TOLERANCE * size:
            return None
        below = max(size // per_round, 1) * per_round
        fitting = min(below, below + per_round, key=lambda multiple: abs(multiple - size))
        fragments = f"rollout_fragment_length={self.rollout_fragment_length}"
        if environments > 1:
            workers = f"{self.workers_per_round} workers"
            if self.leaves_stragglers:
                workers += f" (of {self.num_rollout_workers} by sample_quorum={self.sample_quorum})"
            fragments += f" x {workers} x {self.num_envs_per_worker} envs = {per_round}"
        return Mistake(
            f"train_batch_size={size} must be a multiple of {fragments} (or up to 10 % less).",
            ("train_batch_size", "rollout_fragment_length", "num_rollout_workers", "num_envs_per_worker"),
            ({"train_batch_size": fitting}, {"rollout_fragment_length": "auto"}),
        )

    @relation("sgd_minibatch_size", "train_batch_size")
    def _check_minibatch(self) -> Mistake | None:
        """`sgd_minibatch_size` is at most `train_batch_size`."""
        size, minibatch = self.train_batch_size, self.sgd_minibatch_size
        if minibatch <= size:
            return None
        return Mistake(
            f"sgd_minibatch_size={minibatch} must be at most train_batch_size={size}.",
            ("sgd_minibatch_size", "train_batch_size"),
            ({"sgd_minibatch_size": size}, {"train_batch_size": minibatch}),
        )

    @of_spaces("off_policy_estimation_methods")
    def _check_estimates_of_agents(self, policy: NewPolicy):
        """`off_policy_estimation_methods` are for environments with one agent."""
        if not self.off_policy_estimation_methods or policy.num_agents is None:
            return None
        return Mistake(
            f"off_policy_estimation_methods estimate the return of one policy, and {policy.place} has several agents.",
            ("off_policy_estimation_methods",),
            ({"off_policy_estimation_methods": {}},),
        )

    @of_network()
    def _check_no_memory(self, policy: NewPolicy):
        """The network has no memory where the algorithm, or its exploration, cannot use one."""
        if not policy.spec.state_size:
            return None
        if self.without_memory:
            return self.no_memory(self.without_memory, policy.spec)
        kind = exploration_settings(self.exploration_config, self.default_exploration)["type"]
        reason = getattr(KINDS.get(kind, kind), "without_memory", None)
        default = {"exploration_config": dict(self.default_exploration)}
        return self.no_memory(reason, policy.spec, default) if reason else None

    @of_network()
    def _check_value_layers(self, policy: NewPolicy):
        """`vf_hiddens` of `model` are for a network with a value."""
        given = self.model.get("vf_hiddens")
        if given is None or policy.spec.critic:
            return None
        return Mistake(
            f"model={{'vf_hiddens': {given}}}: the network of {self.algorithm_name} has no value for these layers.",
            ("model",),
            ({"model": {"vf_hiddens": None}},),
        )

    def no_memory(self, reason: str, spec: NetworkSpec, instead: Remedy | None = None) -> Mistake:
        """The mistake of a recurrent network where none is possible.

        Args:
            reason: the reason, a clause.
            spec: description of the network.
            instead: remedy that keeps the network recurrent; None: there is none.
        """
        is_own = not spec.architecture.is_built_in
        remedy = self.with_defaults(*OF_MEMORIES, *(("custom_model",) if is_own else ()))
        advice = (
            "Leave out use_lstm, use_gru and use_attention, or initial_state() of a custom model; or use an algorithm "
            "such as PPO or IMPALA."
        )
        return Mistake(
            f"{self.algorithm_name} cannot train a policy with a memory: {reason}.",
            ("model", *(instead or ())),
            (*([instead] if instead else ()), *([remedy] if remedy and not self.needs_memory else ())),
            "" if instead or self.needs_memory else advice,
        )

    # ------------------------------------------------------------------ values that follow from several settings

    @property
    def workers_per_round(self) -> int:
        """Number of workers whose fragments a round waits for; 1 without remote ones."""
        return max(self.num_rollout_workers, 1)

    @property
    def _num_environments(self) -> int:
        """Environments whose fragments a round waits for."""
        return self.workers_per_round * self.num_envs_per_worker

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Steps of each of a worker's environments per fragment.

        "auto" divides train_batch_size among all environments, by Ray's rule: the remainder goes to the first workers,
        one step for each environment of a worker, as long as it suffices for all environments of the worker.
        2456 / (4 workers x 3 envs) gives 205, 205, 204, 204. If a round waits for only a part of the workers, the batch
        is divided among this number of workers, rounded up, so that any of them fill it.

        Args:
            worker_index: 1.. for rollout workers; 0, this process, has the length of worker 1.
        """
        if self.rollout_fragment_length != "auto":
            return self.rollout_fragment_length
        if self.leaves_stragglers:
            return math.ceil(self.train_batch_size / self._num_environments)
        length, left_over = divmod(self.train_batch_size, self._num_environments)
        return max(length + (max(worker_index, 1) * self.num_envs_per_worker <= left_over), 1)

    @property
    def total_train_batch(self) -> int:
        """Number of environment steps in one train batch: train_batch_size, rounded up to whole fragments.

        With "auto" fragments it is one round, which may be a few steps short of train_batch_size.
        """
        workers = range(1, self.workers_per_round + 1)
        per_round = sum(self.get_rollout_fragment_length(index) for index in workers) * self.num_envs_per_worker
        if self.rollout_fragment_length == "auto":
            return per_round
        return math.ceil(self.train_batch_size / per_round) * per_round

    @property
    def asks_teacher(self) -> bool:
        """Whether rollout workers ask a teacher in each step."""
        return False

    @property
    def leaves_teachers_alone(self) -> bool:
        """Whether the run only acts, so that no teacher of a policy is loaded."""
        return False

    def make_teacher(self, trainee: Any) -> Any:
        """Makes the teacher of a policy in training (families/teacher.py); None: there is none."""
        return None

    def make_actor_warmup(self, trainee: Any) -> Any:
        """Makes the warm-up of the value of a policy in training (families/actor_warmup.py); None: there is none."""
        return None

    @property
    def episode_cost_column(self) -> str | None:
        """Name of the info column that results sum up as the cost of an episode; None: there is none."""
        return None

    @property
    def has_processes(self) -> bool:
        """Whether the run has other processes."""
        has_workers = self.num_rollout_workers and not self.is_offline
        return bool(has_workers) or any(self.get(each, 0) for each in _MAKE_PROCESSES)

    @property
    def min_train_batch(self) -> int:
        """Number of steps that completes a train batch: no second round for the few steps that "auto" is short of."""
        return min(self.train_batch_size, self.total_train_batch)

    @property
    def is_multi_agent(self) -> bool:
        """Whether the section multi_agent names policies; an environment with several agents does not need it."""
        return self.policies is not None


@functools.cache
def _defaults_of_all() -> dict[str, list]:
    """Setting -> its defaults in all algorithms; imports all of them, so only used for names that a config lacks."""
    found: dict[str, list] = {}
    for algorithm in algorithm_names():
        for name, setting in get_algorithm_class(algorithm).config_class.settings.items():
            found.setdefault(name, []).append(setting.default)
    return found


def frozen(config_class: type[AlgorithmConfig], config, env) -> AlgorithmConfig:
    """A validated, frozen config of the algorithm's own class.

    Args:
        config_class: the algorithm's config class.
        config: a config of that class.
        env: environment, if the config names none.

    Raises:
        TypeError: for a config of another class.
        ValueError: with every mistake in the settings.
    """
    if not isinstance(config, config_class):
        algorithm = config_class.__name__.removesuffix("Config")
        raise TypeError(
            f"{algorithm} takes a {config_class.__name__} or a dict of settings, but got {config!r:.80}. Use "
            f'{algorithm}(env="CartPole-v1"), or {config_class.__name__}().environment("CartPole-v1").build().'
        )
    if env is not None or not config.is_frozen:
        config = config.copy(copy_frozen=False)
    if env is not None:
        config.environment(env)
    if not config.is_frozen:
        serve_by_input(config)
        take_defaults_of_class(config)
        config.validate()
        filter_by_connectors(config)
        config.freeze()
    return config
