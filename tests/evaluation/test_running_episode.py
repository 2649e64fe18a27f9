"""The episode that hooks get: the same for an environment with one agent and for its agent among several."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib import DefaultCallbacks, MultiAgentEnv, PPOConfig
from rllib.env.external import ExternalEnv
from rllib.env.multi_agent import make_multi_agent
from tests.envs import CountingEnv

OF_AGENT = (
    "last_observation_for", "last_raw_obs_for", "last_info_for", "last_action_for", "prev_action_for",
    "last_reward_for", "prev_reward_for", "last_terminated_for", "last_truncated_for",
)  # fmt: skip
OF_EPISODE = (
    "episode_id", "id_", "env_id", "length", "started", "total_reward", "is_terminated", "is_done", "is_reset",
    "is_faulty",
)  # fmt: skip
CALLED = ("env_steps", "agent_steps", "get_return", "__len__", "__bool__")


class Facts(DefaultCallbacks):
    """Writes down what the episode says in each hook."""

    facts: list = []  # noqa: RUF012

    def note(self, hook, episode):
        agents = episode.get_agents() or [0]
        assert agents == [0] or agents == ["agent0"]
        values = {name: getattr(episode, name)(agents[0]) for name in OF_AGENT}
        if "agent0" in agents:
            assert values == {name: getattr(episode, name)() for name in OF_AGENT}, "the agent's id is optional"
        values |= {name: getattr(episode, name) for name in OF_EPISODE}
        values |= {name: getattr(episode, name)() for name in CALLED}
        values |= {"rewards of agents": list(episode.agent_rewards.values()) or [0.0]}
        self.facts.append((hook, {name: np.array(value, object).tolist() for name, value in values.items()}))

    def on_episode_created(self, *, episode, **kwargs):
        self.note("created", episode)

    def on_episode_start(self, *, episode, **kwargs):
        self.note("start", episode)

    def on_episode_step(self, *, episode, **kwargs):
        self.note("step", episode)

    def on_episode_end(self, *, episode, **kwargs):
        self.note("end", episode)
        self.last = episode


def config(env) -> PPOConfig:
    config = PPOConfig().environment(env, env_config={"lengths": [4, 6]}).callbacks(Facts)
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=2).debugging(seed=3)
    return config.training(train_batch_size=32, sgd_minibatch_size=32, num_sgd_iter=1, model={"fcnet_hiddens": [4]})


def facts_of(config: PPOConfig) -> tuple[list, Facts]:
    Facts.facts = []
    with config.build() as algo:
        algo.sample(32)
        return Facts.facts, algo.workers.local_worker().callbacks


@pytest.mark.parametrize("max_episode_steps", [None, 3], ids=["own end", "limit"])
def test_one_agent_is_told_as_the_only_one_of_several(max_episode_steps):
    limit = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
    alone, _ = facts_of(config(CountingEnv).environment(env_config={"lengths": [4, 6], **limit}))
    several = config(make_multi_agent(CountingEnv)).environment(env_config={"lengths": [4, 6], **limit})
    several, _ = facts_of(several)
    assert [hook for hook, _ in alone].count("end") >= 4
    by_environment = [
        [fact for fact in facts if fact[1]["env_id"] == index] for facts in (alone, several) for index in (0, 1)
    ]
    for of_alone, of_several in zip(by_environment[:2], by_environment[2:]):
        assert len(of_alone) == len(of_several)
        for (hook, one), (other_hook, other) in zip(of_alone, of_several):
            assert hook == other_hook
            differing = {name: (one[name], other[name]) for name in one if one[name] != other[name]}
            assert not differing, (hook, differing)


class Looped(ExternalEnv):
    """The same environment, played by a loop."""

    def __init__(self, config):
        self.world = CountingEnv(config)
        super().__init__(self.world.action_space, self.world.observation_space)

    def run(self):
        while True:
            episode, (observation, _) = self.start_episode(), self.world.reset()
            terminated = truncated = False
            while not (terminated or truncated):
                action = self.get_action(episode, observation)
                observation, reward, terminated, truncated, info = self.world.step(action)
                self.log_returns(episode, reward, info)
            self.end_episode(episode, observation, truncated=not terminated)


class Kept(Facts):
    """Writes down all steps, as RLlib's later hooks read them."""

    def note(self, hook, episode):
        values = {name: getattr(episode, f"get_{name}")() for name in ("observations", "actions", "rewards", "infos")}
        values |= {f"newest of {name}": each[-1:] for name, each in values.items()}
        self.facts.append((hook, {name: np.array(value, object).tolist() for name, value in values.items()}))

    def on_episode_end(self, *, episode, env_runner, **kwargs):
        self.note("end", episode)


@pytest.mark.parametrize("callbacks", [Facts, Kept])
def test_the_agent_of_a_loop_is_told_as_that_of_an_environment(callbacks):
    of_both = []
    for env in (CountingEnv, Looped):
        of_env, _ = facts_of(config(env).rollouts(num_envs_per_worker=1).callbacks(callbacks))
        of_both.append([fact for fact in of_env if fact[0] in ("step", "end")])
    stepped, looped = of_both
    assert len(stepped) > 30 and [hook for hook, _ in stepped].count("end") >= 4
    # Of both the policy's actions are drawn in other streams.
    for (hook, one), (other_hook, other) in zip(stepped, looped):
        differing = {n: (one[n], other[n]) for n in one if "action" not in n and (one[n] or 0) != (other[n] or 0)}
        differing.pop("last_truncated_for", None)  # a loop says one of both
        assert hook == other_hook and not differing, (hook, differing)
        assert all(len(np.ravel(one[n])) == len(np.ravel(other[n])) for n in one if "action" in n)


def test_of_several_agents_one_has_to_be_named():
    _, callbacks = facts_of(config(make_multi_agent(CountingEnv)))
    episode = callbacks.last
    for name in OF_AGENT:
        with pytest.raises(TypeError, match="several agents"):
            getattr(episode, name)()
    with pytest.raises(RuntimeError, match="last_observation_for"):
        episode.get_observations(-1)


class Turns(MultiAgentEnv):
    """Two agents act in turn; each step rewards both, and the last one ends the episode."""

    possible_agents = ("even", "odd")
    observation_space = Box(0, 9, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, config=None):
        self.agents = list(self.possible_agents)
        self.seen = np.zeros(1, np.float32)

    def _observations(self):
        return {self.possible_agents[int(self.seen[0]) % 2]: self.seen}

    def reset(self, *, seed=None, options=None):
        self.seen[0] = 0
        return self._observations(), {"__common__": {"reset": True}}

    def step(self, action_dict):
        self.seen += 1
        now, is_over = float(self.seen[0]), self.seen[0] >= 3
        infos = {"even": {"now": now}}
        return self._observations(), {"even": now, "odd": -now}, {"__all__": is_over}, {"__all__": False}, infos


class KeptByAgent(DefaultCallbacks):
    def on_episode_end(self, *, episode, env_runner, **kwargs):
        assert episode.get_rewards() == {"even": [1.0, 2.0, 3.0], "odd": [-1.0, -2.0, -3.0]}
        assert episode.get_rewards(-1) == {"even": 3.0, "odd": -3.0}
        assert episode.get_rewards(slice(1, None), agent_ids="odd") == {"odd": [-2.0, -3.0]}
        assert episode.get_rewards([0, 2], agent_ids=["even"]) == {"even": [1.0, 3.0]}
        # The environment writes into one array, and each observation is as it was.
        seen = episode.get_observations()
        assert {agent: [int(each[0]) for each in of_agent] for agent, of_agent in seen.items()} == {
            "even": [0, 2], "odd": [1, 3],
        }  # fmt: skip
        assert {agent: len(actions) for agent, actions in episode.get_actions().items()} == {"even": 2, "odd": 1}
        assert episode.get_infos() == {"even": [{"now": 1.0}, {"now": 2.0}, {"now": 3.0}]}
        assert len(episode.get_rewards(0, env_steps=True, fill=0.0, return_list=False)) == 2
        with pytest.raises(TypeError, match="return_list=True"):
            episode.get_rewards(return_list=True)
        env_runner.ended = getattr(env_runner, "ended", 0) + 1


def test_the_steps_of_several_agents_are_kept_by_agent():
    with config(Turns).callbacks(KeptByAgent).build() as algo:
        algo.train()
        assert algo.workers.local_worker().ended > 3
