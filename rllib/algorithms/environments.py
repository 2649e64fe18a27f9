"""What the config says about the environment: how it is made, and its spaces, looked at before anything starts."""

from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.env.atari import AtariFactory, is_atari
from rllib.env.checks import check_environment
from rllib.env.partial_observations import PartialObservationFactory
from rllib.env.registry import EnvFactory, resolve
from rllib.models.catalog import MODEL_DEFAULTS


def learned_environment(config: AlgorithmConfig) -> EnvFactory:
    """What makes the environments that are learned in, as the policy sees them.

    Observations are without the keys that are to be ignored; Atari games have DeepMind's preprocessing, if wanted.
    """
    factory = resolve(config.env)
    if config.ignore_observation_keys:
        return PartialObservationFactory(factory, tuple(dict.fromkeys(config.ignore_observation_keys)))
    if config.preprocessor_pref != "deepmind" or not is_atari(factory):
        return factory
    model = {**MODEL_DEFAULTS, **config.model}
    return AtariFactory(
        factory.spec,
        native=config.batch_mode == "truncate_episodes",
        size=model["dim"],
        stack=4 if model["framestack"] else 1,
    )


def checked_spaces(factory: EnvFactory, config: AlgorithmConfig):
    """Observation and action space, from an environment that is made, stepped and closed here in the driver."""
    if config.disable_env_checking and config.observation_space is not None and config.action_space is not None:
        return config.observation_space, config.action_space
    observation_space, action_space = check_environment(
        factory, config.env_config, num_envs=config.num_envs_per_worker, check=not config.disable_env_checking
    )
    for kind, own in (("observation_space", observation_space), ("action_space", action_space)):
        given = config[kind]
        if given is not None and given != own:
            raise ValueError(
                f"{kind}={given} is not that of the environment, which has {own}. Leave it out of .environment(), or "
                "wrap the environment so that it has the space you want."
            )
    return observation_space, action_space
