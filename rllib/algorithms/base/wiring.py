"""Builds environments, spaces, worker settings and fault tolerance from a config."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gymnasium import Space

from rllib.acting.inference import ActingSettings
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.recorded.settings import SAMPLER
from rllib.algorithms.base.tensor_rollouts import device_for, refuse_agents
from rllib.compat.names import foreign_program
from rllib.config.conflicts import Mistake
from rllib.env.agents import is_external
from rllib.env.checkup.driver import Examined, examine_environment
from rllib.env.checkup.lost_masks import refuse_lost_mask
from rllib.env.disturbances.settings import Disturbances
from rllib.env.factories.adapters import adapted_space, adapters_of, as_teacher_sees
from rllib.env.factories.atari import AtariFactory, is_atari
from rllib.env.factories.registry import EnvFactory, environment_class, resolve
from rllib.env.factories.simulators import faster_simulator, simulated
from rllib.env.factories.single import SingleFactory
from rllib.env.factories.vectorized import AsyncFactory, by_entry_point
from rllib.env.factories.wrapped import WrappedFactory, resolve_wrappers
from rllib.errors import InfoColumnError
from rllib.evaluation.callbacks import make_callbacks
from rllib.evaluation.settings import RolloutSettings
from rllib.evaluation.worker_set import FaultTolerance
from rllib.learners.group.learner_group import GroupSettings
from rllib.learners.updates.core_choice import CoreChoice, FreeCores
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.models.model_settings import ModelSettings
from rllib.notices import log_once, shortened
from rllib.processes import GpuClaim, check_cores, log_crowd, num_cores, num_free_cores

if TYPE_CHECKING:
    from rllib.algorithms.base.agents import Agents
    from rllib.algorithms.base.algorithm import Algorithm
    from rllib.env.multi_agent.examine import ExaminedAgents

logger = logging.getLogger(__name__)


# The default weight decay of torch's AdamW.
_DECAY_OF_ADAMW = 0.01


def optimizer_settings(config: AlgorithmConfig) -> OptimizerSettings:
    """Settings of the networks' optimizers."""
    decay = config.weight_decay
    if decay is None:
        decay = _DECAY_OF_ADAMW if config.opt_type == "adamw" else 0.0
    return OptimizerSettings(
        config.opt_type, config.adam_epsilon, config.decay, config.momentum, config.rmsprop_epsilon, weight_decay=decay
    )


def learned_environment(config: AlgorithmConfig, for_teacher: bool = False) -> EnvFactory | None:
    """The factory of training environments, with the policy's observations; None if the config names no environment.

    Disturbances are innermost. Around them are the wrappers of env_wrappers, and around these the adapters of
    observations. DeepMind's preprocessing of Atari games is inside of the disturbances.

    Args:
        config: settings of the algorithm.
        for_teacher: whether observations have the keys that only a teacher reads.
    """
    if config.listen is not None and config.env is None:
        from rllib.env.policy_server.served import served_environment

        return served_environment(config)
    if config.env is None:
        return None
    factory = _preprocessed(config, Disturbances.of(config.disturbances))
    if isinstance(config.policies, Mapping):
        from rllib.algorithms.base.agents import spaces_of_policies
        from rllib.env.multi_agent.wrapped import GivenSpacesFactory

        if spaces_of := spaces_of_policies(config):
            factory = GivenSpacesFactory(factory, spaces_of)
    adapters = adapters_of(config)
    for adapter in as_teacher_sees(adapters) if for_teacher else adapters:
        from rllib.env.multi_agent.wrapped import AdaptedAgentsFactory

        factory = AdaptedAgentsFactory(factory, adapter)
    if config.agent_id_in_observation or config.centralized_critic:
        from rllib.env.multi_agent.wrapped import AugmentedAgentsFactory

        critic = {True: "joint", "state": "state"}.get(config.centralized_critic)
        left_out = tuple(config.teacher_observation_keys) if for_teacher else ()
        factory = AugmentedAgentsFactory(factory, config.agent_id_in_observation, critic, left_out)
    if config.gym_env_vectorize_mode == "async":
        factory = AsyncFactory(factory, config.sub_environment_timeout_s)
    return factory


def taught_environment(config: AlgorithmConfig, factory: EnvFactory | None, gives_keys: bool) -> EnvFactory | None:
    """The factory of the rollout workers' environments, whose observations may have further keys for a teacher.

    Args:
        config: settings of the algorithm.
        factory: factory of environments with the policy's observations.
        gives_keys: whether workers' environments give the keys that only teachers read.
    """
    return learned_environment(config, for_teacher=True) if gives_keys and factory is not None else factory


def shown_to_teachers(algorithm: "Algorithm") -> "Examined | None":
    """Examines the rollout workers' environments if they give keys that only teachers read.

    None if they do not, or if the environment has one agent and its observation space is given in the config instead.
    """
    config, factory = algorithm.config, algorithm.taught_environment
    is_given = factory is None or (config.disable_env_checking and config.observation_space is not None)
    if not algorithm._gives_teacher_keys or (algorithm.agents is None and is_given):
        return None
    return examine_environment(factory, config.env_config, num_envs=config.num_envs_per_worker, check=False)


def space_of_teacher(algorithm: "Algorithm", policy_id: str) -> Space:
    """The space of observations that environments of rollout workers give to a policy, including a teacher's keys.

    Raises:
        SettingsError: (a ValueError) if agents of the policy have different ones.
    """
    config, policy, examined = algorithm.config, algorithm.policies[policy_id], algorithm._shown_to_teachers
    if not algorithm._gives_teacher_keys:
        return policy.observation_space
    if examined is None:
        return adapted_space(config.observation_space, policy.action_space, as_teacher_sees(adapters_of(config)))
    if algorithm.agents is None:
        return examined[0]
    from rllib.algorithms.base.agents import spaces_given

    found = spaces_given(algorithm.agents, policy_id, examined.agents)
    if len(found) > 1:
        raise config.error(
            Mistake(
                f"the agents of policy {policy_id!r} are given different observations, with the keys that a teacher "
                f"alone reads: {' and '.join(map(str, found))}.",
                ("teacher_observation_keys", "policies"),
                ({"teacher_observation_keys": []},),
                note="Or give these agents policies of their own.",
            )
        )
    return found[0] if found else policy.observation_space


def playable_environment(config: AlgorithmConfig) -> EnvFactory:
    """The factory of single environments for a `Player`, with the environment's own observations.

    Raises:
        ValueError: if the config names no environment.
    """
    if config.listen is not None:
        raise ValueError(
            "the clients of this run step their own environments, so that there is none to play in. "
            "Algorithm.from_checkpoint(PATH, {'env': ENV}).save(NEW_PATH) writes a checkpoint that has one."
        )
    factory = _preprocessed(config)
    return SingleFactory(replace(factory, native=False) if isinstance(factory, AtariFactory) else factory)


def time_limit_of(factory: EnvFactory | None) -> int | None:
    """Number of steps after which an environment of gymnasium's registry truncates an episode; None: unknown."""
    return None if factory is None else factory.max_episode_steps


def acting_settings(config: AlgorithmConfig, agents: "Agents | None") -> ActingSettings:
    """The conversions between the environment's observations and actions and those of the policy."""
    augmentation = agents and agents.environment.augmentation
    return ActingSettings(
        normalize_actions=config.normalize_actions,
        clip_actions=config.clip_actions,
        adapters=(*adapters_of(config), *([augmentation.parts] if augmentation else ())),
        explore=config.explore,
    )


def environment_name(config: AlgorithmConfig) -> str | None:
    """Name of the environment for error messages, or None."""
    return None if config.env is None else simulated(resolve(config.env), config.simulator).name


def _preprocessed(config: AlgorithmConfig, disturbances: Disturbances | None = None) -> EnvFactory:
    """The factory of a config's environments, with its wrappers or an Atari game's preprocessing, and its connectors.

    Args:
        config: settings of the algorithm.
        disturbances: disturbances of the environments; None: there are none.

    Raises:
        ValueError: for wrappers together with the preprocessing of an Atari game.
    """
    factory = _wrapped(config, disturbances)
    connectors = config.env_to_module_connector, config.module_to_env_connector
    if connectors == (None, None):
        return factory
    from rllib.core.connectors.connected_env import ConnectedFactory

    return ConnectedFactory(factory, *connectors, _keeps_mask(config, "env_to_module_connector"))


def _keeps_mask(config: AlgorithmConfig, setting: str) -> Callable[[Any, Any], None]:
    """Function that refuses wrappers which remove the action mask from an environment's observations."""
    mask_key = config.action_mask_key if config.action_mask_from == "observation" else None
    return partial(refuse_lost_mask, mask_key, setting)


def _disturbed(config: AlgorithmConfig, factory: EnvFactory, disturbances: Disturbances | None) -> EnvFactory:
    if disturbances is None:
        return factory
    from rllib.env.multi_agent.disturbed import DisturbedAgentsFactory

    mask_key = config.action_mask_key if config.action_mask_from == "observation" else None
    return DisturbedAgentsFactory(factory, disturbances, mask_key)


def _wrapped(config: AlgorithmConfig, disturbances: Disturbances | None) -> EnvFactory:
    factory = simulated(resolve(config.env), config.simulator)
    is_game, mode = config.preprocessor_pref == "deepmind" and is_atari(factory), config.gym_env_vectorize_mode
    if wrappers := resolve_wrappers(config.env_wrappers):
        if is_game:
            raise config.error(
                Mistake(
                    f"env_wrappers={config.env_wrappers!r} and DeepMind's preprocessing of {factory.name} do not go "
                    "together.",
                    ("env_wrappers", "preprocessor_pref"),
                    ({"preprocessor_pref": None}, {"env_wrappers": None}),
                )
            )
        disturbed = _disturbed(config, factory, disturbances)
        factory, disturbances = WrappedFactory(disturbed, wrappers, _keeps_mask(config, "env_wrappers")), None
    elif mode == "sync" and not disturbances and (advice := faster_simulator(factory, config.env_config)):
        log_once(advice, advice)
    if mode == "vector_entry_point" and not is_game:
        factory = by_entry_point(factory)
    if is_game:
        model = ModelSettings(config.model)
        factory = AtariFactory(
            factory.spec,
            native=config.batch_mode == "truncate_episodes" and mode != "async" and disturbances is None,
            size=model.dim,
            stack=4 if model.framestack else 1,
        )
    return _disturbed(config, factory, disturbances)


def checked_spaces(factory: EnvFactory | None, config: AlgorithmConfig) -> Examined:
    """Spaces of the policy, and device of its rollouts, from an environment that is made, stepped and closed here.

    Without an environment, or with disable_env_checking, the spaces in the config. The device is None if rollouts are
    arrays.
    """
    if factory is None and config.is_offline:
        return Examined(config.observation_space, config.action_space)
    adapters = adapters_of(config)
    # An external environment must be recognized, and is never stepped here.
    known_class = None if factory is None else environment_class(factory)
    may_be_stepped = config.listen is None and not is_external(known_class)
    if not may_be_stepped:
        refuse_changed_observations(config)
    unchecked = factory is None or (config.disable_env_checking and may_be_stepped)
    if unchecked and config.observation_space is not None and config.action_space is not None and not config.policies:
        observation_space = adapted_space(config.observation_space, config.action_space, adapters)
        return Examined(observation_space, config.action_space, device_for(config, None, was_checked=False))
    try:
        examined = examine_environment(
            factory,
            config.env_config,
            num_envs=config.num_envs_per_worker,
            check=not config.disable_env_checking,
            info_columns=config.get_info_columns(),
            action_mask_key=config.action_mask_key,
            needs_goals=config.needs_goals,
            tensors=config.tensor_rollouts is True,
        )
    except InfoColumnError as error:
        remedy = config.without_info_column(error.column)
        raise config.error(Mistake(f"{error}.", tuple(remedy), (remedy,))) from error
    if examined.is_external and config.num_envs_per_worker != 1 and "num_envs_per_worker" in config.changes():
        raise config.error(
            Mistake(
                f"{factory.name} drives its own loop, and one worker has one of it, but num_envs_per_worker="
                f"{config.num_envs_per_worker}. Its loop may follow any number of episodes at once.",
                ("num_envs_per_worker",),
                ({"num_envs_per_worker": 1},),
            )
        )
    if examined.is_external and may_be_stepped:  # a function made it, so that its class was unknown
        refuse_changed_observations(config)
    if examined.agents is not None:
        refuse_agents(config)
        return examined
    observation_space, action_space, found = examined[:3]
    device = device_for(config, found, was_checked=not config.disable_env_checking)
    for kind, own in (("observation_space", observation_space), ("action_space", action_space)):
        given = config[kind]
        if given is None:
            continue
        if (adapted_space(given, action_space, adapters) if kind == "observation_space" else given) != own:
            raise config.error(
                Mistake(
                    f"{kind}={given} is not that of the environment, which has {own}.",
                    (kind, "env"),
                    ({kind: None},),
                    note="Or wrap the environment so that it has the space you want.",
                )
            )
    return examined._replace(device=device)


def refuse_vector_environment(config: AlgorithmConfig, examined: Examined) -> None:
    """Raises a ValueError for a VectorEnv, if the environments of a worker must be stepped or reset separately."""
    if examined.steps_apart or examined.device is not None:  # for tensors, tensor_rollouts.py raises all mistakes
        return
    name = environment_name(config)
    if not config.has_steps:
        raise config.error(
            Mistake(
                f"{name} is a VectorEnv, which resets all its environments at once, but with this algorithm each of "
                "them starts episodes on separate seeds.",
                ("env",),
                advice="Use the environment that it is made of.",
            )
        )
    if config.batch_mode == "complete_episodes" and config.num_envs_per_worker > 1:
        raise config.error(
            Mistake(
                f"{name} is a VectorEnv, which steps all its environments at once, but "
                "batch_mode='complete_episodes' lets some of them continue alone.",
                ("batch_mode", "num_envs_per_worker"),
                ({"batch_mode": "truncate_episodes"}, {"num_envs_per_worker": 1}),
                note="Or use the environment that it is made of.",
            )
        )


def refuse_changed_observations(config: AlgorithmConfig) -> None:
    """Raises a ValueError for settings that change observations, in a run whose environment drives its own loop.

    Such an environment has no wrappers that could change its observations.
    """
    asked = [(adapter.setting, adapter.remedy(config)) for adapter in adapters_of(config) if adapter.adds_to_steps]
    if config.policies is not None:
        asked += [
            (f"{name}={config[name]!r}", {name: False})
            for name in ("agent_id_in_observation", "centralized_critic")
            if config[name]
        ]
    if Disturbances.of(config.disturbances) is not None:
        asked.append((f"disturbances={shortened(config.disturbances)}", {"disturbances": {}}))
    for setting, remedy in asked:
        raise config.error(
            Mistake(
                f"{setting} is for environments that the library steps: of clients, and of others with a loop of "
                "their own, observations reach the policy as they are handed over.",
                tuple(remedy),
                (remedy,),
                note="Or change the observations in the loop itself.",
            )
        )


def refuse_unread_infos(config: AlgorithmConfig, is_external: bool, has_agents: bool) -> None:
    """Raises a ValueError for columns of infos, including costs, that are not read from this kind of environment."""
    names = [column.name for column in config.get_info_columns()]
    if not names or not (is_external or has_agents):
        return
    kind = "of clients and others with a loop of their own" if is_external else "with several agents"
    if config.episode_cost_column in names:
        raise config.error(
            Mistake(
                f"cost_limit and cost_column={config.episode_cost_column!r} are for environments that the library "
                f"steps and that have one agent: no costs are read of environments {kind}.",
                ("cost_limit", "cost_column", "info_columns"),
                ({"cost_limit": None, "cost_column": None, "info_columns": {}},),
                advice="Leave them out, or subtract the costs from the rewards.",
            )
        )
    raise config.error(
        Mistake(
            f"info_columns={names} are for environments that the library steps and that have one agent: infos of "
            f"environments {kind} make no columns.",
            ("info_columns",),
            ({"info_columns": {}},),
            note="Or put the values into a Dict observation.",
        )
    )


def agents_of(algorithm, examined: "ExaminedAgents | None") -> "Agents | None":
    """The policies of a run with several agents; None if the environment has one agent.

    Args:
        algorithm: the Algorithm.
        examined: agents of the environment; None if it has one agent.

    Raises:
        ValueError: if policies are given for an environment with one agent, or the algorithm cannot train several.
    """
    config = algorithm.config
    if examined is None:
        _refuse_policies(config)
        changed = config.changes()
        for name in ("policies_to_train", "count_steps_by", "agent_id_in_observation"):
            if name in changed:
                line = f"{name}={shortened(changed[name])} has no effect here: the environment has one agent."
                log_once(line, line, logging.WARNING)
        return None
    if not algorithm.trains_several:
        raise config.error(
            Mistake(
                f"{type(algorithm).__name__} does not train policies of several agents, and {examined.name} has "
                f"{len(examined.agents)}.",
                ("env",),
                advice="All algorithms but A3C, ES and ARS, and those that need recorded data or demonstrations, do, "
                "such as PPO, IMPALA, DQN and SAC.",
            )
        )
    if config.has_data:
        raise config.error(
            Mistake(
                f"recorded steps are those of one policy, but {examined.name} has {len(examined.agents)} agents.",
                ("input_",),
                ({"input_": SAMPLER},),
                note="Or name the environment of a single agent.",
            )
        )
    if config.centralized_critic and not config.fits_a_value:
        raise config.error(
            Mistake(
                f"centralized_critic={config.centralized_critic!r} is for algorithms with a value function, "
                f"such as PPO and IMPALA, but {type(algorithm).__name__} has none.",
                ("centralized_critic",),
                ({"centralized_critic": False},),
            )
        )
    from rllib.algorithms.base.agents import make_agents

    return make_agents(config, examined)


def _refuse_policies(config: AlgorithmConfig) -> None:
    """Raises a ValueError for settings of several agents' policies in an environment with one agent."""
    given = {"policies": None, "policy_mapping_fn": None, "centralized_critic": False}
    given = {name: nothing for name, nothing in given.items() if config[name] not in (None, False)}
    if config.model.get("of_policies"):
        given["model"] = {"of_policies": {}}
    if not given:
        return
    name = environment_name(config)
    raise config.error(
        Mistake(
            f"{name} has one agent, but {', '.join(given)} of .multi_agent() are for environments with several.",
            (*given, "env"),
            (given,),
            note=f"rllib.env.make_multi_agent({name!r}) makes an environment of several copies of it.",
        )
    )


# Field of FaultTolerance -> setting of the config.
_FAULT_TOLERANCE = {
    "restart": "recreate_failed_workers",
    "ignore": "ignore_worker_failures",
    "max_restarts": "max_num_worker_restarts",
    "delay_s": "delay_between_worker_restarts_s",
    "max_consecutive_failures": "num_consecutive_worker_failures_tolerance",
    "silence_s": "sample_timeout_s",
}


def rollout_settings(config: AlgorithmConfig, env: EnvFactory | None, **more) -> RolloutSettings:
    """Settings of rollout workers and evaluation.

    Args:
        config: settings of the algorithm.
        env: factory of the environments; None: there are none, and nothing can be sampled.
        more: values that the algorithm sets: `policies`, `seed`, `sequences`, `acts_among_all`, `spans_directory`.
    """
    return RolloutSettings(
        env=env,
        env_config=dict(config.env_config),
        num_envs=config.num_envs_per_worker,
        fragment_length=config.get_rollout_fragment_length(),
        num_workers=config.num_rollout_workers,
        complete_episodes=config.batch_mode == "complete_episodes",
        normalize_actions=config.normalize_actions,
        clip_actions=config.clip_actions,
        clip_rewards=env.clips_rewards if env and config.clip_rewards is None else config.clip_rewards,
        time_limit_ends_episode=config.time_limit_ends_episode,
        callbacks=partial(make_callbacks, config.callbacks_class, config.callback_functions),
        # Functions of RLlib programs that are called on workers also read it.
        config=config if config.callbacks_class or config.callback_functions or foreign_program.is_running() else None,
        sample_timeout_s=config.sample_timeout_s,
        check_env=not config.disable_env_checking,
        seeds_driver=config.seed is not None,
        replace_failed_envs=config.restart_failed_sub_environments,
        info_columns=config.get_info_columns(),
        cost_column=config.episode_cost_column,
        acting_device="cuda" if config.num_gpus_per_worker else None,
        **more,
    )


def actor_options(config: AlgorithmConfig) -> dict:
    """Resources of a worker, as for `runtime.remote`."""
    return {
        "num_cpus": config.num_cpus_per_worker,
        "num_gpus": config.num_gpus_per_worker,
        "resources": config.custom_resources_per_worker,
    }


def refuse_crowded_updates(config: AlgorithmConfig) -> None:
    """Raises an error for more cores for the updates of this process than the machine has."""
    if not config.num_learners:
        check_cores(_claimed_cores(config), "num_cpus_per_learner")


def cores_per_learner(config: AlgorithmConfig) -> int | FreeCores | None:
    """Cores for the updates of a learner; None: no number was given. Warns if the trial has fewer cores."""
    if not isinstance(config.num_cpus_per_learner, int):
        if config.num_learners:
            return None
        kind = FreeCores if config.num_cpus_per_learner == "auto" else CoreChoice
        return kind(num_cores(), num_cores if _workers_wait(config) else num_free_cores)
    asked, there = _claimed_cores(config), num_cores()
    if asked > there and not config.num_learners:
        logger.warning(
            "num_cpus_per_learner=%d threads share %d cores and wait for one another, which is slower than a core for "
            "each. Use .learners(num_cpus_per_learner=%d).",
            asked,
            there,
            there,
        )
    return asked


def _workers_wait(config: AlgorithmConfig) -> bool:
    """Whether rollout workers do nothing during updates."""
    return _is_synchronous(config) and not config.get("sample_async")


def _is_synchronous(config: AlgorithmConfig) -> bool:
    """Whether the algorithm samples and updates in turn; True for a config without an algorithm."""
    return config.algo_class is None or config._algorithm_class().is_synchronous


def _claimed_cores(config: AlgorithmConfig) -> int:
    """Number of cores that each learner claims; 0: the user has given no number."""
    return max(1, config.num_cpus_per_learner) if isinstance(config.num_cpus_per_learner, int) else 0


def core_choices(learners: Mapping[str, Any]) -> dict[str, dict]:
    """Policy id -> number of cores of its updates, and the reason; for updates large enough for several cores."""
    found = {policy_id: learner.core_choice for policy_id, learner in learners.items()}
    return {name: {"cores": each.cores, "reason": each.reason} for name, each in found.items() if each and each.reason}


def group_settings(config: AlgorithmConfig, spans_directory: str | None) -> GroupSettings:
    """The learner processes of a config with num_learners."""
    num_cpus = config.num_cpus_per_learner
    # With more threads than cores, all learners would be slower.
    threads = max(1, num_cores() // config.num_learners) if num_cpus == "auto" else max(1, num_cpus)
    options = {"num_cpus": _cpus_per_learner(config), "num_gpus": config.num_gpus}
    kind, tolerance = config.learner_collective, fault_tolerance(config)
    return GroupSettings(config.num_learners, options, tolerance, threads, kind, spans_directory)


def _cpus_per_learner(config: AlgorithmConfig) -> int:
    """Number of CPUs that a learner claims: none if rollout workers and learners wait for one another."""
    if isinstance(config.num_cpus_per_learner, int):
        return config.num_cpus_per_learner
    return int(config.algo_class is None or not _is_synchronous(config))


def gpu_claims(config: AlgorithmConfig) -> list[GpuClaim]:
    """The GPUs that the processes of a run claim."""
    evaluation = config.get_evaluation_config_object()
    return [
        GpuClaim(config.num_learners, config.num_gpus, "learners", "num_gpus"),
        GpuClaim(config.num_rollout_workers, config.num_gpus_per_worker, "rollout workers", "num_gpus_per_worker"),
        GpuClaim(
            config.evaluation_num_workers,
            evaluation.num_gpus_per_worker,
            "evaluation workers",
            "num_gpus_per_worker",
        ),
    ]


def log_crowds(config: AlgorithmConfig) -> None:
    """Logs a message if more workers are requested than there are CPUs."""
    evaluation = config.get_evaluation_config_object()
    log_crowd("rollout workers", config.num_rollout_workers, config.num_cpus_per_worker)
    log_crowd("evaluation workers", config.evaluation_num_workers, evaluation.num_cpus_per_worker)


def fault_tolerance(config: AlgorithmConfig) -> FaultTolerance:
    """Settings for the failure of worker processes."""
    return FaultTolerance(**{field: config[name] for field, name in _FAULT_TOLERANCE.items()}, names=_FAULT_TOLERANCE)


def resource_request(config: AlgorithmConfig) -> dict:
    """Resources of a run: see Algorithm.default_resource_request."""
    learners = config.num_learners
    request = {
        "cpu": max(config.num_cpus_for_local_worker, 0 if learners else _claimed_cores(config)),
        "gpu": 0 if learners else config.num_gpus,
        "extra_cpu": learners * _cpus_per_learner(config),
        "extra_gpu": sum(claim.count * claim.each for claim in gpu_claims(config)),
    }
    custom: dict[str, float] = {}
    evaluation = config.get_evaluation_config_object()
    for count, of in ((config.num_rollout_workers, config), (config.evaluation_num_workers, evaluation)):
        request["extra_cpu"] += count * of.num_cpus_per_worker
        for name, quantity in of.custom_resources_per_worker.items():
            custom[name] = custom.get(name, 0) + count * quantity
    return {**request, "extra_custom_resources": custom}
