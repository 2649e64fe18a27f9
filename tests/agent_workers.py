"""Environments that follow a script, and workers that sample them without an algorithm, for tests of rows."""

import inspect

import numpy as np
from gymnasium.spaces import Box, Discrete

from rllib.algorithms.ppo import PPOConfig
from rllib.env.multi_agent import AgentSpaces, MultiAgentEnv
from rllib.env.multi_agent.stream import MultiAgentStream
from rllib.evaluation.multi_agent.settings import AgentSettings
from rllib.evaluation.multi_agent.worker import MultiAgentWorker
from rllib.evaluation.settings import RolloutSettings
from rllib.policy import Policy

SPACES = Box(-1e9, 1e9, (2,), np.float32), Discrete(2)


class Schedule(MultiAgentEnv):
    """Agents appear, wait, are rewarded and end at random; an episode depends on the seed and its number alone."""

    possible_agents = ("a", "b", "c")
    observation_space, action_space = SPACES

    def __init__(self, seed: int):
        self.seed, self.number = seed, -1

    def reset(self, *, seed=None, options=None):
        self.number += 1
        self.rng = np.random.default_rng([self.seed, self.number])
        self.time, self.done, self.seen = 0, set(), set()
        return self._observations(), {}

    def _observations(self):
        found = {}
        for place, agent in enumerate(self.possible_agents):
            if agent not in self.done and self.rng.random() < 0.6:
                found[agent] = np.array([self.number * 1000 + self.time, place], np.float32)
        self.seen |= found.keys()
        return found

    def step(self, action_dict):
        self.time += 1
        living = [agent for agent in self.possible_agents if agent not in self.done]
        rewards = {agent: float(self.rng.integers(5)) for agent in living if self.rng.random() < 0.7}
        observations, terminateds, truncateds = self._observations(), {}, {}
        for agent in living:
            if agent in self.seen and self.rng.random() < 0.1:
                (terminateds if self.rng.random() < 0.5 else truncateds)[agent] = True
                self.done.add(agent)
                if self.rng.random() < 0.5:
                    observations.pop(agent, None)
        is_over, is_late = self.rng.random() < 0.08 or len(self.done) == 3, self.rng.random() < 0.5
        terminateds["__all__"], truncateds["__all__"] = is_over and not is_late, is_over and is_late
        return observations, rewards, terminateds, truncateds, {}


class Script(MultiAgentEnv):
    """One episode, word by word: the first observations, then the results of the steps. Observations are numbers.

    Args:
        first: {agent: number}.
        steps: (observations, rewards, terminateds, truncateds), of which the flags may be left out.
    """

    observation_space, action_space = Box(-1e9, 1e9, (1,), np.float32), Discrete(2)

    def __init__(self, first: dict, *steps: tuple):
        self.first, self.steps, self.actions = first, steps, []
        named = [first, *(numbers for step in steps for numbers in step[:2])]
        self.possible_agents = sorted({agent for numbers in named for agent in numbers})

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self._arrays(self.first), {}

    @staticmethod
    def _arrays(numbers: dict) -> dict:
        return {agent: np.array([number], np.float32) for agent, number in numbers.items()}

    def step(self, action_dict):
        self.actions.append(set(action_dict))
        observations, rewards, *flags = self.steps[self.time]
        self.time += 1
        terminateds, truncateds = ({"__all__": False, **given} for given in (*flags, {}, {})[:2])
        return self._arrays(observations), rewards, terminateds, truncateds, {}


def worker_of(
    envs,
    num_steps: int = 1,
    *,
    policy_of=None,
    config: PPOConfig | None = None,
    kind=MultiAgentWorker,
    worker_index: int = 0,
    remake=None,
    seeds=None,
    own: dict | None = None,
    **more,
) -> MultiAgentWorker:
    """A worker over these environments, without an algorithm; the policies "p0", ... are those that policy_of names.

    Args:
        envs: environments with the same spaces, or a function of the index of an environment in the run; num_envs then
            says how many.
        num_steps: of a fragment.
        policy_of: function of the agent, or of (agent, episode, worker); by default all agents have the policy "p0".
        config: of the algorithm whose postprocess and network it has.
        kind: class of the worker.
        worker_index: see RolloutWorker.
        remake: as for MultiAgentStream.
        seeds: of the first resets; by default the indices.
        own: further fields of AgentSettings.
        more: further fields of RolloutSettings.
    """
    make = envs if callable(envs) else None
    if make:
        envs = [make(i) for i in range(more.get("num_envs", 1))]
    else:
        more["num_envs"] = len(envs)
    known, agents = AgentSpaces(envs[0]), list(envs[0].possible_agents) or [0]
    spaces = known.observation(agents[0]), known.action(agents[0])
    config = (config or PPOConfig()).environment(observation_space=spaces[0], action_space=spaces[1]).debugging(seed=3)
    algorithm = config.build()
    known = algorithm._rollout_settings
    policy_of = policy_of or (lambda agent: "p0")
    if len(inspect.signature(policy_of).parameters) == 1:
        by_agent, policy_of = policy_of, lambda agent, episode, worker: by_agent(agent)
        ids = sorted({by_agent(agent) for agent in agents})
        counts = {i: sum(by_agent(agent) == i for agent in agents) for i in ids}
        fields = {"spaces": dict.fromkeys(ids, spaces), "trained": frozenset(ids)}
        own = fields | ({"num_slots": counts} if envs[0].possible_agents else {}) | (own or {})
    agents = AgentSettings(policy_of, **own)

    class Settings(RolloutSettings):
        def open_agents(self, kind, indices, worker_index, incarnation):
            given = [make(i) for i in indices] if make else envs
            owner = f"{worker_class.kind} {worker_index}"
            return MultiAgentStream(given, seeds or list(indices), worker=owner, remake=remake)

    worker_class = kind
    policies = {i: known.only_policy for i in agents.spaces if i not in agents.hand_written}
    fields = {
        **vars(known),
        "policies": policies,
        "agents": agents,
        "fragment_length": num_steps,
        "num_envs": 1,
        "num_workers": 0,
    }
    worker = kind(Settings(**{**fields, **more}), worker_index)
    for policy in worker.policies.values():
        policy.set_weights(algorithm.get_policy().weights)
    return worker


def with_values(policy: Policy, values: dict[float, float]) -> None:
    """Makes the policy give these values to observations, which are single numbers."""
    policy.values = lambda rows, state=None: np.array([values.get(float(row[0]), 0.0) for row in rows], np.float32)
