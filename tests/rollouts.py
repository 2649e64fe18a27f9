"""Settings of workers with one policy, for tests that make a worker without an algorithm."""

from dataclasses import replace

from rllib.evaluation.settings import PolicySettings, RolloutSettings
from rllib.sample_batch import DEFAULT_POLICY

_OF_POLICY = ("exploration", "explore", "learner", "make_return_scale")


def rollout_settings(env, env_config, policy, postprocess, num_envs, fragment_length, seed, **more) -> RolloutSettings:
    """RolloutSettings whose only policy has this spec and postprocess; `more` are settings of either."""
    own = {name: more.pop(name) for name in _OF_POLICY if name in more}
    policies = {DEFAULT_POLICY: PolicySettings(policy, postprocess, **own)}
    given = {"env": env, "env_config": env_config, "policies": policies, "num_envs": num_envs, "seed": seed}
    return RolloutSettings(**given, fragment_length=fragment_length, **more)


def with_policy(settings: RolloutSettings, **changes) -> RolloutSettings:
    """The settings with changes in those of the only policy."""
    return replace(settings, policies={DEFAULT_POLICY: replace(settings.only_policy, **changes)})
