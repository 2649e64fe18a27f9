"""Disturbances of simulators: delays, drops, noise, drawn parameters, and ranges that adapt."""

import json
import re

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import SyncVectorEnv

from rllib import PPOConfig
from rllib.config.conflicts import SettingsError, Unfit
from rllib.env import EnvContext, MultiAgentEnv
from rllib.env.disturbances.adaptive import AdaptiveBounds, BoundReturn, drawn_values
from rllib.env.disturbances.channel import neutral_action
from rllib.env.disturbances.disturbed import DisturbedEnv, DisturbedFactory
from rllib.env.disturbances.settings import Adaptation, Disturbances, Interval
from rllib.env.factories.registry import resolve
from rllib.env.multi_agent.disturbed import DisturbedAgents
from rllib.evaluation import seeding
from rllib.evaluation.settings import EnvironmentSettings

LENGTH = 6


class Counter(gymnasium.Env):
    """The observation is the step of the episode, the reward is ten times that, and it keeps the actions it gets."""

    observation_space, action_space = Box(-np.inf, np.inf, (1,), np.float32), Box(-2, 2, (1,), np.float32)
    length = LENGTH
    gain = 1.0

    def __init__(self, config=None):
        self.t, self.taken = 0, []
        self._row = np.zeros(1, np.float32)

    def _seen(self):
        self._row[0] = self.t  # in place, as simulators do
        return self._row

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.taken = 0, []
        return self._seen(), {}

    def step(self, action):
        self.taken.append(float(np.ravel(action)[0]))
        self.t += 1
        return self._seen(), 10.0 * self.t * self.gain, self.t >= self.length, False, {}


def disturbed(env=None, adapts=True, **given) -> DisturbedEnv:
    return DisturbedEnv(env or Counter(), Disturbances.of(given), adapts)


def episode(env, seed=None, actions=lambda t: np.full(1, t + 1, np.float32) / 10) -> tuple[list, list, list]:
    """What the policy sees, the rewards, and the ends of an episode."""
    seen, rewards, ends = [np.copy(env.reset(seed=seed)[0])], [], []
    while not ends or not ends[-1]:
        observation, reward, terminated, *_ = env.step(actions(len(ends)))
        seen.append(np.copy(observation))
        rewards.append(reward)
        ends.append(terminated)
    return seen, rewards, ends


# ------------------------------------------------------------------ delays, drops, noise


@pytest.mark.parametrize("delay", [0, 1, 2, 10])
def test_observations_come_late_and_rewards_and_ends_do_not(delay):
    seen, rewards, ends = episode(disturbed(observation_delay=delay, parameters={"gain": 1}), seed=1)
    assert [each[0] for each in seen] == [max(0, t - delay) for t in range(LENGTH + 1)]
    assert rewards == [10.0 * t for t in range(1, LENGTH + 1)]
    assert ends == [False] * (LENGTH - 1) + [True]


def test_actions_are_played_late_after_neutral_ones():
    env = disturbed(action_delay=2)
    episode(env, seed=1)
    assert env.unwrapped.taken == pytest.approx([0, 0, 0.1, 0.2, 0.3, 0.4])
    episode(env)
    assert env.unwrapped.taken == pytest.approx([0, 0, 0.1, 0.2, 0.3, 0.4]), "no action of the episode before"


def test_an_interval_draws_one_delay_for_each_episode():
    env, delays = disturbed(observation_delay=[0, 2]), []
    for number in range(60):
        seen = [each[0] for each in episode(env, seed=7 if number == 0 else None)[0]]
        delays.append(int(LENGTH - seen[-1]))
        assert seen == [max(0, t - delays[-1]) for t in range(LENGTH + 1)]
    assert set(delays) == {0, 1, 2}


def test_a_dropped_observation_shows_the_one_before():
    assert {each[0] for each in episode(disturbed(drop_observation=1), seed=0)[0]} == {0}, "never the first"
    env, dropped = disturbed(drop_observation=0.25), []
    for number in range(400):
        seen = [each[0] for each in episode(env, seed=3 if number == 0 else None)[0]]
        for t in range(1, len(seen)):
            assert seen[t] in (t, seen[t - 1])
            dropped.append(seen[t] != t)
    assert np.mean(dropped) == pytest.approx(0.25, abs=0.03)


def test_noise_has_the_deviation_that_is_asked_for():
    env = disturbed(observation_noise=0.3, action_noise=0.2)
    errors, moved = [], []
    for number in range(400):
        seen, *_ = episode(env, seed=5 if number == 0 else None, actions=lambda t: np.zeros(1, np.float32))
        errors += [each[0] - t for t, each in enumerate(seen)]
        moved += env.unwrapped.taken
    for drawn, deviation in ((errors, 0.3), (moved, 0.2)):
        assert np.mean(drawn) == pytest.approx(0, abs=4 * deviation / np.sqrt(len(drawn)))
        assert np.std(drawn) == pytest.approx(deviation, rel=0.06)


def test_noise_keeps_to_bounds_and_a_late_observation_keeps_its_noise():
    class Bounded(Counter):
        observation_space = Box(0, LENGTH, (1,), np.float32)

    env = disturbed(Bounded(), observation_noise=5.0, action_noise=50.0, observation_delay=3)
    seen, *_ = episode(env, seed=2)
    assert all(each in Bounded.observation_space for each in seen)
    assert all(-2 <= each <= 2 for each in env.unwrapped.taken)
    assert seen[0] == seen[1] == seen[2] == seen[3] != seen[4]


def test_noise_by_key_leaves_other_parts_as_they_are():
    class Parts(Counter):
        observation_space = Dict({"near": Box(-9, 9, (1,), np.float32), "far": Box(-9, 9, (2,)), "choice": Discrete(9)})

        def _seen(self):
            return {"near": np.full(1, self.t, np.float32), "far": np.full(2, self.t, np.float32), "choice": self.t}

    env = disturbed(Parts(), observation_noise={"near": 0.1}, observation_delay=1)
    env.reset(seed=1)
    env.step(np.zeros(1))
    seen = env.step(np.zeros(1))[0]
    assert seen["choice"] == 1 and (seen["far"] == 1).all() and 0 < abs(seen["near"][0] - 1) < 1
    env = disturbed(Parts(), observation_noise=0.1)
    seen = env.reset(seed=1)[0]
    assert seen["choice"] == 0 and (seen["far"] != 0).all() and seen["near"][0] != 0


@pytest.mark.parametrize(
    "space",
    [Box(-1, 1, ()), Box(-1, 1, (2, 3)), Box(0, 9, (), np.int16), MultiDiscrete([2, 3]), MultiBinary(2)],
    ids=str,
)
def test_a_neutral_action_has_the_form_of_an_action(space, caplog):
    """An array with the space's dtype also where it is one number: spaces warn of numpy's scalars."""
    action = neutral_action(space)
    assert type(action) is np.ndarray and action.dtype == space.dtype and action in space


def test_the_action_before_the_first_one():
    assert neutral_action(Discrete(3, start=2)) == 2
    assert neutral_action(Box(np.float32([-1, 3, -4]), np.float32([1, 5, -2]))).tolist() == [0, 3, -2]
    both = neutral_action(Tuple((MultiDiscrete([2, 3]), Dict({"bits": MultiBinary(2)}))))
    assert both[0].tolist() == [0, 0] and both[1]["bits"].tolist() == [0, 0]


# ------------------------------------------------------------------ parameters


def test_parameters_are_drawn_for_each_episode_by_value_or_by_factor():
    class Robot(Counter):
        def __init__(self):
            super().__init__()
            self.masses, self.gravity = np.array([1.0, 2.0, 4.0]), np.array([0.0, 0.0, -9.8])

    parameters = {"gain": [2, 4], "masses": {"scale": [0.5, 2]}, "gravity.2": [-12, -8]}
    env, gains, factors = disturbed(Robot(), parameters=parameters), [], []
    for number in range(50):
        _, rewards, _ = episode(env, seed=4 if number == 0 else None)
        robot = env.unwrapped
        gains.append(robot.gain)
        factors.append(robot.masses[0])
        assert rewards == [10.0 * t * robot.gain for t in range(1, LENGTH + 1)], "one value for the whole episode"
        np.testing.assert_allclose(robot.masses, np.array([1.0, 2.0, 4.0]) * factors[-1])
        assert -12 <= robot.gravity[2] <= -8 and not robot.gravity[:2].any()
    assert 2 <= min(gains) < 2.3 and 3.7 < max(gains) <= 4
    assert 0.5 <= min(factors) < 0.7 and 1.8 < max(factors) <= 2, "of the environment's own value, not of the last one"


def test_a_method_of_the_environment_sets_parameters():
    class Simulator(Counter):
        values = None

        def set_parameter(self, name, value):
            self.values = {**(self.values or {}), name: value}

        def get_parameter(self, name):
            return 3.0

    env = disturbed(Simulator(), parameters={"friction": 0.25, "wind": {"scale": 2}})
    env.reset(seed=0)
    assert env.unwrapped.values == {"friction": 0.25, "wind": 6.0}


def test_paths_into_the_model_of_mujoco():
    pytest.importorskip("mujoco")
    env = gymnasium.make("InvertedPendulum-v5")
    own = env.unwrapped.model.body_mass.copy()
    env = disturbed(
        env, parameters={"model.body_mass": {"scale": 2}, "model.opt.gravity.2": -5, "model.geom.cpole.margin": 0.25}
    )
    env.reset(seed=0)
    model = env.unwrapped.model
    np.testing.assert_allclose(model.body_mass, 2 * own)
    assert model.opt.gravity.tolist() == [0, 0, -5] and model.geom("cpole").margin == 0.25
    np.testing.assert_allclose(model.body_subtreemass[0], 2 * own.sum()), "what follows from masses"
    env.close()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gian", "Did you mean 'gain'"),
        ("action_space", "no number"),
        ("_row", "must be the name of a parameter"),
        ("unwrapped.length.0", "no attribute '0'"),
    ],
)
def test_a_parameter_that_the_environment_lacks_is_refused_when_it_is_built(name, words):
    config = PPOConfig().environment(Counter, disturbances={"observation_delay": 1, "parameters": {name: [1, 2]}})
    with pytest.raises(SettingsError, match=words) as raised:
        config.rollouts(num_rollout_workers=0).build()
    config.apply(raised.value.mistakes[0].remedies[0]).build().stop()


@pytest.mark.parametrize(
    ("name", "number", "words"),
    [
        ("weight", 2, "cannot be set"),
        ("sealed", {"scale": 2}, "cannot be written to"),
        ("sealed.1", 2, "cannot be written to"),
        ("counts", {"scale": 1.5}, "would cut"),
        ("counts.1", 1.5, "would cut"),
    ],
)
def test_a_parameter_that_takes_no_drawn_number_is_refused(name, number, words):
    class Machine(Counter):
        weight = property(lambda machine: 1.0)
        counts, sealed = np.arange(3), np.ones(2)
        sealed.flags.writeable = False

    with pytest.raises(Unfit, match=words):
        disturbed(Machine(), parameters={name: number})


def test_nested_keys_of_parameters_name_the_path_that_they_spell():
    nested = {"model": {"opt": {"scale": [0.5, 2]}}}
    with pytest.raises(SettingsError, match=r"""parameters=\{"model.opt": \{"scale": \[0.5, 2\]\}\}"""):
        PPOConfig().environment("CartPole-v1", disturbances={"parameters": nested}).validate()


# ------------------------------------------------------------------ what environments do wrong, and the old API


class Faulty(Counter):
    """Does something wrong, or as the old API had it."""

    observation_space = Box(-1, 1, (2,), np.float32)
    kind = ""

    def _seen(self):
        rows = {"shape": np.zeros(1, np.float32), "bounds": np.full(2, 9, np.float32), "dict": {"a": 1.0}}
        return rows.get(self.kind, np.zeros(2, np.float32))

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed)
        return result[0] if self.kind == "old" else result

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        reward = {"text": "x", "None": None, "pair": np.ones(2), "array": np.ones(1), "list": [1.0]}.get(self.kind, 1.0)
        ends = {"old": [terminated], "three": [], "flag": [None, truncated]}.get(self.kind, [terminated, truncated])
        return observation, reward, *ends, info


ADAPTED = {"high": 9, "low": -1, "start": {"gain": 1}, "episodes": 1, "at_bounds": 1.0}


@pytest.mark.parametrize("kind", ["shape", "bounds", "dict", "text", "None", "pair", "three", "flag"])
def test_disturbances_hide_no_fault_of_an_environment(kind):
    """The error is that of an undisturbed run, but for the noise of the numbers that it shows."""

    def words(**given) -> str:
        config = PPOConfig().environment(type("Faulty", (Faulty,), {"kind": kind}), disturbances=given)
        with pytest.raises((ValueError, TypeError)) as raised, config.rollouts(num_rollout_workers=0).build() as algo:
            algo.sample(20)
        return re.sub(r"[\d.]{4,}|9\.0", "N", str(raised.value))

    assert words(observation_noise=0.1) == words(parameters={"gain": [0, 2]}, adapt=ADAPTED) == words()


@pytest.mark.parametrize("kind", ["old", "array", "list"])
def test_environments_that_are_adapted_are_so_in_disturbances(kind):
    given = {"observation_delay": 1, "observation_noise": 0.1, "parameters": {"gain": [0, 2]}, "adapt": ADAPTED}
    config = PPOConfig().environment(type("Faulty", (Faulty,), {"kind": kind}), disturbances=given)
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=2 * LENGTH)
    with config.build() as algo:
        assert algo.sample(2 * LENGTH)["rewards"].tolist() == [1.0] * 2 * LENGTH
        ((_, returns),) = algo.workers.foreach_worker(lambda worker: worker.take_bound_returns())
    assert {each.value for each in returns} == {float(LENGTH)}


# ------------------------------------------------------------------ ranges that adapt


def bounds(**more) -> AdaptiveBounds:
    given = {"high": 8, "low": 4, "delta": 0.1, "episodes": 2, **more}
    asked = {"parameters": {"mass": {"scale": [0.5, 1.25]}}, "adapt": given}
    return AdaptiveBounds(Disturbances.of(asked).adapt)


def at(side, *means) -> list[BoundReturn]:
    """Two episodes of each mean."""
    return [BoundReturn("mass", side, mean + offset) for mean in means for offset in (-0.5, 0.5)]


def test_bounds_move_with_the_mean_return_at_them():
    """The numbers of the rule: from [1, 1] by 0.1, outwards from 8 on, back up to 4."""
    adaptive, highs = bounds(), []
    for mean in (9, 9, 3):
        assert adaptive.take_in(at("high", mean))
        highs.append(adaptive.ranges["mass"].high)
    assert highs == pytest.approx([1.1, 1.2, 1.1])
    assert adaptive.ranges["mass"].low == 1, "the other bound stays"
    assert adaptive.means["mass", "high"] == 3 and np.isnan(adaptive.means["mass", "low"])


def test_bounds_stay_between_where_they_began_and_their_limits():
    adaptive = bounds()
    assert not adaptive.take_in(at("high", 5, 3, 3)), "neither good enough nor further back"
    assert not adaptive.take_in(at("high", 9)[:1]), "a mean needs all of its episodes"
    adaptive = bounds()
    adaptive.take_in(at("high", *[9] * 10) + at("low", *[9] * 10))
    assert adaptive.ranges["mass"] == (0.5, 1.25)
    adaptive.take_in(at("high", 0) + at("low", 0))
    assert adaptive.ranges["mass"] == pytest.approx((0.6, 1.2))


@pytest.mark.parametrize(
    ("changes", "limits", "wanted"),
    [
        ({"delta": 0.25}, [0.5, 1.25], (0.9, 1.2)),
        ({"start": {"mass": [0.95, 1.1]}}, [0.5, 1.25], (0.9, 1.2)),
        ({"delta": None}, [0, 9], (0.9, 1.2)),
        ({}, [0.95, 1.1], (0.95, 1.1)),
        ({"start": {"mass": [0.6, 1.3]}}, [0.5, 2], (0.6, 1.3)),
    ],
)
def test_restored_ranges_stay_where_they_were_with_other_settings(changes, limits, wanted):
    adaptive = bounds()
    adaptive.take_in(at("high", 9, 9) + at("low", 9))
    assert adaptive.ranges["mass"] == pytest.approx((0.9, 1.2))
    asked = {"high": 8, "low": 4, "delta": 0.1, "episodes": 2, **changes}
    other = AdaptiveBounds(Disturbances.of({"parameters": {"mass": {"scale": limits}}, "adapt": asked}).adapt)
    other.set_state(json.loads(json.dumps(adaptive.get_state())))
    assert other.ranges["mass"] == pytest.approx(wanted)
    other.take_in(at("high", *[0] * 9) + at("low", *[0] * 9))
    start = (changes.get("start") or {}).get("mass", [1, 1])
    assert other.ranges["mass"] == pytest.approx(start), "back to where a range of these settings begins"


def test_the_state_of_bounds_continues_with_the_returns_so_far():
    adaptive, other = bounds(), bounds()
    adaptive.take_in(at("high", 9, 9)[:3])
    other.set_state(adaptive.get_state())
    for each in (adaptive, other):
        assert each.take_in(at("high", 9)[:1])
        assert each.ranges["mass"].high == pytest.approx(1.2)
    assert other.get_state() == adaptive.get_state()


def test_a_share_of_episodes_is_at_bounds():
    rng, ranges = np.random.default_rng(0), {"a": Interval(1, 2), "b": Interval(5, 9)}
    found = [drawn_values(rng, ranges, 0.5) for _ in range(2000)]
    bound = [each for each in found if each[1] is not None]
    assert len(bound) / len(found) == pytest.approx(0.5, abs=0.05)
    assert {where for _, where in bound} == {(name, side) for name in "ab" for side in ("low", "high")}
    for values, where in found:
        assert all(values[name] in each for name, each in ranges.items())
        assert where is None or values[where[0]] == getattr(ranges[where[0]], where[1])


def adaptive_config(num_workers=0, mode="sync", **more):
    """A run whose bounds move outwards with each mean of one episode."""
    adapt = {"high": 0, "low": -1, "start": {"gain": 1}, "delta": 0.25, "episodes": 1, "at_bounds": 1.0}
    config = PPOConfig().environment(
        Counter, disturbances={"observation_delay": 1, "parameters": {"gain": [0, 2]}, "adapt": adapt, **more}
    )
    config.rollouts(num_rollout_workers=num_workers, num_envs_per_worker=2, rollout_fragment_length=2 * LENGTH)
    config.rollouts(gym_env_vectorize_mode=mode).debugging(seed=1).training(model={"fcnet_hiddens": [4]})
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
    return config.training(train_batch_size=4 * LENGTH * max(num_workers, 1), sgd_minibatch_size=24, num_sgd_iter=1)


@pytest.mark.parametrize(
    ("num_workers", "mode"),
    [(0, "sync"), pytest.param(0, "async", marks=pytest.mark.slow), pytest.param(1, "sync", marks=pytest.mark.slow)],
)
def test_results_have_the_ranges_and_checkpoints_continue_them(num_workers, mode, tmp_path):
    config = adaptive_config(num_workers, mode)
    with config.build() as algo:
        results = [algo.train()["disturbances"]["gain"] for _ in range(3)]
        path = algo.save(tmp_path)
        following = [algo.train()["disturbances"]["gain"] for _ in range(3)]
        weights = algo.get_weights()["default_policy"].copy()
    assert (results[0]["low"], results[0]["high"]) == (1, 1), "what its steps were sampled with"
    moved = 4 * (results[1]["high"] - results[1]["low"])
    assert moved == 4, "each of two episodes of two environments moves one bound by a quarter"
    assert following[-1]["low"] == 0 and following[-1]["high"] == 2, "the limits"
    assert following[-1]["return_mean_at_high"] == pytest.approx(10 * LENGTH * (LENGTH + 1) / 2 * 2)
    with config.copy(copy_frozen=False).build() as algo:
        algo.restore(path)
        again = [algo.train()["disturbances"]["gain"] for _ in range(3)]
    assert (again[0]["low"], again[0]["high"]) == (following[0]["low"], following[0]["high"])
    assert np.isfinite(weights).all()


def test_an_environment_in_the_place_of_another_has_the_present_ranges():
    class Fails(Counter):
        failures = 0

        def step(self, action):
            if self.t == 3 and self.gain > 1.5 and Fails.failures < 1:
                Fails.failures += 1
                raise RuntimeError("the simulator fell over")
            return super().step(action)

    config = adaptive_config().environment(Fails).fault_tolerance(restart_failed_sub_environments=True)
    with config.build() as algo:
        for _ in range(5):
            result = algo.train()
        layers = algo.workers.foreach_env(lambda env: env.drawn_episodes._adapted["gain"])
    assert Fails.failures == 1
    assert layers == [[(result["disturbances"]["gain"]["low"], result["disturbances"]["gain"]["high"])] * 2]


def test_returns_count_of_episodes_that_a_time_limit_around_ends_and_not_of_those_that_are_left_off():
    adapt = {"high": 1, "low": 0, "start": {"gain": 1}, "at_bounds": 1.0}
    env = disturbed(parameters={"gain": [0, 2]}, adapt=adapt)
    env.reset(seed=0)
    env.step(np.zeros(1))
    env.reset(seed=1)
    assert env.take_bound_returns() == []
    env.step(np.zeros(1))
    env.reset()
    assert [each.value for each in env.take_bound_returns()] == [10.0]
    assert env.take_bound_returns() == []


# ------------------------------------------------------------------ in runs

ALL_KINDS = {
    "observation_noise": [0, 0.5], "observation_delay": [0, 2], "drop_observation": 0.2, "action_delay": [0, 3],
    "action_noise": 0.3, "parameters": {"gain": [1, 2]},
}  # fmt: skip


def sampled(first: int, number: int, seed: int = 3) -> np.ndarray:
    """Observations and rewards [T, number, 2] of environments of a run, from the one of an index on."""
    factory = DisturbedFactory(resolve(Counter), Disturbances.of(ALL_KINDS))
    settings = EnvironmentSettings(env=factory, env_config={}, num_envs=number, seed=seed)
    stream = settings.open_stream(seeding.ENVIRONMENTS, range(first, first + number), 0, 0)
    buffers, rows = stream.new_buffers(), []
    stream.reset(buffers)
    for t in range(3 * LENGTH):
        stream.step(np.full((number, 1), t % 3 - 1, np.float32), buffers)
        rows.append(np.stack([buffers.observations[:, 0], buffers.rewards], -1))
    stream.close()
    return np.array(rows)


@pytest.mark.parametrize("each", [8, 4, 2])
def test_environments_have_the_same_bits_however_workers_share_them(each):
    parts = [sampled(first, each) for first in range(0, 8, each)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), sampled(0, 8))
    assert not np.array_equal(parts[0], sampled(0, each, seed=4))


def episodes_of(algo) -> list[float]:
    algo.evaluate(3)
    return [each.episode_return for each in algo._evaluation_episodes]


@pytest.mark.parametrize("changes", [{}, {"explore": False}, {"num_envs_per_worker": 1}])
def test_evaluation_is_without_disturbances_unless_it_asks(changes):
    config = adaptive_config(parameters={"gain": [3, 4]}, adapt={})
    whole = 10.0 * LENGTH * (LENGTH + 1) / 2
    with config.copy().evaluation(evaluation_config=changes).build() as algo:
        assert episodes_of(algo) == [whole] * 3
        assert algo.train()["episode_reward_min"] >= 3 * whole
    asked = {**changes, "disturbances": {"parameters": {"gain": 2}}}
    with config.copy().evaluation(evaluation_config=asked).build() as algo:
        assert episodes_of(algo) == [2 * whole] * 3


def test_an_evaluation_that_asks_for_adaptation_draws_from_the_whole_range():
    env = disturbed(adapts=False, parameters={"gain": [5, 9]}, adapt={"high": 1, "low": 0, "start": {"gain": 5}})
    env.reset(seed=0)
    assert 5 < env.unwrapped.gain < 9


class Two(MultiAgentEnv):
    """Both agents see the step of the episode; the second acts in each other one."""

    possible_agents = ("each", "other")
    observation_space, action_space = Counter.observation_space, Counter.action_space

    def reset(self, *, seed=None, options=None):
        self.t, self.taken = 0, []
        return self._seen(), {}

    def step(self, action_dict):
        self.taken.append({agent: float(action[0]) for agent, action in action_dict.items()})
        self.t += 1
        over = self.t == 8
        return self._seen(), {"each": 1.0}, {"__all__": over}, {"__all__": False}, {}

    def _seen(self):
        agents = self.possible_agents if self.t % 2 == 0 else ["each"]
        return {agent: np.full(1, self.t, np.float32) for agent in agents}


def test_agents_of_the_old_api_are_disturbed():
    class Old(Two):
        def reset(self, *, seed=None, options=None):
            return super().reset()[0]

        def step(self, action_dict):
            observations, rewards, terminateds, _, infos = super().step(action_dict)
            return observations, rewards, terminateds, infos

    asked = Disturbances.of({"observation_delay": 1, "observation_noise": 0.1})
    new, old = DisturbedAgents(Two(), asked), DisturbedAgents(Old(), asked)
    assert repr(new.reset(seed=1)[0]) == repr(old.reset(seed=1)[0])
    for _ in range(8):
        given = {"each": np.zeros(1, np.float32)}
        assert repr(old.step(given)) == repr(new.step(given))


@pytest.mark.parametrize("wrong", [None, [1.0], ({}, {}, {}), ([], {}, {}, {}, {}), ({}, None, {}, {}, {})])
def test_results_of_no_known_form_reach_the_checks(wrong):
    env = DisturbedAgents(Two(), Disturbances.of({"observation_delay": 1}))
    env.reset(seed=0)
    env.env.step = lambda actions: wrong
    assert env.step({"each": np.zeros(1, np.float32)}) is wrong


def test_each_agent_has_delays_of_its_own_steps():
    env = DisturbedAgents(Two(), Disturbances.of({"observation_delay": 2, "action_delay": 1}))
    for seed in (1, None):
        seen, taken = [env.reset(seed=seed)[0]], []
        while seen[-1] is not None:
            actions = {agent: np.full(1, len(seen) / 10, np.float32) for agent in seen[-1]}
            observations, rewards, terminateds, *_ = env.step(actions)
            assert rewards == {"each": 1.0}
            seen.append(None if terminateds["__all__"] else observations)
        taken = env.env.taken
        assert [row["each"][0] for row in seen[:-1]] == [0, 0, 0, 1, 2, 3, 4, 5]
        assert [row["other"][0] for row in seen[:-1] if "other" in row] == [0, 0, 0, 2]
        assert [row["each"] for row in taken] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
        assert [row["other"] for row in taken if "other" in row] == pytest.approx([0, 0.1, 0.3, 0.5])


def test_several_agents_learn_in_disturbances():
    config = PPOConfig().environment(Two, disturbances={"observation_delay": [0, 2], "observation_noise": 0.1})
    config.multi_agent(policies=["all"], policy_mapping_fn={"*": "all"}).rollouts(num_rollout_workers=0)
    with config.training(train_batch_size=40, sgd_minibatch_size=20, num_sgd_iter=1).build() as algo:
        assert algo.train()["episode_len_mean"] == 8


# ------------------------------------------------------------------ what is refused


def test_vectors_of_single_environments_are_disturbed_and_others_are_refused():
    def pendulums(context):
        return SyncVectorEnv([Counter] * context.num_envs)

    factory = DisturbedFactory(resolve(pendulums), Disturbances.of({"observation_delay": 2}))
    vector = factory.make(EnvContext(num_envs=3))
    vector.reset(seed=[1, 2, 3])
    seen = [vector.step(np.zeros((3, 1), np.float32))[0][:, 0].tolist() for _ in range(4)]
    assert seen == [[0] * 3, [0] * 3, [1] * 3, [2] * 3]
    config = (
        PPOConfig()
        .environment("CartPole-v1", disturbances={"observation_delay": 2})
        .rollouts(gym_env_vectorize_mode="vector_entry_point")
    )
    with pytest.raises(SettingsError) as raised:
        config.build()
    assert {"gym_env_vectorize_mode": "sync"} in raised.value.mistakes[0].remedies

    def others(context):
        return gymnasium.make_vec("CartPole-v1", context.num_envs, vectorization_mode="vector_entry_point")

    with pytest.raises(SettingsError, match="single environments") as raised:
        PPOConfig().environment(others, disturbances={"observation_delay": 2}).rollouts(num_rollout_workers=0).build()
    assert raised.value.mistakes[0].remedies == ({"disturbances": {}},)


def test_masks_of_legal_actions_go_with_parameters_alone():
    class Masked(Counter):
        observation_space = Dict({"action_mask": MultiBinary(2), "observations": Counter.observation_space})
        action_space = Discrete(2)

        def _seen(self):
            return {"action_mask": np.ones(2, np.int8), "observations": np.full(1, self.t, np.float32)}

    given = {"action_delay": 1, "parameters": {"gain": [1, 2]}}
    for env, mask in ((Masked, "observation"), (Counter, "info")):
        config = PPOConfig().environment(env, action_mask_from=mask, disturbances=given).rollouts(num_rollout_workers=0)
        with pytest.raises(SettingsError, match="legal") as raised:
            config.build()
        assert raised.value.mistakes[0].remedies == ({"disturbances": {"action_delay": 0}},)
        config.apply(raised.value.mistakes[0].remedies[0]).validate()
        assert config.disturbances == {"action_delay": 0, "parameters": {"gain": [1, 2]}}
    config = PPOConfig().environment(Masked, disturbances={"parameters": {"gain": [1, 2]}})
    config.rollouts(num_rollout_workers=0).build().stop()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"observation_nose": 1}, "Did you mean 'observation_noise'"),
        ({"observation_delay": [2, 0]}, r"lower end first: \[0, 2\]"),
        ({"observation_delay": 0.5}, "an integer from 0"),
        ({"action_delay": -1}, "an integer from 0"),
        ({"action_delay": [1]}, r"or \[low, high\]"),
        ({"action_noise": -0.1}, "a number >= 0"),
        ({"observation_noise": {"position": "much"}}, "for each key of the observation"),
        ({"drop_observation": 1.5}, "from 0 to 1"),
        ({"parameters": {"gain": {"factor": 2}}}, '"scale" alone'),
        ({"parameters": {"gain": True}}, "'gain': True must be a number"),
        ({"adapt": {"high": 1, "low": 0}}, 'ranges in "parameters"'),
        ({"parameters": {"gain": [0, 2]}, "adapt": {"high": 1, "low": 0}}, "\"start\" lacks 'gain'"),
        ({"parameters": {"gain": [0, 2]}, "adapt": {"high": 0, "low": 1}}, "low < high"),
        ({"parameters": {"gain": [0, 2]}, "adapt": {"high": 1, "low": 0, "start": {"gian": 1}}}, "mean 'gain'"),
        ({"parameters": {"gain": [0, 2]}, "adapt": {"high": 1, "low": 0, "start": {"gain": 3}}}, "outside of"),
        ({"parameters": {"gain": {"scale": [0, 2]}}, "adapt": {"high": 1, "low": 0, "delta": {"gain": 0}}}, "> 0"),
        ({"parameters": {"gain": {"scale": [0, 2]}}, "adapt": {"hihg": 1, "low": 0}}, "Did you mean 'high'"),
    ],
)
def test_wrong_values_say_the_rule_and_a_remedy_that_ends_them(given, words):
    config = PPOConfig().environment(Counter, disturbances=given)
    with pytest.raises(SettingsError, match=words) as raised:
        config.validate()
    (mistake,) = raised.value.mistakes
    config.apply(mistake.remedies[0]).validate()


def test_adaptation_is_read_with_its_defaults():
    adapt = Disturbances.of({"parameters": {"gain": {"scale": [0.5, 1.5]}, "fixed": 3}, "adapt": {"high": 2, "low": 1}})
    assert adapt.adapt == Adaptation(
        2.0, 1.0, 20, 0.5, start={"gain": (1, 1)}, limits={"gain": (0.5, 1.5)}, delta={"gain": 0.1}
    )
    assert Disturbances.of({}) is None and Disturbances.of({"observation_delay": 0, "adapt": {}}) is None
