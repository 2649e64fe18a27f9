"""CartPole that is played in other processes, by 16 clients at once, until PPO or DQN has solved it.

    python benchmarks/external_learning.py PPO remote
    python benchmarks/external_learning.py DQN local
    python benchmarks/external_learning.py PPO remote --agents

Settings are those of tuned_examples/ppo/cartpole.yaml and tuned_examples/dqn/cartpole.yaml. With `remote` the server
acts, with `local` the clients do, by copies of the policy. With `--agents` an episode has two agents with a pole and a
policy each; an agent whose pole has fallen has ended, and the other plays on. When the returns of the clients come
close, the policies are judged by their most likely actions, in this process: solved is a mean return of 475 of each
agent over 100 new episodes.
"""

import argparse
import subprocess
import sys
import threading
import time

import gymnasium
import numpy as np
from measure import ROOT, machine

from rllib.client import PolicyClient, RunEnded

CLIENTS, PROCESSES = 16, 4
SOLVED, EPISODES = 475, 100
# Returns of clients that explore, from which on the policy is judged.
CLOSE = {"PPO": 450, "DQN": 250}
AGENTS = "left", "right"


class Poles:
    """One pole, or one of each agent; actions, observations and ends are dicts by agent."""

    def __init__(self, agents):
        self.worlds = {agent: gymnasium.make("CartPole-v1") for agent in agents}

    def reset(self, seed):
        self.seen = {agent: world.reset(seed=seed + at)[0] for at, (agent, world) in enumerate(self.worlds.items())}
        self.playing = set(self.worlds)
        return self.seen

    def step(self, actions):
        """Steps the agents that play; returns rewards, and (terminated, truncated) of those that have ended now."""
        rewards, ends = {}, {}
        for agent in actions:
            self.seen[agent], rewards[agent], *end, _ = self.worlds[agent].step(actions[agent])
            if any(end):
                ends[agent] = end
                self.playing.discard(agent)
        return rewards, ends


def play_alone(client, poles, seed):
    episode = client.start_episode()
    poles.reset(seed)
    while poles.playing:
        action = client.get_action(episode, poles.seen[None])
        rewards, ends = poles.step({None: action})
        client.log_returns(episode, rewards[None])
    client.end_episode(episode, poles.seen[None], truncated=not ends[None][0])


def play_together(client, poles, seed):
    episode, fallen = client.start_episode(), {}
    poles.reset(seed)
    while poles.playing:
        seen = {agent: poles.seen[agent] for agent in poles.playing | fallen.keys()}
        actions = client.get_action(episode, seen)
        rewards, fallen = poles.step({agent: actions[agent] for agent in poles.playing})
        flags = ({agent: end[at] for agent, end in fallen.items()} for at in (0, 1))
        done, truncated = flags
        client.log_returns(episode, rewards, None, done, truncated_dict=truncated)
    client.end_episode(episode, {agent: poles.seen[agent] for agent in fallen})


def play(url, mode, agents, first_seed):
    """Plays until the run ends."""
    poles, rng = Poles(agents), np.random.default_rng(first_seed)
    turn = play_alone if agents == [None] else play_together
    with PolicyClient(url, mode) as client:
        try:
            while True:
                turn(client, poles, int(rng.integers(2**30)))
        except RunEnded:
            pass


def build(name, agents):
    """The algorithm that listens."""
    from rllib.algorithms.base.registry import get_algorithm_config
    from rllib.cli.spec import load_spec

    settings = dict(load_spec(ROOT / "tuned_examples" / name.lower() / "cartpole.yaml")["config"])
    settings.pop("num_envs_per_worker", None)
    pole = gymnasium.make("CartPole-v1")
    config = get_algorithm_config(name)
    config.environment(observation_space=pole.observation_space, action_space=pole.action_space)
    if agents:
        config.multi_agent(policies=set(agents), policy_mapping_fn=lambda agent, *_, **__: agent)
    config.external(listen="127.0.0.1:0").update_from_dict(settings)
    config.rollouts(num_rollout_workers=0, sample_timeout_s=120).debugging(seed=0)
    config.reporting(min_sample_timesteps_per_iteration=1000, min_time_s_per_iteration=0)
    return config.build()


def judged(policy, episodes) -> float:
    """Mean return of the most likely actions."""
    worlds = gymnasium.make_vec("CartPole-v1", episodes, vectorization_mode="sync")
    seen, _ = worlds.reset(seed=10_000)
    returns, playing = np.zeros(episodes), np.ones(episodes, bool)
    while playing.any():
        actions, *_ = policy.compute_actions(seen, explore=False)
        seen, rewards, terminated, truncated, _ = worlds.step(np.asarray(actions))
        returns += rewards * playing
        playing &= ~(terminated | truncated)
    return returns.mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=sorted(CLOSE))
    parser.add_argument("inference", choices=("remote", "local"))
    parser.add_argument("--agents", action="store_true", help="two of them in each episode, with a policy each")
    parser.add_argument("--seconds", type=float, default=600.0, help="most that it may take")
    parser.add_argument("--play", nargs=2, metavar=("URL", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    agents = list(AGENTS) if options.agents else []
    if options.play:
        url, seed = options.play
        seeds = range(int(seed), int(seed) + CLIENTS // PROCESSES)
        threads = [
            threading.Thread(target=play, args=(url, options.inference, agents or [None], each)) for each in seeds
        ]
        for each in threads:
            each.start()
        return
    sys.exit(not solves(options, agents))


def solves(options, agents) -> bool:
    """Trains with clients in other processes; returns whether every policy has solved the task, and prints figures."""
    began = time.monotonic()
    algorithm, clients = build(options.algorithm, agents), []
    policies = agents or ["default_policy"]
    with algorithm:
        url = algorithm.workers.foreach_worker(lambda worker: worker.env.url)[0]
        for number in range(PROCESSES):
            command = [sys.executable, __file__, *sys.argv[1:], "--play", url, str(CLIENTS * number)]
            clients.append(subprocess.Popen(command, cwd=ROOT))
        means = dict.fromkeys(policies, 0.0)
        while min(means.values()) < SOLVED and time.monotonic() < began + options.seconds:
            result = algorithm.train()
            reached = result["policy_reward_mean"].values() if agents else [result["episode_reward_mean"]]
            if min(reached, default=0.0) >= CLOSE[options.algorithm]:
                means = {each: judged(algorithm.get_policy(each), EPISODES) for each in policies}
        num_clients = result["external"]["clients"]
    ended = [client.wait(60) for client in clients]
    print(
        f"{options.algorithm}, {options.inference} inference, {num_clients} clients"
        f"{', two agents' if agents else ''}: {', '.join(f'{mean:.1f}' for mean in means.values())} after "
        f"{result['timesteps_total']:,} steps and {time.monotonic() - began:.0f} s; clients ended with {ended}"
    )
    print(machine())
    return min(means.values()) >= SOLVED and not any(ended)


if __name__ == "__main__":
    main()
