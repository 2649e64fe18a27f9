"""Rows of hindsight, against a loop that is written like their definition (arXiv:1707.01495, algorithm 1)."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rllib import sample_batch as sb
from rllib.env.factories.registry import resolve
from rllib.env.spaces.goals import Goals
from rllib.env.tasks.sparse import BitFlipping
from rllib.evaluation.postprocess.hindsight import STRATEGIES, HindsightTransitions
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.models.catalog.catalog import policy_spec
from rllib.sample_batch import DEFAULT_POLICY, Column
from tests.rollouts import rollout_settings

BITS, GAMMA = 4, 0.9
GOALS = Goals.of(BitFlipping(BITS).observation_space)


class Bits(BitFlipping):
    """Success is worth 0.5, and episodes have up to 8 steps."""

    def __init__(self, config=None):
        super().__init__(BITS)

    def step(self, action):
        observation, reward, terminated, *_ = super().step(action)
        return observation, reward, terminated, self._steps >= 2 * BITS, {}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return super().compute_reward(achieved_goal, desired_goal, info) + 0.5 * (achieved_goal == desired_goal).all(-1)


class GoesOn(BitFlipping):
    """The task does not end where the goal is reached; rewards are computed one by one, and depend on the info."""

    compute_terminated = None

    def __init__(self, config=None):
        super().__init__(BITS)

    def step(self, action):
        self._bits = self._bits.copy()
        self._bits[action] ^= 1
        self._steps += 1
        info = {"extra": self._steps}
        reward = self.compute_reward(self._bits, self._goal, info)
        return self._observation(), reward, False, self._steps >= 2 * BITS, info

    def compute_reward(self, achieved_goal, desired_goal, info):
        if np.ndim(achieved_goal) > 1:
            return None
        return float((achieved_goal == desired_goal).all()) + info["extra"]


class Failing(Bits):
    """Raises now and then, also in an episode's first step."""

    def step(self, action):
        if self.np_random.random() < 0.15:
            raise RuntimeError
        return super().step(action)


def in_vector(mode):
    def make(context):
        return SyncVectorEnv([Bits] * context.num_envs, autoreset_mode=mode)

    return make


EXTRA = {"info_columns": (Column("extra"),)}
KINDS = {
    "own": (Bits, {}),
    "going on": (GoesOn, EXTRA),
    "next step": (in_vector(AutoresetMode.NEXT_STEP), {}),
    "same step": (in_vector(AutoresetMode.SAME_STEP), {}),
    "whole episodes": (Bits, {"complete_episodes": True}),
    "time limits end": (Bits, {"time_limit_ends_episode": True}),
    "time limits end, going on": (GoesOn, {"time_limit_ends_episode": True, **EXTRA}),
    "failing": (Failing, {"replace_failed_envs": True}),
}


@dataclass(frozen=True, kw_only=True)
class Recorded(HindsightTransitions):
    """Keeps the fragments that the rows are made of."""

    fragments: list = field(default_factory=list)

    def __call__(self, fragment, policy):
        super().__call__(fragment, policy)
        self.fragments.append(fragment)


def sampler(env, strategy="future", n_step=1, num_goals=3, filtered=False, **options) -> RolloutWorker:
    kind = "MeanStdFilter" if filtered else "NoFilter"
    spaces_of = Bits().observation_space, Bits().action_space
    spec = policy_spec(*spaces_of, {"fcnet_hiddens": [4]}, observation_filter=kind)
    settings = {"goals": GOALS, "num_goals": num_goals, "strategy": strategy}
    postprocess = Recorded((3 * BITS,), "float32" if filtered else "uint8", GAMMA, n_step, **settings)
    defaults = {"num_envs": 2, "fragment_length": 5, "seed": 3}
    settings = rollout_settings(resolve(env), {}, spec, postprocess, **{**defaults, **options})
    return RolloutWorker(settings)


def episodes(fragments, i) -> list[list[dict]]:
    """The steps of each episode of environment i that is over; one that fails ends before its failure."""
    found, steps = [], []
    for fragment in fragments:
        for t in range(fragment.num_steps):
            valid = fragment.valid is None or fragment.valid[t, i]
            if valid:
                steps.append({name: column[t, i].copy() for name, column in fragment.columns.items()})
            if not valid or steps[-1][sb.TERMINATEDS] or steps[-1][sb.TRUNCATEDS]:
                found, steps = [*found, steps] if steps else found, []
    return found


def slow_row(env, episode, t, n_step, goal, limit):
    """The row of step t for this goal; None: the goal that the episode had. 0: no limit ends its task."""
    total, discount = 0.0, 1.0
    for last in range(t, min(t + n_step, len(episode))):
        step = episode[last]
        reward, terminated = step[sb.REWARDS], step[sb.TERMINATEDS]
        if goal is not None:
            achieved, info = step[sb.NEXT_OBS][GOALS.achieved].astype(np.int8), {"extra": step.get("extra")}
            reward = env.compute_reward(achieved, goal, info)
            if env.compute_terminated is not None:
                terminated = env.compute_terminated(achieved, goal, info)
        terminated = terminated or last == limit - 1
        total += discount * reward
        discount *= GAMMA
        if terminated:
            discount = 0.0
            break
    observation, following = episode[t][sb.OBS].copy(), episode[last][sb.NEXT_OBS].copy()
    if goal is not None:
        observation[GOALS.desired] = following[GOALS.desired] = goal
    return {
        sb.OBS: observation, sb.NEXT_OBS: following, sb.ACTIONS: episode[t][sb.ACTIONS], sb.REWARDS: total,
        sb.DISCOUNTS: discount, sb.TERMINATEDS: terminated,
    }  # fmt: skip


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_definition(kind, strategy, n_step):
    """Over fragments shorter than episodes, in the order of environments, episodes and steps."""
    env, options = KINDS[kind]
    made = sampler(env, strategy, n_step, **options)
    limit = 2 * BITS if options.get("time_limit_ends_episode") else 0
    fragments, judge = made.policy_settings.postprocess.fragments, (env if isinstance(env, type) else Bits)()
    ended, of_goals, done = [], [], [0, 0]
    for _ in range(10):
        batch, _ = made.sample()
        rows = iter([{name: column[row] for name, column in batch.items()} for row in range(batch.count)])
        for i in range(2):
            over = episodes(fragments, i)
            for episode, t in [(steps, t) for steps in over[done[i] :] for t in range(len(steps))]:
                goals = [step[sb.NEXT_OBS][GOALS.achieved].tolist() for step in episode]
                allowed = {"future": goals[t:], "final": goals[-1:], "episode": goals}[strategy]
                for number in range(4):
                    row = next(rows)
                    goal = row[sb.OBS][GOALS.desired].astype(np.int8) if number else None
                    assert goal is None or goal.tolist() in allowed
                    for name, expected in slow_row(judge, episode, t, n_step, goal, limit).items():
                        np.testing.assert_allclose(row[name], expected, rtol=1e-6, err_msg=f"{name} of row {number}")
                    (ended if goal is None else of_goals).append(row[sb.TERMINATEDS])
            done[i] = len(over)
        assert next(rows, None) is None
    assert len(ended) > 40
    if kind == "going on":
        assert not any(of_goals)
    elif not limit:
        assert np.mean(of_goals) > np.mean(ended)


FILTER = {"count": np.array(50.0), "mean": np.linspace(0.1, 0.7, 3 * BITS), "m2": np.linspace(1.0, 30.0, 3 * BITS)}


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("options", [{}, {"complete_episodes": True}], ids=["fragments", "whole episodes"])
def test_a_filter_is_applied_when_the_goals_stand(options, n_step):
    """The policy acts on filtered observations; rows are those without a filter, and then filtered."""
    made, plain = (sampler(Bits, "final", n_step, filtered=filtered, **options) for filtered in (True, False))
    made.policy.filter.set_state(FILTER)
    deviation = np.sqrt(FILTER["m2"] / FILTER["count"]) + 1e-8
    num_rows = 0
    for number in range(6):
        batch, report = made.sample()
        fragment = made.policy_settings.postprocess.fragments[-1]
        seen = ((fragment[sb.OBS][:-1] - FILTER["mean"]) / deviation).clip(-10, 10).astype(np.float32)
        flat = seen.reshape(-1, 3 * BITS)
        outputs, actions = np.empty((len(flat), BITS), np.float32), np.empty(len(flat), np.int64)
        made.policy.act(flat, made.policy.noise(np.random.default_rng(0), len(flat)), outputs, actions)
        valid = slice(None) if fragment.valid is None else fragment.valid.reshape(-1)
        found = fragment[sb.ACTION_DIST_INPUTS].reshape(outputs.shape)
        np.testing.assert_allclose(found[valid], outputs[valid], rtol=1e-4, atol=1e-5)
        # Private, to get the rows of the very same fragment without a filter.
        raw = plain.lane._rows.of(fragment, plain.policy, 0, has_gaps=False)
        assert batch.count == raw.count
        num_rows += batch.count
        for name in (sb.OBS, sb.NEXT_OBS):
            np.testing.assert_allclose(batch[name], ((raw[name] - FILTER["mean"]) / deviation).clip(-10, 10), rtol=1e-5)
        for name in (sb.REWARDS, sb.DISCOUNTS, sb.ACTIONS, sb.TERMINATEDS):
            np.testing.assert_array_equal(batch[name], raw[name])
        if not options:  # each observation is counted once
            assert report.filter_deltas[DEFAULT_POLICY]["count"].sum() == len(flat) + (2 if number == 0 else 0)
    assert num_rows > 50


def test_each_later_step_is_equally_likely():
    chosen = {
        strategy: HindsightTransitions((1,), "uint8", GAMMA, goals=GOALS, num_goals=20_000, strategy=strategy).chosen(
            5, np.random.default_rng(0)
        )
        for strategy in STRATEGIES
    }
    assert (chosen["final"] == 4).all()
    for t in range(5):
        shares = np.bincount(chosen["future"][t], minlength=5) / 20_000
        np.testing.assert_allclose(shares, np.where(np.arange(5) >= t, 1 / (5 - t), 0), atol=0.015)
        np.testing.assert_allclose(np.bincount(chosen["episode"][t]) / 20_000, 0.2, atol=0.015)


def test_dropped_episodes_leave_no_steps_behind():
    made = sampler(Bits, num_envs=1, fragment_length=3)
    made.sample()
    made.start_over()
    fragments = made.policy_settings.postprocess.fragments
    fragments.clear()
    rows = sum(made.sample()[0].count for _ in range(10))
    assert rows == 4 * sum(map(len, episodes(fragments, 0)))


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Discrete(5, start=2), [4]),
        (spaces.Box(-1.0, 1.0, (2, 2), np.float64), [[[0.5, 0.25], [-1.0, 1.0]]]),
        (spaces.MultiBinary(3), [[1, 0, 1]]),
    ],
    ids=str,
)
def test_goals_are_computed_as_the_environment_gives_them(space, value):
    whole = spaces.Dict({"achieved_goal": space, "desired_goal": space, "observation": spaces.Discrete(2)})
    goals = Goals.of(whole)
    given = np.array(value, space.dtype)
    flat = spaces.flatten(whole, {"achieved_goal": space.sample(), "desired_goal": given[0], "observation": 1})
    found = goals.values(flat[None, goals.desired])
    np.testing.assert_array_equal(found, given)
    assert isinstance(space, spaces.Discrete) or found.dtype == space.dtype


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(0.0, 1.0, (3,)), "This environment's observation space is Box"),
        (spaces.Dict({"achieved_goal": spaces.Discrete(2)}), "observation space is Dict"),
        (
            spaces.Dict({"achieved_goal": spaces.Discrete(2), "desired_goal": spaces.Discrete(3)}),
            r"must be of one space, .* achieved_goal is Discrete\(2\) and desired_goal Discrete\(3\)",
        ),
        (
            spaces.Dict({name: spaces.MultiDiscrete([2, 2]) for name in ("achieved_goal", "desired_goal")}),
            "must be of one space, a Box, Discrete or MultiBinary",
        ),
    ],
    ids=str,
)
def test_spaces_without_goals(space, message):
    with pytest.raises(ValueError, match=f"needs a goal environment: .*{message}"):
        Goals.of(space)


@pytest.mark.parametrize("given", [float("nan"), None, [0.0, 1.0]], ids=str)
def test_results_that_are_no_numbers(given):
    env = BitFlipping(BITS)
    env.compute_reward = lambda achieved, desired, info: given if np.ndim(achieved) == 1 else None
    goals = np.zeros((3, BITS), np.uint8)
    with pytest.raises(ValueError, match="compute_reward must give a finite number for each step, but gave"):
        GOALS.computed(env, "compute_reward", goals, goals, [{}] * 3)
