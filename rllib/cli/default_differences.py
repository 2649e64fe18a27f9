"""Defaults that differ from RLlib 2.6.3, with the reason; `rllib config ALGO` shows them."""

from typing import Any, NamedTuple


class DefaultDifference(NamedTuple):
    """A default that differs from RLlib's.

    Attributes:
        setting: its name, or "setting.key" for a key of a dict.
        rllib: RLlib's default.
        ours: the default here.
        reason: a sentence.
        algorithms: names of the algorithms with this default; empty: all that RLlib has.
    """

    setting: str
    rllib: Any
    ours: Any
    reason: str
    algorithms: tuple[str, ...] = ()


DEFAULT_DIFFERENCES = (
    DefaultDifference(
        "rmsprop_epsilon",
        0.1,
        2e-4,
        "It is added to gradients of a mean over the batch; RLlib's to gradients of a sum over 500 steps.",
        ("IMPALA", "APPO"),
    ),
    DefaultDifference(
        "recreate_failed_workers",
        False,
        None,
        "A worker that dies is replaced and costs its unfinished episodes, not the run; an exception ends it.",
    ),
    DefaultDifference(
        "num_consecutive_worker_failures_tolerance",
        100,
        3,
        "What ends a worker's process before it gave a sample four times in a row, ends the next one, too.",
    ),
    DefaultDifference(
        "delay_between_worker_restarts_s",
        60.0,
        1.0,
        "A process on the same machine starts within a second, and synchronous algorithms wait for it.",
    ),
    DefaultDifference(
        "num_cpus_per_learner",
        1,
        "auto",
        "This process learns, and more than one core is for those who ask for it.",
    ),
    DefaultDifference(
        "evaluation_config.explore",
        True,
        False,
        "Evaluations take the most likely actions, as RLlib's do for DQN.",
        ("PG", "A2C", "A3C", "PPO", "IMPALA", "APPO", "SAC", "BC", "MARWIL", "CQL"),
    ),
    DefaultDifference(
        "num_gpus",
        1,
        0,
        "The defaults run on a machine without a GPU. Use .resources(num_gpus=1) with one.",
        ("IMPALA", "ApexDQN"),
    ),
    DefaultDifference(
        "max_requests_in_flight_per_replay_worker",
        float("inf"),
        2,
        "Every queue has a bound, so that a slow learner cannot fill the memory; two samples keep a shard busy.",
        ("ApexDQN", "ApexDDPG"),
    ),
    DefaultDifference(
        "tau",
        0.002,
        1.0,
        "Target networks move every 500,000 steps: DDPG's tau, for moves with each update, would leave them untrained.",
        ("ApexDDPG",),
    ),
    DefaultDifference(
        "num_envs_per_worker",
        1,
        16,
        "One batched product acts for all perturbed policies of a worker; results do not depend on their number.",
        ("ES", "ARS"),
    ),
    DefaultDifference(
        "explore",
        True,
        False,
        "The weights are perturbed, not the actions; compute_single_action takes the most likely action.",
        ("ES", "ARS"),
    ),
    DefaultDifference(
        "model.fcnet_hiddens",
        [256, 256],
        [],
        "The policies of the paper are linear.",
        ("ARS",),
    ),
    DefaultDifference(
        "model.output_layer_use_bias",
        True,
        False,
        "The policies of the paper have no bias.",
        ("ARS",),
    ),
    DefaultDifference(
        "batch_mode",
        "complete_episodes",
        "truncate_episodes",
        "RLlib's groups have a memory, which begins with an episode; here a row is a single step.",
        ("QMix",),
    ),
    DefaultDifference(
        "model.fcnet_hiddens",
        [256, 256],
        [64, 64],
        "The layers of the paper's agents; RLlib's have these in its own network with a memory.",
        ("QMix",),
    ),
    DefaultDifference(
        "model.fcnet_activation",
        "tanh",
        "relu",
        "As in the paper's agents and in RLlib's own network for them.",
        ("QMix",),
    ),
    DefaultDifference(
        "replay_buffer_config.capacity",
        1000,
        50_000,
        "It counts steps of a group, where RLlib's counts fragments of 4 steps and more.",
        ("QMix",),
    ),
    DefaultDifference(
        "model.vf_share_layers",
        True,
        False,
        "Values of tens or hundreds would move shared layers, and the policy with them.",
        ("BC", "MARWIL"),
    ),
    DefaultDifference(
        "min_train_timesteps_per_iteration",
        100,
        0,
        "An iteration from recorded data alone is 1,000 updates, unless one of the three minima is set.",
        ("CQL",),
    ),
    DefaultDifference(
        "min_sample_timesteps_per_iteration",
        0,
        100,
        "As for SAC; it counts for a mixture with sampled steps.",
        ("CQL",),
    ),
    DefaultDifference(
        "num_steps_sampled_before_learning_starts",
        1500,
        0,
        "The recorded steps are there at once.",
        ("CQL",),
    ),
    DefaultDifference(
        "replay_buffer_config.type",
        "MultiAgentPrioritizedReplayBuffer",
        "MultiAgentReplayBuffer",
        "The paper draws recorded steps uniformly.",
        ("CQL",),
    ),
)
NOT_IN_RLLIB = (
    *("Rainbow", "PQN", "TRPO", "TQC", "CrossQ", "VDN", "TD3BC", "ReBRAC", "IQL", "AWAC"),
    *("Distillation", "DAgger"),
    *("GAIL", "GAILSAC", "AIRL", "AMP", "SQIL", "SQILDQN"),
)


def default_differences(algorithm: str) -> list[DefaultDifference]:
    """Departures of the algorithm with this name; none for an algorithm that RLlib does not have."""
    if algorithm in NOT_IN_RLLIB:
        return []
    return [
        difference
        for difference in DEFAULT_DIFFERENCES
        if not difference.algorithms or algorithm in difference.algorithms
    ]
