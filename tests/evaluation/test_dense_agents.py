"""Sampling from arrays of agents: the rows are those of the same environments one by one."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib import DefaultCallbacks, DQNConfig, PPOConfig
from rllib import sample_batch as sb
from rllib.env.multi_agent.adapt import as_multi_agent
from rllib.env.multi_agent.vector_env import MultiAgentVectorEnv
from rllib.env.multi_agent.vector_stream import VectorAgentsStream
from rllib.env.tasks.vector_spread import VectorSpread
from rllib.policies import RandomPolicy

SHORT = {"max_cycles": 7}
COLUMNS = (sb.OBS, sb.ACTIONS, sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS, sb.ADVANTAGES, sb.VALUE_TARGETS)


class Ladder(MultiAgentVectorEnv):
    """Two agents climb; their actions say how far. An environment terminates at the height 6, after unequal times.

    Observations are the heights of both, the own one first, and the number of the episode.
    """

    def __init__(self, num_envs=1, max_cycles=5):
        self.num_envs, self.possible_agents = num_envs, ["a", "b"]
        self.single_observation_space, self.single_action_space = Box(0, 99, (3,), np.float32), Discrete(3)
        self._max_cycles = max_cycles

    def reset(self, *, seed=None, options=None):
        self._heights, self._episode = np.zeros((self.num_envs, 2)), np.zeros(self.num_envs)
        self._steps = np.zeros(self.num_envs, int)
        return self._seen(), {}

    def step(self, actions):
        self._heights = self._heights + actions
        self._steps = self._steps + 1
        terminated = self._heights.max(1) >= 6
        truncated = self._steps >= self._max_cycles
        rewards, info, ended = self._heights.astype(np.float32), {}, terminated | truncated
        if ended.any():
            info = {"final_obs": self._seen(), "_final_obs": ended}
            self._heights[ended], self._steps[ended] = 0, 0
            self._episode[ended] += 1
        return self._seen(), rewards, terminated, truncated, info

    def _seen(self):
        own, episode = self._heights, np.repeat(self._episode[:, None], 2, 1)
        return np.stack([own, own[:, ::-1], episode], -1).astype(np.float32)


def config_of(env, num_envs=3, algorithm=PPOConfig, **of_agents):
    config = algorithm().environment(env, env_config=SHORT).multi_agent(**of_agents).debugging(seed=3)
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=num_envs, rollout_fragment_length=20)
    if algorithm is PPOConfig:
        config.training(train_batch_size=20 * num_envs, sgd_minibatch_size=20, num_sgd_iter=1)
    return config.training(model={"fcnet_hiddens": [8]})


def one_by_one(env):
    return lambda config: as_multi_agent(env(**config))


def sampled(config, fragments=3):
    """Batches and reports of the local worker, and whether it samples in arrays."""
    with config.build() as algo:
        worker = algo.workers.local_worker()
        kind = type(worker.stream)
        return [worker.sample() for _ in range(fragments)], kind is VectorAgentsStream


def compare(dense, single, columns=COLUMNS):
    (dense, is_dense), (single, is_also_dense) = dense, single
    assert is_dense and not is_also_dense
    for (batch, report), (other, expected) in zip(dense, single, strict=True):
        assert batch.policy_batches.keys() == other.policy_batches.keys()
        for policy_id, rows in other.policy_batches.items():
            for name in {*columns} & rows.keys():
                np.testing.assert_array_equal(batch.policy_batches[policy_id][name], rows[name], err_msg=name)
        assert list(report.episodes) == list(expected.episodes)
        for name in ("env_steps", "rows", "longest_running", "agent_steps", "agent_steps_by_agent"):
            assert getattr(report, name) == getattr(expected, name), name


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("policies", ["shared", "own"])
@pytest.mark.parametrize("env", [VectorSpread, Ladder])
def test_rows_are_those_of_single_environments(env, policies, num_envs):
    how = {"num_envs": num_envs, "policies": policies}
    compare(sampled(config_of(env, **how)), sampled(config_of(one_by_one(env), **how)))


@pytest.mark.parametrize(
    "settings",
    [{"observation_filter": "MeanStdFilter"}, {"model": {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 6}}],
    ids=["filter", "lstm"],
)
def test_filters_and_memories_are_alike(settings):
    pair = [config_of(env, policies="own").training(**settings) if "model" in settings else
            config_of(env, policies="own").rollouts(**settings) for env in (Ladder, one_by_one(Ladder))]  # fmt: skip
    compare(*map(sampled, pair))


def test_rows_of_a_replay_are_alike():
    pair = [config_of(env, algorithm=DQNConfig, policies="shared") for env in (Ladder, one_by_one(Ladder))]
    compare(*map(sampled, pair), columns=(*COLUMNS, sb.NEXT_OBS, sb.DISCOUNTS))


def test_a_frozen_policy_acts_in_arrays():
    how = {"policies": ["x", "y"], "policy_mapping_fn": {"a": "y", "b": "x"}, "policies_to_train": ["x"]}
    compare(sampled(config_of(Ladder, **how)), sampled(config_of(one_by_one(Ladder), **how)))


def test_other_policies_begin_new_episodes():
    with config_of(Ladder, policies=["x", "y"], policy_mapping_fn={"*": "x"}).build() as algo:
        algo.train()
        worker = algo.workers.local_worker()
        algo.set_policy_mapping_fn({"a": "x", "b": "y"})
        algo.train()
        assert isinstance(worker.stream, VectorAgentsStream) and worker.sample()[0].policy_batches.keys() == {"x", "y"}
        algo.set_policies_to_train(["y"])
        algo.train()
        assert isinstance(worker.stream, VectorAgentsStream) and worker.sample()[0].policy_batches.keys() == {"y"}
        algo.add_policy("random", RandomPolicy, policy_mapping_fn={"a": "random", "b": "y"})
        algo.train()
        assert not isinstance(worker.stream, VectorAgentsStream)
        assert worker.sample()[0].policy_batches.keys() == {"y"}


class Heard(DefaultCallbacks):
    def on_episode_end(self, **kwargs):
        pass


@pytest.mark.parametrize(
    "change",
    [lambda config: config.callbacks(Heard),
     lambda config: config.rollouts(batch_mode="complete_episodes"),
     lambda config: config.multi_agent(count_steps_by="agent_steps"),
     lambda config: config.multi_agent(policy_mapping_fn=lambda agent, episode, **kwargs: "x"),
     lambda config: config.fault_tolerance(restart_failed_sub_environments=True)],
    ids=["callbacks", "whole episodes", "agent steps", "function", "replaced"],
)  # fmt: skip
def test_others_are_stepped_one_by_one(change):
    (batches, is_dense) = sampled(change(config_of(Ladder, policies=["x"], policy_mapping_fn={"*": "x"})), 1)
    assert not is_dense and batches[0][0].policy_batches["x"].count


class Wrong(Ladder):
    """Breaks the protocol in step 3 of several environments; a single one, as it is examined, keeps it."""

    broken: tuple = ()

    def step(self, actions):
        results = list(super().step(actions))
        if self.num_envs > 1 and self._steps.max() >= 3:
            place, value = self.broken
            results[place] = value(results[place])
        return tuple(results)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [(1, lambda rewards: rewards * np.nan, "agent 'a': .*nan"),
     (1, lambda rewards: rewards[:, :1], r"rewards have the shape \[3, 1\], but 3 environments of 2 agents need"),
     (0, lambda seen: seen - 200, "lies below the lower bound"),
     (4, lambda info: {}, "has no final_obs")],
    ids=["nan", "shape", "space", "final"],
)  # fmt: skip
def test_wrong_arrays_are_named(place, value, message):
    kind = type("WrongNow", (Wrong,), {"broken": (place, value)})
    with config_of(kind, policies="shared").build() as algo, pytest.raises(ValueError, match=message):
        algo.workers.local_worker().sample()
