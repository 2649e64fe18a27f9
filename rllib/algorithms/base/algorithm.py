"""Base class of all algorithms: build, train, evaluate, save, restore, act.

An algorithm adds a config, a loss and a `training_step` (see ppo.py). This file moves its data: sampling with the
newest weights, counting and timing. In other files: base/wiring.py reads the config, saving.py saves and restores,
evaluations.py evaluates, results.py makes the result of an iteration, acting/inference.py acts in the user's own loops.
Methods for programs of other libraries, such as `learn` and `load`, are in compat/methods.
"""

import contextlib
import dataclasses
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Self

import numpy as np
from gymnasium import Space
from gymnasium.vector import VectorEnv

from rllib import spans
from rllib.acting.inference import Inference
from rllib.algorithms.base import tensor_rollouts, wiring
from rllib.algorithms.base.config import AlgorithmConfig, frozen
from rllib.algorithms.base.curriculum import make_curricula
from rllib.algorithms.base.evaluations import Evaluations
from rllib.algorithms.base.feature import Feature
from rllib.algorithms.base.part_rules import refuse_absent_columns, refuse_memory
from rllib.algorithms.base.policies import by_message, described, make_policies, naming_settings_of, policy_configs
from rllib.algorithms.base.recorded.data import RecordedData, recorded_data
from rllib.algorithms.base.reporting import Reporting
from rllib.algorithms.base.results import Results
from rllib.algorithms.base.saving import Saving
from rllib.algorithms.base.settings.exploration import exploration_settings, make_exploration
from rllib.algorithms.base.several_agents import SeveralAgents
from rllib.algorithms.base.sources import Source, make_source
from rllib.algorithms.base.space_rules import NewPolicy, naming_settings
from rllib.algorithms.base.trainee import Trainee, refuse_methods_of_trainees
from rllib.algorithms.base.videos import EvaluationVideos
from rllib.compat.methods.ray_rllib.names import RllibNames
from rllib.compat.methods.ray_rllib.overrides import refuse_methods_of_rllib, taking_a_config
from rllib.compat.methods.stable_baselines3.names import StableBaselinesNames
from rllib.compat.names import absent
from rllib.compat.names.elsewhere import OF_ITS_MODELS
from rllib.compat.names.stable_baselines3.rules import count
from rllib.config.conflicts import Unfit
from rllib.did_you_mean import explains
from rllib.env.episodes import Episode
from rllib.env.factories.registry import EnvContext, EnvFactory
from rllib.errors import NotFiniteError, UnknownPolicyError
from rllib.evaluation import seeding
from rllib.evaluation.callbacks import call_recreated_hooks, make_callbacks
from rllib.evaluation.evaluator import Duration
from rllib.evaluation.offline.source import RecordedRows, RecordedSource
from rllib.evaluation.postprocess.base import Postprocess
from rllib.evaluation.sampling_worker import SampleReport
from rllib.evaluation.settings import NO_POSTPROCESS, PolicySettings
from rllib.exploration.explorers import Exploration
from rllib.exploration.network_noise import StateDependentNoise
from rllib.learners.learner import Learner
from rllib.losses.loss import Loss, LossOverModules
from rllib.losses.user.auxiliary import auxiliary_losses
from rllib.metrics import Metrics
from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.network_spec import NetworkSpec
from rllib.offline.dataset import Dataset
from rllib.policies import of_only_policy
from rllib.policy import Policy, Snapshot
from rllib.processes import check_gpus, num_cores
from rllib.progress import counted
from rllib.result import Result
from rllib.runs.profiling import ITERATION, Profile, Recording
from rllib.sample_batch import DEFAULT_POLICY, MultiAgentBatch, SampleBatch
from rllib.storage.local_path import local_path

logger = logging.getLogger(__name__)


def _is_built(algorithm: "Algorithm") -> bool:
    return "workers" in vars(algorithm)


def _elsewhere(algorithm: "Algorithm", name: str) -> str | None:
    """Advice for a name that is no attribute of a built algorithm, but one of its settings or its trainees."""
    if name.startswith("_") or not _is_built(algorithm):
        return None
    if name in algorithm.config.settings:
        return f"use algo.config.{name}"
    has = any(hasattr(trainee, name) for trainee in algorithm.trainees.values())
    return f"use algo.trainee.{name}, or algo.trainees[POLICY_ID].{name}" if has else None


@explains({**OF_ITS_MODELS, **absent.ALGORITHM}, _elsewhere, absent.SETTING, _is_built)
class Algorithm(SeveralAgents, Saving, RllibNames, StableBaselinesNames, ABC):
    """One training run: a policy, its learner and the workers that sample for it.

    Use it as a context manager, or call `stop()` at the end.

    `train` runs one iteration, and `learn` as many as a number of steps takes. An iteration is made of
    `training_step`s, which an algorithm writes; in them `learn_on_batch` counts and times one `Learner.update`, all
    gradient steps on a batch. A trainee with a replay draws that batch in its `update` first.

    Without an environment, but with an observation_space and an action_space in the config, it has no workers: it acts,
    learns from batches that it is given, and is saved and restored, but does not train by itself.

    Args:
        config: settings, as a config object or a plain dict; validated and frozen here unless it is frozen already. Or
            the name of a policy, as in PPO("MlpPolicy", env, n_steps=2048): then settings and defaults are
            Stable-Baselines3's (docs/start/from_sb3.md).
        env: environment, if the config names none.
        words: settings by Stable-Baselines3's names; only with the name of a policy as `config`.

    Attributes:
        directory: default directory of checkpoints, and of the run's files with `.reporting(log_dir=)`.
        goal: values of `timesteps` and `episode_reward_mean` that end an iteration early, so that a run stops there.
        trainees: policy id -> the policy in training, with its learner (trainee.py); frozen policies have none.
        recorded: recorded data that the run learns from; None if all samples come from the environment.
        rollout_device: device of rollouts that are torch tensors (tensor_rollouts.py); None if they are arrays.
        taught_environment: factory of the workers' environments, whose observations may have more keys, for a teacher.

    Raises:
        TypeError: for `words` that are no settings, or that are given together with a config.
        ValueError: with every mistake in the settings.
        the environment's own exception, if it cannot be made or stepped.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    # Class of the policies in training (trainee.py).
    trainee_class: ClassVar[type[Trainee]] = Trainee
    # The loss that learners minimise, unless `make_loss` of the trainee is overridden.
    loss: ClassVar[Loss | LossOverModules | None] = None
    # Whether batches are sequences with the observations to bootstrap from, for values computed by the learner.
    samples_sequences: ClassVar[bool] = False
    # Whether a round waits for the fragments of all workers, so that a run's bits need not depend on their number.
    is_synchronous: ClassVar[bool] = True
    # Whether it can train on rollouts that are torch tensors, if its postprocess supports them.
    takes_tensors: ClassVar[bool] = True
    # Whether workers compute gradients of the loss, instead of sending their samples.
    workers_learn: ClassVar[bool] = False
    # Statistics that each result holds under info/learner/<policy>/learner_stats, by Ray's names.
    reported_stats: ClassVar[tuple[str, ...]] = ()
    # Initializer of weights (models/dense/initializers.py), if the model's settings name none.
    initializer: ClassVar[str] = "orthogonal"
    # Whether a network for images alone leaves out the layers of the model's fcnet_hiddens, as in RLlib.
    images_skip_layers: ClassVar[bool] = True
    # Whether the policy's network has a value.
    _has_value: ClassVar[bool] = True
    # Whether rows with actions that the policy has not chosen (ExternalEnv.log_action) cannot be learned from.
    learns_from_own_actions: ClassVar[bool] = False
    # Whether it trains the policies of environments with several agents.
    trains_several: ClassVar[bool] = False

    def __init__(self, config: AlgorithmConfig | dict | str | None = None, env: Any = None, **words: Any):
        if isinstance(config, str) or words:
            config, env = self._config_of_words(config, env, words), None
        if config is None or isinstance(config, dict):
            config = self.get_default_config().update_from_dict(config or {})
        self._begin(self._frozen(config, env))

    def _frozen(self, config: AlgorithmConfig, env: Any = None) -> AlgorithmConfig:
        """A validated, frozen config of the algorithm's own class; `env`: environment, where the config names none."""
        return frozen(self.config_class, config, env)

    @classmethod
    def check_fit(cls, config: AlgorithmConfig) -> None:
        """Checks that a run can be built: the settings, the environment, the spaces and the networks.

        One environment is made and closed; learners, workers and replay are not.

        Raises:
            ValueError, TypeError: as `config.build()`, before anything that it starts.
        """
        cls.__new__(cls)._fit(frozen(cls.config_class, config, None))

    def _begin(self, config: AlgorithmConfig) -> None:
        """Makes the parts of a run by a frozen config: agents, data and policies here, the other parts by `_build`."""
        factory, specs = self._fit(config)
        self.policies = make_policies(self.policy_spaces(), self.config_of, specs, self.seed)
        if self.config.normalizes_by_data:
            for policy in self.policies.values():
                if policy.filters_observations:  # discrete and one-hot observations are not filtered
                    policy.filter.set_state(self.recorded.moments(policy))
        self._stopped = False
        self.trainees: dict[str, Trainee] = {}
        self._parts = contextlib.ExitStack()
        self._parts.callback(self._stop_trainees)
        try:
            with naming_settings(self.config):
                self._build(factory)
        except BaseException:
            self.stop()
            raise

    def _fit(self, config: AlgorithmConfig) -> tuple[EnvFactory | None, dict[str, NetworkSpec]]:
        """Examines agents, data and spaces by a frozen config; returns the environment and each policy's network."""
        self.config = config
        self.callbacks = make_callbacks(self.config.callbacks_class, self.config.callback_functions)
        _set_log_level(self.config.log_level)
        self.seed = seeding.fresh_seed() if self.config.seed is None else self.config.seed
        with naming_settings(self.config):
            factory = wiring.learned_environment(self.config)
            checked = wiring.checked_spaces(factory, self.config)
            observation_space, action_space, self.rollout_device, examined, self._is_external, _ = checked
            wiring.refuse_vector_environment(self.config, checked)
            wiring.refuse_unread_infos(self.config, self._is_external, has_agents=examined is not None)
            self.agents = wiring.agents_of(self, examined)
        self.recorded: RecordedData | None = None
        if self.config.has_data:
            limit = wiring.time_limit_of(factory)
            self.recorded = recorded_data(self.config, observation_space, action_space, limit)
            observation_space, action_space = self.recorded.spaces
        self.observation_space, self.action_space = observation_space, action_space
        counts_agent_steps = self.agents is not None and self.agents.settings.counts_agent_steps
        self.metrics = Metrics(self.config.metrics_num_episodes_for_smoothing, counts_agent_steps)
        self._policy_configs = policy_configs(self.config, self.policy_overrides())
        self.config.log_without_effect(by_message(self._policy_configs))
        return factory, self._described(self.policy_spaces(), self.policy_overrides())

    def __repr__(self) -> str:
        of = f"{type(self).__name__} on {wiring.environment_name(self.config)}"
        return f"<{of}: {counted(self.metrics.iteration, 'iteration')}, {counted(self.timesteps, 'step')}>"

    def _build(self, factory: EnvFactory | None) -> None:
        """Builds learners, rollout workers, evaluation and reporting."""
        if self.rollout_device is not None:
            tensor_rollouts.refuse(self, self.rollout_device)
        for policy_id, policy in self.policies.items():
            self.callbacks.on_create_policy(policy_id=policy_id, policy=policy)
        self.auxiliary_losses = auxiliary_losses(self.config.auxiliary_losses)
        is_recorded = self.config.profile and not spans.is_recording()
        self._recording = self._owns(Recording()) if is_recorded else None
        check_gpus(wiring.gpu_claims(self.config))
        wiring.refuse_crowded_updates(self.config)
        may_ask = self.config.asks_teacher or (self.agents is not None and not self._is_external)
        # Whether workers' environments give keys that only teachers read, also before any policy has a teacher: the
        # first one with a teacher may be added, or start learning, in the middle of a run.
        self._gives_teacher_keys = bool(
            self.config.get("teacher_observation_keys") and may_ask and not self.config.leaves_teachers_alone
        )
        self.taught_environment = wiring.taught_environment(self.config, factory, self._gives_teacher_keys)
        self._shown_to_teachers = wiring.shown_to_teachers(self)
        for policy_id in self._trained_ids():
            with self._naming_settings_of(policy_id):
                refuse_memory(self, policy_id, self.make_exploration(self.config_of(policy_id), policy_id))
                self.trainees[policy_id] = self.trainee_class(self, policy_id)
        self._rollout_settings = wiring.rollout_settings(
            self.config,
            self.taught_environment,
            policies={policy_id: self._policy_settings(policy_id) for policy_id in self.policies},
            seed=self.seed,
            sequences=self.samples_sequences,
            acts_among_all=self.is_synchronous,
            spans_directory=self.spans_directory,
            agents=self.agents and self.agents.settings,
            is_external=self._is_external,
            drops_logged_rows=self.learns_from_own_actions,
            max_lag_updates=self._max_lag_updates(),
        )
        for trainee in self.trainees.values():
            with self._naming_settings_of(trainee.policy_id):
                refuse_absent_columns(self, trainee)
        for trainee in self.trainees.values():
            with self._naming_settings_of(trainee.policy_id):
                trainee.prepare()
        self.features = self.make_features()
        self._numbers_of_parts()  # refuses two numbers with the same name
        # Waits for the round of fragments that was requested ahead (`sample_async`); None: there is none.
        self._ahead: Callable[[], list] | None = None
        self._acting_rng = seeding.generator(self.seed, seeding.INFERENCE)
        self._acting_settings = wiring.acting_settings(self.config, self.agents)
        self._inferences = {
            policy_id: Inference(
                *spaces, self._acting_settings, self._acting_rng, self.policies[policy_id].distribution
            )
            for policy_id, spaces in self.policy_spaces().items()
        }
        self._evaluations = self._owns(Evaluations(self, self._rollout_settings.without_teachers(factory)))
        self._videos = self._owns(EvaluationVideos(self.config)) if self.config.evaluation_videos else None
        self._restores = 0  # number of restores from checkpoints: environments get new seeds each time
        self._training_s = 0.0  # duration of the newest iteration's training steps
        now = f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
        self.directory = local_path(self.config.log_dir or f"results/{type(self).__name__}_{now}")
        self._reporting = self._owns(Reporting(self))
        self._results = Results(self)
        self._warned_filters_stay = False
        self.goal: Mapping[str, float] = {}
        if not (self.is_synchronous or self.config.num_rollout_workers):
            logger.warning(
                "%s with num_rollout_workers=0 runs synchronously: this process samples and learns in turn",
                type(self).__name__,
            )
        self.setup()
        wiring.log_crowds(self.config)  # may start a session: after all checks of the settings
        self.workers = self._owns(self.make_workers())
        self._curricula = make_curricula(self.config, self.workers, self._rollout_settings)
        self._note_unheard_policies()
        self._note_exploration()
        self.callbacks.on_algorithm_init(algorithm=self)

    def _max_lag_updates(self) -> int | None:
        """Largest lag, in updates, of the weights of clients that act themselves; None: any number."""
        limit = self.config.max_lag_updates
        if limit == "auto":
            # Even a client that asks for weights as often as it can acts by the previous weights during an update.
            return 1 if self.learns_from_own_actions else None
        return limit

    def config_of(self, policy_id: str) -> AlgorithmConfig:
        """Settings that a policy is made and trained with: the run's, with the policy's own (`policy_overrides`)."""
        return self._policy_configs.get(policy_id, self.config)

    def _policy_settings(self, policy_id: str) -> PolicySettings:
        config = self.config_of(policy_id)
        parts = self.make_postprocess(policy_id), self.make_exploration(config, policy_id)
        with self._naming_settings_of(policy_id):
            refuse_memory(self, policy_id, *parts)
        trainee = self.trainees.get(policy_id)
        learner = trainee.gradient_learner() if self.workers_learn else None
        settings = PolicySettings(
            self.policies[policy_id].spec,
            *parts,
            config.explore,
            learner,
            self.marks_waiting(policy_id),
            make_return_scale=config.make_return_scale,
        )
        return settings if trainee is None else self._taught(settings, trainee)

    @staticmethod
    def _taught(settings: PolicySettings, trainee: Trainee) -> PolicySettings:
        """The settings with the trainee's teacher, if it has one."""
        if trainee.teacher is None:
            return settings
        space = trainee.policy.observation_space
        return dataclasses.replace(settings, teacher=trainee.teacher.settings, observation_space=space)

    def __init_subclass__(cls, **kwargs):
        """Makes the config class that a subclass declares build the subclass.

        Raises:
            TypeError: for an overridden method that RLlib calls but this library does not, or that trainees have.
        """
        super().__init_subclass__(**kwargs)
        refuse_methods_of_rllib(cls)
        refuse_methods_of_trainees(cls)
        if "setup" in vars(cls):
            cls.setup = taking_a_config(cls.setup)
        config_class = vars(cls).get("config_class", AlgorithmConfig)
        if config_class is not AlgorithmConfig and "algo_class" not in vars(config_class):
            config_class.algo_class = cls

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """A new config of this algorithm; override it to change the defaults of a subclass."""
        return cls.config_class(algo_class=cls)

    @classmethod
    def default_resource_request(cls, config: AlgorithmConfig | Mapping[str, Any]) -> dict[str, Any]:
        """Resources that a run with these settings claims, in the form of Tune's `resources_per_trial`.

        "cpu" and "gpu" are for this process; "extra_cpu", "extra_gpu" and "extra_custom_resources" for learners,
        rollout workers and evaluation workers together.
        """
        return wiring.resource_request(cls.get_default_config().update_from_dict(config))

    # ------------------------------------------------------------------ what an algorithm fills in

    @taking_a_config
    def setup(self) -> None:
        """Makes further parts of the algorithm, such as a replay, before any worker starts.

        An override may take the config, as in RLlib: def setup(self, config).

        If this raises, or the workers cannot start, parts that were passed to `_owns` are stopped.
        """

    @abstractmethod
    def training_step(self) -> dict[str, Any]:
        """Samples and updates.

        Returns:
            policy id -> statistics of its learner; with one policy, its statistics may be returned directly.
        """

    def policy_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Observation space and action space of each policy, by its id; one policy with the environment's by default.

        Policies, learners, replays and other parts of a single policy are made for these ids.
        """
        if self.agents is not None:
            return dict(self.agents.spaces)
        return {DEFAULT_POLICY: (self.observation_space, self.action_space)}

    def policy_overrides(self) -> Mapping[str, Mapping[str, Any]]:
        """Policy id -> settings in which the policy differs from the config (lr, gamma, model, ...); {} by default."""
        return {} if self.agents is None else self.agents.overrides

    def _trained_ids(self) -> list[str]:
        """Ids of the policies that learn."""
        return [each for each in self.policies if self.agents is None or each in self.agents.settings.trained]

    def postprocess_of(self, policy_id: str) -> Postprocess:
        """The function that adds columns to a policy's fragments in the workers."""
        return self._rollout_settings.policies[policy_id].postprocess

    @property
    def agents_may_wait(self) -> bool:
        """Whether an agent may wait during an update, so that its row was sampled by older weights than the batch."""
        return self.agents is not None or self._is_external

    def marks_waiting(self, policy_id: str) -> bool:
        """Whether batches have the column `waited`, which leaves rows by older weights out of the on-policy check.

        False for recurrent policies, whose state continues from such a row, and for clients, which have older weights.
        """
        cannot = self.agents is None or self._is_external or self.policies[policy_id].state_size > 0
        return not cannot and self.loss is not None and self.loss.by_newest_weights

    def make_features(self) -> dict[str, Feature]:
        """Makes the optional parts of a run (feature.py): name of its state in checkpoints -> part."""
        return {}

    def make_postprocess(self, policy_id: str) -> Postprocess:
        """Makes the function that adds columns to each fragment of a policy, in the workers."""
        return NO_POSTPROCESS

    def make_workers(self, **more) -> Source:
        """Makes the source of samples (sources.py); an algorithm may return its own Source.

        Args:
            more: further arguments of WorkerSet.
        """
        return make_source(self, self._rollout_settings, **more)

    def recorded_rows(self) -> RecordedRows | None:
        """Recorded steps as rows of train batches; None if the algorithm's replay holds them."""
        return None

    def _refill_recorded(self) -> None:
        """Recomputes the recorded rows, after the policies' filters have changed."""
        if isinstance(self.workers, RecordedSource) and self.recorded.stream is None:
            self.workers.rows = self.recorded_rows()

    def streamed_rows(self, dataset: Dataset) -> SampleBatch:
        """Rows to learn from, made of a batch from a reader without end."""
        raise NotImplementedError(f"{type(self).__name__} does not learn from a reader")

    def extra_results(self) -> dict[str, Any]:
        """Entries of an iteration's `info` in addition to the counters and the statistics of its last update.

        Under "learner" there may be a dict, policy id -> statistics of the iteration, which join the policy's own.
        """
        recorded = {}
        if self.recorded is not None:
            trained = sum(counts["num_steps_trained"] for counts in self.metrics.policies.values())
            recorded = {"dataset": self.recorded.progress(trained)}
        if not self.config.num_learners:
            return recorded
        restarts = sum(each.learner.backend.fleet.num_restarts for each in self.trainees.values())
        return {**recorded, "num_learner_restarts": restarts}

    def make_policy_spec(self, observation_space, action_space, config: AlgorithmConfig) -> NetworkSpec:
        """Describes a policy's network for these spaces, which are the environment's as the policy sees them.

        Args:
            observation_space, action_space: spaces of the policy.
            config: settings of the policy.
        """
        return self._described_network(observation_space, action_space, config)

    def _described_network(self, observation_space, action_space, config: AlgorithmConfig, **model) -> NetworkSpec:
        """The network for these spaces by the config's settings; `model`: further ones that the algorithm sets."""
        return policy_spec(
            observation_space,
            action_space,
            {**config.acting_model, **model},
            observation_filter="MeanStdFilter" if config.normalizes_by_data else config.observation_filter,
            observation_clip=config.observation_clip,
            initializer=self.initializer,
            action_mask_key=config.action_mask_key,
            critic_keys=config.keys_of_value,
            images_skip_layers=self.images_skip_layers,
            has_value=self._has_value,
        )

    def snapshots(self) -> dict[str, Snapshot]:
        """Policy id -> `snapshot` of the policy, for the source of samples."""
        return {policy_id: self.snapshot(policy_id) for policy_id in self.policies}

    def snapshot(self, policy_id: str = DEFAULT_POLICY) -> Snapshot:
        """The present policy as a snapshot, to be stored or sent before the next update changes the weights."""
        snapshot = self.policies[policy_id].snapshot(self.metrics.num_updates(policy_id), self.timesteps)
        if (trainee := self.trainees.get(policy_id)) is None:
            return snapshot
        scale = trainee.return_scale and trainee.return_scale.get_state()
        return dataclasses.replace(snapshot, modules=trainee.modules_of_workers() or None, return_state=scale)

    def _described(
        self, spaces: Mapping[str, tuple[Space, Space]], overrides: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, NetworkSpec]:
        """Policy id -> its network, for policies with these spaces and with their own settings (`overrides`).

        Raises:
            SettingsError: if the settings of a policy do not fit its spaces or its network.
        """
        num_agents = None if self.agents is None else len(self.agents.environment.agents)
        policies = (
            NewPolicy(policy_id, *pair, self.config, overrides.get(policy_id, {}), num_agents)
            for policy_id, pair in spaces.items()
        )
        return described(policies, self.config_of, self.make_policy_spec, self._check_spec)

    def _naming_settings_of(self, policy_id: str):
        """Context that raises an error of a part of the policy's training as a mistake in the policy's settings."""
        own = self.policy_overrides().get(policy_id, {})
        return naming_settings_of(policy_id, self.config, self.config_of(policy_id), own)

    def _check_spec(self, spec: NetworkSpec, config: AlgorithmConfig) -> None:
        """Raises a ValueError with the reason, if a policy of this description cannot be trained."""
        spec.check()
        given = config.model.get("custom_action_dist")
        if given is None:
            return
        if not spec.distribution.has_log_prob:
            raise Unfit(
                f"{type(self).__name__} learns the values of actions and takes the best, so it cannot use "
                f"model['custom_action_dist']={given!r:.80}.",
                "Leave it out, or use PPO.",
                {"model": {"custom_action_dist": None}},
            )
        spec.distribution.check()

    def make_exploration(self, config: AlgorithmConfig, policy_id: str = DEFAULT_POLICY) -> Exploration:
        """Makes the exploration of a policy by these settings: the policy's in training, evaluation's in evaluation."""
        given, default, model = config.exploration_config, config.default_exploration, config.acting_model
        if model.get("use_sde"):
            random_timesteps = exploration_settings(given, default).get("random_timesteps", 0)
            return StateDependentNoise(model.get("sde_sample_freq", -1), random_timesteps)
        return make_exploration(given, default, self.policies[policy_id].action_space)

    def _explored_by(self, policy_id: str = DEFAULT_POLICY) -> dict[str, Any]:
        """Current keyword arguments of the noise of a policy's action distribution (epsilon, ...)."""
        settings = self._rollout_settings.policies
        # A policy that was put into `policies` directly has the exploration of the first one.
        return settings.get(policy_id, settings[min(settings)]).exploration.numbers_alone(self.timesteps)

    def _note_exploration(self) -> None:
        """Sets the present exploration in the policies, which users may also call directly."""
        for policy_id, policy in self.policies.items():
            policy.exploration = self._explored_by(policy_id)

    def _exploration_stats(self, policy_id: str) -> dict[str, float]:
        """`_explored_by` as statistics of the learner: cur_epsilon, ..."""
        return {f"cur_{name}": float(number) for name, number in self._explored_by(policy_id).items()}

    # ------------------------------------------------------------------ building blocks of a training step

    def sample(self, num_steps: int) -> Any:
        """At least `num_steps` steps of the environments, sampled with the newest weights.

        The workers get the weights with the request; a round brings one fragment of each worker. The order of the rows
        does not depend on the distribution of environments among workers (`SampleBatch.join_rounds`). Steps that are
        no transitions (resets of vector environments that take a separate step, failures of environments) count here
        but are not in the batch, which has at least one transition.

        Returns:
            a SampleBatch; where several agents act, a MultiAgentBatch.

        Raises:
            ValueError: for a number of steps below 1.
        """
        count(1).check("num_steps", num_steps)
        features = self.features.values()
        acts_by_policy = not features or all(trainee.learning_has_started for trainee in self.trainees.values())
        rounds, steps, transitions = [], 0, 0
        with self.metrics.timer("sample"):
            while steps < num_steps or not transitions:
                rounds.append([])
                sampled = self._sample_round()
                for batch, report in sampled:
                    self._take_in(report, batch)
                    rounds[-1].append(batch)
                    steps += report.rows
                    transitions += report.env_steps
                self.metrics.put_in_turn([report.episodes for _, report in sampled])
            with spans.span("join"):
                batch = (SampleBatch if self.agents is None else MultiAgentBatch).join_rounds(rounds)
        for feature in features:
            feature.on_sample(acts_by_policy)
        if self.config.samples_ahead:
            self._ahead = self.workers.begin_sampling(self.snapshots())
        return batch

    def _sample_round(self) -> list[tuple[SampleBatch, SampleReport]]:
        """One fragment of each worker, sampled with the newest weights, or the round that was requested ahead."""
        ahead, self._ahead = self._ahead, None
        return ahead() if ahead else self.workers.sample(self.snapshots())

    def _take_in(self, report: SampleReport, batch: SampleBatch | MultiAgentBatch | None = None) -> None:
        """Counts a worker's report, and merges its statistics of observations and returns.

        Policies may have been removed or frozen, and new ones may have got their ids, since the request: statistics of
        these policies are dropped, and rows of removed policies are dropped from the batch.
        """
        with spans.span("take in"):
            removed = self._removed_since(report)
            self.metrics.add_sample(report, removed)
            for policy_id in removed:
                for by_policy in (report.filter_deltas, report.return_deltas, batch.policy_batches):
                    by_policy.pop(policy_id, None)
            for feature in self.features.values():
                feature.take_in(report, batch)
            for policy_id, delta in report.filter_deltas.items():
                if not self.config.normalizes_by_data:  # else rows were normalised by the data's statistics, which stay
                    self.policies[policy_id].filter.merge(delta)
            for policy_id in report.return_deltas.keys() & self.trainees.keys():  # policies that still learn
                self.trainees[policy_id].return_scale.merge(report.return_deltas[policy_id])

    def _removed_since(self, report: SampleReport) -> list[str]:
        """Ids of the policies that acted in a report's fragment and are no longer in the run."""
        if self.agents is None:
            return []
        present = self.agents.settings.numbers
        return [policy_id for policy_id, number in report.policy_numbers.items() if present.get(policy_id) != number]

    def train_batches(self) -> list[tuple[Trainee, SampleBatch]]:
        """Samples a train batch with the newest weights; returns (trainee, rows of its actions) of each policy."""
        batch = self.sample(self.config.min_train_batch)
        shares = self.by_trainee(batch)
        for trainee, _ in shares:
            trainee.env_steps_of_batch = batch.env_steps()
        return shares

    def by_trainee(self, batch: SampleBatch | MultiAgentBatch) -> list[tuple[Trainee, SampleBatch]]:
        """Splits a batch of the source: (trainee, rows of its actions) of each policy that learns from the batch."""
        if self.agents is None:
            return [(self.trainees[DEFAULT_POLICY], batch)]
        shares = []
        for policy_id, rows in batch.policy_batches.items():
            if policy_id not in self.trainees:
                continue
            learns = bool(self.agents.trains(policy_id, rows))
            self.metrics.offers[learns] += 1
            self.trainees[policy_id].is_refused = not learns
            if learns:
                shares.append((self.trainees[policy_id], rows))
        return shares

    def policy_number(self, policy_id: str) -> int:
        """The policy's number, which no other policy of the run has had, as a key of its random streams."""
        if self.agents is None:
            return sorted(self.policies).index(policy_id)
        return self.agents.settings.numbers[policy_id]

    def learn_on_batch(self, batch: SampleBatch, policy_id: str = DEFAULT_POLICY, **settings) -> dict[str, float]:
        """Makes one `Learner.update` of a policy on the batch, counted and timed; settings as for `Learner.update`.

        Raises:
            TypeError: if the batch is no SampleBatch, or a setting is missing.
            UnknownPolicyError: (a KeyError and ValueError) if no policy with this id learns.
            ValueError: as `Learner.update`.
        """
        if not isinstance(batch, SampleBatch):
            raise TypeError(
                f"learn_on_batch needs a SampleBatch, but got {batch!r:.80}. SampleBatch({{NAME: ARRAY, ...}}) makes "
                "one of columns with equally many rows."
            )
        if policy_id not in self.trainees:
            raise UnknownPolicyError(f"no policy {policy_id!r} learns here; those that do: {', '.join(self.trainees)}")
        return self.trainees[policy_id].learn_on_batch(batch, **settings)

    def auxiliary_weights(self) -> dict[str, float]:
        """Current weights of the user's auxiliary losses, as settings of the loss."""
        return {part.weight: part.schedule(self.timesteps) for part in self.auxiliary_losses}

    def _owns(self, part):
        """Registers a part, whose `stop` is called when the algorithm stops, and returns it."""
        self._parts.callback(part.stop)
        return part

    @property
    def spans_directory(self) -> str | None:
        """Directory of the time spans that the run's processes record (spans.py); None without `profile`."""
        return self._recording and self._recording.directory

    @property
    def policy(self) -> Policy:
        """The policy of a run with one policy."""
        return of_only_policy(self.policies, "policy", "policies[POLICY_ID]")

    @property
    def trainee(self) -> Trainee:
        """The policy in training of a run with one policy."""
        return of_only_policy(self.trainees, "trainee", "trainees[POLICY_ID]")

    @property
    def learner(self) -> Learner:
        """The learner of a run with one policy."""
        return of_only_policy(self.learners, "learner", "learners[POLICY_ID]")

    @property
    def learners(self) -> dict[str, Learner]:
        """Policy id -> the learner of a policy in training."""
        return {policy_id: trainee.learner for policy_id, trainee in self.trainees.items()}

    @property
    def num_updates(self) -> int:
        """Number of learner updates so far, of all policies; with one policy the version of its weights."""
        return self.metrics.counters["num_updates"]

    @property
    def iteration(self) -> int:
        """Number of iterations of `train` so far."""
        return self.metrics.iteration

    @property
    def timesteps(self) -> int:
        """Number of environment steps sampled so far: the one clock of a run, of schedules, `learn` and evaluation.

        With `.multi_agent(count_steps_by="agent_steps")` it counts the steps of all agents instead.

        It counts the transitions in the source's reports (SampleReport.env_steps), so rows between two episodes are not
        included. If samples come from no environment but from files, for example, each row that the source returns
        counts as one step. Rows that are drawn from a replay, or learned from again, do not count.
        """
        return self.metrics.timesteps

    # ------------------------------------------------------------------ training

    def train(self) -> Result:
        """One iteration: training steps until the `reporting` minima are reached.

        Returns:
            the result dict; `episode_reward_mean` is NaN until an episode has finished.
        """
        if self._stopped:
            raise RuntimeError("this algorithm has been stopped; build a new one, or restore it from a checkpoint")
        self._reporting.prepare()
        with spans.span(ITERATION), self._naming_the_checkpoint():
            self.metrics.start_iteration()
            evaluation = self._evaluations.begin(self.metrics.iteration + 1, self._training_s)
            training_began, minima = time.monotonic(), self.config.iteration_minima()
            stats: dict[str, Any] = {}
            while True:
                self.metrics.training_steps += 1
                try:
                    # A policy that has not acted in the last step may have learned in an earlier one.
                    stats |= self.training_step()
                except NotFiniteError as error:
                    self._reporting.on_not_finite(error)
                    raise
                if self._iteration_is_full(*minima):
                    break
            self._training_s = time.monotonic() - training_began
            if self._evaluations.is_due(self.metrics.iteration + 1):
                with self.metrics.timer("evaluation"):
                    evaluation = {"evaluation": evaluation() if evaluation else self.evaluate()}
                    if self._videos is not None:
                        evaluation["evaluation"]["video"] = self._videos.record(self)
            if losses := self._evaluations.on_held_out(self.metrics.iteration + 1):
                evaluation = evaluation or {"evaluation": Result()}
                evaluation["evaluation"].update(losses)
            result = self._results.of_iteration(stats, evaluation or {})
            self._note_exploration()
            for name, curriculum in self._curricula.items():
                result[name] = curriculum.summary()
            call_recreated_hooks(self, self.workers, is_evaluation=False)
            self.callbacks.on_train_result(algorithm=self, result=result)
            for curriculum in self._curricula.values():
                curriculum.choose_next(result)
            if self._learning is not None:
                self._learning.on_result(result)
            self.log_result(result)
            self.metrics.add_logged_here(result)
            result.list_parts()  # of dicts that callbacks and curricula have added, too
            self._reporting.on_result(result)
            return result

    def _new_environment(self) -> Any:
        env = wiring.playable_environment(self.config).make(EnvContext(self.config.env_config))
        if isinstance(env, VectorEnv):
            raise ValueError(f"{env} is a vector of environments itself: make one, and step that")
        return env

    def _iteration_is_full(self, seconds: float, sampled: int, trained: int) -> bool:
        metrics = self.metrics
        is_full = (
            metrics.elapsed_s() >= seconds
            and metrics.sampled_this_iteration() >= sampled
            and (metrics.trained_this_iteration() >= trained or self._nobody_learns())
            and self._updates_this_iteration() >= self.config.updates_per_iteration
        )
        return is_full or (bool(self.goal) and self._has_reached_goal())

    def _updates_this_iteration(self) -> int:
        """Updates from recorded data since the iteration began: one in each training step."""
        return self.metrics.training_steps

    def _nobody_learns(self) -> bool:
        if self.agents is None:
            return False
        offers = self.metrics.offers
        # The user's function policies_to_train may refuse all batches, for a while or for the whole run.
        all_refused = bool(offers[False]) and not offers[True]
        return all_refused or self.agents.nobody_learns(*self.metrics.acted_this_iteration())

    def _has_reached_goal(self) -> bool:
        wanted = self.goal.get("episode_reward_mean")
        if wanted is not None and self.metrics.settled_return() >= wanted:
            return True
        return self.timesteps >= self.goal.get("timesteps", math.inf)

    def profile(self) -> Profile:
        """Profile of the run so far, in all processes; only with `.reporting(profile=True)`.

        Raises:
            RuntimeError: without that setting, after `stop()`, or if another algorithm of this process was being
                recorded when this one was built.
        """
        if self._recording is None or self._stopped:
            raise RuntimeError(
                "there is no profile of this algorithm: it has been stopped"
                if self._stopped
                else "there is no profile of this algorithm: nothing was recorded. Use .reporting(profile=True), for "
                "one algorithm of a process at a time."
            )
        return Profile(self._recording.lanes(), self.config.to_dict(), num_cores())

    # ------------------------------------------------------------------ evaluation and weights

    def evaluate(self, num_episodes: int | None = None, explore: bool | None = None) -> dict:
        """Plays whole episodes in fresh environments, on seeds that training never uses.

        With off_policy_estimation_methods it estimates from recorded data as well, and needs no environment.

        Args:
            num_episodes: number of episodes; by default `evaluation_duration`, in its unit, or 10 if that is "auto".
            explore: whether to sample actions; by default the most likely ones are taken, unless `evaluation_config`
                has `explore: True`.

        Returns:
            the episode statistics of `train()`, of these episodes alone; estimates under "off_policy_estimator".
        """
        if num_episodes is not None:
            count(1).check("num_episodes", num_episodes)
        duration = self._evaluations.duration() if num_episodes is None else Duration(num_episodes)
        return self._evaluations.start(duration, explore)()

    def _play_teacher(self, policy_id: str) -> list[Episode]:
        """Plays episodes with a policy's teacher, in the environments and for the duration of an evaluation."""
        return self._evaluations.play_teacher(self._rollout_settings.policies[policy_id])

    @property
    def _evaluation_episodes(self) -> list[Episode]:
        """Episodes of the newest evaluation, with the returns of each agent where there are several; [] before one."""
        return self._evaluations.episodes

    def get_weights(self, policies: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Policy id -> a copy of its flat parameter vector.

        Args:
            policies: ids of the policies; None: all.

        Raises:
            ValueError: for the id of no policy.
        """
        wanted = self.policies if policies is None else policies
        return {policy_id: self.get_policy(policy_id).weights.copy() for policy_id in wanted}

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Sets weights of some or all policies, by id; workers get them with their next request.

        Statistics of observation filters stay as they are, which is logged once: `Policy.set_state` takes both.

        Raises:
            ValueError: for the id of no policy, before any weights are changed; if weights do not fit the network.
        """
        if not isinstance(weights, Mapping):
            raise TypeError(
                f"weights={weights!r:.80} must be a dict of policy id -> weights, as get_weights() returns it"
            )
        self._ahead = None  # that round was requested with the old weights
        if self.config.leaves_stragglers and self.workers.num_in_flight:
            self.workers.fleet.forget()  # and these fragments
        policies = {policy_id: self._network(policy_id) for policy_id in weights}
        for policy_id, policy in policies.items():
            policy.set_weights(weights[policy_id])
        filtering = [policy_id for policy_id, policy in policies.items() if policy.filters_observations]
        if filtering and not self._warned_filters_stay:
            self._warned_filters_stay = True
            logger.warning(
                "set_weights() leaves the observation filter as it is, and weights of another run go with its "
                "statistics. get_policy(%r).set_state(other.get_policy(...).get_state()) takes both.",
                filtering[0],
            )

    # ------------------------------------------------------------------ policies that come and go

    def begin_training(self, policy_id: str) -> None:
        """Makes the learner and the other training state of a policy that starts to learn during a run."""
        with self._naming_settings_of(policy_id):
            trainee = self.trainees[policy_id] = self.trainee_class(self, policy_id)
            trainee.prepare()

    def end_training(self, policy_id: str) -> None:
        """Drops the training state of a policy."""
        self.trainees.pop(policy_id).stop()

    def _stop_trainees(self) -> None:
        for trainee in self.trainees.values():
            trainee.stop()

    # ------------------------------------------------------------------ the end

    def stop(self) -> None:
        """Ends the workers and all other processes of this run. The policy still acts; a second call does nothing."""
        self.cleanup()

    def cleanup(self) -> None:
        """Part of `stop` that a subclass may add to, as in RLlib."""
        self._stopped = True
        self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type, *exc_info) -> None:
        self._reporting.failed = exc_type is not None
        self.stop()


def _set_log_level(name: str) -> None:
    """Sets the level of the library's logger; the default leaves a level that the program has set."""
    library = logging.getLogger("rllib")
    if name not in ("WARN", "WARNING") or library.level == logging.NOTSET:
        library.setLevel(name)
