"""Whether the tuned files of Ray 2.6.3 reach their own `stop` bars here; a row per file and seed.

    python benchmarks/ray_tuned_files.py                              every file, seed 0
    python benchmarks/ray_tuned_files.py ppo/cartpole-ppo dqn         one file, and all of a directory
    python benchmarks/ray_tuned_files.py appo --seeds 0 1 2

Each row runs through `tune.run_experiments`, with the settings under the names that the file gives them, until the
mean return of the last 100 training episodes reaches the file's bar or its timesteps are spent. Iterations are short,
so that neither is noticed late. Left out are the files for fake GPUs and for several agents. A file whose settings hold
a seed ignores --seeds. One key is not as it stands there: the horizon of frozenlake-appo-vtrace, which RLlib 2.6.3
passes over, is its time limit; the environment of stateless-cartpole-r2d2 has CartPole-v1's, too. The file
mountaincarcontinuous-ddpg ends after ten minutes, not after 50,000 steps.
"""

import argparse
import dataclasses
import logging
import math
import sys
import tempfile
import time

from measure import machine

_SHORT_ITERATIONS = {"min_time_s_per_iteration": 0, "min_sample_timesteps_per_iteration": 1000}


@dataclasses.dataclass(frozen=True)
class File:
    """What a file of rllib/tuned_examples says.

    Attributes:
        run: name of the algorithm.
        env: id of the environment.
        reward: mean return that ends the run.
        timesteps: steps that end it at the latest.
        config: settings, as they stand there.
    """

    run: str
    env: str
    reward: float
    timesteps: int
    config: dict = dataclasses.field(default_factory=dict)


_LINEAR_32 = {"fcnet_hiddens": [32], "fcnet_activation": "linear", "vf_share_layers": True}
_LINEAR_64 = {"fcnet_hiddens": [64], "fcnet_activation": "linear"}
_RELU_256 = {"fcnet_activation": "relu", "fcnet_hiddens": [256, 256]}
_FIELD_OF_8 = ["SFFFFFFF", *["FFFFFFFF"] * 6, "FFFFFFFG"]

FILES = {
    "ppo/cartpole-ppo": File(
        "PPO", "CartPole-v1", 150, 100_000,
        {
            "framework": "torch", "gamma": 0.99, "lr": 0.0003, "num_workers": 1, "observation_filter": "MeanStdFilter",
            "num_sgd_iter": 6, "vf_loss_coeff": 0.01, "model": _LINEAR_32, "enable_connectors": True,
        },
    ),
    "ppo/pendulum-ppo": File(
        "PPO", "Pendulum-v1", -400, 400_000,
        {
            "framework": "torch", "train_batch_size": 512, "vf_clip_param": 10.0, "num_workers": 0,
            "num_envs_per_worker": 20, "lambda": 0.1, "gamma": 0.95, "lr": 0.0003, "sgd_minibatch_size": 64,
            "observation_filter": "MeanStdFilter", "seed": 42, "enable_connectors": True,
            "model": {"fcnet_activation": "relu"},
        },
    ),
    "dqn/cartpole-dqn": File(
        "DQN", "CartPole-v1", 100, 100_000, {"framework": "torch", "model": _LINEAR_64, "n_step": 3}
    ),
    "dqn/cartpole-dqn-softq": File(
        "DQN", "CartPole-v1", 150, 100_000,
        {
            "framework": "torch", "model": _LINEAR_64, "n_step": 3,
            "exploration_config": {"type": "SoftQ", "temperature": 0.5},
        },
    ),
    "dqn/cartpole-dqn-param-noise": File(
        "DQN", "CartPole-v1", 150, 300_000,
        {
            "framework": "torch",
            "exploration_config": {"type": "ParameterNoise", "random_timesteps": 10_000, "initial_stddev": 1.0},
            "batch_mode": "complete_episodes", "lr": 0.0008, "num_workers": 0,
            "model": {"fcnet_hiddens": [32, 32], "fcnet_activation": "tanh"},
        },
    ),
    "simple_q/cartpole-simpleq": File("SimpleQ", "CartPole-v1", 150, 50_000, {"framework": "torch"}),
    "a2c/cartpole-a2c": File(
        "A2C", "CartPole-v1", 150, 500_000,
        {
            "framework": "torch", "train_batch_size": 40, "rollout_fragment_length": "auto", "num_workers": 0,
            "lr": 0.001,
        },
    ),
    "a2c/cartpole-a2c-microbatch": File(
        "A2C", "CartPole-v1", 150, 1_000_000,
        {
            "framework": "torch", "num_workers": 2, "gamma": 0.95, "rollout_fragment_length": 20,
            "microbatch_size": 40, "train_batch_size": 120, "eager_tracing": False,
        },
    ),
    "a3c/cartpole-a3c": File(
        "A3C", "CartPole-v1", 150, 200_000, {"framework": "torch", "num_workers": 1, "gamma": 0.95}
    ),
    "pg/cartpole-pg": File("PG", "CartPole-v1", 150, 100_000, {"framework": "torch", "num_workers": 0}),
    "impala/cartpole-impala": File(
        "IMPALA", "CartPole-v1", 150, 500_000, {"framework": "torch", "num_gpus": 0, "vtrace_drop_last_ts": False}
    ),
    "impala/pendulum-impala": File("IMPALA", "Pendulum-v1", -700, 500_000),
    "appo/cartpole-appo": File(
        "APPO", "CartPole-v1", 150, 200_000,
        {
            "framework": "torch", "num_envs_per_worker": 5, "num_workers": 1, "num_gpus": 0,
            "observation_filter": "MeanStdFilter", "num_sgd_iter": 6, "vf_loss_coeff": 0.01, "vtrace": False,
            "model": _LINEAR_32, "enable_connectors": True,
        },
    ),
    "appo/cartpole-appo-vtrace": File(
        "APPO", "CartPole-v1", 180, 200_000,
        {
            "framework": "torch", "num_envs_per_worker": 5, "num_workers": 4, "num_gpus": 0,
            "observation_filter": "MeanStdFilter", "num_sgd_iter": 1, "vf_loss_coeff": 0.01, "vtrace": True,
            "vtrace_drop_last_ts": False, "model": _LINEAR_32,
        },
    ),
    "appo/frozenlake-appo-vtrace": File(
        "APPO", "FrozenLake-v1", 0.99, 1_000_000,
        {
            "framework": "torch", "env_config": {"desc": _FIELD_OF_8, "is_slippery": False, "max_episode_steps": 20},
            "rollout_fragment_length": 10, "batch_mode": "complete_episodes", "vtrace": True,
            "vtrace_drop_last_ts": False, "num_envs_per_worker": 5, "num_workers": 4, "num_gpus": 0,
            "num_sgd_iter": 1, "vf_loss_coeff": 0.01,
        },
    ),
    "appo/pendulum-appo": File(
        "APPO", "Pendulum-v1", -1000, 500_000,
        {
            "framework": "torch", "vtrace": True, "num_gpus": 0, "num_workers": 1, "lambda": 0.1, "gamma": 0.95,
            "lr": 0.0003, "train_batch_size": 100, "minibatch_buffer_size": 16, "num_sgd_iter": 10,
            "model": {"fcnet_hiddens": [256, 256]}, "batch_mode": "truncate_episodes",
            "observation_filter": "MeanStdFilter",
        },
    ),
    "es/cartpole-es": File(
        "ES", "CartPole-v1", 100, 500_000,
        {"framework": "torch", "num_workers": 2, "noise_size": 25_000_000, "episodes_per_batch": 50},
    ),
    "ars/cartpole-ars": File(
        "ARS", "CartPole-v1", 150, 1_000_000,
        {
            "framework": "torch", "noise_stdev": 0.02, "num_rollouts": 50, "rollouts_used": 25, "num_workers": 2,
            "sgd_stepsize": 0.01, "noise_size": 25_000_000, "eval_prob": 0.5,
        },
    ),
    "apex_dqn/cartpole-apex-dqn": File(
        "APEX", "CartPole-v1", 150, 250_000,
        {
            "framework": "torch", "num_workers": 3, "optimizer": {"num_replay_buffer_shards": 2},
            "replay_buffer_config": {"type": "MultiAgentPrioritizedReplayBuffer", "capacity": 20_000},
            "num_steps_sampled_before_learning_starts": 1000, "num_gpus": 0, "min_time_s_per_iteration": 5,
            "target_network_update_freq": 500, "min_sample_timesteps_per_iteration": 1000, "training_intensity": 4,
        },
    ),
    "sac/cartpole-sac": File(
        "SAC", "CartPole-v1", 150, 100_000,
        {
            "framework": "torch", "gamma": 0.95, "target_network_update_freq": 32, "tau": 1.0, "train_batch_size": 32,
            "optimization": {
                "actor_learning_rate": 0.005, "critic_learning_rate": 0.005, "entropy_learning_rate": 0.0001,
            },
        },
    ),
    "sac/pendulum-sac": File(
        "SAC", "Pendulum-v1", -250, 10_000,
        {
            "framework": "torch", "q_model_config": _RELU_256, "policy_model_config": _RELU_256, "tau": 0.005,
            "target_entropy": "auto", "n_step": 1, "rollout_fragment_length": 1, "train_batch_size": 256,
            "target_network_update_freq": 1, "min_sample_timesteps_per_iteration": 1000,
            "replay_buffer_config": {"type": "MultiAgentPrioritizedReplayBuffer"},
            "num_steps_sampled_before_learning_starts": 256,
            "optimization": {
                "actor_learning_rate": 0.0003, "critic_learning_rate": 0.0003, "entropy_learning_rate": 0.0003,
            },
            "num_workers": 0, "num_gpus": 0, "metrics_num_episodes_for_smoothing": 5,
        },
    ),
    "td3/pendulum-td3": File(
        "TD3", "Pendulum-v1", -900, 100_000,
        {
            "framework": "torch", "actor_hiddens": [64, 64], "critic_hiddens": [64, 64],
            "replay_buffer_config": {"type": "MultiAgentReplayBuffer"},
            "num_steps_sampled_before_learning_starts": 5000, "exploration_config": {"random_timesteps": 5000},
        },
    ),
    "ddpg/pendulum-ddpg": File(
        "DDPG", "Pendulum-v1", -320, 30_000,
        {
            "framework": "torch", "actor_hiddens": [64, 64], "critic_hiddens": [64, 64], "n_step": 1, "model": {},
            "gamma": 0.99, "exploration_config": {
                "type": "OrnsteinUhlenbeckNoise", "scale_timesteps": 10_000, "initial_scale": 1.0, "final_scale": 0.02,
                "ou_base_scale": 0.1, "ou_theta": 0.15, "ou_sigma": 0.2,
            },
            "min_sample_timesteps_per_iteration": 600, "target_network_update_freq": 0, "tau": 0.001,
            "replay_buffer_config": {
                "type": "MultiAgentPrioritizedReplayBuffer", "capacity": 10_000, "worker_side_prioritization": False,
            },
            "num_steps_sampled_before_learning_starts": 500, "clip_rewards": False, "actor_lr": 0.001,
            "critic_lr": 0.001, "use_huber": True, "huber_threshold": 1.0, "l2_reg": 0.000001,
            "rollout_fragment_length": 1, "train_batch_size": 64, "num_workers": 0,
        },
    ),
    "ddpg/mountaincarcontinuous-ddpg": File(
        "DDPG", "MountainCarContinuous-v0", 90, 50_000,
        {
            "framework": "torch", "actor_hiddens": [32, 64], "critic_hiddens": [64, 64], "n_step": 3, "model": {},
            "gamma": 0.99, "env_config": {}, "exploration_config": {
                "initial_scale": 1.0, "final_scale": 0.02, "scale_timesteps": 40_000, "ou_base_scale": 0.75,
                "ou_theta": 0.15, "ou_sigma": 0.2,
            },
            "min_sample_timesteps_per_iteration": 1000, "target_network_update_freq": 0, "tau": 0.01,
            "replay_buffer_config": {
                "type": "MultiAgentPrioritizedReplayBuffer", "capacity": 50_000, "prioritized_replay_alpha": 0.6,
                "prioritized_replay_beta": 0.4, "prioritized_replay_eps": 0.000001, "worker_side_prioritization": False,
            },
            "num_steps_sampled_before_learning_starts": 1000, "clip_rewards": False, "actor_lr": 0.001,
            "critic_lr": 0.001, "use_huber": False, "huber_threshold": 1.0, "l2_reg": 0.00001,
            "rollout_fragment_length": 1, "train_batch_size": 64, "num_workers": 0, "num_gpus_per_worker": 0,
            "evaluation_interval": 5, "evaluation_duration": 10,
        },
    ),
    "r2d2/stateless-cartpole-r2d2": File(
        "R2D2", "rllib.env.tasks.memory:CartPoleNoVel", 150, 1_000_000,
        {
            "framework": "torch", "num_workers": 0,
            "replay_buffer_config": {
                "type": "MultiAgentReplayBuffer", "storage_unit": "sequences", "replay_burn_in": 20,
                "zero_init_states": True,
            },
            "lr": 0.0005, "exploration_config": {"epsilon_timesteps": 50_000},
            "model": {**_LINEAR_64, "use_lstm": True, "lstm_cell_size": 64, "max_seq_len": 20},
        },
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended: the last iteration's mean return, environment steps, minutes with start and end; its error."""

    reward: float
    steps: int
    minutes: float
    error: str | None


def run(name: str, seed: int) -> Outcome:
    """Train as the file says."""
    from rllib import tune

    file = FILES[name]
    experiment = {
        "run": file.run,
        "env": file.env,
        "stop": {"episode_reward_mean": file.reward, "timesteps_total": file.timesteps},
        "config": {"seed": seed, **file.config, **_SHORT_ITERATIONS},
    }
    started = time.perf_counter()
    options = {"verbose": 0, "raise_on_failed_trial": False}
    try:
        with tempfile.TemporaryDirectory() as folder:
            (trial,) = tune.run_experiments({"run": experiment}, local_dir=folder, **options)
        result, error = trial.last_result, trial.error and trial.error.strip().splitlines()[-1]
    except (TypeError, ValueError) as refusal:
        result, error = {}, str(refusal)
    minutes = (time.perf_counter() - started) / 60
    return Outcome(result.get("episode_reward_mean", math.nan), result.get("timesteps_total", 0), minutes, error)


def row(name: str, seed: int, outcome: Outcome) -> str:
    """The run's line of the table."""
    file = FILES[name]
    verdict = "pass" if outcome.reward >= file.reward else "**miss**"
    cells = (
        f"`{name}`",
        f"{file.config.get('seed', seed)}",
        f"{file.reward:g}",
        f"{file.timesteps:,}",
        f"{outcome.reward:.4g}",
        f"{outcome.steps:,}",
        f"{outcome.minutes:.1f}",
        f"{verdict}: {outcome.error}" if outcome.error else verdict,
    )
    return f"| {' | '.join(cells)} |"


def chosen(names: list[str]) -> list[str]:
    """The files that are named, or whose directory is; all where none is.

    Raises:
        SystemExit: if there is no such file or directory.
    """
    found = {name: [file for file in FILES if file == name or file.startswith(f"{name}/")] for name in names}
    if unknown := [name for name, files in found.items() if not files]:
        raise SystemExit(f"no such file: {', '.join(unknown)}. The files are: {', '.join(FILES)}")
    return [file for files in found.values() for file in files] or list(FILES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="such as appo/pendulum-appo, or a directory: appo")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    names = chosen(options.files)
    logging.getLogger("rllib").setLevel(logging.ERROR)
    print(machine())
    print()
    print("| file | seed | bar | within | mean return | steps | minutes | |")
    print("|---|---|---|---|---|---|---|---|")
    missed = 0
    for name in names:
        for seed in options.seeds:
            outcome = run(name, seed)
            missed += not outcome.reward >= FILES[name].reward
            print(row(name, seed, outcome), flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
