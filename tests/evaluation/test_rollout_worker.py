"""Rollout workers: what they write, that it does not depend on how many they are, and how they fail."""

import sys
from collections import Counter
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.env.factories.registry import resolve
from rllib.evaluation import seeding
from rllib.evaluation.postprocess.advantages import AdvantageEstimator, QLambda
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.evaluation.settings import NO_POSTPROCESS, RolloutSettings
from rllib.exploration.epsilon import EpsilonGreedy
from rllib.exploration.explorers import Explorer, StochasticSampling
from rllib.models.catalog.catalog import policy_spec
from rllib.models.distributions.q_values import QValues
from rllib.policy import Snapshot
from rllib.sample_batch import DEFAULT_POLICY, SampleBatch
from tests.envs import (
    BoundedAction,
    CountingEnv,
    HundredReward,
    InfiniteHorizon,
    MatchPicture,
    ProbeFailure,
    RaisingEnv,
)
from tests.rollouts import rollout_settings, with_policy


def settings(env, *, env_config=None, num_envs=2, fragment_length=30, **overrides) -> RolloutSettings:
    made = env(env_config or {})
    return rollout_settings(
        env=resolve(env),
        env_config=env_config or {},
        policy=policy_spec(
            made.observation_space,
            made.action_space,
            {"fcnet_hiddens": [8], "vf_share_layers": False},
            observation_filter=overrides.pop("observation_filter", "NoFilter"),
        ),
        postprocess=AdvantageEstimator(gamma=0.9, lambda_=0.8),
        num_envs=num_envs,
        fragment_length=fragment_length,
        seed=3,
        **overrides,
    )


def worker(*args, index=0, incarnation=0, **kwargs) -> RolloutWorker:
    return started(settings(*args, **kwargs), index, incarnation)


def started(described: RolloutSettings, index: int = 0, incarnation: int = 0) -> RolloutWorker:
    made = RolloutWorker(described, index, incarnation)
    weights = seeding.generator(0, seeding.INITIAL_WEIGHTS).normal(0, 0.5, made.policy.weights.shape)
    made.load_snapshot(Snapshot(weights.astype(np.float32), version=4))
    return made


def time_major(batch, name, num_envs=2):
    return batch[name].reshape(-1, num_envs, *batch[name].shape[1:])


def test_each_environment_counts_through_its_episodes():
    batch, report = worker(CountingEnv).sample()
    seen = time_major(batch, sb.OBS)[:, 0, 0]
    np.testing.assert_array_equal(seen[:12], [0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3])
    np.testing.assert_array_equal(time_major(batch, sb.REWARDS)[:, 0], seen + 1)
    ends = time_major(batch, sb.TERMINATEDS)[:, 0], time_major(batch, sb.TRUNCATEDS)[:, 0]
    assert [int(t) for t in np.flatnonzero(ends[0])][:2] == [2, 11]
    assert [int(t) for t in np.flatnonzero(ends[1])][:2] == [7, 11]
    assert [episode.length for episode in report.episodes if episode.env_index == 0][:3] == [3, 5, 4]
    assert batch.policy_version == 4
    assert report.env_steps == batch.count == 60


def test_fragments_follow_on_from_each_other():
    one = worker(CountingEnv, fragment_length=30).sample()[0]
    short = worker(CountingEnv, fragment_length=10)
    three = [short.sample()[0] for _ in range(3)]
    for name in (sb.OBS, sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS):
        joined = np.concatenate([time_major(part, name) for part in three])
        np.testing.assert_array_equal(joined, time_major(one, name))


def test_stored_log_probabilities_belong_to_the_stored_actions():
    sampler = worker(BoundedAction, num_envs=3)
    batch, _ = sampler.sample()
    dist_inputs = np.concatenate([sampler.policy.network.forward_policy(sampler.policy.encode(batch[sb.OBS]))])
    np.testing.assert_allclose(dist_inputs, batch[sb.ACTION_DIST_INPUTS], atol=1e-5)
    again = sampler.policy.log_prob(dist_inputs, batch[sb.ACTIONS])
    np.testing.assert_allclose(again, batch[sb.ACTION_LOGP], atol=1e-5)
    assert np.abs(batch[sb.ACTIONS]).max() > 1, "actions are stored as drawn, not as clipped for the environment"


def test_truncation_is_bootstrapped_from_the_final_observation():
    sampler = worker(InfiniteHorizon, env_config={"length": 5}, num_envs=1, fragment_length=5)
    batch, _ = sampler.sample()
    value = float(sampler.policy.values(np.zeros((1, 1), np.float32))[0])
    # Observations are all equal, so every TD error is 1 + gamma V - V, also the last one.
    delta = 1 + 0.9 * value - value
    expected = [delta * sum((0.9 * 0.8) ** k for k in range(5 - t)) for t in range(5)]
    np.testing.assert_allclose(batch[sb.ADVANTAGES], expected, rtol=1e-5)
    assert batch[sb.TRUNCATEDS].tolist() == [False] * 4 + [True]


def counting_vector(config) -> gymnasium.vector.SyncVectorEnv:
    """Resets in steps of their own."""
    return gymnasium.vector.SyncVectorEnv([lambda: CountingEnv({"offset": 0.5})] * config.num_envs)


@pytest.mark.parametrize(
    ("env", "mode"),
    [
        (CountingEnv, {}),
        (BoundedAction, {}),
        (CountingEnv, {"complete_episodes": True, "fragment_length": 7}),
        (CountingEnv, {"complete_episodes": True, "fragment_length": 7, "observation_filter": "MeanStdFilter"}),
        (InfiniteHorizon, {"observation_filter": "MeanStdFilter"}),
        (counting_vector, {}),
    ],
)
@pytest.mark.parametrize("split", [(1, 4), (2, 2), (4, 1)])
def test_columns_are_equal_bits_however_environments_are_shared_out(env, mode, split):
    """The local worker with 4 environments, or the 4 spread over workers: the same rows in the same order."""

    def rounds(num_workers, num_envs, indices):
        described = settings(CountingEnv if env is counting_vector else env, num_envs=num_envs, **mode)
        described = replace(described, env=resolve(env), env_config={"offset": 0.5}, num_workers=num_workers)
        workers = [started(described, index) for index in indices]
        return SampleBatch.join_rounds([[each.sample()[0] for each in workers] for _ in range(3)])

    num_workers, num_envs = split
    alone = rounds(0, 4, [0])
    together = rounds(num_workers, num_envs, range(1, num_workers + 1))
    assert set(alone) == set(together)
    for name, column in alone.items():
        np.testing.assert_array_equal(together[name], column, err_msg=name)


def test_no_two_environments_share_a_stream():
    first = time_major(worker(CountingEnv, env_config={"offset": 0.5}, num_envs=4).sample()[0], sb.OBS, 4)[0, :, 0]
    replaced = time_major(
        worker(CountingEnv, env_config={"offset": 0.5}, num_envs=4, incarnation=1).sample()[0], sb.OBS, 4
    )[0, :, 0]
    assert len({*first.tolist(), *replaced.tolist()}) == 8


def test_complete_episodes_ends_every_episode_and_keeps_nothing_else():
    sampler = worker(CountingEnv, fragment_length=4, complete_episodes=True)
    for _ in range(3):
        batch, report = sampler.sample()
        assert batch.count == sum(episode.length for episode in report.episodes) == report.env_steps
        assert batch.count >= 8
        assert batch[sb.OBS].max() <= 4
        assert report.longest_running == 0


def test_statistics_are_of_the_raw_rewards():
    batch, report = worker(HundredReward, clip_rewards=True).sample()
    assert set(batch[sb.REWARDS]) == {1.0}
    assert {episode.episode_return for episode in report.episodes} == {1000.0}
    clipped, _ = worker(HundredReward, clip_rewards=5.0).sample()
    assert set(clipped[sb.REWARDS]) == {5.0}


def test_a_filter_normalises_at_collection_and_reports_what_it_saw():
    sampler = worker(CountingEnv, observation_filter="MeanStdFilter")
    batch, report = sampler.sample()
    assert batch[sb.OBS].dtype == np.float32
    assert abs(batch[sb.OBS].mean()) < 1.0
    assert DEFAULT_POLICY in report.filter_deltas


def test_failing_environment_names_itself():
    sampler = worker(RaisingEnv, env_config={"step": 7, "vector_index": 1})
    with pytest.raises(ProbeFailure) as caught:
        sampler.sample()
    assert any("environment 1 of rollout worker 0" in note for note in caught.value.__notes__)


def test_action_streams_continue_from_their_state():
    config = {"lengths": [5]}
    whole = worker(CountingEnv, env_config=config, fragment_length=5)
    whole.sample()
    state, after = whole.get_state(), whole.sample()[0]
    restored = worker(CountingEnv, env_config=config, fragment_length=5)
    restored.set_state(state)
    np.testing.assert_array_equal(restored.sample()[0][sb.ACTIONS], after[sb.ACTIONS])


def test_a_filter_counts_each_observation_once_while_others_stand_still():
    sampler = worker(
        CountingEnv,
        env_config={"lengths": [2, 50, 7]},
        num_envs=4,
        fragment_length=3,
        complete_episodes=True,
        observation_filter="MeanStdFilter",
    )
    batch, report = sampler.sample()
    # Each step brings one observation; an episode's last step brings the first of the next one in its place.
    assert report.filter_deltas[DEFAULT_POLICY]["count"].sum() == batch.count + 4


def test_after_an_exception_new_episodes_begin():
    sampler = worker(RaisingEnv, env_config={"step": 40}, num_envs=1, fragment_length=30)
    sampler.sample()
    with pytest.raises(ProbeFailure):
        sampler.sample()
    batch, report = sampler.sample()
    assert batch.count == report.longest_running == 30, "the episode that failed is not continued"


def test_nan_is_named_where_it_appears():
    class Nan(CountingEnv):
        def step(self, action):
            observation, *rest = super().step(action)
            return (np.full_like(observation, np.nan) if self.episode == 4 else observation), *rest

    with pytest.raises(ValueError, match=r"obs of environment 0 of rollout worker 0 is not finite at step \d+"):
        worker(Nan).sample()


def test_nan_after_the_last_step_of_a_fragment_is_named():
    class NanAtLast(InfiniteHorizon):
        steps = 0

        def step(self, action):
            self.steps += 1
            observation, *rest = super().step(action)
            return np.full_like(observation, np.nan if self.steps == 8 else 0), *rest

    with pytest.raises(ValueError, match="obs of environment 0 of rollout worker 0 is not finite at step 8"):
        worker(NanAtLast, num_envs=1, fragment_length=8).sample()


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("postprocess", [NO_POSTPROCESS, AdvantageEstimator(gamma=0.9)])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300])
def test_a_policy_never_acts_on_numbers_that_are_not_finite(wrong, postprocess):
    class Wrong(InfiniteHorizon):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, InfiniteHorizon.observation_space.shape, np.float64)
        steps = 0

        def step(self, action):
            type(self).steps += 1
            observation, *rest = super().step(action)
            return np.full(observation.shape, wrong if self.steps == 3 else 0.0), *rest

    made = with_policy(settings(Wrong, num_envs=1, fragment_length=8), postprocess=postprocess)
    sampler = RolloutWorker(made)
    with pytest.raises(ValueError, match="obs of environment 0 of rollout worker 0 is not finite at step 3"):
        sampler.sample()
    assert Wrong.steps == 3
    assert sampler.sample()[0].count == 8, "the next sample starts a new episode"


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_the_filter_counts_no_observation_that_is_not_finite(wrong):
    class Wrong(InfiniteHorizon):
        steps = 0

        def step(self, action):
            self.steps += 1
            observation, *rest = super().step(action)
            return np.full_like(observation, wrong if self.steps == 3 else self.steps), *rest

    sampler = worker(Wrong, num_envs=1, fragment_length=8, observation_filter="MeanStdFilter")
    with pytest.raises(ValueError, match="is not finite"):
        sampler.sample()
    delta = sampler.sample()[1].filter_deltas[DEFAULT_POLICY]
    assert delta["count"].sum() == 12, "a reset and two steps, and after the error another reset and eight steps"
    assert np.isfinite(delta["mean"]).all()
    assert np.isfinite(delta["m2"]).all()


def test_an_error_of_an_environment_that_gets_nan_has_its_cause_in_a_note():
    class RefusesNan(InfiniteHorizon):
        action_space = BoundedAction.action_space

        def step(self, action):
            assert np.isfinite(action).all()
            return super().step(action)

    sampler = worker(RefusesNan, num_envs=1, fragment_length=8)
    sampler.policy.weights[:] = np.nan
    with pytest.raises(AssertionError) as caught:
        sampler.sample()
    assert "action_dist_inputs of environment 0 of rollout worker 0 is not finite" in "".join(caught.value.__notes__)


def test_nan_in_the_final_observation_of_a_truncated_episode_is_named():
    class NanAtTheEnd(InfiniteHorizon):
        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            return np.full_like(observation, np.nan if truncated else 0.5), reward, terminated, truncated, info

    sampler = worker(NanAtTheEnd, env_config={"length": 5}, num_envs=1, fragment_length=8)
    with pytest.raises(ValueError, match="the final observation of environment 0 of rollout worker 0 is not finite"):
        sampler.sample()


def test_without_a_critic_nothing_is_bootstrapped():
    made = with_policy(
        settings(InfiniteHorizon, num_envs=1, fragment_length=4),
        postprocess=AdvantageEstimator(gamma=0.5, use_gae=False, use_critic=False),
    )
    sampler = RolloutWorker(made)
    sampler.policy.weights[:] = 1.0
    batch, _ = sampler.sample()
    np.testing.assert_allclose(batch[sb.ADVANTAGES], [1.875, 1.75, 1.5, 1.0])


def test_reseeding_starts_other_episodes():
    config = {"offset": 0.5, "lengths": [50]}
    sampler = worker(CountingEnv, env_config=config)
    first = sampler.sample()[0][sb.OBS][:2, 0]
    sampler.start_over(incarnation=3)
    again = sampler.sample()[0][sb.OBS][:2, 0]
    assert len({*first.tolist(), *again.tolist()}) == 4


class ActsWithoutValues(Explorer):
    gives_values = False


class ValuesApart(StochasticSampling):
    explorer = ActsWithoutValues


class QValuesApart(EpsilonGreedy):
    explorer = ActsWithoutValues


IMAGES = {"conv_filters": [[4, 3, 2], [4, 3, 2]], "vf_share_layers": True}


@pytest.mark.parametrize("complete_episodes", [False, True])
@pytest.mark.parametrize(
    ("env", "env_config", "observation_filter", "model"),
    [
        (MatchPicture, {"truncated": True}, "NoFilter", {**IMAGES, "post_fcnet_hiddens": [8]}),
        (MatchPicture, {}, "NoFilter", {**IMAGES, "post_fcnet_hiddens": []}),
        (CountingEnv, {}, "MeanStdFilter", {"fcnet_hiddens": [8, 8], "vf_share_layers": True}),
    ],
    ids=["convolutions", "convolutions alone", "fully connected"],
)
def test_shared_layers_see_each_observation_once(env, env_config, observation_filter, model, complete_episodes):
    made, example = settings(env, fragment_length=7, complete_episodes=complete_episodes), env(env_config)
    spec = policy_spec(example.observation_space, example.action_space, model, observation_filter=observation_filter)
    batches, seen = {}, {}
    for exploration in (StochasticSampling(), ValuesApart()):
        sampler = RolloutWorker(with_policy(replace(made, env_config=env_config), spec=spec, exploration=exploration))
        weights = seeding.generator(0, seeding.INITIAL_WEIGHTS).normal(0, 0.3, sampler.policy.weights.shape)
        sampler.policy.set_weights(weights.astype(np.float32))
        rows, values = [], sampler.policy.values
        sampler.policy.values = lambda observations, rows=rows, values=values: (
            rows.append(len(observations)) or values(observations)
        )
        batches[exploration] = [sampler.sample()[0] for _ in range(2)]
        seen[exploration] = sum(rows)
    together, apart = batches
    for one, other in zip(batches[together], batches[apart], strict=True):
        assert one.keys() == other.keys() and one.count == other.count
        for name in one:
            np.testing.assert_allclose(one[name], other[name], atol=1e-5, err_msg=name)
    steps = sum(batch.count for batch in batches[together])
    assert seen[apart] - seen[together] >= steps, "acting has given the values of all steps"


def test_a_step_of_sampling_takes_few_calls():
    """The hot path of every user, who mostly has one policy without a memory and without masks: each call counts."""
    sampler = worker(lambda config: gymnasium.make("CartPole-v1"), num_envs=1, fragment_length=500)
    sampler.sample()
    calls = Counter()

    def count(frame, event, argument):
        calls[event] += event == "c_call" or (event == "call" and frame.f_globals["__name__"].startswith("rllib."))

    sys.setprofile(count)
    sampler.sample()
    sys.setprofile(None)
    assert 5 < calls["call"] / 500 <= 16, "Python frames of the library"
    assert 5 < calls["c_call"] / 500 <= 22, "functions of C, with the environment's"


class EndlessVector(gymnasium.vector.VectorEnv):
    """Arrays of step counts; no episode ends."""

    single_observation_space, single_action_space = CountingEnv.observation_space, CountingEnv.action_space

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.counts = np.zeros((num_envs, 1), np.float32)
        self.never = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):
        self.counts[:] = 0
        return self.counts.copy(), {}

    def step(self, actions):
        self.counts += 1
        return self.counts.copy(), self.counts[:, 0].copy(), self.never.copy(), self.never.copy(), {}


@pytest.mark.parametrize("kind", ["own", "envpool"])
def test_a_step_of_a_vector_environment_touches_no_object_per_environment(kind):
    """A step takes as many calls for 80 environments as for 8.

    Once a fragment, noise is drawn from the stream of each, and values are computed, which are left out here, by blocks
    of rows.
    """
    if kind == "own":
        single, resolved, env_config = CountingEnv, resolve(lambda config: EndlessVector(config.num_envs)), {}
    else:
        pytest.importorskip("envpool", reason="EnvPool is not installed")
        # Its episodes end after 200 steps.
        single, resolved = lambda config: gymnasium.make("Pendulum-v1"), resolve("envpool:Pendulum-v1")
        env_config = {"num_threads": 1}

    def calls(num_envs: int, length: int) -> Counter:
        made = settings(single, num_envs=num_envs, fragment_length=length)
        made = with_policy(replace(made, env=resolved, env_config=env_config), postprocess=NO_POSTPROCESS)
        sampler, counted = started(made), Counter()
        sampler.sample()
        sys.setprofile(lambda frame, event, argument: counted.update([event]))
        batch, report = sampler.sample()
        sys.setprofile(None)
        assert batch.count == length * num_envs and not report.episodes
        return counted

    few, many = ({event: calls(n, 90)[event] - calls(n, 40)[event] for event in ("call", "c_call")} for n in (8, 80))
    assert few == many and 5 * 50 < few["call"] <= 60 * 50


@pytest.mark.parametrize("env", [MatchPicture, CountingEnv])
def test_action_values_are_computed_once(env):
    """PQN's targets come from the values that acting has computed, but for the observations that nobody acted on."""
    made, example = settings(env, fragment_length=7), env({})
    model = {**IMAGES, "post_fcnet_hiddens": [8]} if env is MatchPicture else {"fcnet_hiddens": [8, 8]}
    spec = replace(
        policy_spec(example.observation_space, example.action_space, model),
        distribution=QValues(int(example.action_space.n)),
        critic=False,
        vf_share_layers=True,
    )
    batches, seen = [], []
    for exploration in (EpsilonGreedy(0.3, 0.3, 0), QValuesApart(0.3, 0.3, 0)):
        made = with_policy(made, spec=spec, postprocess=QLambda(0.9, 0.8), exploration=exploration)
        sampler = RolloutWorker(made)
        weights = seeding.generator(0, seeding.INITIAL_WEIGHTS).normal(0, 0.3, sampler.policy.weights.shape)
        sampler.policy.set_weights(weights.astype(np.float32))
        rows, dist_inputs = [], sampler.policy.dist_inputs
        sampler.policy.dist_inputs = lambda observations, rows=rows, dist_inputs=dist_inputs: (
            rows.append(len(observations)) or dist_inputs(observations)
        )
        batches.append(sampler.sample()[0])
        seen.append(sum(rows))
    assert seen[1] - seen[0] == batches[0].count == 14
    for name in batches[0]:
        np.testing.assert_allclose(batches[0][name], batches[1][name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("num_workers", "acts_among_all", "calls"), [(0, True, 4), (2, True, 4), (3, True, 1), (2, False, 1)]
)
def test_values_are_computed_by_environment_only_where_the_bits_are_promised(num_workers, acts_among_all, calls):
    """Short fragments pay for it: the rows of 4 environments cost less in one pass than in four."""
    made = worker(
        CountingEnv,
        env_config={"lengths": [90]},
        num_envs=4,
        num_workers=num_workers,
        acts_among_all=acts_among_all,
        index=min(num_workers, 1),
    )
    passes, values_of = [], made.policy.values
    made.policy.values = lambda rows: passes.append(len(rows)) or values_of(rows)
    made.sample()
    assert passes == [4 * 31 // calls] * calls


def test_remote_workers_act_on_their_device():
    """On tensors of the CPU here; the local worker, whose weights change in place, acts as before."""
    expected = worker(BoundedAction, index=1).sample()[0]
    found = worker(BoundedAction, index=1, acting_device="cpu").sample()[0]
    for name in (sb.OBS, sb.ACTIONS, sb.ACTION_DIST_INPUTS, sb.VF_PREDS, sb.ADVANTAGES):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
    assert worker(BoundedAction, acting_device="cpu").policy.network.closed_form
