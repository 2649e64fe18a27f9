"""PPO with several agents, sampling and training: steps of agents a second, beside one agent on the same task.

Two poles in each of four environments are eight agents, as in eight environments of CartPole-v1. The rows: a policy for
each agent, one policy for both, and sixteen agents with a policy each in one environment.
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
    table(made)


if __name__ == "__main__":
    main()
