"""Pendulum for several agents: give it by "rllib.env.tasks.multi_agent_pendulum:MultiAgentPendulum"."""

from rllib.env.multi_agent.copies import make_multi_agent


class MultiAgentPendulum(make_multi_agent("Pendulum-v1")):
    """A Pendulum-v1 for each agent, 0 to n - 1; `env_config={"num_agents": n}`."""
