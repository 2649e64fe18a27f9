"""Data on the command line: `rllib record --to`, `rllib dataset` and `rllib train --input`."""

import json
import os
import shutil
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from rllib import Algorithm, PPOConfig
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.offline.dataset import Dataset
from tests.envs import CountingEnv, MaskedProbe

CARTPOLE = Path(__file__).parents[1] / "data" / "offline" / "cartpole_expert.npz"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint of CartPole with a filter of observations, and its policy."""
    directory = tmp_path_factory.mktemp("checkpoints") / "cartpole"
    config = PPOConfig().environment("CartPole-v1").training(model={"fcnet_hiddens": [8]}).debugging(seed=1)
    config.training(train_batch_size=128, sgd_minibatch_size=64, num_sgd_iter=1)
    config.rollouts(num_rollout_workers=0, observation_filter="MeanStdFilter")
    with config.build() as algorithm:
        algorithm.train()
        algorithm.save(directory)
    return directory


def test_episodes_of_the_policy_are_recorded(rllib_command, tmp_path, checkpoint):
    result = rllib_command("record", checkpoint, "--to", "steps.npz", "--episodes", 11)
    assert result.exit_code == 0, result.output
    dataset = Dataset.from_path(tmp_path / "steps.npz")
    assert dataset.num_episodes == 11 and not dataset.notices
    assert f"rows    {len(dataset):,} in 11 episodes" in result.output
    assert f"return  {dataset.returns.mean():.2f} (mean of whole episodes" in result.output
    assert dataset.metadata["behaviour"]["mean_return"] == pytest.approx(dataset.returns.mean())
    assert dataset.metadata["env"] == "CartPole-v1"
    # Its actions are those of the policy for the observations before the filter.
    with Algorithm.from_checkpoint(checkpoint) as algorithm:
        chosen = algorithm.compute_actions(list(dataset.columns["obs"]), explore=False)
    np.testing.assert_array_equal(chosen, dataset.columns["actions"])
    refused = rllib_command("record", checkpoint, "--to", "steps.npz")
    assert refused.exit_code == 2 and "is there already" in refused.output


@pytest.mark.parametrize("name", ["PPO", "SAC"])
def test_a_run_that_scaled_its_rewards_records_those_of_the_environment(rllib_command, tmp_path, name):
    config = get_algorithm_config(name).environment("CartPole-v1", normalize_returns=True).debugging(seed=1)
    config.rollouts(num_rollout_workers=0).training(train_batch_size=128, model={"fcnet_hiddens": [8]})
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
    with config.build() as algorithm:
        algorithm.train()
        algorithm.save(tmp_path / "checkpoint")
    result = rllib_command("record", tmp_path / "checkpoint", "--to", "steps.npz", "--episodes", 2)
    assert result.exit_code == 0, result.output
    assert (Dataset.from_path(tmp_path / "steps.npz").columns["rewards"] == 1).all()


def test_a_checkpoint_acts_where_its_demonstrations_are_no_more(rllib_command, tmp_path):
    data = tmp_path / "steps.npz"
    shutil.copy(CARTPOLE, data)
    config = get_algorithm_config("GAIL").environment("CartPole-v1").offline_data(demonstrations=str(data))
    config.rollouts(num_rollout_workers=0).training(train_batch_size=128, sgd_minibatch_size=64)
    with config.build() as algorithm:
        algorithm.train()
        algorithm.save(tmp_path / "checkpoint")
    data.unlink()
    for words in (["evaluate", tmp_path / "checkpoint", "--episodes", 1],
                  ["record", tmp_path / "checkpoint", "--to", "others.npz", "--episodes", 1]):  # fmt: skip
        result = rllib_command(*words)
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(("name", "env"), [("BC", "CartPole-v1"), ("IQL", "CartPole-v1"), ("BC", None)])
def test_a_checkpoint_acts_where_its_data_is_no_more(rllib_command, tmp_path, name, env):
    data = tmp_path / "steps.npz"
    shutil.copy(CARTPOLE, data)
    config = get_algorithm_config(name).environment(env).offline_data(input_=str(data), normalize_observations=True)
    if env is None:
        with gymnasium.make("CartPole-v1") as made:
            config.environment(observation_space=made.observation_space, action_space=made.action_space)
    config.evaluation(evaluation_config={"env": "CartPole-v1"}, off_policy_estimation_methods={"dm": {"type": "dm"}})
    config.training(train_batch_size=32, model={"fcnet_hiddens": [8]}).debugging(seed=1)
    config.reporting(min_sample_timesteps_per_iteration=64, min_time_s_per_iteration=0)
    with config.build() as algorithm:
        algorithm.train()
        algorithm.save(tmp_path / "checkpoint")
    data.unlink()
    result = rllib_command("evaluate", "checkpoint", "--episodes", 2)
    assert result.exit_code == 0 and "2 episodes" in result.output, result.output
    with pytest.raises(FileNotFoundError):
        Algorithm.from_checkpoint(tmp_path / "checkpoint")


def test_the_name_of_a_dataset_is_refused_before_anything_is_played(rllib_command, tmp_path, monkeypatch, checkpoint):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    made = rllib_command("record", checkpoint, "--to", "minari:test/some-v0", "--episodes", 1)
    assert made.exit_code == 0, made.output
    monkeypatch.setattr("rllib.cli.verbs.record.recorded_steps", lambda *_: pytest.fail("steps were played"))
    for name, why in (("test/some-v0", "is there already"), ("some name", "some name")):
        refused = rllib_command("record", checkpoint, "--to", f"minari:{name}")
        assert refused.exit_code == 2 and why in refused.output, refused.output


def test_equal_seeds_record_equal_steps(rllib_command, tmp_path, checkpoint):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        rllib_command("record", checkpoint, "--to", f"{name}.npz", "--steps", 300, "--explore", "--seed", seed)
    a, b, c = (Dataset.from_path(tmp_path / f"{name}.npz").columns["obs"] for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert len(c) == 300 and not np.array_equal(a, c)


def test_random_steps_are_uniform_and_have_no_log_probability(rllib_command, tmp_path, checkpoint):
    rllib_command("record", checkpoint, "--to", "random.npz", "--steps", 4000, "--random", 1, "--explore")
    rllib_command("record", checkpoint, "--to", "drawn.npz", "--steps", 200, "--explore")
    rows = Dataset.from_path(tmp_path / "random.npz").columns
    assert abs(rows["actions"].mean() - 0.5) < 0.05 and "action_logp" not in rows
    assert "action_logp" in Dataset.from_path(tmp_path / "drawn.npz").columns


def test_a_directory_gets_a_file_for_each_recording(rllib_command, tmp_path, checkpoint):
    for _ in range(2):
        result = rllib_command("record", checkpoint, "--to", "data", "--episodes", 2, "--format", "json")
        assert result.exit_code == 0, result.output
    assert len(os.listdir(tmp_path / "data")) == 2
    assert Dataset.from_path(tmp_path / "data").num_episodes == 4


def test_several_processes_share_the_episodes_in_the_same_way_each_time(rllib, checkpoint):
    recorded = []
    for name in ("a.npz", "b.npz"):
        code, output = rllib("record", checkpoint, "--to", name, "--episodes", 19, "--workers", 2, "--seed", 0)
        assert code == 0, output
        recorded.append(Dataset.from_path(rllib.directory / name))
    assert recorded[0].num_episodes == 19
    np.testing.assert_array_equal(*(dataset.columns["obs"] for dataset in recorded))


def saved(directory, env, **more):
    config = PPOConfig().environment(env, **more).training(model={"fcnet_hiddens": [8]}).debugging(seed=1)
    with config.rollouts(num_rollout_workers=0).build() as algorithm:
        algorithm.save(directory)
    return directory


def test_random_actions_are_legal(rllib_command, tmp_path):
    checkpoint = saved(tmp_path / "masked", MaskedProbe)  # which raises for an illegal action
    result = rllib_command("record", checkpoint, "--to", "steps.npz", "--steps", 200, "--random", 1, "--load-user-code")
    assert result.exit_code == 0, result.output
    rows = Dataset.from_path(tmp_path / "steps.npz").columns
    assert set(rows["actions"]) == {0, 1, 2}


def test_noise_is_in_units_of_the_policy(rllib_command, tmp_path):
    checkpoint = saved(tmp_path / "pendulum", "Pendulum-v1")
    for name, noise in (("plain", ()), ("noisy", ("--noise", 0.1))):
        result = rllib_command("record", checkpoint, "--to", f"{name}.npz", "--steps", 400, *noise)
        assert result.exit_code == 0, result.output
    plain, noisy = (Dataset.from_path(tmp_path / f"{name}.npz").columns["actions"] for name in ("plain", "noisy"))
    assert 0.1 < np.std(noisy) < 0.4 and np.std(plain) < 0.1
    refused = rllib_command("record", saved(tmp_path / "cart", "CartPole-v1"), "--to", "x.npz", "--noise", 0.1)
    assert refused.exit_code == 2 and "noise is added to actions of a Box" in refused.output


def test_the_last_episode_is_cut_where_the_steps_end(rllib_command, tmp_path):
    checkpoint = saved(tmp_path / "counting", CountingEnv)
    rllib_command("record", checkpoint, "--to", "steps.npz", "--steps", 10, "--load-user-code")
    dataset = Dataset.from_path(tmp_path / "steps.npz")
    assert dataset.lengths.tolist() == [3, 5, 2] and dataset.has_next.all()
    assert dataset.columns["new_obs"][:, 0].tolist() == [1, 2, 3, 1, 2, 3, 4, 5, 1, 2]
    assert dataset.metadata["behaviour"]["mean_return"] == (6 + 15) / 2


REFUSED = {
    "an option of data": (("--steps", 3), "--steps is for data: give --to PATH"),
    "an option of videos": (("--to", "x.npz", "--fps", 3), "--fps is for videos"),
    "two lengths": (("--to", "x.npz", "--steps", 3, "--episodes", 3), "either a number of episodes or a number"),
    "a format that does not exist": (("--to", "x", "--format", "csv"), "'csv' is not one of"),
    "a policy of several agents": (("--to", "x.npz", "--policy", "a=b"), "data is recorded of one"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_options_that_do_not_go_together_are_refused(rllib_command, checkpoint, options, message):
    result = rllib_command("record", checkpoint, *options)
    assert result.exit_code == 2 and message in result.output, result.output


# ---------------------------------------------------------------------- rllib dataset


@pytest.fixture
def steps(tmp_path):
    """Four episodes of 1, 2, 3 and 4 steps, as a file."""
    lengths = np.array([1, 2, 3, 4])
    last = np.cumsum(lengths) - 1
    ends = np.zeros(10, bool)
    ends[last] = True
    obs = np.arange(10, dtype=np.float32)[:, None] * np.ones((1, 4), np.float32)
    obs += np.repeat(np.arange(4), lengths)[:, None]
    columns = {"obs": obs, "new_obs": obs + 1, "actions": np.arange(10) % 2, "rewards": np.ones(10), "truncateds": ends}
    Dataset.from_columns({**columns, "eps_id": np.repeat(np.arange(4), lengths)}).save(tmp_path / "steps.npz")
    return tmp_path / "steps.npz"


def test_facts_about_data_are_shown(rllib_command, steps):
    result = rllib_command("dataset", "info", steps)
    assert result.exit_code == 0, result.output
    for line in (
        "rows      10 in 4 episodes",
        "0 terminated, 4 truncated",
        "length    2.5 (mean; 1 to 4)",
        "Discrete(2)",
    ):
        assert line in result.output
    facts = json.loads(rllib_command("dataset", "info", steps, "--json").output)
    assert facts["rows"] == 10 and facts["returns"]["deciles"][0] == 1 and facts["columns"]["obs"]["max"] == 12
    missing = rllib_command("dataset", "info", "nowhere.npz")
    assert missing.exit_code == 2 and "there is no" in missing.output


def test_all_faults_are_named_at_once(rllib_command, tmp_path, steps):
    assert rllib_command("dataset", "validate", steps).output == "no fault was found\n"
    (tmp_path / "cut.json").write_text('{"type": "SampleBatch", "obs": [[')
    (tmp_path / "half.npz").write_bytes(steps.read_bytes()[:100])
    columns = dict(np.load(steps))
    del columns["metadata"]
    wrong = {**columns, "rewards": np.full(10, np.nan), "actions": np.full(10, 0.5), "obs": np.full((10, 4), np.inf)}
    np.savez(tmp_path / "wrong.npz", **wrong)
    damaged = rllib_command("dataset", "validate", tmp_path / "cut.json", tmp_path / "half.npz", "none.npz")
    assert damaged.exit_code == 1 and len(damaged.stdout.splitlines()) == 3, damaged.output
    result = rllib_command("dataset", "validate", tmp_path / "wrong.npz", "--env", "CartPole-v1")
    assert result.exit_code == 1
    for fault in ("obs is not finite", "0.5 is no whole number", "rewards is not finite"):
        assert fault in result.stdout, result.output
    other = rllib_command("dataset", "validate", steps, "--env", "Acrobot-v1")
    assert other.exit_code == 1 and "was recorded with the observation_space" in other.stdout
    assert rllib_command("dataset", "validate", steps, "--env", "CartPole-v7").exit_code == 2


@pytest.mark.parametrize(
    ("env", "fault"),
    [
        ("tests.envs:CountingEnv", "was recorded with the observation_space"),
        ("own_world:CartPole", "was recorded with the observation_space"),  # not gymnasium's of the same name
        ("rllib.env.tasks.privileged:CartPole", "was recorded with the observation_space"),
        ("tests.multi_agent:BasicMultiAgent", "has several agents"),
        ("pettingzoo:classic.none_v9", "pettingzoo"),
        ("gymnax:Nowhere-v1", "gymnax"),
    ],
)
def test_steps_are_checked_by_every_kind_of_environment(rllib_command, tmp_path, steps, env, fault):
    (tmp_path / "own_world.py").write_text("from tests.envs import CountingEnv as CartPole\n")
    checked = rllib_command("dataset", "validate", steps, "--env", env)
    assert checked.exit_code and fault in checked.output, checked.output
    assert "Registration" not in checked.output and "registration" not in checked.output


def test_data_is_converted(rllib_command, tmp_path, steps):
    result = rllib_command("dataset", "convert", steps, "all.json")
    assert result.exit_code == 0, result.output
    read, before = Dataset.from_path(tmp_path / "all.json"), Dataset.from_path(steps)
    for name in ("obs", "new_obs", "actions", "rewards", "truncateds"):
        np.testing.assert_array_equal(read.columns[name], before.columns[name])
    rllib_command("dataset", "convert", "all.json", "best.npz", "--top", 0.5)
    assert Dataset.from_path(tmp_path / "best.npz").lengths.tolist() == [3, 4]
    rllib_command("dataset", "convert", steps, "few.npz", "--take", 4)
    assert Dataset.from_path(tmp_path / "few.npz").lengths.tolist() == [1, 2, 1]
    rllib_command("dataset", "convert", steps, "part.npz", "--split", 0.5)
    parts = [Dataset.from_path(tmp_path / name).lengths.tolist() for name in ("part.npz", "part_rest.npz")]
    assert sorted(parts[0] + parts[1]) == [1, 2, 3, 4] and len(parts[0]) == 2
    for target, message in (
        ("few.npz", "is there already"),
        ("x.csv", "says no format"),
        ("no/x.npz", "cannot be written"),
    ):
        refused = rllib_command("dataset", "convert", steps, target)
        assert refused.exit_code == 2 and message in refused.output, refused.output


def test_train_learns_from_files(rllib, checkpoint):
    code, output = rllib("record", checkpoint, "--to", "steps.npz", "--steps", 500)
    assert code == 0, output
    options = ("--input", "steps.npz", "--stop", "iterations=1", "--name", "bc", "train_batch_size=64")
    code, output = rllib("train", "BC", "CartPole-v1", *options, "min_sample_timesteps_per_iteration=64")
    assert code == 0, output
    result = json.loads((rllib.directory / "results" / "bc" / "result.json").read_text().splitlines()[0])
    assert result["info"]["dataset"]["rows"] == 500
    code, output = rllib("train", "BC", "CartPole-v1", "--input", "steps.npz", "input_=steps.npz")
    assert code == 2 and "given both as a setting and as a flag" in output
