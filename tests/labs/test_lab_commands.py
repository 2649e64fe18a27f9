"""python -m rllib.isaaclab and rllib.mjlab: train, play, export and their mistakes, on the stand-ins."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import onnxruntime
import pytest
import torch

from rllib import load_policy
from rllib.env.suites.labs import simulation as simulations
from rllib.labs import command

ROOT, STAND_IN = Path(__file__).parents[2], Path(__file__).parent / "stand_in"
POINT = ["--task", "Isaac-Point-v0", "--num_envs", "16", "--device", "cpu"]


def run(capsys, *words, lab="isaaclab"):
    """Exit code, output and errors of a command."""
    with pytest.raises(SystemExit) as end:
        command.main(lab, words)
    shown = capsys.readouterr()
    return end.value.code or 0, shown.out, shown.err


def run_of(experiment):
    (found,) = Path("logs/rllib", experiment).iterdir()
    return found


def spec_of(experiment):
    return json.loads((run_of(experiment) / "run.json").read_text())


@pytest.mark.slow
def test_train_play_export_and_continue(labs, capsys):
    words = [*POINT, "--headless", "env.episode_length_s=0.8", "agent.num_sgd_iter=1"]
    code, out, err = run(capsys, "train", *words)
    assert code == 0, err
    assert "settings for rsl_rl, of rsl_rl_cfg_entry_point" in out
    assert "play  " in out and "rllib evaluate" not in out, "it would make a second simulation"
    trained, spec = run_of("point_of_rsl_rl"), spec_of("point_of_rsl_rl")
    assert {each.name for each in trained.glob("checkpoint_*")} == {"checkpoint_000001", "checkpoint_000002"}
    assert (spec["env"], spec["seed"], spec["stop"]) == ("isaaclab:Isaac-Point-v0", 7, {"training_iteration": 2})
    given = spec["config"]
    assert (given["train_batch_size"], given["sgd_minibatch_size"], given["num_sgd_iter"]) == (128, 64, 1)
    assert given["env_config"]["cfg"] == {"episode_length_s": 0.8} and given["env_config"]["random_ages"] is True
    assert given["critic_observation_keys"] == ["critic"] and given["tensor_rollouts"] is True
    results = [json.loads(line) for line in (trained / "result.json").read_text().splitlines()]
    assert results[-1]["env_log"]["Episode_Termination/away"] == 0.5

    code, out, err = run(capsys, "play", *POINT, "--num_steps", "20", "env.episode_length_s=0.8")
    assert code == 0, err
    assert f"policy of {trained.absolute() / 'checkpoint_000002'}" in out and "length      8.0 steps" in out

    code, out, err = run(capsys, "export", "--task", "Isaac-Point-v0")
    assert code == 0, err
    check_exports(trained)

    code, out, err = run(capsys, "train", "--checkpoint", str(trained), "--max_iterations", "3", "agent.num_sgd_iter=2")
    assert code == 0, err
    assert (trained / "checkpoint_000003").is_dir() and spec_of("point_of_rsl_rl")["config"]["num_sgd_iter"] == 2
    assert f"export --task Isaac-Point-v0 --checkpoint {trained.absolute()}" in out
    words = ["agent.max_iterations=5", "agent.save_interval=5", "agent.config.lr=1e-4"]
    code, out, err = run(capsys, "train", "--checkpoint", str(trained / "checkpoint_000003"), *words)
    assert code == 0, err
    assert not (trained / "checkpoint_000004").is_dir() and (trained / "checkpoint_000005").is_dir()
    assert spec_of("point_of_rsl_rl")["config"]["lr"] == 1e-4


def check_exports(trained):
    """policy.pt and policy.onnx answer as the policy does, with its observation filter, on raw observations."""
    policy, seen = load_policy(trained), np.random.default_rng(0).normal(0, 3, (5, 4)).astype(np.float32)
    expected = policy.compute_actions([{"policy": row} for row in seen], explore=False)
    script = torch.jit.load(trained / "exported" / "policy.pt")
    script.reset()
    np.testing.assert_allclose(script(torch.from_numpy(seen)).numpy(), expected, atol=1e-5)
    session = onnxruntime.InferenceSession(trained / "exported" / "policy.onnx", providers=["CPUExecutionProvider"])
    assert [each.name for each in (*session.get_inputs(), *session.get_outputs())] == ["obs", "actions"]
    np.testing.assert_allclose(session.run(None, {"obs": seen[:1]})[0], expected[:1], atol=1e-5)


@pytest.mark.slow
def test_mjlab_trains_plays_and_exports(labs, capsys):
    words = ["--task", "Mjlab-Point", "--num_envs", "8", "--device", "cpu"]
    code, out, err = run(capsys, *words, "--max_iterations", "1", "agent.num_sgd_iter=1", lab="mjlab")
    assert code == 0, err
    assert "of mjlab's registration" in out and spec_of("point_of_mjlab")["config"]["env_config"]["group"] == "actor"
    code, out, err = run(capsys, "play", *words, "--num_steps", "51", lab="mjlab")
    assert code == 0, err
    lengths = float(out.rpartition("length")[2].split()[0])
    assert 20 < lengths <= 50, "its task for playing has longer episodes"
    code, out, err = run(capsys, "export", "--task", "Mjlab-Point", "--output", "here", lab="mjlab")
    assert code == 0, err
    assert {each.name for each in Path("here").iterdir()} > {"policy.pt", "policy.onnx"}


@pytest.mark.slow
def test_the_application_starts_before_torch_and_gymnasium(labs):
    """In a process of its own, as users start it; the stand-in's launcher notes what was there."""
    code = (
        "import sys; sys.argv = ['rllib.isaaclab', 'train', *sys.argv[1:]]\n"
        "import isaaclab.app, rllib.labs.command as command\n"
        "try: command.main('isaaclab')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "(launcher,) = isaaclab.app.started\n"
        "assert launcher.app.closed and launcher.loaded == set(), launcher.loaded\n"
        "assert launcher.arguments['headless'] and 'torch' in sys.modules\n"
    )
    words = [*POINT, "--headless", "--max_iterations", "1", "agent.num_sgd_iter=1"]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{STAND_IN}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_another_algorithm_takes_arrays(labs, capsys):
    overrides = ["agent.algorithm=SAC", "agent.config.num_steps_sampled_before_learning_starts=16"]
    overrides += ["agent.config.train_batch_size=16", "agent.config.model.fcnet_hiddens=[8]", "agent.clip_actions=1.0"]
    code, _, err = run(capsys, "--task", "Isaac-Point-Bare-v0", *POINT[2:], "--max_iterations", "1", *overrides)
    assert code == 0, err
    assert spec_of("Isaac-Point-Bare-v0")["config"]["tensor_rollouts"] is False


@pytest.mark.slow
@pytest.mark.parametrize("lab", ["isaaclab", "mjlab"])
def test_videos_are_recorded(labs, capsys, monkeypatch, lab):
    """Those of a continued run do not replace those that it had."""
    if lab == "isaaclab":
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    import point_mass

    monkeypatch.setattr(gymnasium.wrappers, "RecordVideo", point_mass.Recorder)
    words = [*POINT, "--headless"] if lab == "isaaclab" else ["--task", "Mjlab-Point", *POINT[2:]]
    steps = 8 if lab == "isaaclab" else 16
    recorded = ["--video", "--video_length", "5", "--video_interval", str(steps), "--run_name", "with/videos"]
    code, out, err = run(capsys, "train", *words, *recorded, lab=lab)
    assert code == 0, err
    (name,) = (line.split()[1] for line in out.splitlines() if line.startswith("videos"))
    folder, trained = Path(name), Path(out.split("--checkpoint ")[-1].split()[0])
    assert trained.name.endswith("_with_videos") and (trained / "run.json").is_file()
    assert {each.name for each in folder.iterdir()} == {"rl-video-step-0.mp4", f"rl-video-step-{steps}.mp4"}
    assert {each.read_text() for each in folder.iterdir()} == {"5"}, "frames"

    code, out, err = run(capsys, "train", "--checkpoint", str(trained), "--max_iterations", "3", lab=lab)
    assert code == 0, err
    assert f"videos      {name}" in out
    assert {each.name for each in folder.iterdir()} > {"rl-video-step-0.mp4", "rl-video-2-step-0.mp4"}

    code, out, err = run(capsys, "play", *words, "--video", "--num_steps", "3", lab=lab)
    assert code == 0, err
    (played,) = (trained / "videos" / "play").iterdir()
    assert played.read_text() == "3" and f"videos      {played.parent.absolute()}" in out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["A2C", "PG"])
def test_other_algorithms_stay_on_the_device(labs, capsys, name):
    """A2C's value reads the critic's group, as PPO's does; PG has none."""
    words = [f"agent.algorithm={name}", "agent.model.fcnet_hiddens=[8]"]
    code, _, err = run(capsys, "train", *POINT, "--headless", "--max_iterations", "1", *words)
    assert code == 0, err
    config = spec_of("point_of_rsl_rl")["config"]
    assert config["tensor_rollouts"] and config.get("critic_observation_keys") == (
        ["critic"] if name == "A2C" else None
    )


@pytest.mark.slow
def test_the_newest_run_is_found_for_the_task_for_watching(labs, capsys):
    code, _, err = run(capsys, "train", *POINT, "--headless", "--max_iterations", "1", "agent.num_sgd_iter=1")
    assert code == 0, err
    words = ["--task", "Isaac-Point-Play-v0", *POINT[2:], "--num_steps", "2"]
    code, out, err = run(capsys, "play", *words)
    assert code == 0, err
    assert f"policy of {run_of('point_of_rsl_rl').absolute()}" in out


MISTAKES = {
    "no task": ([], "say which task"),
    "an unknown task": (["--task", "Isaac-Piont-v0"], 'Did you mean "isaaclab:Isaac-Point-v0"'),
    "an unknown option": ([*POINT, "--num_env", "3"], "there is no option --num_env. Did you mean --num_envs"),
    "no override": ([*POINT, "lr=1e-3"], "they are env.FIELD=VALUE and agent.SETTING=VALUE"),
    "an unknown setting": ([*POINT, "agent.lrr=1e-3"], "Did you mean"),
    "an unknown field": ([*POINT, "env.decimatio=1"], "Did you mean 'decimation'"),
    "several GPUs": ([*POINT, "--distributed"], "--distributed is not available"),
    "a number": ([*POINT, "--num_envs", "0"], "--num_envs 0 must be at least 1"),
    "a memory": (["--task", "Isaac-Point-Memory-v0"], "ActorCriticRecurrent"),
    "a module": (["--task", "absent:Isaac-Point-v0"], "the module 'absent'"),
    "nothing to play": (["play", *POINT], "there is no run of Isaac-Point-v0 with a checkpoint"),
    "nothing to export": (["export"], "say what to export"),
    "no checkpoint": (["export", "--checkpoint", "nowhere"], "there is no checkpoint"),
    "a run with a task": (["train", *POINT, "--checkpoint", "x"], "leave out --task, --num_envs, --device"),
    "a run with a seed": (["train", "--checkpoint", "x", "--seed", "0"], "leave out --seed"),
    "a run with folders": (["train", "--checkpoint", "x", "--log_root=y", "--experiment_name", "z"], "--log_root"),
    "a run with keys": (["train", "--checkpoint", "x", "agent.clip_actions=1.0"], "leave out agent.clip_actions"),
    "an absent keyword": ([*POINT, "--agent", "rsl_rl_cfg_entry_piont"], "Did you mean rsl_rl_cfg_entry_point"),
    "a remedy": ([*POINT, "agent.train_batch_size=100"], "Use agent.train_batch_size=128"),
    "MoviePy": ([*POINT, "--video"], "pip install moviepy"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_sentence(labs, capsys, case):
    words, message = MISTAKES[case]
    code, _, err = run(capsys, *words)
    assert code == 2 and message in err and "Traceback" not in err


def test_a_task_that_tracks_a_motion_needs_its_file(labs, capsys):
    code, _, err = run(capsys, "--task", "Mjlab-Tracking", *POINT[2:], lab="mjlab")
    assert code == 2 and "env.commands.motion.motion_file=PATH" in err


@pytest.mark.parametrize(("lab", "advice"), [("isaaclab", "installation guide"), ("mjlab", "pip install mjlab")])
def test_without_its_package_the_command_says_what_to_install(tmp_path, monkeypatch, capsys, lab, advice):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "_is_installed", lambda module: False)
    code, _, err = run(capsys, "train", "--task", "Any", "--headless" if lab == "isaaclab" else "--video", lab=lab)
    assert code == 2 and advice in err and "not installed" in err


def test_help_needs_no_package(capsys, monkeypatch):
    monkeypatch.setattr(command, "_is_installed", lambda module: False)
    code, out, _ = run(capsys, "play", "--help")
    assert code == 0 and "--num_steps" in out and "--headless" in out


@pytest.mark.slow
def test_a_policy_of_another_task_is_refused(labs, capsys):
    code, _, err = run(capsys, "train", *POINT, "--max_iterations", "1", "agent.num_sgd_iter=1")
    assert code == 0, err
    simulations.close_all()
    import point_mass

    def wider(self, cfg, render_mode=None, **kwargs):
        made(self, cfg, render_mode)
        self.single_observation_space["policy"] = point_mass.gymnasium.spaces.Box(-1, 1, (7,))

    made, point_mass.PointMassEnv.__init__ = point_mass.PointMassEnv.__init__, wider
    code, _, err = run(capsys, "play", *POINT, "--checkpoint", str(run_of("point_of_rsl_rl")))
    assert code == 2 and "the policy has observations of the space" in err


@pytest.mark.slow
def test_it_learns(labs, capsys):
    """The points reach the target: their mean distance falls from that of a start (0.77) to a tenth of it."""
    words = ["--task", "Isaac-Point-Bare-v0", "--num_envs", "256", "--device", "cpu", "--max_iterations", "60"]
    code, _, err = run(capsys, *words, "agent.model.fcnet_hiddens=[32,32]", "agent.model.vf_hiddens=[32,32]")
    assert code == 0, err
    last = json.loads((run_of("Isaac-Point-Bare-v0") / "result.json").read_text().splitlines()[-1])
    assert last["episode_reward_mean"] > 1.2, last["episode_reward_mean"]
