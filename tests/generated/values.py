"""Values that a declaration cannot say: functions, classes, and dicts whose keys have a meaning.

In a draw, which is JSON, {"named": NAME} stands for a member of NAMED.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

from rllib import DefaultCallbacks
from rllib.config.sections import Setting
from rllib.evaluation.callbacks import make_multi_callbacks
from rllib.exploration.explorers import Exploration
from rllib.models.dense.initializers import INITIALIZERS
from tests.generated.worlds import CONTINUOUS, HAS_IMAGE

# ------------------------------------------------------------------ functions and classes, by name


class Notes(DefaultCallbacks):
    """Reads what hooks are shown, and logs numbers of its own; results count the objects that were called."""

    def on_episode_end(self, *, episode, metrics_logger, **kwargs):
        episode.custom_metrics["length"] = episode.length
        metrics_logger.log_value("noted_length", episode.length)

    def on_postprocess_trajectory(self, *, postprocessed_batch, **kwargs):
        assert postprocessed_batch.count > 0

    def on_train_result(self, *, algorithm, result, **kwargs):
        result["noted"] = result.get("noted", 0) + 1


Several = make_multi_callbacks([Notes, make_multi_callbacks([[Notes], Notes])])


def count_of_notes(callbacks) -> int:
    """Number of objects of Notes in a value of callbacks_class."""
    if isinstance(callbacks, list | tuple):
        return sum(map(count_of_notes, callbacks))
    return {Notes: 1, Several: 3}.get(callbacks, 0)


def next_task(result, env, context):
    """Tasks 1, 2, 1, 2, ... of worlds."""
    return 3 - env.get_task()


def small_outputs(minibatch, outputs, model):
    """An auxiliary loss; the logits of illegal actions are very small."""
    inputs = outputs.dist_inputs.clamp(-10, 10)
    return 0.01 * inputs.square().mean(), {"mean": inputs.mean()}


def with_small_outputs(loss, minibatch, outputs, model):
    """A custom loss."""
    return loss + 0.01 * outputs.dist_inputs.clamp(-10, 10).square().mean()


def flatten(env, spaces, device):
    """Connectors of observations."""
    from rllib.core import FlattenObservations  # torch is imported where it is used

    return [FlattenObservations()]


def with_previous(env, spaces, device):
    """The same, that add the action and reward before."""
    from rllib.core import PrevActionsPrevRewards

    return [PrevActionsPrevRewards()]


def falls(timestep: int) -> float:
    """A schedule that is a function."""
    return 1e-3 / (1 + timestep)


def on_episode_end(*, episode, **kwargs):
    """A hook."""
    episode.custom_metrics["doubled"] = 2 * episode.length


def estimates(*names: str) -> dict:
    return {name: {"type": name} for name in names}


NAMED: dict[str, Any] = {
    "Notes": Notes, "Several": Several, "next_task": next_task, "small_outputs": small_outputs, "falls": falls,
    "flatten": flatten, "with_previous": with_previous, "with_small_outputs": with_small_outputs,
    "on_episode_end": on_episode_end,
}  # fmt: skip


def resolved(value):
    """A value of a draw with members of NAMED in their places."""
    if isinstance(value, Mapping):
        if value.keys() == {"named"}:
            return NAMED[value["named"]]
        return {key: resolved(item) for key, item in value.items()}
    return [resolved(item) for item in value] if isinstance(value, list) else value


def named(name: str) -> dict[str, str]:
    return {"named": name}


# ------------------------------------------------------------------ settings with tables of values

# Callbacks within callbacks, by lists and by classes of several.
NESTED = ([[named("Notes")], named("Notes")], named("Several"), [named("Several"), [named("Notes")]])

# Setting -> values to choose among.
TABLES: dict[str, tuple] = {
    "env_wrappers": (
        [{"TimeLimit": {"max_episode_steps": 6}}, "TimeAwareObservation"], [{"ClipReward": {"max_reward": 1}}],
        ["RecordEpisodeStatistics"], [{"FrameStackObservation": {"stack_size": 2}}],
    ),
    "ignore_observation_keys": (["choice"], ["numbers"]),
    "critic_observation_keys": (["choice"], ["numbers"]),
    "info_columns": ({"extra": {}}, {"pair": {"shape": [2], "before_action": True}}),
    "disturbances": (
        {"observation_delay": [0, 2]}, {"action_delay": 2, "drop_observation": 0.3}, {"action_noise": [0, 0.5]},
        {"observation_noise": 0.1, "parameters": {"gain": {"scale": [0.5, 2]}}}, {"parameters": {"gain": [0, 2]}},
        {
            "parameters": {"gain": [0, 2]},
            "adapt": {"high": 1, "low": -1, "start": {"gain": 1}, "episodes": 1, "at_bounds": 1.0},
        },
    ),
    "env_task_fn": (named("next_task"),),
    "env_to_module_connector": (named("flatten"), named("with_previous")),
    "auxiliary_losses": ({"small": {"loss": named("small_outputs"), "weight": 0.5, "stats": ["mean"]}},),
    "custom_loss": (named("with_small_outputs"),),
    "callbacks_class": (named("Notes"), [named("Notes"), named("Notes")], *NESTED),
    "callback_functions": ({"on_episode_end": named("on_episode_end")},),
    "centralized_critic": (True,),
    "policies_to_train": (["first"], ["first", "second"], []),
    "policies": (["first", "second"], ["first", "second"], "own", {"first": {"lr": 1e-3, "gamma": 0.9}, "second": {}}),
    "input_config": ({"on_error": "skip"}, {"check": False}, {"actions": "values"}),
    "output_config": ({"format": "json"}, {"format": "npz"}, {"format": "parquet"}),
    "output_compress_columns": ([], ["obs"]),
    "off_policy_estimation_methods": (
        estimates("is"), estimates("wis"), estimates("dm"), estimates("dr"), estimates("is", "wis"),
    ),
    "evaluation_config": (
        {"explore": True}, {"num_envs_per_worker": 2}, {"num_envs_per_worker": 1}, {"explore": False, "seed": 3},
        {"env_config": {"length": 4}}, {"disturbances": {"observation_delay": 1}},
    ),
    "teacher": (
        {"teacher of": "function"}, {"teacher of": "network"}, {"teacher of": "network"}, {"teacher of": "several"},
    ),
    "teacher_observation_keys": (["choice"], ["numbers"]),
    "beta": (0.5, 1.0, [[0, 1.0], [60, 0.0]]),
    "actor_warmup_updates": (1, 1, 2, 20),
    "cost_column": ("cost", "extra"),
    "param_resets": ([30], [20, 50]),
    "hiddens": ([], [6], [6, 5]),
    "q_model_config": (
        {"fcnet_hiddens": [6]}, {"fcnet_hiddens": [6, 6], "fcnet_activation": "relu"}, {"layer_norm": True},
    ),
    "policy_model_config": ({"fcnet_hiddens": [6]}, {"fcnet_activation": "tanh"}),
    "gradient_penalty": (0.0, 1.0, {"r1": 2.0}),
    "discriminator_inputs": (["obs"], ["obs", "next_obs"], ["obs", "actions", "next_obs", "terminated"]),
    "discriminator_observation_keys": (["choice"], ["numbers"]),
    "discriminator_model": ({"fcnet_hiddens": [6]}, {"fcnet_activation": "relu"}, {"normalize": False}),
    "learner_collective": ("auto", "shared_memory", "gloo"),
    "action_mask_key": (None, "action_mask"),
    "offline_memory": ("auto", 1_000_000, 1000),
    "noise_size": (1000, 10_000),
    "seed": (0, 1, 2**31),
    "num_learners": (1, 2),
    "evaluation_num_workers": (1,),
    "num_aggregation_workers": (1,),
    "num_cpus_per_learner": ("auto", "measured", 1),
    "num_envs_per_worker": (1, 2, 2, 3, 9),
    "sample_quorum": (0.4, 0.5, 0.75),
    "gym_env_vectorize_mode": ("sync", "async"),
    "evaluation_duration": (1, 3, "auto"),
    "output_max_file_size": (1000, 1_000_000),
    "renorm_warmup_steps": (0, 2, 1000),
    "bc_iters": (0, 3, 1000),
    "lr": (
        0.0, 1e-3, [[0, 1e-3], [60, 1e-4]], {"type": "linear", "initial": 1e-3, "final": 0.0, "timesteps": 80},
        {"type": "exponential", "initial": 1e-3, "decay_rate": 0.5, "timesteps": 40}, named("falls"),
        {"type": "kl_adaptive", "initial": 1e-3, "desired_kl": 0.01},
    ),
    # Their default is that of lr; a rate near 1 makes numbers that are refused as not finite.
    **dict.fromkeys(
        ("actor_lr", "critic_lr", "alpha_lr", "value_lr"),
        (0.0, 1e-3, [[0, 0.1], [50, 0.01]], {"type": "linear", "initial": 0.1, "final": 0.0, "timesteps": 80}),
    ),
}  # fmt: skip

# Settings that are not drawn, with the reason.
NOT_DRAWN = {
    "policy_mapping_fn": "goes with the policies",
    "teacher_mapping_fn": "goes with several teachers",
    **dict.fromkeys(
        ("env", "env_config", "observation_space", "action_space", "action_mask_from"), "the world says it"
    ),
    **dict.fromkeys(("input_", "input_read_schema", "demonstrations"), "the world says what is recorded"),
    **dict.fromkeys(("listen", "token_file", "tls_certificate", "tls_key"), "the world says how clients reach it"),
    **dict.fromkeys(("wandb", "mlflow", "trackio", "comet", "clearml"), "they need a service"),
    **dict.fromkeys(("num_gpus", "num_gpus_per_worker", "torch_cuda_graphs"), "they need a GPU"),
    "custom_resources_per_worker": "needs a cluster that has them",
    "framework": "there is one",
    "log_dir": "a run's files are written by a process of their own, which has tests",
    "log_level": "what is logged is looked at",
    "preprocessor_pref": "of Atari games alone",
    "evaluation_videos": "worlds draw no pictures",
    "learner_class": "of classes written for RLlib's new stack, which have tests (tests/core)",
    "learner_config_dict": "of learner_class",
    "module_to_env_connector": "of classes written for RLlib's new stack, which have tests (tests/core)",
    "min_time_s_per_iteration": "seconds",
    "num_cpus_per_worker": "more than a machine has would be refused",
    **dict.fromkeys(
        ("learner_queue_timeout", "sample_timeout_s", "episode_timeout_s"), "seconds after which a run fails"
    ),
    **dict.fromkeys(("delay_between_worker_restarts_s", "output_max_file_seconds"), "seconds"),
    "sub_environment_timeout_s": "seconds after which an environment counts as hung",
}


# ------------------------------------------------------------------ networks, replays and explorations


def model(rng: random.Random, defaults: Mapping[str, Any], world: Mapping[str, Any], memory: float) -> dict[str, Any]:
    """Settings of a small network: the sizes that cost time, a memory in some, and a few others.

    Args:
        defaults: all settings of networks.
        world: whose observations it reads; pictures are of 24 x 24.
        memory: probability of a memory.
    """
    settings: dict[str, Any] = {"fcnet_hiddens": rng.choice([[8], [8], [8, 8], [6, 5]])}
    fixed = set(_FIXED_OF_MODEL)
    if world["observation"] in HAS_IMAGE:
        settings["conv_filters"] = rng.choice([[[2, 6, 6]], [[2, 6, 6]], [[2, 6, 6], [2, 3, 2]], [[2, 6, 6]], "impala"])
        settings["post_fcnet_hiddens"] = [6]
    if settings.get("conv_filters") != "impala" and rng.random() < 0.97:
        fixed |= {name for name in defaults if name.startswith("impala_")}
    if rng.random() < memory:
        kind = rng.choice(["use_lstm", "use_gru", "use_attention"])
        settings |= {kind: True, "max_seq_len": rng.choice([3, 4, 7])} | _SMALL_MEMORY
        other = "lstm_" if kind == "use_attention" else "attention_"
        fixed |= {name for name in defaults if name.startswith(other)}
    elif rng.random() < 0.97:
        fixed |= {name for name in defaults if "lstm_" in name or name.startswith("attention_") or "memory" in name}
    if world["action"] not in CONTINUOUS and rng.random() < 0.97:
        fixed |= {"use_sde", "free_log_std", "squash_actions", "log_std_init", "sde_sample_freq"}
    for name in rng.sample(sorted(defaults.keys() - settings.keys() - fixed), rng.choice([0, 0, 0, 1, 1, 2, 3])):
        settings[name] = _of_default(rng, defaults[name], _OF_MODEL.get(name))
    return settings


_SMALL_MEMORY = {
    "lstm_cell_size": 6, "attention_dim": 8, "attention_head_dim": 4, "attention_memory_inference": 5,
    "attention_memory_training": 5, "attention_position_wise_mlp_dim": 6,
}  # fmt: skip
_OF_MODEL: dict[str, tuple] = {
    "network": ("simba", "simbav2", "xqc", "flashsac"),
    "impala_pool": (None, 2),
    "post_fcnet_hiddens": ([], [5]),
    "post_lstm_hiddens": ([5],),
    "vf_hiddens": ([5], [6, 6]),
    "orthogonal_gains": ({"policy": 0.1}, {"hidden": 1.0, "value": 0.5}),
    "fcnet_weights_initializer": tuple(INITIALIZERS),
    "sde_sample_freq": (-1, 1, 4),
    "attention_use_n_prev_actions": (1,),
    "attention_use_n_prev_rewards": (1,),
    "attention_num_heads": (2,),
    "attention_num_transformer_units": (2,),
    "conv_filters": ([],),
    **dict.fromkeys(
        ("fcnet_activation", "conv_activation", "post_fcnet_activation", "post_lstm_activation"),
        ("tanh", "relu", "swish", "sigmoid", "elu", "leaky_relu", "gelu", "linear"),
    ),
}
# Not drawn: a class of the user's, policies of their own, Atari's pictures, and what goes with a memory.
_FIXED_OF_MODEL = {
    *("custom_model", "custom_model_config", "custom_action_dist", "of_policies", "dim", "framestack"),
    *("attention_memory_inference", "attention_memory_training", "use_lstm", "use_gru", "use_attention"),
    *("max_seq_len", "lstm_cell_size", "attention_dim", "attention_head_dim", "attention_position_wise_mlp_dim"),
}


ValueOf = Callable[[random.Random, Setting], Any]


def replay(rng: random.Random, keys: Mapping[str, Setting], has_goals: bool, value_of: ValueOf) -> dict[str, Any]:
    """Settings of a small replay; `has_goals`: rows have further goals."""
    settings: dict[str, Any] = {"capacity": rng.choice([40, 100, 1000])}
    if "type" not in keys:
        return settings | ({"storage": rng.choice(["memory", "disk"])} if rng.random() < 0.3 else {})
    if has_goals:
        settings |= {"type": "HerReplayBuffer", "n_sampled_goal": rng.choice([1, 2])}
    elif rng.random() < 0.7:
        settings["type"] = rng.choice(["ReplayBuffer", "PrioritizedReplayBuffer", "EpisodeReplayBuffer"])
    # The default type stays where none is drawn.
    fixed = {"type"} | (set() if has_goals or rng.random() < 0.03 else {"n_sampled_goal", "goal_selection_strategy"})
    for name in rng.sample(sorted(keys.keys() - settings.keys() - fixed), rng.choice([0, 0, 1, 2])):
        settings[name] = rng.choice(["memory", "disk"]) if name == "storage" else value_of(rng, keys[name])
    return settings


def exploration(
    rng: random.Random,
    kinds: list[str],
    described: Mapping[str, type[Exploration]],
    needs_probabilities: bool,
    value_of: ValueOf,
) -> dict:
    """An exploration_config of one of these kinds, with a few settings of its type."""
    kind = rng.choice(kinds)
    settings: dict[str, Any] = {"type": kind} | _SMALL_EXPLORATION.get(kind, {})
    if needs_probabilities and kind == "StochasticSampling" and rng.random() < 0.95:
        return settings  # actions drawn by anything else would be refused
    keys = described[kind].keys().settings
    others = sorted(keys.keys() - settings.keys() - _FIXED_OF_EXPLORATION)
    for name in rng.sample(others, min(len(others), rng.choice([0, 1, 2]))):
        settings[name] = rng.choice(_OF_EXPLORATION[name]) if name in _OF_EXPLORATION else value_of(rng, keys[name])
    return settings


_SMALL_EXPLORATION: dict[str, dict] = {
    "RND": {"sgd_minibatch_size": 16, "num_sgd_iter": 1, "embed_dim": 8, "distill_net_config": {"fcnet_hiddens": [8]}},
    "Curiosity": {
        "sgd_minibatch_size": 16, "num_sgd_iter": 1, "feature_dim": 8, "feature_net_config": {"fcnet_hiddens": [8]},
        "inverse_net_hiddens": [8], "forward_net_hiddens": [8],
    },
}  # fmt: skip
# Long enough for a run to be within them, and after. Two steps of Adam by 0.9 make Curiosity's Gaussian of the action
# overflow, which is refused as not finite.
_OF_EXPLORATION: dict[str, tuple] = {
    "lr": (1e-4, 1e-3, 0.01),
    "epsilon_timesteps": (0, 30, 1000), "random_timesteps": (0, 10, 30), "scale_timesteps": (1, 30, 1000),
}  # fmt: skip
# Dicts and lists.
_FIXED_OF_EXPLORATION = {
    *("sub_exploration", "distill_net_config", "feature_net_config", "inverse_net_hiddens", "forward_net_hiddens"),
}


def _of_default(rng: random.Random, default, table: tuple | None):
    """A value of the default's type, or of a table."""
    if table is not None:
        return rng.choice(table)
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return rng.choice([1, 2, 3, 5])
    if isinstance(default, float):
        return rng.choice([default / 2, min(default * 2, 1.0), 0.5])
    if isinstance(default, list):
        return rng.choice([[], [5]])
    raise LookupError(f"no table of values for a setting whose default is {default!r}")
