"""Networks of groups: agents that are one policy, each of whose members has action values by the same network."""
