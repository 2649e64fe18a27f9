"""The settings that all algorithms share, in the sections of Ray 2.6's AlgorithmConfig.

    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=4).training(lr=3e-4)
    algo = config.build()

Each setting is declared once, as a parameter below. Names of other eras (`.env_runners(...)`, dicts with
`num_workers`) are in aliases.py. `build` checks everything before anything starts, and hands a frozen copy to the
algorithm; what lies below the algorithm receives values. Hooks alone see the config (`Worker.config`, `Policy.config`).
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Never, Self

import numpy as np

from rllib.algorithms.base.exploration_config import exploration_problem
from rllib.algorithms.base.ray_rllib.settings import (
    connectors_problem,
    filter_by_connectors,
    learner_class_problem,
    serve_by_input,
)
from rllib.algorithms.base.recorded.settings import SAMPLER, OfflineDataConfig
from rllib.algorithms.base.registry import get_algorithm_class
from rllib.config import aliases
from rllib.config.config_object import relation
from rllib.config.sections import Merged, NotYet, above, at_least, between, section, section_alias
from rllib.config.setting_types import shortened
from rllib.env.factories.atari import is_atari
from rllib.env.factories.registry import resolve
from rllib.env.factories.wrapped import resolve_wrappers
from rllib.evaluation.callbacks import callbacks_problem
from rllib.evaluation.estimators.choose import methods_problem
from rllib.evaluation.postprocess.return_scale import ReturnScale
from rllib.losses.user.auxiliary import auxiliary_losses
from rllib.models.arithmetic.cuda import why_no_cuda
from rllib.models.model_settings import check_model
from rllib.runs.run_log import refuse_earlier_run
from rllib.sample_batch import Column
from rllib.schedules import Schedule
from rllib.web.sockets import host_and_port

# Defaults that are dicts; every config gets its own copy.
_EMPTY: dict = {}
_NO_KEYS: list = []
_SAMPLING = {"type": "StochasticSampling"}
# Settings that make connectors.
_CONNECTORS = ("env_to_module_connector", "module_to_env_connector")

# Settings of evaluation_config about recorded data; none of them changes the environments that are played in.
DATA_OF_EVALUATION = frozenset({"input_", "input_config", "input_read_schema", "actions_in_input_normalized"})

# Share of train_batch_size by which whole fragments of a fixed length may exceed it, as in Ray.
_BATCH_TOLERANCE = 0.1


class AlgorithmConfig(OfflineDataConfig):
    """Settings of an algorithm: set them by section, then `build()`.

    Settings are read as attributes (`config.lr`) or items (`config["lr"]`), under their names of any era.

    Args:
        algo_class: the algorithm that `build` makes, a class or the name of one; subclasses know theirs. Called on this
            class itself, AlgorithmConfig(algo_class=PPO) gives a PPOConfig.

    Raises:
        TypeError: for settings, with the sections that take them.
    """

    algo_class: type | str | None = None
    # Whether each train batch is made of whole fragments, sampled for it alone: then their sizes have to agree.
    on_policy: ClassVar[bool] = False
    # The types of exploration_config that the algorithm can explore by, and the one it explores by if none is given.
    exploration_kinds: ClassVar[tuple[str, ...]] = ("StochasticSampling",)
    default_exploration: ClassVar[dict] = _SAMPLING
    # Whether it learns from the probabilities of the actions that were taken.
    needs_probabilities: ClassVar[bool] = True
    # Settings that evaluation_config may change.
    evaluation_overrides: ClassVar[frozenset[str]] = frozenset(
        {
            *("env", "env_config", "env_wrappers", "preprocessor_pref", "disable_env_checking", "num_envs_per_worker"),
            *("normalize_actions", "clip_actions", "explore", "exploration_config", "seed", "sample_timeout_s"),
            *("num_cpus_per_worker", "num_gpus_per_worker", "custom_resources_per_worker"),
            *("recreate_failed_workers", "ignore_worker_failures", "max_num_worker_restarts"),
            *("delay_between_worker_restarts_s", "num_consecutive_worker_failures_tolerance"),
            *DATA_OF_EVALUATION,
        }
    )
    # Settings without effect that Ray's evaluation_config may hold; evaluation plays whole episodes and does not learn.
    evaluation_ignores: ClassVar[frozenset[str]] = frozenset(
        {
            *("num_rollout_workers", "rollout_fragment_length", "batch_mode", "clip_rewards", "num_gpus"),
            *("metrics_num_episodes_for_smoothing", "log_level", "log_sys_usage", "framework"),
        }
    )

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
    def environment(
        self,
        env: Annotated[Any, "id, class, function of the env_config, or registered name of the environment"] = None,
        *,
        env_config: Annotated[dict, "handed to the environment's constructor", Merged] = _EMPTY,
        env_wrappers: Annotated[
            Any,
            "wrappers around each environment, innermost first: gymnasium's or registered names, classes, {name: args}",
        ] = None,
        observation_space: Annotated[Any, "gymnasium space of observations; None: the environment's own"] = None,
        ignore_observation_keys: Annotated[
            list[str], "keys of a Dict observation that the policy does not get, such as a text"
        ] = _NO_KEYS,
        critic_observation_keys: Annotated[
            list[str], "keys of a Dict observation that the value reads and the policy does not; absent in deployment"
        ] = _NO_KEYS,
        action_space: Annotated[Any, "gymnasium space of actions; None: the environment's own"] = None,
        action_mask_key: Annotated[
            str | None, "key of the mask of legal actions, one number a choice, in Dict observations; None: no masks"
        ] = "action_mask",
        action_mask_from: Annotated[
            Literal["observation", "info", "method"],
            "where the environment gives its mask: in the observation, in the info, or by its method action_masks()",
        ] = "observation",
        clip_actions: Annotated[bool, "clip actions to the bounds of a Box action space"] = False,
        normalize_actions: Annotated[bool, "stretch actions from [-1, 1] to the bounds of a Box action space"] = True,
        clip_rewards: Annotated[
            bool | float | None,
            "True: learn from the rewards' signs; a number: clip them to +- it; None: signs in Atari games alone",
            at_least(0),
        ] = None,
        normalize_returns: Annotated[
            bool, "learn from rewards divided by the standard deviation of their discounted returns"
        ] = False,
        normalized_reward_clip: Annotated[
            float | None, "with normalize_returns: clip the divided rewards to +- it; None: leave them", above(0)
        ] = 10.0,
        time_limit_ends_episode: Annotated[
            bool, "learn from truncated episodes as from terminated ones, without the value of what would have followed"
        ] = False,
        info_columns: Annotated[
            dict, "keys of the environment's info that batches get as columns: name -> {shape, dtype, before_action}"
        ] = _EMPTY,
        env_task_fn: Annotated[
            Callable | None,
            "function of (result, environment, EnvContext) that returns the environment's next task, called for each "
            "environment after every iteration (docs/guide/environments.md)",
        ] = None,
        disable_env_checking: Annotated[bool, "do not step an environment here before the workers start"] = False,
        render_env: Annotated[bool, "show the first environment of each worker", NotYet()] = False,
    ) -> Self:
        """The environment, and how observations, actions and rewards pass between it and the policy."""

    @section
    def framework(
        self,
        framework: Annotated[str, 'library of networks that numpy does not cover; "torch" is the only one'] = "torch",
        *,
        torch_autocast: Annotated[
            Literal["bfloat16"] | None, "type in which networks compute in updates (torch.autocast); None: float32"
        ] = None,
        torch_matmul_precision: Annotated[
            Literal["highest", "high", "medium"],
            'of float32 products in updates: "high" lets a GPU use TF32 (torch.set_float32_matmul_precision)',
        ] = "highest",
        torch_cuda_graphs: Annotated[
            bool, "on a GPU, record the steps of updates as CUDA graphs where that is measured to be faster"
        ] = True,
    ) -> Self:
        """Library of networks. Plain ones run on numpy where it is faster: see .training(learner=...)."""

    @section
    def rollouts(
        self,
        *,
        num_rollout_workers: Annotated[int, "processes that sample; 0: this one does", at_least(0)] = 0,
        num_envs_per_worker: Annotated[int, "environments that each of them steps in lockstep", at_least(1)] = 1,
        rollout_fragment_length: Annotated[
            int | Literal["auto"],
            'steps of each environment per sample; "auto": train_batch_size, divided',
            at_least(1),
        ] = 200,
        gym_env_vectorize_mode: Annotated[
            Literal["sync", "async", "vector_entry_point"],
            "a worker's environments: a loop over them, a process for each, or the registered id's own vector version",
        ] = "sync",
        tensor_rollouts: Annotated[
            bool | None,
            "rollouts stay on the device of a vector environment of torch tensors; None: if it is one; False: arrays",
        ] = None,
        sub_environment_timeout_s: Annotated[
            float | None,
            "bound of one step() or reset() of an environment in a separate process (seconds); None: unbounded",
            above(0),
        ] = None,
        batch_mode: Annotated[
            Literal["truncate_episodes", "complete_episodes"], "cut episodes at the fragment's end, or finish them"
        ] = "truncate_episodes",
        observation_filter: Annotated[
            Literal["NoFilter", "MeanStdFilter"], "MeanStdFilter: observations are standardised by running statistics"
        ] = "NoFilter",
        observation_clip: Annotated[
            float | None, "bound of filtered observations, in standard deviations; None: unbounded", above(0)
        ] = 10.0,
        env_to_module_connector: Annotated[
            Any, "function (env, spaces, device) that makes connectors of observations (rllib.core); None: none"
        ] = None,
        module_to_env_connector: Annotated[
            Any, "the same for actions on their way to the environment; None: none"
        ] = None,
        preprocessor_pref: Annotated[
            Literal["deepmind", "rllib"] | None, 'Atari games as DeepMind\'s agents see them; "rllib", None: unchanged'
        ] = "deepmind",
        sample_timeout_s: Annotated[float, "silence after which a worker is reported (seconds)", above(0)] = 60.0,
    ) -> Self:
        """Sampling: workers, environments, fragments."""

    @section
    def training(
        self,
        *,
        gamma: Annotated[float, "discount of a reward per step", between(0, 1)] = 0.99,
        lr: Annotated[float | list, "learning rate, or a schedule of it over sampled steps", at_least(0)] = 0.001,
        lr_schedule: Annotated[list | None, "schedule [[timestep, lr], ...] that goes before lr", at_least(0)] = None,
        grad_clip: Annotated[float | None, "bound of the gradient; None: unbounded", above(0)] = None,
        grad_clip_by: Annotated[
            Literal["global_norm", "norm", "value"], "what grad_clip bounds: all gradients', each one's norm, or values"
        ] = "global_norm",
        opt_type: Annotated[Literal["adam", "adamw", "radam", "rmsprop", "sgd"], "optimizer"] = "adam",
        weight_decay: Annotated[
            float | None, "how strongly weights are drawn to 0, as in torch; None: 0.01 of adamw, else 0", at_least(0)
        ] = None,
        adam_epsilon: Annotated[float, "added to the denominator of Adam and RAdam", above(0)] = 1e-8,
        decay: Annotated[float, "decay of RMSprop's mean of squared gradients", between(0, 1)] = 0.99,
        momentum: Annotated[float, "momentum of RMSprop", between(0, 1)] = 0.0,
        rmsprop_epsilon: Annotated[float, "added to the root of RMSprop's mean", above(0)] = 1e-5,
        train_batch_size: Annotated[int, "environment steps per update", at_least(1)] = 32,
        model: Annotated[dict, "network: fcnet_hiddens, fcnet_activation, vf_share_layers, ...", Merged] = _EMPTY,
        auxiliary_losses: Annotated[
            dict,
            "what is added to the loss: name -> {loss: function, weight, columns, stats} (docs/guide/networks.md)",
            Merged,
        ] = _EMPTY,
        custom_loss: Annotated[
            Any, "function (loss, minibatch, outputs, model) -> the loss to minimise instead; None: the algorithm's"
        ] = None,
        learner_class: Annotated[
            Any, "class derived from rllib.core.TorchLearner, whose compute_loss_for_module is minimised; None: none"
        ] = None,
        learner_config_dict: Annotated[dict, "values of your own for learner_class", Merged] = _EMPTY,
        learner: Annotated[
            Literal["auto", "numpy", "torch"], "what computes the updates; auto: numpy for plain networks on a CPU"
        ] = "auto",
    ) -> Self:
        """The updates: learning rate, optimizer, batch, network."""

    @section
    def resources(
        self,
        *,
        num_gpus: Annotated[
            float, "GPUs of each learner: 0, or 1 (a part is shared with others); four: num_learners=4 and num_gpus=1",
            between(0, 1),
        ] = 0,
        num_cpus_per_worker: Annotated[float, "CPUs that each rollout worker claims", at_least(0)] = 1,
        num_gpus_per_worker: Annotated[
            float, "GPUs that each rollout worker claims, and on which its network acts", at_least(0)
        ] = 0,
        custom_resources_per_worker: Annotated[dict, "other resources that each rollout worker claims"] = _EMPTY,
        num_cpus_for_local_worker: Annotated[
            float,
            "CPUs that this process claims",
            NotYet("Leave it at 1; num_cpus_per_learner asks for more cores for updates."),
        ] = 1,
    ) -> Self:
        """CPUs, GPUs and other resources of the processes."""

    @section
    def learners(
        self,
        *,
        num_learners: Annotated[
            int, "processes that compute the updates, each a part of every minibatch; 0: this one does", at_least(0)
        ] = 0,
        num_cpus_per_learner: Annotated[
            int | Literal["auto", "measured"],
            'cores for updates, which each of them claims; with num_learners=0, those of this process. "auto": for '
            "what numpy learns, those that nobody uses during updates, in learner processes one; these share out the "
            "cores for torch, and this process leaves torch's threads; \"measured\": for what numpy learns here, one "
            "or the free ones, whichever is faster. What numpy learns has the same bits on any number",
            at_least(0),
        ] = "auto",
        learner_collective: Annotated[
            Literal["auto", "shared_memory", "gloo", "nccl"],
            "how their gradients are summed; auto: nccl between GPUs, shared memory on one machine, else gloo",
        ] = "auto",
    ) -> Self:
        """Processes and devices that compute the updates."""

    @section
    def evaluation(
        self,
        *,
        evaluation_interval: Annotated[int | None, "iterations between evaluations; None: never", at_least(1)] = None,
        evaluation_num_workers: Annotated[int, "processes that evaluate; 0: this one does", at_least(0)] = 0,
        evaluation_config: Annotated[dict | None, "settings that differ in evaluation"] = None,
        evaluation_duration: Annotated[
            int | Literal["auto"],
            'episodes or steps per evaluation; "auto": as long as the training beside it takes',
            at_least(1),
        ] = 10,
        evaluation_duration_unit: Annotated[
            Literal["episodes", "timesteps"], "what evaluation_duration counts; episodes are always played to the end"
        ] = "episodes",
        evaluation_parallel_to_training: Annotated[
            bool, "evaluate while the iteration trains, with the weights from before it; needs evaluation_num_workers"
        ] = False,
        off_policy_estimation_methods: Annotated[
            dict, 'estimates from recorded data: name -> {"type": "is", "wis", "dm", "dr" or a class, ...}'
        ] = _EMPTY,
        ope_split_batch_by_episode: Annotated[
            bool, "estimate returns of episodes; False: each recorded step is an episode of its own"
        ] = True,
        offline_evaluation_interval: Annotated[
            int | None, "iterations between losses on held-out recorded episodes; None: never", at_least(1)
        ] = None,
        evaluation_videos: Annotated[
            int, "episodes after each evaluation that are recorded, in videos/ and in TensorBoard", at_least(0)
        ] = 0,
    ) -> Self:
        """Evaluation of the policy in separate environments."""

    @section
    def multi_agent(
        self,
        *,
        policies: Annotated[
            Any,
            "ids, or id -> PolicySpec, settings of its own, or a class that acts; 'own': one for each agent; None: one "
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
            str | None, "file with the token that clients send; None: that of the variable RLLIB_TOKEN, if it is set"
        ] = None,
        tls_certificate: Annotated[
            str | None, "PEM file of the server's certificate, for https:// in place of http://; None: no encryption"
        ] = None,
        tls_key: Annotated[
            str | None, "PEM file of the certificate's private key; None: it is in the certificate's file"
        ] = None,
        episode_timeout_s: Annotated[
            float, "an episode whose client is silent for so long is given up (seconds)", above(0)
        ] = 300.0,
        max_clients: Annotated[int, "most clients of one server", at_least(1)] = 1024,
        inference: Annotated[
            Literal["both", "local", "remote"],
            '"remote": the server computes the actions of its clients; "local": they do, by copies of the policy',
        ] = "both",
        max_lag_updates: Annotated[
            int | Literal["auto"] | None,
            "rows of clients by weights that are older by more updates are dropped; None: no rows are; "
            '"auto": 1 for PPO, A2C and PG, None for all others',
            at_least(0),
        ] = "auto",
        max_episodes_per_client: Annotated[int, "most episodes that a client has under way", at_least(1)] = 1000,
    ) -> Self:
        """Clients in other processes, which step their own environments and ask for actions (rllib.client)."""

    @section
    def exploration(
        self,
        *,
        explore: Annotated[bool, "sample actions; False: take the most likely ones"] = True,
        exploration_config: Annotated[dict, "how it explores: {'type': ...}"] = _SAMPLING,
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
        ] = None,
        ignore_worker_failures: Annotated[
            bool, "continue with the other workers when one dies or its environment raises, if it is not replaced"
        ] = False,
        max_num_worker_restarts: Annotated[int, "replaced workers of each kind per run, at most", at_least(0)] = 1000,
        delay_between_worker_restarts_s: Annotated[
            float, "pause before a worker that failed twice in a row is replaced (seconds)", at_least(0)
        ] = 1.0,
        num_consecutive_worker_failures_tolerance: Annotated[
            int, "failures of one worker without a sample in between, at most", at_least(0)
        ] = 3,
        restart_failed_sub_environments: Annotated[
            bool, "replace an environment that raises by a new one; the worker and its other environments go on"
        ] = False,
    ) -> Self:
        """Reaction to a worker whose process dies, or whose environment raises."""

    @section
    def reporting(
        self,
        *,
        min_time_s_per_iteration: Annotated[float | None, "least length of an iteration (seconds)", at_least(0)] = None,
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

    def api_stack(self, **switches) -> Self:
        """Accepts RLlib's migration switches, which have no effect here."""
        return self._assign("api_stack", switches)

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
            refuse_earlier_run(Path(config.log_dir))
        return config._algorithm_class()(config=config)

    build_algo = build

    def get_rollout_settings(self, env: Any = None) -> tuple[Any, np.ndarray]:
        """RolloutSettings and initial weights of the policy, for RolloutWorker.from_config.

        Args:
            env: as for `build`.

        Raises:
            as `build`.
        """
        config = self.copy(copy_frozen=False).rollouts(num_rollout_workers=0).reporting(log_dir=None)
        config.resources(num_gpus_per_worker=0)
        with config.evaluation(evaluation_num_workers=0, evaluation_parallel_to_training=False).build(env) as algorithm:
            # The algorithm has no workers; those that are made of the settings may have a GPU.
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

    @relation("env", "observation_space", "action_space")
    def _check_env(self):
        if self.env is None and not self.is_offline and None in (self.observation_space, self.action_space):
            return (
                'there is no environment. Use .environment("CartPole-v1") or .build(env="CartPole-v1"), or give both '
                "observation_space and action_space to act and learn without one."
            )

    @relation("critic_observation_keys", "centralized_critic")
    def _check_critic_keys(self):
        if not self.critic_observation_keys:
            return None
        given = f"critic_observation_keys={self.critic_observation_keys}"
        if not self.fits_a_value:
            return (
                f"{given} is for algorithms with a value beside the policy, such as PPO and IMPALA, and there is "
                "none here. Leave it out, or ignore the keys: .environment(ignore_observation_keys=[...])."
            )
        if self.centralized_critic:
            return (
                f"{given} and centralized_critic={self.centralized_critic!r} both say what the value reads beyond the "
                "policy's observation. Use one of them."
            )

    @relation("listen", "env")
    def _check_listen(self):
        if self.listen is None:
            return None
        if self.env is not None:
            return (
                f"listen={shortened(self.listen)} is for clients that step the environment, but "
                f"env={shortened(self.env)} is given as well. Leave env out, and give observation_space and "
                "action_space."
            )
        if callable(self.listen):
            return None
        try:
            host_and_port(str(self.listen).removeprefix("tcp://"))
        except ValueError as error:
            return f'listen: {error}; or "tcp://HOST:PORT". Use .external(listen="127.0.0.1:9900").'
        return None

    @relation("env_wrappers", "gym_env_vectorize_mode")
    def _check_env_wrappers(self):
        try:
            wrappers = resolve_wrappers(self.env_wrappers)
        except (ValueError, TypeError) as error:
            return str(error)
        except ModuleNotFoundError:  # the settings are right; build() says what to install
            return None
        if wrappers and self.gym_env_vectorize_mode == "vector_entry_point":
            return (
                f"env_wrappers={shortened(self.env_wrappers)} go around single environments, but with gym_env_vectorize"
                '_mode="vector_entry_point" there are none. Use .rollouts(gym_env_vectorize_mode="sync").'
            )

    @relation("gym_env_vectorize_mode", "batch_mode")
    def _check_vectorize_mode(self):
        if self.gym_env_vectorize_mode == "vector_entry_point" and self.batch_mode == "complete_episodes":
            return (
                f"gym_env_vectorize_mode={self.gym_env_vectorize_mode!r} steps all environments of a worker at once, "
                'but batch_mode="complete_episodes" lets some go on alone. '
                'Use .rollouts(gym_env_vectorize_mode="sync"), or batch_mode="truncate_episodes".'
            )

    @relation("sub_environment_timeout_s", "gym_env_vectorize_mode")
    def _check_sub_environment_timeout(self):
        if self.sub_environment_timeout_s is not None and self.gym_env_vectorize_mode != "async":
            return (
                f"sub_environment_timeout_s={self.sub_environment_timeout_s:g} bounds the calls of environments that "
                f"can be ended from outside, but with gym_env_vectorize_mode={self.gym_env_vectorize_mode!r} they run "
                'in their worker\'s process. Use .rollouts(gym_env_vectorize_mode="async").'
            )

    @relation("framework")
    def _check_framework(self):
        if self.framework_str != "torch":
            return (
                f"framework={self.framework_str!r} is not available: networks run on torch and numpy, and there is no "
                'TensorFlow. Use .framework("torch").'
            )

    @relation("num_gpus", "learner")
    def _check_gpu(self):
        if not self.num_gpus:
            return None
        if self.learner == "numpy":
            return (
                f"num_gpus={self.num_gpus:g} does not go with learner='numpy', which runs on the CPU. "
                'Use .training(learner="torch") or .resources(num_gpus=0).'
            )
        if self.num_learners:
            return None  # the processes may run elsewhere, and are refused where there is no GPU for them
        if (reason := why_no_cuda()) is not None:
            return f"num_gpus={self.num_gpus:g}, but {reason}. Use .resources(num_gpus=0)."

    @relation("num_gpus_per_worker", "num_rollout_workers", "evaluation_num_workers")
    def _check_gpus_of_workers(self):
        if self.num_gpus_per_worker and not (self.num_rollout_workers or self.evaluation_num_workers):
            return (
                f"num_gpus_per_worker={self.num_gpus_per_worker:g} has no effect with num_rollout_workers=0: this "
                "process acts on the CPU. Use .rollouts(num_rollout_workers=1), or "
                ".resources(num_gpus_per_worker=0)."
            )

    @relation("num_learners", "train_batch_size")
    def _check_learners(self):
        name = "sgd_minibatch_size" if "sgd_minibatch_size" in self.settings else "train_batch_size"
        rows = self[name]
        if self.num_learners > rows:
            return (
                f"num_learners={self.num_learners} are more than the {rows} rows of {name}, of which each takes a "
                f"part. Use .learners(num_learners={max(1, rows // 64)}), or larger minibatches."
            )

    @relation("num_cpus_per_learner", "num_learners")
    def _check_measured_cores(self):
        if self.num_cpus_per_learner == "measured" and self.num_learners:
            return (
                f'num_cpus_per_learner="measured" chooses cores of this process, but num_learners={self.num_learners} '
                "processes learn. Use .learners(num_learners=0), or a number of cores for each of them."
            )

    @relation("learner_collective", "num_gpus")
    def _check_collective(self):
        if self.learner_collective == "nccl" and self.num_gpus < 1:
            return (
                f'learner_collective="nccl" needs a GPU for each learner, but num_gpus={self.num_gpus:g}. Use '
                '.resources(num_gpus=1), or learner_collective="auto".'
            )
        if self.learner_collective == "shared_memory" and self.num_gpus:
            return (
                f'learner_collective="shared_memory" sums on CPUs, but num_gpus={self.num_gpus:g}. Use '
                '.resources(num_gpus=0), or learner_collective="auto".'
            )

    @relation("callbacks_class", "callback_functions")
    def _check_callbacks(self):
        return callbacks_problem(self.callbacks_class, self.callback_functions)

    @relation("model")
    def _check_model(self):
        try:
            check_model(self.model)
        except ValueError as error:
            return str(error)

    @relation("auxiliary_losses", "custom_loss")
    def _check_losses(self):
        if self.custom_loss is not None and not callable(self.custom_loss):
            return f"custom_loss must be a function of (loss, minibatch, outputs, model), not {self.custom_loss!r:.80}."
        try:
            auxiliary_losses(self.auxiliary_losses)
        except ValueError as error:
            return str(error)

    @relation("env_to_module_connector", "module_to_env_connector")
    def _check_connectors(self):
        problems = (connectors_problem(name, self[name]) for name in _CONNECTORS)
        return next(filter(None, problems), None)

    @relation("learner_class", "custom_loss")
    def _check_learner_class(self):
        return learner_class_problem(self.learner_class, self.custom_loss)

    @relation("env_task_fn", "env")
    def _check_task_fn(self):
        if self.env_task_fn is not None and self.env is None:
            return "env_task_fn sets the tasks of environments, but env=None. Give .environment(env), or leave it out."

    @relation("env_config")
    def _check_env_config(self):
        odd = [key for key in self.env_config if not isinstance(key, str)]
        if odd:
            return (
                f"env_config must have strings as keys, but has {odd[0]!r}. Use .environment(env_config={{'size': 5}})."
            )

    @relation("info_columns")
    def _check_info_columns(self):
        try:
            self.get_info_columns()
        except (TypeError, ValueError) as error:
            return (
                f"info_columns={self.info_columns!r:.80} must give each key's shape (default []), dtype (float32) and "
                f"whether it is known before_action (False): {error}. "
                "Use .environment(info_columns={'cost': {}, 'goal': {'shape': [3], 'dtype': 'int64'}})."
            )

    @relation("action_mask_key", "action_mask_from")
    def _check_mask(self):
        if self.action_mask_key is None and self.action_mask_from != "observation":
            return (
                f"action_mask_from={self.action_mask_from!r} needs a name for the mask, but action_mask_key=None. "
                'Use .environment(action_mask_key="action_mask").'
            )

    @relation("exploration_config")
    def _check_exploration(self):
        given = self.exploration_config
        problem = exploration_problem(given, self.default_exploration, self.exploration_kinds)
        samples = given.get("type", self.default_exploration["type"]) == "StochasticSampling"
        if not problem and samples and self.needs_probabilities and given.get("random_timesteps"):
            return (
                f"exploration_config: random_timesteps={given['random_timesteps']} plays actions that the policy did "
                "not draw, and this algorithm needs their probabilities. Leave it out, or use SAC, TD3 or DQN."
            )
        return problem

    @relation("evaluation_config")
    def _check_evaluation_config(self):
        try:
            changed = self._resolved(self.evaluation_config or {})
        except TypeError as error:
            return f"evaluation_config: {error}"
        refused = [name for name in changed if name not in self.evaluation_overrides | self.evaluation_ignores]
        if refused:
            return (
                f"evaluation_config can change {', '.join(sorted(self.evaluation_overrides))}, but not "
                f"{', '.join(refused)}. Leave that out of .evaluation(evaluation_config=...)."
            )
        for name, value in changed.items():
            problem = self.settings[name].problem(value)
            if problem:
                return f"evaluation_config: {problem}"
            if name in self.evaluation_ignores:
                aliases.tell_once(f"evaluation_config {name}", f"{name} has no effect in evaluation_config")
            if name == "exploration_config":
                problem = exploration_problem(value, self.default_exploration, self.exploration_kinds)
                if problem:
                    return f"evaluation_config: {problem}"

    @relation(
        "off_policy_estimation_methods", "evaluation_config", "input_", "input_fraction_of_best",
        "offline_validation_fraction",
    )  # fmt: skip
    def _check_estimation_methods(self):
        if problem := methods_problem(self.off_policy_estimation_methods):
            return f"off_policy_estimation_methods: {problem}."
        if self.off_policy_estimation_methods and not self._evaluates_on_data:
            return (
                "off_policy_estimation_methods estimate from recorded data, but input_='sampler'. Use "
                ".offline_data(input_=\"PATH\"), or .evaluation(evaluation_config={'input_': 'PATH'})."
            )
        is_chosen = self.input_fraction_of_best is not None and not self.offline_validation_fraction
        if self.off_policy_estimation_methods and is_chosen and self.evaluation_data is None:
            return (
                f"input_fraction_of_best={self.input_fraction_of_best:g} chooses episodes by their returns, so that "
                "off_policy_estimation_methods would estimate too much from them. Hold others out: "
                ".offline_data(offline_validation_fraction=0.1)."
            )

    @relation("offline_evaluation_interval", "evaluation_config", "offline_validation_fraction")
    def _check_offline_evaluation(self):
        if not self.offline_evaluation_interval or self.offline_validation_fraction:
            return None
        if self.evaluation_data is None:
            return (
                f"offline_evaluation_interval={self.offline_evaluation_interval} needs recorded episodes that are not "
                "learned from. Use .offline_data(offline_validation_fraction=0.1), or .evaluation(evaluation_config="
                "{'input_': 'PATH'})."
            )

    @relation("evaluation_duration", "evaluation_parallel_to_training")
    def _check_automatic_evaluation(self):
        if self.evaluation_duration == "auto" and not self.evaluation_parallel_to_training:
            return (
                "evaluation_duration='auto' is as long as the training beside it, so it needs "
                "evaluation_parallel_to_training=True. Use that, or .evaluation(evaluation_duration=10)."
            )

    @relation("evaluation_videos", "evaluation_interval")
    def _check_videos(self):
        if self.evaluation_videos and not self.evaluation_interval:
            return (
                f"evaluation_videos={self.evaluation_videos} records episodes after evaluations, but there are none. "
                "Use .evaluation(evaluation_interval=10)."
            )

    @relation("evaluation_parallel_to_training", "evaluation_num_workers")
    def _check_parallel_evaluation(self):
        if self.evaluation_parallel_to_training and not self.evaluation_num_workers:
            return (
                "evaluation_parallel_to_training=True needs processes that evaluate while this one trains. "
                "Use .evaluation(evaluation_num_workers=1)."
            )

    @relation("train_batch_size", "rollout_fragment_length", "num_rollout_workers", "num_envs_per_worker")
    def _check_batch_of_fragments(self):
        """Ray's rule: whole rounds of fragments must meet the train batch within 10 %."""
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
            fragments += (
                f" x {max(self.num_rollout_workers, 1)} workers x {self.num_envs_per_worker} envs = {per_round}"
            )
        return (
            f"train_batch_size={size} must be a multiple of {fragments} (or up to 10 % less). "
            f'Use .training(train_batch_size={fitting}) or .rollouts(rollout_fragment_length="auto").'
        )

    @relation("sgd_minibatch_size", "train_batch_size")
    def _check_minibatch(self):
        size, minibatch = self.train_batch_size, self.sgd_minibatch_size
        if minibatch > size:
            return (
                f"sgd_minibatch_size={minibatch} must be at most train_batch_size={size}. "
                f"Use .training(sgd_minibatch_size={size}) or a larger train_batch_size."
            )

    # ------------------------------------------------------------------ values that follow from several settings

    @property
    def _num_environments(self) -> int:
        return max(self.num_rollout_workers, 1) * self.num_envs_per_worker

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Steps of each of a worker's environments per fragment.

        "auto" divides train_batch_size among all environments, by Ray's rule: of what is left over, the first workers
        get a step for each of their environments, as long as it suffices for all of them. 2456 / (4 workers x 3 envs)
        gives 205, 205, 204, 204.

        Args:
            worker_index: 1.. for rollout workers; 0, this process, gets as much as the first.
        """
        if self.rollout_fragment_length != "auto":
            return self.rollout_fragment_length
        length, left_over = divmod(self.train_batch_size, self._num_environments)
        return max(length + (max(worker_index, 1) * self.num_envs_per_worker <= left_over), 1)

    @property
    def total_train_batch(self) -> int:
        """Environment steps that are sampled for one train batch: train_batch_size, rounded up to whole fragments.

        "auto" fragments are one round, which may be a few steps short of train_batch_size.
        """
        workers = range(1, max(self.num_rollout_workers, 1) + 1)
        per_round = sum(self.get_rollout_fragment_length(index) for index in workers) * self.num_envs_per_worker
        if self.rollout_fragment_length == "auto":
            return per_round
        return math.ceil(self.train_batch_size / per_round) * per_round

    @property
    def episode_cost_column(self) -> str | None:
        """Name of the info column that results sum up as the cost of an episode; None: there is none."""
        return None

    @property
    def needs_goals(self) -> bool:
        """Whether the environments have to be ones with goals (env/spaces/goals.py)."""
        return False

    @property
    def min_train_batch(self) -> int:
        """Environment steps after which a train batch is complete: no second round for the few that "auto" lacks."""
        return min(self.train_batch_size, self.total_train_batch)

    @property
    def is_multi_agent(self) -> bool:
        """Whether the section multi_agent names policies; an environment with several agents needs no word of it."""
        return self.policies is not None

    @property
    def is_atari(self) -> bool:
        """Whether the environment is a game of the Arcade Learning Environment, by an id of gymnasium's registry."""
        return self.env is not None and is_atari(resolve(self.env))

    def get_info_columns(self) -> tuple[Column, ...]:
        """The columns that `info_columns` describes.

        Raises:
            TypeError, ValueError: if one of them is no column.
        """
        columns = [Column(name, **given) for name, given in self.info_columns.items()]
        return tuple(replace(each, shape=tuple(each.shape), dtype=np.dtype(each.dtype).name) for each in columns)

    @property
    def fits_a_value(self) -> bool:
        """Whether a value of observations is fitted beside the policy."""
        return self.get("use_critic", "vf_loss_coeff" in self.settings)

    @property
    def keys_of_value(self) -> list[str]:
        """Keys of observations, as policies get them, that the value reads and the policy does not."""
        return ["state"] if self.centralized_critic else self.critic_observation_keys

    def get_schedule(self, name: str) -> Schedule | None:
        """A setting over time, from `name`_schedule where that is given, else from `name`; None where that is None."""
        points = self.get(f"{name}_schedule")
        value = self[name] if points is None else points
        return None if value is None else Schedule(value)

    def evaluation_changes(self) -> dict[str, Any]:
        """Settings that evaluation_config changes, under canonical names."""
        changes = self._resolved(self.evaluation_config or {})
        return {name: value for name, value in changes.items() if name not in self.evaluation_ignores}

    @property
    def evaluation_data(self) -> Any:
        """Recorded data that evaluation_config names, as `input_` does; None: the run's own."""
        given = self.evaluation_changes().get("input_", SAMPLER)
        return None if isinstance(given, str) and given == SAMPLER else given

    @property
    def _evaluates_on_data(self) -> bool:
        return self.has_data or self.evaluation_data is not None

    @property
    def make_return_scale(self) -> Callable[..., ReturnScale] | None:
        """Makes what counts the discounted returns of a number of environments, `num_envs`; None: nothing does."""
        if not self.normalize_returns:
            return None
        return functools.partial(ReturnScale, self.gamma, self.normalized_reward_clip)

    @property
    def acting_model(self) -> Mapping[str, Any]:
        """Settings of the network that acts."""
        return self.model

    @property
    def explores_in_evaluation(self) -> bool:
        """Whether actions are sampled there, instead of taking the most likely ones."""
        return bool((self.evaluation_config or {}).get("explore", False))

    def get_evaluation_config_object(self) -> Self:
        """A copy with evaluation_config applied.

        Its env_config adds to that of training, unless it names another env as well.
        """
        changes = self.evaluation_changes()
        config = self.copy(copy_frozen=False)
        if "env" in changes:
            config.env_config = {}
        return config.update_from_dict(changes)


def frozen(config_class: type[AlgorithmConfig], config, env) -> AlgorithmConfig:
    """A validated, frozen config of the algorithm's own class.

    Args:
        config_class: of the algorithm.
        config: one of that class.
        env: environment, where the config names none.

    Raises:
        TypeError: for a config of another kind.
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
        config.validate()
        filter_by_connectors(config)
        config.freeze()
    return config
