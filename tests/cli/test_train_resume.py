"""`rllib train --resume`: a run goes on after it was interrupted, killed, or had reached its goal."""

import json
import os
import resource
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.numpy import load_file

from rllib import PPOConfig
from rllib.cli import run_directory
from rllib.cli.failures import Mistake
from rllib.cli.run_directory import RunDirectory
from rllib.cli.spec import RunSpec
from rllib.runs import saving
from rllib.runs.files import ResultFiles

TRAIN = ("train", "PPO", "CartPole-v1", "--defaults", "--name", "run")
# Episodes end with the fragments, as exact continuation asks for (docs/project/architecture.md).
PPO = ("train", "PPO", "tests.envs:DelayedReward", "num_rollout_workers=2", "train_batch_size=80",
       "sgd_minibatch_size=40", "rollout_fragment_length=40", "model.fcnet_hiddens=[8]", "lr=0.01")  # fmt: skip
ES = ("train", "ES", "CartPole-v1", "num_rollout_workers=1", "episodes_per_batch=4", "train_batch_size=1",
      "noise_size=100000", "model.fcnet_hiddens=[8]", "observation_filter=MeanStdFilter")  # fmt: skip
# Two steps of an episode in each fragment, and a replay that has turned over once.
OFF_POLICY = ("num_rollout_workers=0", "rollout_fragment_length=2", "train_batch_size=16", "lr=0.01",
              "num_steps_sampled_before_learning_starts=16", "store_buffer_in_checkpoints=true",
              "replay_buffer_config.capacity=100", "min_sample_timesteps_per_iteration=40",
              "min_time_s_per_iteration=0")  # fmt: skip
DQN = ("train", "DQN", "tests.envs:DelayedReward", *OFF_POLICY, "model.fcnet_hiddens=[8]", "hiddens=[]",
       "target_network_update_freq=30", "replay_buffer_config.type=MultiAgentPrioritizedReplayBuffer")  # fmt: skip
SAC = ("train", "SAC", "tests.envs:BoundedAction", *OFF_POLICY, "policy_model_config.fcnet_hiddens=[8]",
       "q_model_config.fcnet_hiddens=[8]")  # fmt: skip


def results_of(run) -> list[dict]:
    return [json.loads(line) for line in (run / "result.json").read_text().splitlines()]


def arrays_of(run, iteration):
    """All arrays of a checkpoint, by file and name: weights, the learner's, and the replay where there is one."""
    checkpoint = run / f"checkpoint_{iteration:06}"
    return {
        (str(path.relative_to(checkpoint)), name): array
        for path in checkpoint.rglob("*.safetensors")
        for name, array in load_file(path).items()
    }


def killed_after(process, run, iterations) -> None:
    """Kills a run as soon as it has written so many results."""
    deadline = time.monotonic() + 90
    file = run / "result.json"
    while not file.exists() or file.read_bytes().count(b"\n") < iterations:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("arguments", [PPO, ES, DQN, SAC], ids=lambda arguments: arguments[1])
def test_a_killed_run_goes_on_to_the_same_bits(rllib, tmp_path, arguments):
    common = (*arguments, "--seed", "4", "--checkpoint-freq", "2")
    code, output = rllib(*common, "--name", "whole", "--stop", "iterations=9")
    assert code == 0, output
    whole, run = tmp_path / "results" / "whole", tmp_path / "results" / "killed"
    killed_after(rllib.start(*common, "--name", "killed", "--stop", "iterations=10000"), run, 5)
    code, output = rllib("train", "--resume", "results/killed", "--stop", "iterations=9")
    assert code == 0, output
    assert "training_iteration 9 >= 9 after 9 iterations" in output
    ours, theirs = results_of(run), results_of(whole)
    same = ("training_iteration", "timesteps_total", "episode_reward_mean", "episodes_total", "num_env_steps_trained")
    assert [[line[key] for key in same] for line in ours] == [[line[key] for key in same] for line in theirs]
    assert (run / "progress.csv").read_text().count("\n") == 10
    assert len(list(run.glob("events.out.tfevents*"))) == 1
    last, expected = arrays_of(run, 9), arrays_of(whole, 9)
    assert last.keys() == expected.keys()
    assert [name for name, array in last.items() if array.tobytes() != expected[name].tobytes()] == []
    files = {Path(file).name for file, _ in last}
    assert files >= {"weights.safetensors", "learner.safetensors"}
    assert ("replay.safetensors" in files) == (arguments in (DQN, SAC))


def test_a_run_that_has_reached_its_goal_goes_on_to_the_next(rllib, tmp_path):
    assert rllib(*PPO, "--name", "run", "--stop", "iterations=2")[0] == 0
    code, output = rllib("train", "--resume", "results/run", "-q")
    assert code == 0 and "training_iteration 2 >= 2 after 2 iterations" in output, output
    assert [line["training_iteration"] for line in results_of(tmp_path / "results" / "run")] == [1, 2]
    code, output = rllib("train", "--resume", "results/run", "num_rollout_workers=0", "--stop", "iterations=4", "-q")
    assert code == 0 and "training_iteration 4 >= 4 after 4 iterations" in output, output
    run = tmp_path / "results" / "run"
    assert json.loads((run / "params.json").read_text())["num_rollout_workers"] == 0
    spec = json.loads((run / "run.json").read_text())
    assert spec["stop"] == {"training_iteration": 4} and spec["config"]["num_rollout_workers"] == 0
    assert [line["training_iteration"] for line in results_of(run)] == [1, 2, 3, 4]
    assert checkpoints(run) == ["checkpoint_000004"]
    code, output = rllib("train", "--resume", "results/run", "gamma=2", "--stop", "iterations=6", "-q")
    assert code == 2 and "gamma=2" in output, output
    assert json.loads((run / "run.json").read_text()) == spec, "what was refused is not kept"


def test_an_interrupted_run_says_how_to_go_on(rllib_command, behaviour, press_ctrl_c):
    behaviour[2] = press_ctrl_c
    result = rllib_command(*TRAIN)
    assert "resume      rllib train --resume results/run" in result.output
    again = rllib_command(*TRAIN)
    assert "or resume it: rllib train --resume results/run" in again.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not the directory of a run of rllib train: it has no run.json"),
        (["."], "it has no run.json. Runs in it: empty, other, run"),
        (["run/checkpoint_000003"], "It is in the run run, which --resume continues from its newest checkpoint"),
        (["search"], "It is an experiment, which continues by rllib tune --name search --resume --results-dir ."),
        (["search/trial"], "It is a trial of an experiment, which continues by rllib tune --name search --resume"),
        (["empty"], "empty has no checkpoint to continue from"),
        (["run", "DQN"], "continues with the same algorithm and environment; leave out DQN"),
        (["run", "--seed", "3"], "continues with what the run was started with; leave out --seed"),
        (["run", "--seed", "0"], "continues with what the run was started with; leave out --seed"),
        (["run", "--name", ""], "leave out --name"),
        (["run", "--torch", "--defaults"], "leave out --torch, --defaults"),
        (["run", "-f", "ppo/cartpole", "--num-samples", "2"], "leave out --file, --num-samples"),
        (["run", "--stop", "return"], "--stop episode_reward_mean=475, but got 'return'"),
        (["broken"], "run.json is damaged: it is not JSON"),
        (["other"], "other/run.json is damaged: it has neither `env`, nor `external`"),
        (["run"], "run/checkpoint_000003 is no checkpoint of this library"),
    ],
)
def test_mistakes_are_one_message(rllib_command, behaviour, tmp_path, arguments, message):
    spec = '{"algorithm": "PPO", "env": "CartPole-v1"}'
    for name, text in {"run": spec, "empty": spec, "broken": "{", "other": '{"algorithm": "PPO"}'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)
        if name != "empty":
            (tmp_path / name / "checkpoint_000003").mkdir()
    (tmp_path / "search/trial").mkdir(parents=True)
    (tmp_path / "search/experiment_state-2026-01-01_00-00-00.json").touch()
    result = rllib_command("train", "--resume", *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.output and "Traceback" not in result.output


def test_a_run_that_is_being_trained_is_not_taken_up(tmp_path):
    run = RunDirectory.new(tmp_path, RunSpec(algorithm="PPO", env="CartPole-v1", name="run"))
    with pytest.raises(Mistake, match="run is being written by another run"):
        RunDirectory.taken_up(run.path, run.path.parent)


def checkpoints(directory) -> list[str]:
    return sorted(path.name for path in directory.glob("checkpoint_*"))


def test_without_a_number_of_iterations_the_state_is_saved_every_few_minutes(
    rllib_command, behaviour, monkeypatch, tmp_path
):
    monkeypatch.setattr(saving, "SAVE_EVERY_S", 0.0)
    seen = []
    run = tmp_path / "results" / "run"
    behaviour.update({iteration: lambda: seen.append(checkpoints(run)) for iteration in range(1, 5)})
    assert rllib_command(*TRAIN, "--stop", "iterations=4").exit_code == 0
    assert seen == [[], ["checkpoint_000001"], ["checkpoint_000002"], ["checkpoint_000003"]]
    assert checkpoints(run) == ["checkpoint_000004"]


def test_saves_grow_rarer_with_the_age_of_the_run(rllib_command, behaviour, monkeypatch, tmp_path):
    """With iterations of 4 seconds: after 4, then 12 (at least 5 seconds later), 24, 48."""
    now, saved, run = [0.0], [], tmp_path / "results" / "run"
    monkeypatch.setattr(run_directory, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def take_four_seconds():
        saved.append(checkpoints(run))
        now[0] += 4.0

    behaviour.update(dict.fromkeys(range(1, 19), take_four_seconds))
    assert rllib_command(*TRAIN, "--stop", "iterations=18").exit_code == 0
    assert [int(names[-1][-2:]) if names else 0 for names in saved] == [0, 1, 1, *[3] * 3, *[6] * 6, *[12] * 6]


class Saver:
    """Stands for an algorithm that saves."""

    def save(self, path):
        path.mkdir()


@pytest.mark.parametrize(
    ("earlier_freq", "freq", "saved", "best", "kept"),
    [
        (0, 0, [5], None, [9]),
        (0, 0, [5], 5, [5, 9]),
        (0, 0, [3, 5], 3, [3, 9]),
        (0, 2, [5], None, [5, 9]),  # from now on all are kept
        (2, 0, [2, 4, 5], None, [2, 4, 5, 9]),  # these were to be kept
        (0, 0, [0], None, [0, 9]),  # an imported model
    ],
)
def test_the_newest_checkpoint_of_a_resumed_run_takes_the_place_of_the_earlier_one(
    tmp_path, earlier_freq, freq, saved, best, kept
):
    spec = RunSpec(algorithm="PPO", env="CartPole-v1", name="run", checkpoint_freq=earlier_freq)
    earlier = RunDirectory.new(tmp_path, spec)
    for iteration in saved:
        earlier.save(Saver(), iteration)
        if iteration == best:
            earlier.save_if_best(Saver(), iteration, {"episode_reward_mean": 1.0}, 0)
    earlier.close()
    run = RunDirectory.taken_up(tmp_path / "run", tmp_path)
    run.begin(RunSpec(algorithm="PPO", env="CartPole-v1", name="run", checkpoint_freq=freq), {}, "")
    before = checkpoints(run.path)
    assert before == [f"checkpoint_{iteration:06}" for iteration in saved], "nothing goes before the next one is there"
    run.save(Saver(), 9)
    run.close()
    assert checkpoints(run.path) == [f"checkpoint_{iteration:06}" for iteration in kept]


def test_with_a_number_of_iterations_only_these_are_saved(rllib_command, behaviour, monkeypatch, tmp_path):
    monkeypatch.setattr(saving, "SAVE_EVERY_S", 0.0)
    assert rllib_command(*TRAIN, "--stop", "iterations=5", "--checkpoint-freq", "2").exit_code == 0
    assert checkpoints(tmp_path / "results" / "run") == ["checkpoint_000002", "checkpoint_000004", "checkpoint_000005"]


@pytest.fixture
def run_at_8(tmp_path):
    """The directory of a run with results up to 12, whose newest checkpoint is of iteration 8."""
    run = tmp_path / "run"
    config = PPOConfig().environment("CartPole-v1").training(model={"fcnet_hiddens": [8]})
    with config.build() as algo:
        algo.save(run / "checkpoint_000008")
    (run / "run.json").write_text('{"algorithm": "PPO", "env": "CartPole-v1", "stop": {"training_iteration": 14}}')
    files = ResultFiles(run)
    for iteration in range(1, 13):
        files.on_result({"training_iteration": iteration, "episode_reward_mean": 1.0})
    files.close()
    (run / "events.out.tfevents.1.host.1.rllib").write_bytes(b"events")
    return run


def contents(directory) -> dict:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def damage(run):
    (run / "checkpoint_000008" / "policies" / "default_policy" / "weights.safetensors").write_bytes(b"")


@pytest.mark.parametrize(
    ("arguments", "harm", "message"),
    [
        (["lrr=1"], None, "no setting 'lrr'"),
        (["gamma=2"], None, "gamma=2"),
        (["train_batch_size=100", "sgd_minibatch_size=200"], None, "sgd_minibatch_size"),
        (["log_dir=x"], None, "leave out log_dir"),
        (["--stop", "episode_rewardmean=5"], None, "episode_rewardmean"),
        ([], damage, "is damaged"),
        ([], lambda run: (run / "run.json").write_text("[" * 200_000), "run.json"),
        ([], lambda run: (run / "checkpoint_000008" / "manifest.json").unlink(), "manifest.json"),
    ],
)
def test_what_is_refused_changes_no_file(rllib_command, run_at_8, arguments, harm, message):
    if harm:
        harm(run_at_8)
    before = contents(run_at_8)
    result = rllib_command("train", "--resume", "run", *arguments)
    assert result.exit_code == 2 and message in result.output, result.output
    assert contents(run_at_8) == before


def test_settings_of_a_resume_that_failed_before_a_checkpoint_hold_at_the_next(rllib_command, run_at_8, monkeypatch):
    def fail(algorithm):
        raise RuntimeError("lost")

    def resumed(*words, last=None):
        with monkeypatch.context() as patch:
            if last is None:
                patch.setattr("rllib.PPO.train", fail)
            result = rllib_command("train", "--resume", "run", "--stop", f"iterations={last or 14}", *words, "-q")
        assert result.exit_code == (last is None), result.output
        params = json.loads((run_at_8 / "params.json").read_text())
        return params["gamma"], params["clip_param"], params["train_batch_size"]

    small = "train_batch_size=64", "sgd_minibatch_size=64", "num_sgd_iter=1"
    assert resumed(*small, "gamma=0.5", "clip_param=0.1") == (0.5, 0.1, 64)
    assert resumed("gamma=0.6") == (0.6, 0.1, 64)
    assert resumed(last=9) == (0.6, 0.1, 64)
    assert resumed("clip_param=0.2") == (0.6, 0.2, 64)  # iteration 9 has the others
    assert resumed("gamma=0.7", last=10) == (0.7, 0.2, 64)
    assert resumed(last=11) == (0.7, 0.2, 64)


def test_a_new_run_by_the_file_of_a_resumed_one_keeps_its_own_settings(rllib_command, run_at_8, tmp_path):
    spec = json.loads((run_at_8 / "run.json").read_text())
    small = {"train_batch_size": 64, "sgd_minibatch_size": 64, "num_sgd_iter": 1}
    resumed = {"checkpoint": "checkpoint_000001", "config": {"gamma": 0.5}}
    (tmp_path / "resumed.json").write_text(json.dumps(spec | {"config": small | {"gamma": 0.5}, "resumed": resumed}))
    new = ("train", "-f", "resumed.json", "gamma=0.9", "--name", "new", "--stop", "iterations=1", "-q")
    for words in (new, ("train", "--resume", "results/new", "--stop", "iterations=2", "-q")):
        result = rllib_command(*words)
        assert result.exit_code == 0, result.output
        assert json.loads((tmp_path / "results" / "new" / "params.json").read_text())["gamma"] == 0.9, words


def test_a_run_with_half_a_line_goes_on_twice(rllib_command, run_at_8):
    for last in (9, 10):
        with open(run_at_8 / "result.json", "a") as file:
            file.write('{"training_iteration": 99, "epi')
        result = rllib_command("train", "--resume", "run", "--stop", f"iterations={last}", "train_batch_size=64",
                               "sgd_minibatch_size=64", "-q")  # fmt: skip
        assert result.exit_code == 0, result.output
        assert [line["training_iteration"] for line in results_of(run_at_8)][-2:] == [last - 1, last]


@pytest.mark.parametrize("file", ["run.json", "params.json"])
def test_a_full_disk_at_a_resume_ends_in_words(rllib_command, run_at_8, monkeypatch, file):
    def fill_the_disk(stop):
        """Is called when the directory has been searched for links."""
        (run_at_8 / f".{file}.tmp").symlink_to("/dev/full")

    monkeypatch.setattr("rllib.cli.verbs.train.iteration_goal", fill_the_disk)
    result = rllib_command("train", "--resume", "run", "--stop", "iterations=9")
    assert result.exit_code == 1, result.output
    assert f"Error: the disk is full: run/{file} cannot be written. Make room, then " in result.output


def test_a_full_disk_at_the_start_of_a_run_leaves_its_name_free(rllib_command, monkeypatch, tmp_path):
    def made(results, spec):
        path = results / "run"
        path.mkdir(parents=True)
        (path / ".run.json.tmp").symlink_to("/dev/full")
        return path

    monkeypatch.setattr("rllib.cli.run_directory._made_directory", made)
    for _ in range(2):
        result = rllib_command(*TRAIN, "--stop", "iterations=1")
        assert result.exit_code == 1 and "the disk is full: results/run/run.json" in result.output, result.output
    assert not (tmp_path / "results" / "run").exists()


def test_a_full_disk_ends_a_run_with_the_name_of_the_file(rllib_command, behaviour, tmp_path):
    run = tmp_path / "results" / "run"

    def fill_the_disk():
        (run / "error.txt").symlink_to("/dev/full")
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, ((run / "result.json").stat().st_size, limit[1]))

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    behaviour[3] = fill_the_disk
    try:
        result = rllib_command(*TRAIN, "--stop", "iterations=5")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.exit_code == 1 and "File too large: 'results/run/result.json'" in result.output
