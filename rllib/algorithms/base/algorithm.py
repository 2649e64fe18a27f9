"""Base class of all algorithms: build, train, evaluate, save, restore, act.

An algorithm adds a config, a loss and a `training_step` (see ppo.py). This file moves its data: sampling with the
newest weights, counting and timing. In other files: base/wiring.py reads the config, saving.py saves and restores,
evaluations.py evaluates, acting/inference.py acts in the user's own loops.
"""

import contextlib
import dataclasses
import functools
import logging
import math
import operator
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
from rllib.algorithms.base.evaluations import Evaluations
from rllib.algorithms.base.feature import Feature
from rllib.algorithms.base.policies import by_message, described, make_policies, naming_settings_of, policy_configs
from rllib.algorithms.base.recorded.data import RecordedData, recorded_data
from rllib.algorithms.base.reporting import Reporting
from rllib.algorithms.base.saving import Saving
from rllib.algorithms.base.settings.exploration import exploration_settings, make_exploration
from rllib.algorithms.base.several_agents import SeveralAgents
from rllib.algorithms.base.sources import Source, make_source
from rllib.algorithms.base.space_rules import NewPolicy, naming_settings
from rllib.algorithms.base.trainee import Trainee, refuse_methods_of_trainees
from rllib.algorithms.base.videos import EvaluationVideos
from rllib.callbacks.base import callbacks_of
from rllib.callbacks.learning import Learning
from rllib.callbacks.shown import ProgressBarCallback, TableCallback
from rllib.compat.methods.ray_rllib.names import RllibNames
from rllib.compat.methods.ray_rllib.overrides import refuse_methods_of_rllib, taking_a_config
from rllib.compat.methods.stable_baselines3.construction import Words, differs
from rllib.compat.methods.stable_baselines3.names import StableBaselinesNames
from rllib.compat.names import absent
from rllib.compat.names.elsewhere import OF_ITS_MODELS
from rllib.compat.names.stable_baselines3.rules import check_flags, count, number
from rllib.config.conflicts import DEFAULT, Unfit
from rllib.did_you_mean import explains
from rllib.env.episodes import Episode
from rllib.env.factories.registry import EnvContext, EnvFactory
from rllib.env.factories.settable_tasks import set_next_task, summary_of, task_of
from rllib.errors import NotFiniteError
from rllib.evaluation import seeding
from rllib.evaluation.callbacks import call_recreated_hooks, hears, make_callbacks
from rllib.evaluation.evaluator import Duration
from rllib.evaluation.offline.source import RecordedRows, RecordedSource
from rllib.evaluation.postprocess.base import Postprocess
from rllib.evaluation.sampling_worker import SampleReport
from rllib.evaluation.settings import NO_POSTPROCESS, PolicySettings
from rllib.exploration.explorers import Exploration
from rllib.exploration.network_noise import StateDependentNoise
from rllib.learners.learner import Learner
from rllib.learners.updates.core_choice import CLAIMED
from rllib.losses.loss import Loss, LossOverModules
from rllib.losses.user.auxiliary import auxiliary_losses
from rllib.metrics import Metrics, SystemUsage
from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.network_spec import NetworkSpec
from rllib.offline.dataset import Dataset
from rllib.policies import of_only_policy
from rllib.policy import Policy, Snapshot
from rllib.processes import check_gpus, num_cores
from rllib.progress import counted
from rllib.result import ENV_TASK, Result
from rllib.runs.profiling import ITERATION, Profile, Recording
from rllib.sample_batch import DEFAULT_POLICY, NAMES, MultiAgentBatch, SampleBatch
from rllib.storage.local_path import local_path

logger = logging.getLogger(__name__)


def _is_built(algorithm: "Algorithm") -> bool:
    return "workers" in vars(algorithm)


def _elsewhere(algorithm: "Algorithm", name: str) -> str | None:
    """Advice where a built algorithm has no attribute of a name, but its settings or its trainees have."""
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
        config: settings; a plain dict of them is taken as well. It is validated and frozen here if it is not yet. The
            name of a policy, as in PPO("MlpPolicy", env, n_steps=2048): all settings and their defaults are those of
            Stable-Baselines3 (docs/start/from_sb3.md).
        env: environment, where the config names none.
        words: settings in Stable-Baselines3's words, with the name of a policy alone.

    Attributes:
        directory: where checkpoints go by default, and the files of the run with `.reporting(log_dir=)`.
        goal: `timesteps` and `episode_reward_mean` that end an iteration before its minima, so that a run stops there.
        trainees: policy id -> the policy in training, with its learner (trainee.py); frozen policies have none.
        recorded: data that it learns from; None where all samples are the environment's.
        rollout_device: of rollouts that are torch tensors (tensor_rollouts.py); None where they are arrays.

    Raises:
        TypeError: for words that are no settings, or that are given together with a config.
        ValueError: with every mistake in the settings.
        the environment's own exception, if it cannot be made or stepped.
    """

    config_class: ClassVar[type[AlgorithmConfig]]
    # Class of the policies in training (trainee.py).
    trainee_class: ClassVar[type[Trainee]] = Trainee
    # The loss that learners minimise, unless `make_loss` of the trainee is overridden.
    loss: ClassVar[Loss | LossOverModules | None] = None
    # Whether batches are sequences with the observations to bootstrap from, for values computed by the learner.
    samples_sequences: ClassVar[bool] = False
    # Whether every worker's fragments are waited for, so that a run's bits need not depend on how workers share it.
    is_synchronous: ClassVar[bool] = True
    # Whether it can train on rollouts that are torch tensors, where its postprocess can make them.
    takes_tensors: ClassVar[bool] = True
    # Whether workers compute gradients of the loss, instead of sending their samples.
    workers_learn: ClassVar[bool] = False
    # Statistics that each result holds under info/learner/<policy>/learner_stats, by Ray's names.
    reported_stats: ClassVar[tuple[str, ...]] = ()
    # Weights to start from (models/dense/initializers.py), where the model's settings do not say.
    initializer: ClassVar[str] = "orthogonal"
    # Whether a network for images alone goes without the model's fcnet_hiddens, as in RLlib.
    images_skip_layers: ClassVar[bool] = True
    # Whether the policy's network has a value.
    _has_value: ClassVar[bool] = True
    # Whether rows with actions that the policy has not chosen (ExternalEnv.log_action) cannot be learned from.
    learns_from_own_actions: ClassVar[bool] = False
    # Whether it trains the policies of environments with several agents.
    trains_several: ClassVar[bool] = False

    def __init__(self, config: AlgorithmConfig | dict | str | None = None, env: Any = None, **words: Any):
        if isinstance(config, str) or words:
            self.verbose = int(words.get("verbose", 0))
            self._words = Words(config, env, words)
            config, env = self._words.config(self.get_default_config()), None
        if config is None or isinstance(config, dict):
            config = self.get_default_config().update_from_dict(config or {})
        self.config = frozen(self.config_class, config, env)
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
        specs = self._described(self.policy_spaces(), self.policy_overrides())
        self.policies = make_policies(self.policy_spaces(), self.config_of, specs, self.seed)
        if self.config.normalizes_by_data:
            for policy in self.policies.values():
                if policy.filters_observations:  # choices, and what is one-hot, are not filtered
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
        for policy_id in self._trained_ids():
            with self._naming_settings_of(policy_id):
                self.trainees[policy_id] = self.trainee_class(self, policy_id)
        self._rollout_settings = wiring.rollout_settings(
            self.config,
            factory,
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
        for policy_id in self.trainees:
            with self._naming_settings_of(policy_id):
                self._refuse_absent_columns(policy_id)
        self._refuse_memory()
        for policy_id, trainee in self.trainees.items():
            with self._naming_settings_of(policy_id):
                trainee.prepare()
        self.features = self.make_features()
        self._numbers_of_parts()  # refuses two of one name
        # Waits for the round of fragments that was asked for ahead (`sample_async`); None: there is none.
        self._ahead: Callable[[], list] | None = None
        self._acting_rng = seeding.generator(self.seed, seeding.INFERENCE)
        self._acting_settings = wiring.acting_settings(self.config, self.agents)
        self._inferences = {
            policy_id: Inference(
                *spaces, self._acting_settings, self._acting_rng, self.policies[policy_id].distribution
            )
            for policy_id, spaces in self.policy_spaces().items()
        }
        self._evaluations = self._owns(Evaluations(self, self._rollout_settings))
        self._videos = self._owns(EvaluationVideos(self.config)) if self.config.evaluation_videos else None
        self._restores = 0  # from checkpoints: environments get fresh seeds each time
        self._training_s = 0.0  # duration of the newest iteration's training steps
        self._usage = SystemUsage() if self.config.log_sys_usage else None
        now = f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
        self.directory = local_path(self.config.log_dir or f"results/{type(self).__name__}_{now}")
        self._reporting = self._owns(Reporting(self))
        self._logged_no_episode = self._warned_filters_stay = False
        self._logged_claimed_cores = False
        self.goal: Mapping[str, float] = {}
        if not (self.is_synchronous or self.config.num_rollout_workers):
            logger.warning(
                "%s with num_rollout_workers=0 runs synchronously: this process samples and learns in turn",
                type(self).__name__,
            )
        self.setup()
        wiring.log_crowds(self.config)  # may start a session: after all that refuses the settings
        self.workers = self._owns(self.make_workers())
        # Tasks of each worker's environments, of which checkpoints and results tell; [] without env_task_fn.
        self._env_tasks: list[list] = []
        if self.config.env_task_fn is not None:
            with naming_settings(self.config):
                self._env_tasks = self.workers.foreach_env(task_of)
        self._note_exploration()
        self.callbacks.on_algorithm_init(algorithm=self)

    def _max_lag_updates(self) -> int | None:
        """Updates by which the weights of clients that act themselves may be behind; None: any number."""
        limit = self.config.max_lag_updates
        if limit == "auto":
            # A client that asks for weights as often as it can acts during an update by those before it.
            return 1 if self.learns_from_own_actions else None
        return limit

    def config_of(self, policy_id: str) -> AlgorithmConfig:
        """Settings that a policy is made and trained with: the run's, with the policy's own (`policy_overrides`)."""
        return self._policy_configs.get(policy_id, self.config)

    def _policy_settings(self, policy_id: str) -> PolicySettings:
        config = self.config_of(policy_id)
        parts = self.make_postprocess(policy_id), self.make_exploration(config, policy_id)
        learner = self.trainees[policy_id].gradient_learner() if self.workers_learn else None
        waits = self.marks_waiting(policy_id)
        return PolicySettings(self.policies[policy_id].spec, *parts, config.explore, learner, waits)

    def __init_subclass__(cls, **kwargs):
        """Makes the config class that a subclass declares build the subclass.

        Raises:
            TypeError: for a method that RLlib calls, and this library does not; for one that trainees have.
        """
        super().__init_subclass__(**kwargs)
        refuse_methods_of_rllib(cls)
        refuse_methods_of_trainees(cls)
        if "setup" in vars(cls):
            cls.setup = taking_a_config(cls.setup)
        if not hasattr(cls, "config_class"):  # its get_default_config may give a config of another class, as in RLlib
            cls.config_class = AlgorithmConfig
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
        """Makes the algorithm's further parts, such as a replay, before any worker starts.

        An override may take the config, as in RLlib: def setup(self, config).

        If this raises, or the workers cannot start, parts that were passed to `_owns` are stopped.
        """

    @abstractmethod
    def training_step(self) -> dict[str, Any]:
        """Samples and updates.

        Returns:
            policy id -> statistics of its learner; with one policy its statistics alone will do.
        """

    def policy_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Observation space and action space of each policy, by its id; one policy with the environment's by default.

        Policies, learners, replays and all that belongs to one of them are made for these ids.
        """
        if self.agents is not None:
            return dict(self.agents.spaces)
        return {DEFAULT_POLICY: (self.observation_space, self.action_space)}

    def policy_overrides(self) -> Mapping[str, Mapping[str, Any]]:
        """Policy id -> settings in which it differs from the config (lr, gamma, model, ...); by default none does."""
        return {} if self.agents is None else self.agents.overrides

    def _trained_ids(self) -> list[str]:
        """Ids of the policies that learn."""
        return [each for each in self.policies if self.agents is None or each in self.agents.settings.trained]

    def postprocess_of(self, policy_id: str) -> Postprocess:
        """What workers add to the fragments of a policy."""
        return self._rollout_settings.policies[policy_id].postprocess

    @property
    def agents_may_wait(self) -> bool:
        """Whether an agent may act again only after an update, so that its row is by older weights than the batch's."""
        return self.agents is not None or self._is_external

    def marks_waiting(self, policy_id: str) -> bool:
        """Whether batches have the column `waited`, which leaves rows by older weights out of the on-policy check.

        Nothing is said where a memory continues from such a row, or clients act by weights of their own.
        """
        cannot = self.agents is None or self._is_external or self.policies[policy_id].state_size > 0
        return not cannot and self.loss is not None and self.loss.by_newest_weights

    def _refuse_absent_columns(self, policy_id: str) -> None:
        """Raises a ValueError for columns that losses of the user's ask for and that no batch here can have.

        Only where nothing of the user's may add columns to batches.
        """
        adds = hears(self.callbacks, "on_learn_on_batch") or hears(self.callbacks, "on_postprocess_trajectory")
        if adds or self.recorded is not None or not type(self).__module__.startswith("rllib."):
            return
        custom = getattr(self.config_of(policy_id).custom_loss, "columns", ())
        asked = [*(name for part in self.auxiliary_losses for name in part.columns), *custom]
        made = self.postprocess_of(policy_id).columns
        known = {*NAMES, *(column.name for column in (*made, *self.config.get_info_columns()))}
        for name in asked:
            if name not in known:
                raise Unfit(
                    f"a loss of .training() reads the column {name!r}, but no batch has it.",
                    f"Columns are {', '.join(sorted(known))}; .environment(info_columns={{...}}) makes more of the "
                    "environment's infos.",
                    dict.fromkeys(("auxiliary_losses", "custom_loss"), DEFAULT),
                )

    def make_features(self) -> dict[str, Feature]:
        """Makes the optional parts of a run (feature.py), by names under which checkpoints have their state."""
        return {}

    def _stats_of_features(self, stats: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
        """The features' statistics, whose names are none of the policies' own."""
        joined: dict[str, float] = {}
        for name, feature in self.features.items():
            own = feature.stats()
            for taken in (joined, *stats.values()):
                if doubled := own.keys() & taken.keys():
                    raise ValueError(
                        f"the feature {name!r} reports {sorted(doubled)[0]!r}, which is a statistic of policies, or of "
                        "another feature, already: give it another name"
                    )
            joined |= own
        return joined

    def make_postprocess(self, policy_id: str) -> Postprocess:
        """Makes the function that adds columns to each fragment of a policy, in the workers."""
        return NO_POSTPROCESS

    def make_workers(self, **more) -> Source:
        """Makes the source of samples (sources.py); an algorithm may return a Source of its own.

        Args:
            more: further arguments of WorkerSet.
        """
        return make_source(self, self._rollout_settings, **more)

    def recorded_rows(self) -> RecordedRows | None:
        """Recorded steps as it learns from them; None if its replay holds them."""
        return None

    def _refill_recorded(self) -> None:
        """Makes the recorded rows again, after the policies' filters have changed."""
        if isinstance(self.workers, RecordedSource) and self.recorded.stream is None:
            self.workers.rows = self.recorded_rows()

    def streamed_rows(self, dataset: Dataset) -> SampleBatch:
        """Rows of a batch that a reader without end has given, as it learns from them."""
        raise NotImplementedError(f"{type(self).__name__} does not learn from a reader")

    def extra_results(self) -> dict[str, Any]:
        """Entries of an iteration's `info` in addition to the counters and the statistics of its last update.

        Under "learner" there may be a dict, policy id -> statistics of the iteration, which join the policy's own.
        """
        recorded = {} if self.recorded is None else {"dataset": self._progress_of_data()}
        if not self.config.num_learners:
            return recorded
        restarts = sum(each.learner.backend.fleet.num_restarts for each in self.trainees.values())
        return {**recorded, "num_learner_restarts": restarts}

    def _progress_of_data(self) -> dict[str, Any]:
        """The recorded data, and how often its rows were learned from so far."""
        facts = self.recorded.info()
        if self.recorded.stream is not None:
            return facts
        trained = sum(counts["num_steps_trained"] for counts in self.metrics.policies.values())
        return {**facts, "epochs": trained * (1 - self.recorded.sampled) / facts["rows"]}

    def make_policy_spec(self, observation_space, action_space, config: AlgorithmConfig) -> NetworkSpec:
        """Describes a policy's network for these spaces, which are the environment's as the policy sees them.

        Args:
            observation_space, action_space: of the policy.
            config: settings of the policy.
        """
        return self._described_network(observation_space, action_space, config)

    def _described_network(self, observation_space, action_space, config: AlgorithmConfig, **model) -> NetworkSpec:
        """The network by the config's settings, and by further ones that the algorithm decides."""
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
        """`snapshot` of every policy, by its id: what the source samples with."""
        return {policy_id: self.snapshot(policy_id) for policy_id in self.policies}

    def snapshot(self, policy_id: str = DEFAULT_POLICY) -> Snapshot:
        """The present policy as a snapshot, to be put or sent before the next update changes the weights."""
        snapshot = self.policies[policy_id].snapshot(self.metrics.num_updates(policy_id), self.timesteps)
        if (trainee := self.trainees.get(policy_id)) is None:
            return snapshot
        scale = trainee.return_scale and trainee.return_scale.get_state()
        return dataclasses.replace(snapshot, modules=trainee.modules_of_workers() or None, return_state=scale)

    def _described(
        self, spaces: Mapping[str, tuple[Space, Space]], overrides: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, NetworkSpec]:
        """Policy id -> its network, for policies with these spaces and settings of their own.

        Raises:
            SettingsError: if the settings of one do not fit its spaces or its network.
        """
        num_agents = None if self.agents is None else len(self.agents.environment.agents)
        policies = (
            NewPolicy(policy_id, *pair, self.config, overrides.get(policy_id, {}), num_agents)
            for policy_id, pair in spaces.items()
        )
        return described(policies, self.config_of, self.make_policy_spec, self._check_spec)

    def _naming_settings_of(self, policy_id: str):
        """Context in which what a part of a policy's training refuses is a mistake in the settings it was made of."""
        own = self.policy_overrides().get(policy_id, {})
        return naming_settings_of(policy_id, self.config, self.config_of(policy_id), own)

    def _check_spec(self, spec: NetworkSpec, config: AlgorithmConfig) -> None:
        """Raises a ValueError that says why a policy of this description cannot be trained."""
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

    def _refuse_memory(self) -> None:
        """Raises an error where a policy has a memory, and its exploration or postprocess cannot use one.

        What these are is not known from the settings alone: methods of an algorithm make them.
        """
        for policy_id, settings in self._rollout_settings.policies.items():
            config, spec = self.config_of(policy_id), self.policies[policy_id].spec
            for part in (settings.exploration, settings.postprocess) if spec.state_size else ():
                if part.without_memory:
                    raise config.error(config.no_memory(part.without_memory, spec, part.left_out_by))

    def make_exploration(self, config: AlgorithmConfig, policy_id: str = DEFAULT_POLICY) -> Exploration:
        """Makes the exploration of a policy with these settings: its own in training, others in evaluation."""
        given, default, model = config.exploration_config, config.default_exploration, config.acting_model
        if model.get("use_sde"):
            random_timesteps = exploration_settings(given, default).get("random_timesteps", 0)
            return StateDependentNoise(model.get("sde_sample_freq", -1), random_timesteps)
        return make_exploration(given, default, self.policies[policy_id].action_space)

    def _explored_by(self, policy_id: str = DEFAULT_POLICY) -> dict[str, Any]:
        """Current keyword arguments of the noise of a policy's action distribution (epsilon, ...)."""
        settings = self._rollout_settings.policies
        # A policy that was added by hand explores as the first does.
        return settings.get(policy_id, settings[min(settings)]).exploration.numbers_alone(self.timesteps)

    def _note_exploration(self) -> None:
        """Lets the policies themselves, which users may hold, explore as the run does now."""
        for policy_id, policy in self.policies.items():
            policy.exploration = self._explored_by(policy_id)

    def _exploration_stats(self, policy_id: str) -> dict[str, float]:
        """`_explored_by` as statistics of the learner: cur_epsilon, ..."""
        return {f"cur_{name}": float(number) for name, number in self._explored_by(policy_id).items()}

    # ------------------------------------------------------------------ building blocks of a training step

    def sample(self, num_steps: int) -> Any:
        """At least `num_steps` steps of the environments, sampled with the newest weights.

        The workers get the weights with the request; a round brings one fragment of each. The order of the rows does
        not depend on how environments are shared out among workers (`SampleBatch.join_rounds`). Steps that are no
        transitions (of vector environments that reset in a step of their own, of environments that failed) count here,
        and are not in the batch; there is at least one that is.

        Returns:
            a SampleBatch; where several agents act, a MultiAgentBatch.
        """
        features = self.features.values()
        acts_by_policy = not features or all(trainee.learning_has_started for trainee in self.trainees.values())
        rounds, steps, transitions = [], 0, 0
        with self.metrics.timer("sample"):
            while steps < num_steps or not transitions:
                rounds.append([])
                for batch, report in self._sample_round():
                    self._take_in(report, batch)
                    rounds[-1].append(batch)
                    steps += report.rows
                    transitions += report.env_steps
            with spans.span("join"):
                batch = (SampleBatch if self.agents is None else MultiAgentBatch).join_rounds(rounds)
        for feature in features:
            feature.on_sample(acts_by_policy)
        if self.config.samples_ahead:
            self._ahead = self.workers.begin_sampling(self.snapshots())
        return batch

    def _sample_round(self) -> list[tuple[SampleBatch, SampleReport]]:
        """One fragment of each worker, sampled with the newest weights, or the round that was asked for ahead."""
        ahead, self._ahead = self._ahead, None
        return ahead() if ahead else self.workers.sample(self.snapshots())

    def _take_in(self, report: SampleReport, batch: SampleBatch | MultiAgentBatch | None = None) -> None:
        """Counts what a worker reported with its batch, and merges what its filter and its return scale have seen.

        Policies may have been removed or frozen, and others may have taken their ids, since the worker was asked: what
        theirs have seen is dropped, and rows of those that were removed are dropped from the batch.
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
            for policy_id in report.return_deltas.keys() & self.trainees.keys():  # those that still learn
                self.trainees[policy_id].return_scale.merge(report.return_deltas[policy_id])

    def _removed_since(self, report: SampleReport) -> list[str]:
        """Ids of the policies that acted in a report's fragment and are no longer in the run."""
        if self.agents is None:
            return []
        present = self.agents.settings.numbers
        return [policy_id for policy_id, number in report.policy_numbers.items() if present.get(policy_id) != number]

    def train_batches(self) -> list[tuple[Trainee, SampleBatch]]:
        """Samples a train batch with the newest weights: of each policy that learns, the rows in which it has acted."""
        batch = self.sample(self.config.min_train_batch)
        shares = self.by_trainee(batch)
        for trainee, _ in shares:
            trainee.env_steps_of_batch = batch.env_steps()
        return shares

    def by_trainee(self, batch: SampleBatch | MultiAgentBatch) -> list[tuple[Trainee, SampleBatch]]:
        """A batch of the source by the policies that learn from it, each with the rows in which it has acted."""
        if self.agents is None:
            return [(self.trainees[DEFAULT_POLICY], batch)]
        shares = []
        for policy_id, rows in batch.policy_batches.items():
            if policy_id not in self.trainees:
                continue
            learns = bool(self.agents.trains(policy_id, rows))
            self.metrics.offers[learns] += 1
            if learns:
                shares.append((self.trainees[policy_id], rows))
        return shares

    def policy_number(self, policy_id: str) -> int:
        """A number of the policy that no other has had in this run, to key its random streams."""
        if self.agents is None:
            return sorted(self.policies).index(policy_id)
        return self.agents.settings.numbers[policy_id]

    def learn_on_batch(self, batch: SampleBatch, policy_id: str = DEFAULT_POLICY, **settings) -> dict[str, float]:
        """One `Learner.update` of a policy on the batch, counted and timed; see there for the settings."""
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
        """Directory in which its processes record what they do when (spans.py); None without the setting `profile`."""
        return self._recording and self._recording.directory

    @property
    def policy(self) -> Policy:
        """The only policy."""
        return of_only_policy(self.policies, "policy", "policies[POLICY_ID]")

    @property
    def trainee(self) -> Trainee:
        """The only policy in training."""
        return of_only_policy(self.trainees, "trainee", "trainees[POLICY_ID]")

    @property
    def learner(self) -> Learner:
        """The learner of the only policy."""
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

        They are the transitions that the source's reports count (SampleReport.env_steps), so rows between two episodes
        are not among them. Where samples come from no environment, as from files, each row that is handed over counts
        as one step. Rows that are drawn from a replay, or learned from again, do not move this clock.
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
            stats = {
                name: value for name, value in stats.items() if not isinstance(value, dict) or name in self.policies
            }
            stats = stats or {policy_id: {} for policy_id in self._trained_ids()}
            by_policy = any(isinstance(value, dict) for value in stats.values())
            stats, extra = stats if by_policy or not stats else {DEFAULT_POLICY: stats}, self.extra_results()
            of_iteration = extra.pop("learner", {})
            of_features = self._stats_of_features(stats)
            result = self.metrics.result(
                {
                    policy_id: {**own, **of_features, **of_iteration.get(policy_id, {})}
                    for policy_id, own in stats.items()
                }
            )
            result["info"].update(extra)
            if choices := wiring.core_choices(self.learners):
                result["info"]["learner_cores"] = choices
                self._log_claimed_cores(choices)
            result.update(evaluation or {})
            self._add_surroundings(result)
            self._note_exploration()
            if self.config.env_task_fn is not None:
                result[ENV_TASK] = summary_of(self._env_tasks)
            self._log_no_episode_yet(result)
            call_recreated_hooks(self, self.workers, is_evaluation=False)
            self.callbacks.on_train_result(algorithm=self, result=result)
            if self.config.env_task_fn is not None:
                # The settings are most of a result, and the environments' processes have them.
                known = Result({key: value for key, value in result.items() if key != "config"})
                self._set_tasks(functools.partial(set_next_task, self.config.env_task_fn, known))
            if self._learning is not None:
                self._learning.on_result(result)
            self.log_result(result)
            self.metrics.add_logged_here(result)
            self._reporting.on_result(result)
            return result

    def _set_tasks(self, choose: Callable) -> None:
        """Sets the task of every environment that is sampled from; `choose` as for Worker.set_tasks."""
        # Not of a local worker in addition to remote ones, which takes no part in sampling.
        samples_here = not self.config.num_rollout_workers
        answers = self.workers.foreach_worker(operator.methodcaller("set_tasks", choose), local_worker=samples_here)
        self._env_tasks = [tasks for _, tasks in answers]
        for worker_index, tasks in answers:
            # Workers that replace others get the settings of this process.
            of_places = {(worker_index, index): task for index, task in enumerate(tasks)}
            self._rollout_settings.env_tasks.update(of_places)

    def learn(
        self,
        total_timesteps: float,
        callback: Any = None,
        log_interval: int | None = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Trains until this number of further environment steps has been sampled, rounded up to whole training steps.

        Args:
            total_timesteps: number of steps, like 1e5; what was sampled before this call does not count.
            callback: a function of (locals, globals) that returns False to end the training, an object derived from
                rllib.callbacks.BaseCallback, or a list of these. They are called after each iteration
                (docs/start/from_sb3.md).
            log_interval: iterations from one printed table to the next, with `verbose=1` of the constructor; None: no
                tables.
            tb_log_name: with the constructor's tensorboard_log, files go to its directory tb_log_name_1, then _2 and so
                on; None: the name of the algorithm. Without tensorboard_log it has no effect, and a warning says so.
            reset_num_timesteps: let `num_timesteps` begin at 0, and with tensorboard_log another directory. False: both
                continue, also after `load`. The clock of schedules, `timesteps`, continues anyway.
            progress_bar: show steps, speed and mean return on the terminal, or in the notebook.

        Returns:
            the algorithm itself, as Stable-Baselines3 does.

        Raises:
            ValueError: if the number is not positive and finite.
            TypeError: if a callback is none.
        """
        if not number().holds(total_timesteps) or total_timesteps <= 0:
            raise ValueError(f"total_timesteps={total_timesteps!r} must be a positive number of environment steps")
        check_flags(reset_num_timesteps=reset_num_timesteps, progress_bar=progress_bar)
        count(1, none=", or None: no table").check("log_interval", log_interval)
        callbacks = [*callbacks_of(callback), *([ProgressBarCallback()] if progress_bar else [])]
        if self.verbose and log_interval is not None:
            callbacks.append(TableCallback(log_interval))
        if self._words is not None and not self.timesteps:
            self._take_length(total_timesteps)
        first = self.timesteps
        if reset_num_timesteps:
            self._first_timestep = first
        variables = {
            "total_timesteps": self.num_timesteps + total_timesteps,
            "log_interval": log_interval,
            "tb_log_name": tb_log_name or "run",
        }
        self._choose_directory(tb_log_name, reset_num_timesteps)
        self._learning, goal = Learning(self, callbacks, self._steps_since_reset, variables), self.goal
        self.goal = {"timesteps": first + total_timesteps, **goal}
        try:
            self._learning.run(lambda: self.timesteps - first >= total_timesteps)
        finally:
            self._learning, self.goal = None, goal
        return self

    def _take_length(self, total_timesteps: float) -> None:
        """Builds the algorithm again where its constructor's words are shares of a run, whose length is known now."""
        config = self._words.config_of_length(self.get_default_config(), total_timesteps, self.seed)
        if not differs(config, self.config):
            return
        frozen(self.config_class, config, None)  # refuses it before this one is stopped
        weights, rows, kept = self.get_weights(), self._rows_of_replays(), self._taken_along()
        before = dict(self.__dict__)
        self.stop()
        self.__dict__.clear()
        self.__dict__.update(kept)
        Algorithm.__init__(self, config)
        # What a program has set, as `model.mine = 3`.
        for name, value in before.items():
            if not name.startswith("_"):
                self.__dict__.setdefault(name, value)
        self._parts.callback(self._close_vec_env)
        self.set_weights(weights)
        self._take_rows_of_replays(rows)

    def _rows_of_replays(self) -> dict[str, dict[str, np.ndarray]]:
        """Rows of the replay of each policy by its id, for `_take_rows_of_replays`; {} without replays."""
        return {}

    def _take_rows_of_replays(self, rows: dict[str, dict[str, np.ndarray]]) -> None:
        """Replaces the rows of replays by those of `_rows_of_replays`."""

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
        # A function of the user's may say no to all batches, for now or for good.
        all_refused = bool(offers[False]) and not offers[True]
        return all_refused or self.agents.nobody_learns(*self.metrics.acted_this_iteration())

    def _has_reached_goal(self) -> bool:
        wanted = self.goal.get("episode_reward_mean")
        if wanted is not None and self.metrics.settled_return() >= wanted:
            return True
        return self.timesteps >= self.goal.get("timesteps", math.inf)

    def _add_surroundings(self, result: Result) -> None:
        health = {
            "num_healthy_workers": self.workers.num_healthy_workers,
            "num_remote_worker_restarts": self.workers.num_restarts,
        }
        result.update(health, fault_tolerance=dict(health), num_in_flight_async_reqs=self.workers.num_in_flight)
        perf = self._usage.read() if self._usage else {}
        if perf and self.config.num_learners:
            for learner in self.learners.values():
                perf |= learner.backend.usage()
        result.update(perf=perf, config=self.config.to_dict())

    def _log_no_episode_yet(self, result: Result) -> None:
        """Says once why there is no return; metrics.py warns of episodes that seem to have no end."""
        if not math.isnan(result["episode_reward_mean"]):
            return
        if self.config.is_offline:
            if not (self._logged_no_episode or self.config.evaluation_interval):
                self._logged_no_episode = True
                logger.info(
                    "this run learns from recorded steps and plays no episodes, so the reward keys stay NaN. "
                    ".evaluation(evaluation_interval=10) plays some, in the environment, after every tenth iteration."
                )
            return
        if not self._logged_no_episode:
            self._logged_no_episode = True
            logger.info(
                "no episode has finished yet, so the reward keys are NaN; the longest running one has %d steps",
                result["longest_running_episode"],
            )

    def _log_claimed_cores(self, choices: dict[str, dict]) -> None:
        workers = self.config.num_rollout_workers
        if not self._logged_claimed_cores and workers and any(each["reason"] == CLAIMED for each in choices.values()):
            self._logged_claimed_cores = True
            logger.info(
                "updates take one core: num_rollout_workers=%d have claimed the others, and sample meanwhile. Where "
                "updates take most of the time, .rollouts(num_rollout_workers=0, sample_async=False) is faster: they "
                "then take all cores.",
                workers,
            )

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
            num_episodes: `evaluation_duration`, in its unit, if not given; where that is "auto", 10.
            explore: sample actions; by default the most likely ones are taken, unless `evaluation_config` says
                `explore: True`.

        Returns:
            the episode statistics of `train()`, of these episodes alone; estimates under "off_policy_estimator".
        """
        if num_episodes is not None:
            count(1).check("num_episodes", num_episodes)
        duration = self._evaluations.duration() if num_episodes is None else Duration(num_episodes)
        return self._evaluations.start(duration, explore)()

    @property
    def _evaluation_episodes(self) -> list[Episode]:
        """Episodes of the newest evaluation, with the returns of each agent where there are several; [] before one."""
        return self._evaluations.episodes

    def get_weights(self, policies: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Policy id -> a copy of its flat parameter vector.

        Args:
            policies: ids of those that are wanted; None for all.

        Raises:
            ValueError: if there is no policy of an id.
        """
        wanted = self.policies if policies is None else policies
        return {policy_id: self.get_policy(policy_id).weights.copy() for policy_id in wanted}

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Sets weights of some or all policies, by id; workers get them with their next request.

        Statistics of observation filters stay as they are, which is logged once: `Policy.set_state` takes both.

        Raises:
            ValueError: if there is no policy of an id, before any is changed; if weights are not of its network.
        """
        if not isinstance(weights, Mapping):
            raise TypeError(
                f"weights={weights!r:.80} must be a dict of policy id -> weights, as get_weights() returns it"
            )
        self._ahead = None  # other weights sample that round
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
