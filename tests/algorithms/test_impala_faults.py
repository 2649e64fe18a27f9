"""Asynchronous sampling: versions, bounds, and workers that die, fall silent or are slow."""

import os
import signal
import time

import numpy as np
import pytest
from learner_updates import process_ids

from rllib.algorithms.appo import APPOConfig
from rllib.algorithms.impala import IMPALAConfig
from rllib.errors import SampleTimeoutError
from rllib.sample_batch import DEFAULT_POLICY
from runtime.errors import ActorDiedError
from tests.algorithms.algorithm_support import learner_stats, train_until, worker_pids
from tests.envs import CountingEnv, ProbeFailure, RaisingEnv, SleepEnv

pytestmark = pytest.mark.usefixtures("workers_know_the_module")


def config(config_class=IMPALAConfig, env="CartPole-v1", num_workers=2, fragment=20, training=None, **env_config):
    defaults = {"train_batch_size": 80, "model": {"fcnet_hiddens": [16]}}
    return (
        config_class()
        .environment(env, env_config=env_config)
        .rollouts(num_rollout_workers=num_workers, rollout_fragment_length=fragment)
        .training(**{**defaults, **(training or {})})
        .reporting(min_time_s_per_iteration=None)
        .fault_tolerance(delay_between_worker_restarts_s=0.1)
        .debugging(seed=11)
    )


@pytest.mark.parametrize("config_class", [IMPALAConfig, APPOConfig])
@pytest.mark.parametrize("victims", [1, 2])
def test_killed_workers_are_replaced(config_class, victims):
    """One of two, and both at once."""
    with config(config_class).build() as algo:
        algo.train()
        before = worker_pids(algo)
        for pid in before[:victims]:
            os.kill(pid, signal.SIGKILL)
        result = train_until(algo, lambda result: result["num_remote_worker_restarts"] == victims)
        trained = result["num_env_steps_trained"]
        result = train_until(algo, lambda result: result["num_env_steps_trained"] >= trained + 20 * 80)
        assert result["num_remote_worker_restarts"] == victims
        assert result["num_healthy_workers"] == 2
        assert len(set(worker_pids(algo)) - set(before)) == victims


@pytest.mark.parametrize("config_class", [IMPALAConfig, APPOConfig])
@pytest.mark.parametrize("victims", [1, 2])
def test_killed_aggregators_are_replaced_and_nothing_is_lost(config_class, victims):
    """One of two, and both at once; every fragment is still learned from once, in the order of its environment."""
    with config(config_class, CountingEnv, training={"num_aggregation_workers": 2}).build() as algo:
        learned = watch(algo)
        algo.train()
        before = aggregators(algo)
        for pid in before[:victims]:
            os.kill(pid, signal.SIGKILL)
        started = time.monotonic()
        for _ in range(10):
            result = algo.train()
        assert time.monotonic() - started < 30
        assert result["info"]["num_aggregation_worker_restarts"] == victims
        assert len(set(aggregators(algo)) - set(before)) == victims
        assert result["num_remote_worker_restarts"] == 0
        for batch in learned:
            goes_on = np.flatnonzero(batch["loss_mask"] & ~batch["terminateds"])
            np.testing.assert_array_equal(batch["obs"][goes_on + 1, 0], batch["obs"][goes_on, 0] + 1)
        assert sum(batch.env_steps() for batch in learned) == 11 * 80


@pytest.mark.parametrize("config_class", [IMPALAConfig, APPOConfig])
def test_two_learners_behind_an_aggregator_learn_from_every_row_once(config_class):
    """Asynchronous workers, and a learner and the aggregator are killed: counts are right, and nothing is lost."""
    made = config(config_class, CountingEnv, training={"num_aggregation_workers": 1, "num_sgd_iter": 2})
    with made.learners(num_learners=2).build() as algo:
        learned = watch(algo)
        algo.train()
        os.kill(process_ids(algo)[0], signal.SIGKILL)
        algo.train()
        os.kill(aggregators(algo)[0], signal.SIGKILL)
        started = time.monotonic()
        for _ in range(10):
            result = algo.train()
        assert time.monotonic() - started < 30
        assert result["info"]["num_learner_restarts"] == 1
        assert result["info"]["num_aggregation_worker_restarts"] == 1
        assert result["num_remote_worker_restarts"] == 0
        assert algo.num_updates == len(learned) == 12
    goes_on = []
    for batch in learned:
        within = np.flatnonzero(batch["loss_mask"] & ~batch["terminateds"])
        np.testing.assert_array_equal(batch["obs"][within + 1, 0], batch["obs"][within, 0] + 1)
        goes_on.append(len(within))
    assert min(goes_on) > 0
    steps = sum(batch.env_steps() for batch in learned)
    assert steps == result["num_env_steps_trained"] == 12 * 80
    assert result["num_env_steps_sampled"] >= steps


def test_a_silent_aggregator_is_replaced():
    with config(training={"num_aggregation_workers": 1}).rollouts(sample_timeout_s=0.5).build() as algo:
        algo.train()
        os.kill(aggregators(algo)[0], signal.SIGSTOP)
        started = time.monotonic()
        while algo.train()["info"]["num_aggregation_worker_restarts"] == 0:
            assert time.monotonic() - started < 30
        assert algo.train()["num_healthy_workers"] == 2


def test_without_restart_the_death_of_an_aggregator_ends_the_run_with_its_reason():
    tolerance = {"recreate_failed_workers": False}
    with config(training={"num_aggregation_workers": 1}).fault_tolerance(**tolerance).build() as algo:
        algo.train()
        os.kill(aggregators(algo)[0], signal.SIGKILL)
        with pytest.raises(ActorDiedError, match=r"(?i)sigkill"):
            train_until(algo)


@pytest.mark.parametrize("config_class", [IMPALAConfig, APPOConfig])
def test_a_ring_and_replay_outlive_their_workers(config_class):
    """What is kept lies in the memory of those that died."""
    kept = {"replay_proportion": 1.0, "replay_buffer_num_slots": 8, "minibatch_buffer_size": 2, "num_sgd_iter": 2}
    with config(config_class, training=kept).build() as algo:
        for _ in range(5):
            algo.train()
        for pid in worker_pids(algo):
            os.kill(pid, signal.SIGKILL)
        for _ in range(20):
            result = algo.train()
        assert result["num_healthy_workers"] == 2


def aggregators(algo) -> list[int]:
    """Ids of the processes that join fragments."""
    # Private: nobody else knows the processes
    return list(algo.aggregators.fleet.ask_all(lambda actor, _: actor.process_id.remote(), is_work=False).values())


def watch(algo) -> list:
    """The batches that will be learned from."""
    batches, update = [], algo.learner.update

    def watched(batch, **settings):
        batches.append(batch)
        return update(batch, **settings)

    algo.learner.update = watched
    return batches


def test_without_restart_a_death_ends_the_run_with_its_reason():
    with config().fault_tolerance(recreate_failed_workers=False).build() as algo:
        algo.train()
        os.kill(worker_pids(algo)[0], signal.SIGKILL)
        with pytest.raises(ActorDiedError, match=r"(?i)sigkill"):
            train_until(algo)


def test_when_all_are_gone_the_run_ends_with_a_reason():
    tolerance = {"recreate_failed_workers": False, "ignore_worker_failures": True}
    with config().fault_tolerance(**tolerance).build() as algo:
        algo.train()
        for pid in worker_pids(algo):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(ActorDiedError):
            train_until(algo)


def test_a_failing_environment_ends_the_run_with_its_own_exception():
    with config(env=RaisingEnv, step=70, worker_index=2).build() as algo, pytest.raises(ProbeFailure, match="step 70"):
        train_until(algo)


@pytest.mark.parametrize(
    ("tolerance", "expected"),
    [({"recreate_failed_workers": True}, (2, 1)), ({"ignore_worker_failures": True}, (1, 0))],
    ids=["recreate", "ignore"],
)
def test_exceptions_are_tolerated_as_deaths_are(tolerance, expected):
    """Worker 2's environment raises in each of its 70th steps, its second process' as well."""
    with config(env=RaisingEnv, step=70, worker_index=2).fault_tolerance(**tolerance).build() as algo:
        result = train_until(
            algo,
            lambda result: (
                result["num_healthy_workers"] == expected[0] and result["num_remote_worker_restarts"] >= expected[1]
            ),
        )
        assert bool(result["num_remote_worker_restarts"]) == bool(expected[1])
        trained = result["num_env_steps_trained"]
        assert algo.train()["num_env_steps_trained"] > trained


def test_a_slow_worker_does_not_hold_up_the_others():
    """The first worker takes 20 s for a fragment, the others milliseconds."""
    with config(env=SleepEnv, num_workers=3, seconds=1.0, worker_index=1).build() as algo:
        algo.train()
        started = time.monotonic()
        for _ in range(10):
            algo.train()
        assert time.monotonic() - started < 15


def test_a_silent_worker_is_replaced_while_the_others_go_on():
    with config().rollouts(sample_timeout_s=0.05).build() as algo:
        algo.train()
        os.kill(worker_pids(algo)[0], signal.SIGSTOP)
        started = time.monotonic()
        while algo.train()["num_remote_worker_restarts"] == 0:
            assert time.monotonic() - started < 30
        assert algo.train()["num_healthy_workers"] == 2


def test_no_fragment_for_too_long_is_an_error():
    slow = config(env=SleepEnv, seconds=0.1, training={"learner_queue_timeout": 0.3})
    with slow.build() as algo, pytest.raises(SampleTimeoutError, match=r"learner_queue_timeout=0\.3"):
        algo.train()


class TestWhatIsInFlight:
    def test_versions_never_go_back_and_lag_is_reported(self):
        with config().build() as algo:
            last: dict[int, int] = {}
            take = algo.workers.fleet.take

            def watched(timeout_s):
                answers = take(timeout_s)
                for index, (batch, _), *_ in answers:
                    assert last.get(index, 0) <= batch.policy_version <= algo.num_updates
                    last[index] = batch.policy_version
                return answers

            algo.workers.fleet.take = watched
            for _ in range(30):
                told = learner_stats(algo.train())
                assert 0 <= told["policy_lag_mean"] <= told["policy_lag_max"] <= algo.num_updates
            assert max(last.values()) > 10

    @pytest.mark.parametrize("interval", [1, 5])
    def test_weights_are_broadcast_each_so_many_updates(self, interval):
        with config(training={"broadcast_interval": interval}).build() as algo:
            made = []
            make = algo.workers.request

            def watched(method, snapshots):
                made.append(snapshots[DEFAULT_POLICY].version)
                return make(method, snapshots)

            algo.workers.request = watched
            for _ in range(21):
                algo.train()
            assert made == list(range(0, 21, interval))

    def test_lag_is_reported_as_it_is_where_weights_are_held_back(self):
        """Sent every tenth update, they are up to nine updates old when they act, and older when they are used."""
        with config(training={"broadcast_interval": 10}).build() as algo:
            lags = []
            for _ in range(41):
                told = learner_stats(algo.train())
                lags.append(told["policy_lag_max"])
                assert told["policy_lag_mean"] <= told["policy_lag_max"]
            assert 9 <= max(lags) < 41
            # Weights are of updates 0, 10, 20, ...: from update to update the lag climbs by one, but for whole rounds.
            assert (np.diff(lags) % 10 == 1).all(), lags

    @pytest.mark.parametrize(("queue", "expected"), [(16, 2), (1, 1)])
    def test_workers_are_ahead_by_a_bounded_number_of_fragments(self, queue, expected):
        """Whatever the learner does meanwhile: two fragments a worker, or what the queue holds."""
        training = {"learner_queue_size": queue}
        with config(num_workers=3, training=training).build() as algo:
            for _ in range(5):
                algo.train()
                time.sleep(0.05)
                counters = algo.metrics.counters
                waiting = counters["num_env_steps_sampled"] - counters["num_env_steps_trained"]
                assert waiting <= 3 * expected * 20
                assert algo.train()["num_in_flight_async_reqs"] == 3 * expected

    def test_the_weights_that_act_are_weights_that_were_broadcast(self):
        """Log-probabilities of each fragment belong to the weights of the version that it claims."""
        with config(training={"lr": 0.05}).build() as algo:
            weights = {}
            make, take = algo.workers.request, algo.workers.fleet.take
            policy = type(algo.policy)(algo.policy.spec)

            def remember(method, snapshots):
                sent = snapshots[DEFAULT_POLICY]
                weights[sent.version] = sent.weights.copy()
                return make(method, snapshots)

            def check(timeout_s):
                answers = take(timeout_s)
                for _, (batch, _), *_ in answers:
                    policy.set_weights(weights[batch.policy_version])
                    steps = batch.rows(batch["loss_mask"])
                    again = policy.log_prob(policy.dist_inputs(steps["obs"]), steps["actions"])
                    np.testing.assert_allclose(again, steps["action_logp"], atol=1e-5)
                return answers

            algo.workers.request, algo.workers.fleet.take = remember, check
            for _ in range(10):
                algo.train()
            assert len(weights) == 10
