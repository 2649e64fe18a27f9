"""PPO with several agents, sampling and training: steps of agents a second, beside one agent on the same task.

Two poles in each of four environments are eight agents, as in eight environments of CartPole-v1. The rows: a policy for
each agent, one policy for both, and sixteen agents with a policy each in one environment. Then sampling alone: 500
frozen policies beside 16, with opponents drawn at random and memory counted, and simple_spread in arrays beside one by
one.
"""

from measure import alternate, arguments, machine, rows, table

BATCH = 1024


def build(agents: int, envs: int, policies: str | None):
    """The algorithm; policies None: one agent an environment."""
    from rllib import PPOConfig
    from rllib.env.tasks.multi_agent_cartpole import MultiAgentCartPole

    config = PPOConfig()
    if policies is None:
        config.environment("CartPole-v1")
    else:
        config.environment(MultiAgentCartPole, env_config={"num_agents": agents}).multi_agent(policies=policies)
    return (
        config.rollouts(num_rollout_workers=0, num_envs_per_worker=envs)
        .training(train_batch_size=BATCH // agents, sgd_minibatch_size=256 if policies != "own" else 256 // agents)
        .training(num_sgd_iter=4, model={"fcnet_hiddens": [64, 64]})
        .build()
    )


def build_frozen(count: int):
    """The algorithm of a learning policy that meets frozen ones, drawn at random, in connect four."""
    from rllib import PPOConfig
    from rllib.env.tasks.connect_four import ConnectFour

    ids = [f"frozen_{number:03}" for number in range(count)]

    def mapping(agent, episode, **kwargs):
        is_main = (agent == "player_0") == (episode.episode_id % 2 == 0)
        return "main" if is_main else ids[int(episode.rng.integers(count))]

    config = PPOConfig().environment(ConnectFour).rollouts(num_rollout_workers=0, num_envs_per_worker=4)
    config.training(train_batch_size=512, sgd_minibatch_size=256, model={"fcnet_hiddens": [64, 64]})
    policies = {"main": None, **dict.fromkeys(ids)}
    return config.multi_agent(policies=policies, policy_mapping_fn=mapping, policies_to_train=["main"]).build()


def build_spread(in_arrays: bool):
    """The algorithm of one policy for the agents of eight simple_spreads."""
    from rllib import PPOConfig
    from rllib.env.multi_agent.adapt import as_multi_agent
    from rllib.env.tasks.vector_spread import VectorSpread

    config = PPOConfig().environment(VectorSpread if in_arrays else lambda config: as_multi_agent(VectorSpread()))
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=8, rollout_fragment_length=25)
    config.training(train_batch_size=200, model={"fcnet_hiddens": [64, 64]}).multi_agent(policies="shared")
    return config.build()


def sampled_rate(algo, samples: int) -> float:
    """Steps of environments that the local worker samples in a second of its CPU."""
    import time

    worker, steps, started = algo.workers.local_worker(), 0, time.process_time()
    for _ in range(samples):
        steps += worker.sample()[1].env_steps
    return steps / (time.process_time() - started)


def sampling(rounds: int) -> list:
    """Rows of the table for sampling alone; prints the memory of 500 frozen policies."""
    import psutil

    made, process = [], psutil.Process()
    with build_frozen(16) as few:
        sampled_rate(few, 5)
        before = process.memory_info().rss
        with build_frozen(500) as many:
            sampled_rate(many, 5)
            growth = (process.memory_info().rss - before) / 1e6
            size = few.policies["main"].weights.nbytes / 1e3
            print(f"500 frozen policies of {size:.0f} kB: +{growth:.0f} MB (< 100)")
            found = alternate(rounds, ours=lambda: sampled_rate(many, 10), peer=lambda: sampled_rate(few, 10))
            made += rows(found, "500 frozen policies", "env steps/CPU s", {"peer": ("16 of them", ">= 0.95")})
    with build_spread(True) as arrays, build_spread(False) as single:
        found = alternate(rounds, ours=lambda: sampled_rate(arrays, 20), peer=lambda: sampled_rate(single, 5))
        made += rows(found, "simple_spread x 8 in arrays", "env steps/CPU s", {"peer": ("one by one", ">= 2.5")})
    return made


def agent_rate(algo, iterations: int) -> float:
    """Steps of agents a second, sampled and trained."""
    import time

    before = algo.metrics.counters["num_agent_steps_sampled"] or algo.timesteps
    started = time.perf_counter()
    for _ in range(iterations):
        algo.train()
    after = algo.metrics.counters["num_agent_steps_sampled"] or algo.timesteps
    return (after - before) / (time.perf_counter() - started)


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--iterations", type=int, default=10, help="of each side in each round")
    options = parser.parse_args()
    print(machine())
    print(f"medians of {options.rounds} rounds of {options.iterations} iterations of {BATCH} steps of agents")
    made = []
    cases = (
        ("2 agents x 4, own policies", 2, 4, "own", ">= 0.77 one agent"),
        ("2 agents x 4, one policy", 2, 4, "shared", ">= 0.87 one agent"),
        ("16 agents x 1, own policies", 16, 1, "own", ">= 0.33 one agent"),
    )
    for name, agents, envs, policies, bar in cases:
        with build(1, agents * envs, None) as single, build(agents, envs, policies) as several:
            for algo in (single, several):
                agent_rate(algo, 5)
            found = alternate(
                options.rounds,
                warm_up=0,
                ours=lambda several=several: agent_rate(several, options.iterations),
                peer=lambda single=single: agent_rate(single, options.iterations),
            )
        made += rows(found, f"PPO, {name}", "agent steps/s", {"peer": ("one agent", bar)})
    table(made + sampling(options.rounds))


if __name__ == "__main__":
    main()
