"""Names of curves in the groups of Stable-Baselines3: rollout/, train/, time/ and eval/.

A number that Stable-Baselines3 logs too has its name there, so that runs of both lie in one chart; every other number
keeps its own name in the group to which it belongs.
"""

from collections.abc import Mapping

from rllib.sample_batch import DEFAULT_POLICY

_NAMES = {
    "episode_reward_mean": "rollout/ep_rew_mean",
    "episode_len_mean": "rollout/ep_len_mean",
    "evaluation/episode_reward_mean": "eval/mean_reward",
    "evaluation/episode_len_mean": "eval/mean_ep_length",
    "num_env_steps_sampled_throughput_per_sec": "time/fps",
    "training_iteration": "time/iterations",
    "time_total_s": "time/time_elapsed",
    "timesteps_total": "time/total_timesteps",
    "episodes_total": "time/episodes",
}
# Statistics of a learner.
_OF_LEARNERS = {
    "total_loss": "loss",
    "policy_loss": "policy_gradient_loss",
    "vf_loss": "value_loss",
    "vf_explained_var": "explained_variance",
    "kl": "approx_kl",
    "cur_lr": "learning_rate",
    "alpha_value": "ent_coef",
    "num_grad_updates_lifetime": "n_updates",
}
_LEARNERS, _STATISTICS, _EVALUATION = "info/learner/", "learner_stats/", "evaluation/"
# Beginnings of the other keys -> group; the first that fits counts.
_GROUPS = (
    (("episode", "hist_stats/", "custom_metrics/", "policy_reward_", "agent_", "sampler_results/"), "rollout"),
    (("info/", "num_env_steps_trained", "num_steps_trained", "num_agent_steps_trained"), "train"),
)


def in_groups(numbers: Mapping[str, float]) -> dict[str, float]:
    """Numbers of a result by "a/b" path -> the same by group and name."""
    return {_grouped(key): value for key, value in numbers.items()}


def name_of_statistic(statistic: str) -> str:
    """Name of a learner's statistic there."""
    return _OF_LEARNERS.get(statistic, statistic)


def _grouped(key: str) -> str:
    if key in _NAMES:
        return _NAMES[key]
    if key.startswith(_EVALUATION):
        return f"eval/{key.removeprefix(_EVALUATION)}"
    if key.startswith(_LEARNERS):
        policy_id, _, statistic = key.removeprefix(_LEARNERS).partition("/")
        name = name_of_statistic(statistic.removeprefix(_STATISTICS))
        return f"train/{name}" if policy_id == DEFAULT_POLICY else f"train/{policy_id}/{name}"
    group = next((group for beginnings, group in _GROUPS if key.startswith(beginnings)), "time")
    return f"{group}/{key.removeprefix('info/')}"
