"""Where the time of a run went, and what its profile says about it."""

import json

import pytest

from rllib import ApexDQNConfig, APPOConfig, DQNConfig, ESConfig, IMPALAConfig, PPOConfig
from rllib.runs.profiling import DRIVER, Profile
from rllib.spans import IDLE, Lane
from tests.envs import CountingEnv

SETTINGS = {
    "num_rollout_workers": 2, "num_envs_per_worker": 1, "num_learners": 0, "num_gpus": 0, "evaluation_interval": 1,
}  # fmt: skip


def lane(name, **seconds) -> Lane:
    sums = {path.replace("__", "/"): value for path, value in seconds.items()}
    sums = {path.replace("wait_for_learners", "wait for learners"): value for path, value in sums.items()}
    return Lane(name, 1, "here", 0.0, seconds=sums, lasted=10.0)


def driver(**phases) -> Lane:
    return lane(DRIVER, iteration=10.0, **{f"iteration__{path}": value for path, value in phases.items()})


def profile(*lanes, num_cores=4, **settings) -> Profile:
    return Profile(lanes, {**SETTINGS, **settings}, num_cores)


def test_waiting_for_workers_counts_as_what_they_do_meanwhile():
    workers = [
        lane("rollout worker 1", idle=4, sample=6, sample__act=1, sample__step=4),
        lane("rollout worker 2", idle=2, sample=8, sample__act=3, sample__step=3),
    ]
    found = profile(driver(sample=6.0, sample__join=0.5, sample__send_weights=0.2, learn=3.0), *workers)
    # 5.5 s of waiting, of which 4/14 are acting, 7/14 stepping and 3/14 neither.
    assert found.seconds == 10
    assert found.shares == pytest.approx(
        {
            "updates": 0.3,
            "environments": 0.55 * 7 / 14,
            "actions": 0.55 * 4 / 14,
            "rest of the workers' time": 0.55 * 3 / 14,
            "rest": 0.1,
            "transfer": 0.05,
        },
        abs=0.02,
    )
    assert list(found.shares.values()) == sorted(found.shares.values(), reverse=True)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.workers_idle == 0.3


def test_learners_that_wait_for_batches_and_for_one_another():
    learners = [
        lane("learner 0", idle=5, update=5, update__wait_for_learners=1),
        lane("learner 1", idle=4, update=6, update__wait_for_learners=2),
    ]
    found = profile(driver(sample=6.0, sample__step=5.0, learn=4.0), *learners, num_learners=2, num_rollout_workers=0)
    assert found.learners_idle == 0.6 and "learners idle: 60.0%" in str(found)
    assert "goes into steps of the environments; the learner is idle 60% of it. More processes" in found.bottleneck
    found = profile(driver(learn=9.0), *learners, num_learners=2)
    assert "updates of the weights. The learners wait 60% of theirs." in found.bottleneck
    assert profile(driver(learn=7.0)).learners_idle == pytest.approx(0.3), "this process learns"


def test_a_driver_that_samples_itself():
    found = profile(driver(sample=8.0, sample__act=5.0, sample__step=2.0, learn=1.0), num_rollout_workers=0)
    assert found.shares["actions"] == 0.5 and found.shares["environments"] == 0.2
    assert found.workers_idle is None


@pytest.mark.parametrize(
    ("phases", "settings", "sentence"),
    [
        ({"learn": 6}, {}, "60% of the time goes into updates of the weights. Several processes can compute them:"),
        ({"learn": 6}, {"num_learners": 3}, r".learners(num_learners=4), or a GPU: .resources(num_gpus=1)"),
        ({"learn": 6}, {"sgd_minibatch_size": 64}, ".training(sgd_minibatch_size=512) instead of 64, or a smaller"),
        ({"learn": 6}, {"num_gpus": 1}, "A smaller network or fewer gradient steps"),
        ({"sample": 7, "sample__step": 6}, {}, ".rollouts(num_rollout_workers=4) instead of 2"),
        ({"sample": 7, "sample__step": 6}, {"num_rollout_workers": 4}, 'gym_env_vectorize_mode="vector_entry_point"'),
        ({"sample": 7, "sample__act": 6}, {}, ".rollouts(num_envs_per_worker=2) instead of 1"),
        ({"sample": 7, "sample__act": 6}, {"num_envs_per_worker": 64}, ".rollouts(num_rollout_workers=4)"),
        ({"evaluation": 7}, {}, "evaluation_parallel_to_training=True), or a larger evaluation_interval than 1"),
        ({"replay": 7}, {}, "num_replay_buffer_shards"),
        ({"aggregate": 7}, {}, "num_aggregation_workers"),
        ({"sample": 7, "sample__join": 6}, {}, "Longer fragments"),
        ({}, {}, "100% of the time goes into none of the phases"),
    ],
)
def test_the_bottleneck_is_named_with_the_setting_that_moves_it(phases, settings, sentence):
    assert sentence in profile(driver(**phases), **settings).bottleneck


def test_idle_workers_are_named_where_updates_limit_the_run():
    found = profile(driver(sample=3, learn=6), lane("rollout worker 1", idle=7, sample=3, sample__step=3))
    assert "The rollout workers wait 70% of their time." in found.bottleneck


def test_before_the_first_iteration():
    found = profile(lane(DRIVER))
    assert found.shares == {} and "No iteration has ended yet." in str(found)


def test_machines_are_brought_together_by_the_time_of_day(tmp_path):
    here = Lane(DRIVER, 1, "here", 1_000.0, spans=[("iteration", 5.0, 8.0)], seconds={"iteration": 3.0})
    beside = Lane("rollout worker 1", 2, "here", 1_000.001, spans=[("sample", 6.0, 7.0)])
    there = Lane("rollout worker 2", 2, "there", 900.0, spans=[("sample", 106.5, 107.0)])
    profile(here, beside, there).save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    timed = [(event["pid"], event["ts"], event["dur"], event["cat"]) for event in events if event["ph"] == "X"]
    assert timed == [
        (0, 0.0, pytest.approx(3e6), "other"),
        (1, pytest.approx(1e6), pytest.approx(1e6), "other"),
        (2, pytest.approx(1.5e6), pytest.approx(0.5e6), "other"),
    ]


def built(config_class, num_workers=2, **training):
    config = config_class().environment("CartPole-v1").debugging(seed=1).reporting(min_time_s_per_iteration=0)
    return config.rollouts(num_rollout_workers=num_workers).training(**training).reporting(profile=True)


@pytest.mark.parametrize(
    ("config", "lanes", "kinds"),
    [
        (
            lambda: built(PPOConfig, train_batch_size=400, num_sgd_iter=2),
            ["driver", "rollout worker 1", "rollout worker 2"],
            {"driver": {"iteration", "sample", "learn", "join", "take in", "send weights"},
             "rollout worker": {"sample", "act", "step", "finish", "make rows", IDLE}},
        ),
        (
            lambda: built(PPOConfig, 0, train_batch_size=400).learners(num_learners=2),
            ["driver", "learner 0", "learner 1"],
            {"driver": {"sample", "act", "step", "learn"}, "learner": {"update", "wait for learners", IDLE}},
        ),
        (
            lambda: built(IMPALAConfig, 1, num_aggregation_workers=1),
            ["aggregation worker 1", "driver", "rollout worker 1"],
            {"driver": {"sample", "aggregate", "learn"}, "aggregation worker": {"join"}},
        ),
        (
            lambda: built(
                ApexDQNConfig, 1, num_steps_sampled_before_learning_starts=100, num_replay_buffer_shards=1,
                hiddens=[8], model={"fcnet_hiddens": [8]}, train_batch_size=64,
            ).reporting(min_sample_timesteps_per_iteration=200, min_train_timesteps_per_iteration=64),
            ["driver", "replay shard 0", "rollout worker 1"],
            {"driver": {"sample", "replay", "learn"}, "replay shard": {"add", "sample", "update priorities"}},
        ),
        (
            lambda: built(DQNConfig, 1, num_steps_sampled_before_learning_starts=100, model={"fcnet_hiddens": [8]})
            .reporting(min_sample_timesteps_per_iteration=200)
            .evaluation(evaluation_interval=1, evaluation_num_workers=1),
            ["driver", "evaluation worker 1", "rollout worker 1"],
            {"driver": {"sample", "learn", "evaluation"}, "evaluation worker": {"evaluate"}},
        ),
        (
            lambda: built(ESConfig, 1, episodes_per_batch=4, train_batch_size=1, noise_size=1_000_000),
            ["driver", "rollout worker 1"],
            {"driver": {"sample", "learn"}, "rollout worker": {"play"}},
        ),
    ],
    ids=["workers", "learners", "aggregators", "shards", "evaluation", "episodes"],
)  # fmt: skip
def test_every_kind_of_process_is_recorded(config, lanes, kinds, tmp_path):
    with config().build() as algo:
        for _ in range(3):
            algo.train()
        found = algo.profile()
        found.save(tmp_path / "profile.json")
    assert [each.name for each in found.lanes] == lanes
    for name, expected in kinds.items():
        seen = {path.rpartition("/")[2] for each in found.lanes if each.name.startswith(name) for path in each.seconds}
        assert expected <= seen, (name, expected - seen)
    assert sum(found.shares.values()) == pytest.approx(1, abs=0.02)
    assert found.bottleneck in str(found)
    events = json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert [name.partition(" (")[0] for name in names] == lanes
    timed = [event for event in events if event["ph"] == "X"]
    assert min(event["ts"] for event in timed) == pytest.approx(0, abs=1e-3)
    assert all(event["dur"] >= 0 for event in timed)
    with pytest.raises(RuntimeError, match="it has been stopped"):
        algo.profile()


def test_a_recording_changes_nothing_else():
    """The same weights, and the environments' time is the same number as the workers report."""
    weights = {}
    for profiled in (False, True):
        config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).debugging(seed=3)
        with config.training(train_batch_size=200, num_sgd_iter=2).reporting(profile=profiled).build() as algo:
            result = algo.train()
            weights[profiled] = algo.policy.weights.copy()
            if profiled:
                seconds = algo.profile().lanes[0].seconds["iteration/sample/step"]
                assert seconds == pytest.approx(result["sampler_perf"]["mean_env_wait_ms"] * 200 / 1e3, rel=1e-6)
    assert (weights[False] == weights[True]).all()


def test_one_recording_in_a_process_at_a_time():
    config = PPOConfig().environment(CountingEnv).rollouts(num_rollout_workers=0).reporting(profile=True)
    config.training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
    with config.build() as algo, config.copy().build() as other:
        algo.train()
        with pytest.raises(RuntimeError, match="for one algorithm of a process at a time"):
            other.profile()
    with (
        APPOConfig().environment(CountingEnv).rollouts(num_rollout_workers=0).build() as algo,
        pytest.raises(RuntimeError, match=r"Use .reporting\(profile=True\)"),
    ):
        algo.profile()
    with config.copy().build() as algo:
        algo.train()
        assert algo.profile().seconds > 0
