"""A slow reference of what rows the agents of one environment make, by the definitions alone."""


def collect(env, act, num_steps):
    """Rows of one environment in the order in which they close, rows that are open at the end, and the episodes."""
    rows, opened, returns, episodes, t = [], {}, {}, [], 0
    observations, done = env.reset()[0], set()
    for _ in range(num_steps):
        acting = {agent: seen for agent, seen in observations.items() if agent not in done}
        actions = {agent: act(agent, seen) for agent, seen in acting.items()}
        for agent, seen in acting.items():
            opened[agent] = {"agent": agent, "obs": seen, "action": actions[agent], "reward": 0.0}
            opened[agent]["episode"] = len(episodes)
        observations, rewards, terminateds, truncateds, _ = env.step(actions)
        for agent, reward in rewards.items():
            returns[agent] = returns.get(agent, 0.0) + reward
            if agent in opened:
                opened[agent]["reward"] += reward
        for agent in list(opened):
            terminated = bool(terminateds.get(agent) or terminateds["__all__"])
            truncated = bool(truncateds.get(agent) or truncateds["__all__"])
            if not (agent in observations or terminated or truncated):
                continue
            row = opened.pop(agent)
            row.update(terminated=terminated, truncated=truncated, new_obs=observations.get(agent), t=t)
            if agent in observations or terminated:
                rows.append(row)
                continue
            before = [r for r in rows if r["agent"] == agent and r["episode"] == row["episode"]]
            if before and not before[-1]["terminated"]:
                before[-1].update(truncated=True, new_obs=row["obs"])
        for flags in (terminateds, truncateds):
            done |= {agent for agent, flag in flags.items() if flag and agent != "__all__"}
        t += 1
        if terminateds["__all__"] or truncateds["__all__"]:
            episodes.append((returns, t))
            returns, opened, t = {}, {}, 0
            observations, done = env.reset()[0], set()
    return rows, opened, episodes
