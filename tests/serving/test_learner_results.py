"""Results that a learner writes into its directory, from which the dashboard shows it."""

import pytest

from rllib.runs.files import read_params, read_results
from rllib.serving.learning.packets import Decision, Reward
from rllib.serving.learning.progress import prepare_directory
from rllib.serving.learning.results import LearnerResults
from rllib.serving.learning.settings import LearningSettings
from rllib.serving.learning.training_loop import TrainingLoop
from rllib.storage.checkpoint import CheckpointError

SHARE = 0.25


def stats(training_loop, version):
    return {**training_loop.stats(), "learner": {"version": version, "steps": 10 * version}}


def play(training_loop, name, version, total):
    """An episode of one decision of that policy, whose return is `total`."""
    training_loop.decide(Decision(name, None, 1.0, version, b"", b""))
    assert training_loop.reward(Reward(0, name, total, terminated=True), 1.0) == (200, "")


@pytest.fixture
def training_loop(tmp_path):
    settings = LearningSettings(directory=str(tmp_path), block_episodes=5, trial_episodes=2, offer_every=5)
    return TrainingLoop(settings, served=3)


def test_results_follow_the_served_policy_and_its_candidate(tmp_path, training_loop):
    results = LearnerResults(tmp_path, {"algorithm": "DQN", "env": "CartPole-v1"})
    for number in range(10):
        play(training_loop, f"a{number}", 3, 2.0 + number % 2)
    results.add(stats(training_loop, version=3), SHARE, has_event=True)
    training_loop.offered(8, 0.5)
    for number in range(10):
        play(training_loop, f"b{number}", 8, 3.0 + number % 2)
        play(training_loop, f"c{number}", 3, 2.0 + number % 2)
    results.add(stats(training_loop, version=9), SHARE, has_event=True)
    training_loop.promoted()
    results.add(stats(training_loop, version=9), SHARE, has_event=True)
    first, trial, promoted = read_results(tmp_path)
    assert [each["training_iteration"] for each in (first, trial, promoted)] == [1, 2, 3]
    assert first["episode_reward_mean"] == first["serving"]["return_mean"] == pytest.approx(2.4)
    assert "candidate_version" not in first["serving"] and first["serving"]["rows_held"] == 5
    serving = trial["serving"]
    assert serving["candidate_version"] == 8 and serving["candidate_share"] == SHARE
    assert serving["candidate_return_mean"] > serving["beside_return_mean"] > 2
    assert serving["version"] == 3 and serving["lag_updates"] == 6
    assert promoted["serving"]["version"] == 8 and promoted["serving"]["promoted"] == 1
    assert promoted["serving"]["served_since"] > serving["served_since"] == first["serving"]["served_since"]
    assert read_params(tmp_path)["algorithm"] == "DQN"


def test_a_learner_that_is_started_again_goes_on(tmp_path, training_loop):
    for _ in range(2):
        results = LearnerResults(tmp_path, {})
        results.add(stats(training_loop, version=3), SHARE, has_event=True)
        results.close()
    first, second = read_results(tmp_path)
    assert second["training_iteration"] == 2 and second["serving"]["served_since"] == first["serving"]["served_since"]
    assert second["time_total_s"] >= first["time_total_s"]


def test_results_are_written_when_something_has_changed(tmp_path, training_loop):
    results = LearnerResults(tmp_path, {})
    for _ in range(5):
        results.add(stats(training_loop, version=3), SHARE, has_event=False)
    assert len(read_results(tmp_path)) == 0  # the first is due after a second
    results.add(stats(training_loop, version=3), SHARE, has_event=True)
    assert len(read_results(tmp_path)) == 1


def test_one_server_learns_into_a_directory(tmp_path):
    results = LearnerResults(tmp_path, {})
    with pytest.raises(ValueError, match="another server learns into"):
        LearnerResults(tmp_path, {})
    assert results is not None


def test_the_directory_of_a_training_run_is_no_place_to_learn_into(tmp_path):
    (tmp_path / "checkpoint_000001").mkdir()
    (tmp_path / "checkpoint_000001" / "manifest.json").write_text("{}")
    (tmp_path / "result.json").write_text('{"training_iteration": 1}\n')
    with pytest.raises(CheckpointError, match="directory of a training run"):
        prepare_directory(tmp_path, tmp_path / "none")
