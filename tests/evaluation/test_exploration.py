"""Exploration: what each type draws, step by step, and that it depends on the environment alone."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib import DQNConfig
from rllib import sample_batch as sb
from rllib.env.factories.registry import resolve
from rllib.env.spaces.actions import ActionMapper
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.evaluation.settings import NO_POSTPROCESS
from rllib.exploration.action_noise import (
    GaussianNoise,
    OrnsteinUhlenbeckNoise,
    PerWorkerGaussianNoise,
    PerWorkerOrnsteinUhlenbeckNoise,
    RandomActions,
)
from rllib.exploration.epsilon import EpsilonGreedy, PerWorkerEpsilonGreedy, RandomValues, SoftQ
from rllib.exploration.explorers import Exploration, Explorer, WorkerPosition
from rllib.exploration.network_noise import ADAPTATION, ParameterNoise
from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.dense.spec import Dense
from rllib.models.distributions.q_values import QValues
from rllib.models.observations.encoders import BoxEncoder
from rllib.policy import Policy, Snapshot
from tests.envs import BoundedAction, InfiniteHorizon
from tests.rollouts import rollout_settings

VALUES = NetworkSpec(
    BoxEncoder((1,)), QValues(2), (8,), ("tanh",), critic=False, vf_share_layers=True, architecture=Dense()
)
GAUSSIAN = policy_spec(Box(-1, 1, (1,)), Box(0, 10, (1,)), {"fcnet_hiddens": [8]})


def constant_epsilon(epsilon):
    return EpsilonGreedy(epsilon, epsilon, 0)


def parameter_noise(stddev, epsilon):
    sub = {"initial_epsilon": epsilon, "final_epsilon": epsilon, "epsilon_timesteps": 0}
    return ParameterNoise(stddev, sub_exploration=sub)


def make_worker(exploration, spec=VALUES, env=InfiniteHorizon, envs=1, steps=50, index=0, workers=0, **more):
    settings = rollout_settings(
        resolve(env), more.pop("env_config", {}), spec, NO_POSTPROCESS, envs, steps, 7,
        num_workers=workers, exploration=exploration, **more,
    )  # fmt: skip
    worker = RolloutWorker(settings, index)
    weights = np.random.default_rng(0).standard_normal(worker.policy.layout.size).astype(np.float32)
    worker.load_snapshot(Snapshot(weights))
    return worker


def greedy_share(worker, batch):
    """How often the actions are the best ones by the worker's own weights."""
    best = worker.policy.choose(batch[sb.OBS], explore=False)
    return float((batch[sb.ACTIONS] == best).mean())


def test_epsilon_follows_the_steps_within_a_fragment():
    """1 until step 1000, then 0: of two actions the greedy one is taken in half of the first steps, in all others."""
    exploration = EpsilonGreedy(1.0, 0.0, epsilon_timesteps=1, warmup_timesteps=1000)
    worker = make_worker(exploration, envs=4, steps=500)
    batch, _ = worker.sample()
    assert 0.45 < greedy_share(worker, batch.rows(slice(0, 1000))) < 0.55
    assert greedy_share(worker, batch.rows(slice(1004, 2000))) == 1


def test_epsilon_goes_on_where_the_run_is():
    worker = make_worker(EpsilonGreedy(1.0, 0.0, epsilon_timesteps=1, warmup_timesteps=1000))
    worker.load_snapshot(worker.policy.snapshot(timesteps=1001))
    assert greedy_share(worker, worker.sample()[0]) == 1


@pytest.mark.parametrize("warmup", [0, 1, 1000])
@pytest.mark.parametrize("length", [0, 1, 2, 500])
def test_schedules_hold_for_the_warm_up_and_then_change_linearly(warmup, length):
    timesteps = np.arange(warmup + length + 3)
    after = timesteps - warmup
    shares = [float(step >= 0) if length == 0 else min(max(step / length, 0), 1) for step in after]
    expected = 0.9 + (0.1 - 0.9) * np.array(shares)
    epsilon = EpsilonGreedy(0.9, 0.1, length, warmup)
    np.testing.assert_allclose(epsilon.numbers(timesteps)["epsilon"], expected)
    of_noise = {"initial_scale": 0.9, "final_scale": 0.1, "scale_timesteps": length, "random_timesteps": warmup}
    np.testing.assert_allclose(GaussianNoise(stddev=1.0, **of_noise).scale(timesteps), expected, rtol=1e-6)
    noise = OrnsteinUhlenbeckNoise(ou_base_scale=1.0, **of_noise)
    np.testing.assert_allclose(noise.base_scale(timesteps), expected)


@pytest.mark.parametrize("random_timesteps", [0, 1, 1000])
def test_parameter_noise_begins_with_the_random_steps_that_it_is_given(random_timesteps):
    noise = ParameterNoise(random_timesteps=random_timesteps)
    epsilons = noise.numbers(np.arange(random_timesteps + 2))["epsilon"]
    np.testing.assert_array_equal(epsilons, [1.0] * random_timesteps + [0.01, 0.01])


def test_other_workers_steps_count():
    """Two workers of two environments each make four steps at a time."""
    position = WorkerPosition(worker_index=2, num_workers=2, num_envs=2)
    assert position.stride == 4


@pytest.mark.parametrize("num_workers", [1, 2, 8])
def test_per_worker_epsilons_are_those_of_ape_x(num_workers):
    found = []
    for index in range(1, num_workers + 1):
        position = WorkerPosition(index, num_workers, 1)
        found.append(float(PerWorkerEpsilonGreedy().in_worker(position).numbers(10**6)["epsilon"]))
    i, n = np.arange(num_workers), num_workers
    np.testing.assert_allclose(found, 0.4 ** (1 + 7 * i / max(n - 1, 1)))
    assert found[0] == 0.4
    if num_workers > 1:
        assert found[-1] == pytest.approx(0.4**8)


def test_per_worker_epsilons_are_acted_by():
    shares = []
    for index in (1, 2):
        worker = make_worker(PerWorkerEpsilonGreedy(), index=index, workers=2, steps=4000)
        shares.append(1 - greedy_share(worker, worker.sample()[0]))
    np.testing.assert_allclose(shares, [0.2, 0.4**8 / 2], atol=0.02)


def test_without_workers_the_schedule_counts():
    alone = PerWorkerEpsilonGreedy(1.0, 0.0, 100).in_worker(WorkerPosition(0, 0, 1))
    assert alone.numbers(50)["epsilon"] == 0.5


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_soft_q_draws_from_the_softmax(temperature):
    worker = make_worker(SoftQ(temperature), steps=20_000)
    batch, _ = worker.sample()
    q = worker.policy.action_values(batch[sb.OBS][:1]).q_values()[0] / temperature
    expected = np.exp(q) / np.exp(q).sum()
    np.testing.assert_allclose(np.bincount(batch[sb.ACTIONS], minlength=2) / 20_000, expected, atol=0.015)


def test_random_values():
    worker = make_worker(RandomValues(), steps=5000)
    np.testing.assert_allclose(np.bincount(worker.sample()[0][sb.ACTIONS]) / 5000, 0.5, atol=0.03)


EVERY = [
    constant_epsilon(0.5), SoftQ(5.0), RandomValues(), parameter_noise(3.0, 0.5),
    GaussianNoise(random_timesteps=20, stddev=3.0), OrnsteinUhlenbeckNoise(random_timesteps=20), RandomActions(),
]  # fmt: skip
each = pytest.mark.parametrize("exploration", EVERY, ids=lambda each: type(each).__name__)


def options(exploration):
    continuous = isinstance(exploration, GaussianNoise | OrnsteinUhlenbeckNoise | RandomActions)
    return {"spec": GAUSSIAN, "env": BoundedAction} if continuous else {"env_config": {"length": 7}}


@each
def test_without_explore_actions_are_the_best(exploration):
    worker = make_worker(exploration, explore=False, **options(exploration))
    assert greedy_share(worker, worker.sample()[0]) == 1


@each
def test_environments_see_the_same_in_any_worker(exploration):
    """Two environments of one worker, and one each in two."""
    together = make_worker(exploration, envs=2, **options(exploration)).sample()[0][sb.ACTIONS].reshape(50, 2, -1)
    for i in range(2):
        alone = make_worker(exploration, index=i + 1, workers=2, **options(exploration)).sample()[0][sb.ACTIONS]
        np.testing.assert_allclose(alone.reshape(50, -1), together[:, i], atol=1e-6)


@each
def test_state_goes_on(exploration):
    """A worker that takes over the state draws what the first one draws next; both begin new episodes."""
    worker, other = (make_worker(exploration, **options(exploration)) for _ in range(2))
    worker.sample()
    other.set_state(worker.get_state())
    for each_worker in (worker, other):
        each_worker.start_over(incarnation=1)
        each_worker.load_snapshot(worker.policy.snapshot(timesteps=50))
    if isinstance(exploration, ParameterNoise):
        assert worker.get_state() == other.get_state()
    np.testing.assert_array_equal(worker.sample()[0][sb.ACTIONS], other.sample()[0][sb.ACTIONS])


@each
def test_episodes_go_on_in_the_slots_of_a_wider_lane(exploration):
    """A lane of four slots draws for two episodes what the lane of two slots would have drawn, whose slots they had."""
    more = options(exploration)
    worker, wide = (make_worker(exploration, steps=5, **more, envs=count) for count in (2, 4))
    worker.sample()
    lane, slots = wide.lane, np.array([0, 2])
    lane.take_over(worker.lane, slots)
    for slot, rng in zip(slots, worker.lane.rngs):
        lane.rngs[slot].bit_generator.state = rng.bit_generator.state
    drawn = []
    for each_lane in (lane, worker.lane):
        fragment = each_lane.new_fragment(2)
        fragment.observations[:] = 0.5
        each_lane.timesteps = 10**6  # where all schedules are at their ends: steps of a worker are those of its slots
        for t, arguments in enumerate(each_lane.acting_columns(fragment, None)):
            each_lane.explorer.act(fragment.observations[t], *arguments)
        drawn.append(fragment[sb.ACTIONS])
    np.testing.assert_allclose(drawn[0][:, slots], drawn[1], atol=1e-6)


# ------------------------------------------------------------------ continuous actions


def test_gaussian_noise_shrinks_after_the_random_steps():
    noise = GaussianNoise(random_timesteps=1000, stddev=0.1, initial_scale=1.0, final_scale=0.2, scale_timesteps=2000)
    worker = make_worker(noise, GAUSSIAN, BoundedAction, steps=20_000)
    worker.policy.weights[:] = 0
    actions = worker.sample()[0][sb.ACTIONS][:, 0]
    assert abs(actions).max() <= 1
    np.testing.assert_allclose(actions[:1000].std(), 1 / np.sqrt(3), atol=0.03)  # uniform in [-1, 1]
    np.testing.assert_allclose(actions[1000:1200].std(), 0.096, atol=0.015)
    np.testing.assert_allclose(actions[3000:].std(), 0.02, atol=0.001)


def test_random_actions_are_uniform_within_the_bounds():
    space = Box(np.float32([-1, 0.1]), np.float32([3, 0.7]))
    policy = Policy(policy_spec(Box(-1, 1, (1,)), space, {"fcnet_hiddens": [8]}))
    position = WorkerPosition(0, 0, 1, low=space.low, high=space.high)
    explorer = RandomActions().explorer(RandomActions(), policy, [np.random.default_rng(5)], position)
    drawn = explorer.begin(1000, 0)[:, 0, 0]
    expected = np.random.default_rng(5).uniform(space.low, space.high, (1000, 2))
    np.testing.assert_array_equal(drawn, expected.astype(np.float32))


@pytest.mark.parametrize("kind", [PerWorkerGaussianNoise, PerWorkerOrnsteinUhlenbeckNoise])
def test_each_worker_has_its_scale_of_noise(kind):
    """That of Ape-X's epsilons for the whole run; without workers the schedule, none in this process beside workers."""
    noise = kind(random_timesteps=0, final_scale=0.5, scale_timesteps=1)
    scale = (lambda each: each.scale) if kind is PerWorkerGaussianNoise else (lambda each: each.base_scale)
    of_workers = [scale(noise.in_worker(WorkerPosition(i, 3, 1)))(np.array([0, 10**6])) for i in range(4)]
    expected = 0.1 * np.array([0, 0.4, 0.4**4.5, 0.4**8])
    np.testing.assert_allclose(of_workers, np.stack([expected, expected], axis=1), rtol=1e-6)
    np.testing.assert_allclose(
        scale(noise.in_worker(WorkerPosition(0, 0, 1)))(np.array([0, 10**6])), [0.1, 0.05], rtol=1e-6
    )


def test_ornstein_uhlenbeck_noise_against_its_recursion():
    noise = OrnsteinUhlenbeckNoise(random_timesteps=0, scale_timesteps=0, final_scale=1.0, ou_base_scale=0.5)
    worker = make_worker(noise, GAUSSIAN, InfiniteHorizonInBox, steps=30_000, env_config={"length": 30_000})
    worker.policy.weights[:] = 0
    x = worker.sample()[0][sb.ACTIONS][:, 0] / 0.5
    steps = x[1:] - 0.85 * x[:-1]
    np.testing.assert_allclose([steps.mean(), steps.std()], [0, 0.2], atol=0.01)
    np.testing.assert_allclose(x.std(), 0.2 / np.sqrt(1 - 0.85**2), atol=0.02)


def test_ornstein_uhlenbeck_noise_begins_at_zero_in_each_episode():
    noise = OrnsteinUhlenbeckNoise(random_timesteps=0, scale_timesteps=0, final_scale=1.0, ou_base_scale=1.0)
    worker = make_worker(noise, GAUSSIAN, BoundedAction, steps=5000)  # episodes of one step
    worker.policy.weights[:] = 0
    np.testing.assert_allclose(worker.sample()[0][sb.ACTIONS].std(), 0.2, atol=0.01)


class InfiniteHorizonInBox(InfiniteHorizon):
    """The same with continuous actions."""

    action_space = Box(0, 10, (1,))


def test_bounds_in_the_units_of_the_policy():
    space = Box(np.float32([0, -2, -np.inf]), np.float32([10, 2, 1]))
    np.testing.assert_allclose(ActionMapper(space).policy_bounds, [[-1, -1, -np.inf], [1, 1, 1]])
    np.testing.assert_allclose(ActionMapper(space, normalize_actions=False).policy_bounds, [space.low, space.high])
    assert ActionMapper(Discrete(3)).policy_bounds is None


def test_noise_needs_bounds():
    with pytest.raises(ValueError, match="needs continuous actions with finite bounds"):
        make_worker(GaussianNoise(), VALUES)


# ------------------------------------------------------------------ noise in the weights


def test_parameter_noise_stays_for_an_episode():
    """Of one observation, always seen: the action changes with the episode alone."""
    worker = make_worker(parameter_noise(3.0, 0.0), steps=200, env_config={"length": 10})
    worker.policy.weights[:] = 0
    actions = worker.sample()[0][sb.ACTIONS].reshape(20, 10)
    assert (actions == actions[:, :1]).all()
    assert 2 < actions[:, 0].sum() < 18


@pytest.mark.parametrize(("stddev", "factor"), [(1e-6, ADAPTATION), (1e3, 1 / ADAPTATION)])
def test_parameter_noise_adapts_after_each_episode(stddev, factor):
    worker = make_worker(parameter_noise(stddev, 0.1), envs=2, steps=20, env_config={"length": 10})
    worker.sample()
    np.testing.assert_allclose([each["exploration"]["scale"] for each in worker.get_state()], stddev * factor**2)


def test_parameter_noise_settles_where_it_changes_as_much_as_epsilon():
    worker = make_worker(parameter_noise(5.0, 0.3), steps=5000, env_config={"length": 5})
    for _ in range(3):
        worker.sample()
    settled = worker.get_state()[0]["exploration"]["scale"]
    worker.sample()
    np.testing.assert_allclose(worker.get_state()[0]["exploration"]["scale"], settled, rtol=0.4)
    assert settled < 4


class AlwaysLast(Explorer):
    """Takes the last action in every `every`th step, the policy's own in between."""

    def begin(self, num_steps, timesteps, active=None):
        self.steps = timesteps
        return super().begin(num_steps, timesteps, active)

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None):
        super().act(observations, noise, dist_inputs, actions, values, state, next_state)
        if self.steps % self.exploration.every == 0:
            actions[:] = 1
        self.steps += 1


class Own(Exploration):
    every: int
    shift: float = 0.0
    explorer = AlwaysLast


@pytest.mark.parametrize("workers", [0, 1])
def test_an_exploration_of_ones_own(workers):
    """A class, as RLlib takes it; its fields are settings, and its explorer acts in the workers."""
    config = (
        DQNConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=workers, rollout_fragment_length=30)
        .training(train_batch_size=4, num_steps_sampled_before_learning_starts=10_000)
        .exploration(exploration_config={"type": Own, "every": 1})
        .reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=60)
    )
    with config.build() as algo:
        algo.train()
        assert algo.train()["episode_len_mean"] < 12, "always to one side"


def test_settings_of_an_exploration_of_ones_own_are_checked():
    config = DQNConfig().environment("CartPole-v1")
    with pytest.raises(ValueError, match=r"Own cannot be made of \{'shift': 0.0\}: Missing required argument 'every'"):
        config.exploration(exploration_config={"type": Own}).validate()
    with pytest.raises(ValueError, match=r"Own cannot be made of .*: Unexpected keyword argument 'evry'"):
        config.exploration(exploration_config={"type": Own, "every": 1, "evry": 2}).validate()
    with pytest.raises(ValueError, match="or by a class of your own derived from Exploration"):
        config.exploration(exploration_config={"type": AlwaysLast}).validate()
