"""CartPole for several agents: give it by "rllib.env.tasks.multi_agent_cartpole:MultiAgentCartPole"."""

from rllib.env.multi_agent.copies import make_multi_agent


class MultiAgentCartPole(make_multi_agent("CartPole-v1")):
    """A CartPole-v1 for each agent, 0 to n - 1; `env_config={"num_agents": n}`."""
