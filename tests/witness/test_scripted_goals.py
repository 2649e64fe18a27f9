"""Hindsight's rows, computed again from scripts: which goals they have, and what rewards these give."""

from collections import Counter

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

import rllib
from rllib import sample_batch as sb
from tests.witness.doors.scripted import Player
from tests.witness.reader import reading
from tests.witness.script import ACTION_REWARD, BASE, BOTH, CRASHED, TERMINATED, TRUNCATED, Family, decoded, episode

GAMMA = 0.5
FAMILY = Family((TERMINATED, TRUNCATED, BOTH))
FAILING = Family((TERMINATED, TRUNCATED, CRASHED))
# Stored observations: achieved_goal, desired_goal, observation.
ACHIEVED, DESIRED, DIGITS = 0, 1, slice(2, None)


def bonus(achieved, desired):
    """Term of a reward for goals, which are numbers k / BASE."""
    return BASE * (3 * achieved - 2 * desired)


class Goals(gymnasium.Env):
    """An episode's steps are what it achieves; its number is what is desired."""

    def __init__(self, config):
        self.player = Player(config)
        goal = Box(0.0, 2.0, (1,), np.float32)
        parts = {"observation": self.player.form.space, "achieved_goal": goal, "desired_goal": goal}
        self.observation_space, self.action_space = Dict(parts), self.player.actions.space

    def reset(self, *, seed=None, options=None):
        self.player.reset(seed)
        return self._seen(), {"own": 0.0}

    def step(self, action):
        own = self.player.reward_of(0, action)
        event = self.player.step([0])
        seen, info = self._seen(), {"own": event.rewards[0] + own}
        reward = self.compute_reward(seen["achieved_goal"], seen["desired_goal"], info)
        return seen, float(reward), *event.flags, info

    def compute_reward(self, achieved_goal, desired_goal, info):
        """The rewards of steps for any goals, [B]; of one step as well."""
        own = info["own"] if isinstance(info, dict) else np.array([each["own"] for each in info])
        return bonus(np.asarray(achieved_goal, float)[..., 0], np.asarray(desired_goal, float)[..., 0]) + own

    def _seen(self):
        step, number = self.player.place(0)[3], self.player.number
        return {
            "observation": self.player.observe(0),
            "achieved_goal": np.array([step / BASE], np.float32),
            "desired_goal": np.array([(number % BASE) / BASE], np.float32),
        }


def check_rows(batches, family, strategy, num_goals, n_step):
    """Checks each stored row; returns the number of episodes."""
    rows, actions = [], {}
    for columns in batches:
        for row in range(len(columns[sb.OBS])):
            rows.append({name: column[row] for name, column in columns.items()})
            actions[decoded(rows[-1][sb.OBS][DIGITS])] = float(rows[-1][sb.ACTIONS])
    counts, originals, later = Counter(), Counter(), 0
    for row in rows:
        step, seen, after = decoded(row[sb.OBS][DIGITS]), row[sb.OBS], row[sb.NEXT_OBS]
        serial, number, _, t = step
        life = episode(family, serial, number).lives[0]
        end = decoded(after[DIGITS])
        count = end[3] - t
        assert end[:3] == step[:3] and count == min(n_step, life.length - t), f"{step} is followed by {end}"
        assert seen[ACHIEVED] * BASE == t and after[ACHIEVED] * BASE == end[3], f"{step}: achieved"
        goal = float(seen[DESIRED])
        assert goal == after[DESIRED], f"{step}: the goal changes on the way"
        # The first row of a step is the one that happened.
        is_new, counts[step] = counts[step] > 0, counts[step] + 1
        achieved_at = round(goal * BASE) - 1
        if not is_new:
            assert goal * BASE == number % BASE, f"{step}: the goal of the row that happened"
            originals[step] += 1
        else:
            first = {"future": t, "episode": 0, "final": life.length - 1}[strategy]
            assert first <= achieved_at < life.length, f"{step}: a goal that step {achieved_at} has achieved"
            later += achieved_at > t
        expected = sum(
            GAMMA**k
            * (
                life.rewards[t + k]
                + ACTION_REWARD * actions[(serial, number, 0, t + k)]
                + bonus((t + k + 1) / BASE, goal)
            )
            for k in range(count)
        )
        given = float(row[sb.REWARDS])
        assert abs(given - expected) < 1e-4 * (1 + abs(expected)), f"{step}: reward {given}, not {expected}"
        is_terminal = life.terminated and end[3] == life.length
        assert abs(row[sb.DISCOUNTS] - (0 if is_terminal else GAMMA**count)) < 1e-6, f"{step}: discount"
    assert set(counts.values()) == {1 + num_goals}, "rows of each step"
    assert later or strategy == "episode"
    lives = {step[:3] for step in counts}
    for serial, number, _ in lives:
        length = episode(family, serial, number).lives[0].length
        assert all(counts[serial, number, 0, t] for t in range(length)), f"{serial, number} is not whole"
    return len(lives)


@pytest.mark.parametrize("family", [FAMILY, FAILING], ids=["flags", "crashes"])
@pytest.mark.parametrize("fragment", [1, 4, 30])
@pytest.mark.parametrize(("strategy", "n_step"), [("future", 1), ("final", 3), ("episode", 5)])
def test_rows_with_other_goals(strategy, n_step, fragment, family):
    replay = {"type": "HindsightReplayBuffer", "n_sampled_goal": 2, "goal_selection_strategy": strategy}
    config = rllib.DQNConfig().environment(Goals, env_config={"family": family}, info_columns={"own": {}})
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=3, rollout_fragment_length=fragment)
    config.fault_tolerance(restart_failed_sub_environments=family is FAILING).debugging(seed=1)
    config.training(gamma=GAMMA, lr=0.0, n_step=n_step, train_batch_size=16, training_intensity=0.1, hiddens=[])
    config.training(replay_buffer_config={"capacity": 5000, **replay}, model={"fcnet_hiddens": [4]})
    config.training(num_steps_sampled_before_learning_starts=50)
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=150)
    with config.build() as algorithm, reading(algorithm) as read:
        algorithm.train()
    assert check_rows([columns for _, columns in read.stored], family, strategy, 2, n_step) > 5
