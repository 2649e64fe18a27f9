"""Pong with the network of the Nature paper, sampling and learning: environment steps a second of IMPALA and of PPO.

IMPALA has 8 environments in one worker, and makes one gradient step on each batch. The peer is Stable-Baselines3's PPO
on the same game with the same network and number of environments, in its settings for Atari (128 steps, 4 epochs,
minibatches of 256); our PPO does the same work, with its environments spread over two workers and each minibatch over
two learners. An environment step is four frames. Needs ale-py here (`pip install '.[atari]'`) and there
(`benchmarks/peers/setup sb3`). Where EnvPool is there (`pip install '.[envpool]'` here, `benchmarks/peers/setup
envpool` there), our PPO and SB3's also play its Pong, whose environments step at once in its threads. What a
process may use is left to each library: the peer's torch takes all cores, as it does by default.
"""

import importlib.util
import time

from measure import alternate, arguments, machine, peer_side, rows, table

ENVPOOL = "Pong-v5"  # its name there
FRAGMENT = 20
PPO_FRAGMENT = 128


def build(name: str, env: str, envs: int, batch: int):
    """IMPALA or APPO with this number of environments in one worker."""
    from rllib.algorithms.base.registry import get_algorithm_config

    return (
        get_algorithm_config(name)
        .environment(env)
        .rollouts(num_rollout_workers=1, num_envs_per_worker=envs, rollout_fragment_length=FRAGMENT)
        .training(train_batch_size=batch, model={"conv_filters": "nature", "vf_share_layers": True})
        .reporting(min_time_s_per_iteration=1)
        .build()
    )


def build_ppo(env: str, envs: int):
    """PPO with this number of environments in two workers, two learners, and the peer's settings."""
    from rllib import PPOConfig

    return (
        PPOConfig()
        .environment(env)
        .rollouts(num_rollout_workers=2, num_envs_per_worker=envs // 2, rollout_fragment_length=PPO_FRAGMENT)
        .training(
            train_batch_size=envs * PPO_FRAGMENT,
            sgd_minibatch_size=256,
            num_sgd_iter=4,
            lr=2.5e-4,
            clip_param=0.1,
            kl_coeff=0.0,
            entropy_coeff=0.01,
            vf_loss_coeff=0.5,
            grad_clip=0.5,
            model={"conv_filters": "nature", "vf_share_layers": True},
        )
        .learners(num_learners=2)
        .reporting(min_time_s_per_iteration=0)
        .build()
    )


def training_rate(algo, seconds: float) -> float:
    """Steps a second that were sampled and trained on."""
    trained = algo.metrics.counters["num_env_steps_trained"]
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        result = algo.train()
    return (result["num_env_steps_trained"] - trained) / elapsed


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--env", default="ALE/Pong-v5")
    parser.add_argument("--envs", type=int, default=8, help="environments")
    parser.add_argument("--batch", type=int, default=640, help="steps of a train batch")
    parser.add_argument("--seconds", type=float, default=20, help="of ours in each round")
    parser.add_argument("--peer-iterations", type=int, default=4, help="of 128 steps each, in each round")
    options = parser.parse_args()
    print(machine())

    def ours() -> float:
        with build("IMPALA", options.env, options.envs, options.batch) as algo:
            training_rate(algo, 3)
            return training_rate(algo, options.seconds)

    def ours_ppo(env: str) -> float:
        with build_ppo(env, options.envs) as algo:
            training_rate(algo, 3)
            return training_rate(algo, options.seconds)

    sides = {"impala": ours, "ppo": lambda: ours_ppo(options.env)}
    if importlib.util.find_spec("envpool"):
        sides["ppo_envpool"] = lambda: ours_ppo(f"envpool:{ENVPOOL}")
    if not options.no_peers:
        key, sizes = "env_steps_per_s", ("--envs", options.envs, "--iterations", options.peer_iterations)
        sides["sb3"] = peer_side(key, "sb3", "sb3_pong_throughput", "--env", options.env, *sizes)
        sides["envpool"] = peer_side(key, "envpool", "envpool_sb3_ppo_throughput", "--env", ENVPOOL, *sizes)
    found = alternate(options.rounds, warm_up=0, **sides)
    made = []
    for side, what, bar in (
        ("impala", "IMPALA Pong", ">= 1.5 peer"),
        ("ppo", "PPO Pong", ">= 3 peer"),
        ("ppo_envpool", "PPO Pong of EnvPool", ""),
    ):
        if side in found.values:
            labels = {"sb3": ("SB3 PPO", bar), "envpool": ("SB3 PPO + EnvPool", "")}
            made += rows(found, what, "env steps/s", labels, ours=side)
    table(made)


if __name__ == "__main__":
    main()
