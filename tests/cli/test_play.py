"""`rllib play` and `rllib record`: what is drawn, in a window or in a file."""

import json
import os
import sys
from pathlib import Path
from typing import ClassVar

import gymnasium
import numpy as np
import pytest

import rllib.runs.video
from rllib import PPOConfig, register_env
from rllib.cli.verbs import play
from rllib.runs.video import VideoFile
from tests.envs import CountingEnv

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
ffmpeg = pytest.importorskip("imageio_ffmpeg")


class Drawn(CountingEnv):
    """Its pictures are as grey as the step is late; in a window it counts them."""

    metadata: ClassVar = {"render_modes": ["human", "rgb_array"], "render_fps": 12}
    num_shown = 0

    def __init__(self, config=None):
        super().__init__(config)
        self.render_mode = (config or {}).get("render_mode")

    def render(self):
        if self.render_mode == "human":
            type(self).num_shown += 1
            return None
        return np.full((32, 48, 3), 20 * self.t, np.uint8)


class Undrawable(CountingEnv):
    """Takes the mode, and does not keep it."""


def checkpoint_of(env, path, **environment):
    config = PPOConfig().environment(env, **environment).rollouts(num_rollout_workers=0)
    with config.training(train_batch_size=20, sgd_minibatch_size=20, model={"fcnet_hiddens": [4]}).build() as algo:
        return algo.save(path / "run" / "checkpoint_000001")


def frames_of(path):
    """Size, frames a second, and the brightness of each frame."""
    reader = ffmpeg.read_frames(str(path))
    meta = next(reader)
    return meta["size"], meta["fps"], [np.frombuffer(frame, np.uint8).mean() for frame in reader]


def test_an_animated_picture_keeps_its_colours(tmp_path):
    frames = [np.full((32, 48, 3), 250, np.uint8) for _ in range(3)]
    for number, frame in enumerate(frames):
        frame[8:16, 10 * number : 10 * number + 8] = (202, 152, 101)
    with VideoFile(tmp_path / "cart.gif", 10) as video:
        for frame in frames:
            video.add(frame)
    reader = ffmpeg.read_frames(str(tmp_path / "cart.gif"))
    next(reader)
    for frame, seen in zip(frames, reader, strict=True):
        assert abs(np.frombuffer(seen, np.uint8).reshape(frame.shape).astype(int) - frame).max() <= 1


@pytest.mark.parametrize("name", ["run", "run/checkpoint_000001"])
def test_a_video_has_a_frame_for_each_observation(rllib_command, tmp_path, name):
    checkpoint_of(Drawn, tmp_path, env_config={"lengths": [3, 5]})
    result = rllib_command("record", name, "--episodes", 2)
    assert result.exit_code == 0, result.output
    # The return of an episode is the sum of its step counts.
    assert result.output.splitlines()[:2] == ["episode 1  return 6  length 3", "episode 2  return 15  length 5"]
    video = tmp_path / "run" / "checkpoint_000001.mp4"
    assert f"video  {video}" in result.output
    size, fps, frames = frames_of(video)
    assert (size, fps) == ((48, 32), 12)
    np.testing.assert_allclose(frames, [0, 20, 40, 60, 0, 20, 40, 60, 80, 100], atol=6)


def test_a_cart_and_its_pole_are_recorded(rllib_command, tmp_path):
    """A new user's first video. All that it needs comes with the extra `video`."""
    pytest.importorskip("pygame", reason="pygame is not installed, which is of the extra video")
    checkpoint_of("CartPole-v1", tmp_path, env_config={"max_episode_steps": 4})
    result = rllib_command("record", "run", "-o", "cart.mp4", "--seed", 1)
    assert result.exit_code == 0, result.output
    reader = ffmpeg.read_frames(str(tmp_path / "cart.mp4"))
    assert next(reader)["size"] == (600, 400)
    frames = [np.frombuffer(frame, np.uint8).reshape(400, 600, 3).astype(int) for frame in reader]
    assert len(frames) == 5
    dark, brown = frames[0].max(-1) < 60, np.abs(frames[0] - (202, 152, 101)).max(-1) < 30
    assert 1000 < dark.sum() < 5000 and 800 < brown.sum() < 4000  # the cart and its track, and the pole
    assert np.abs(frames[-1] - frames[0]).max() > 100  # which move


@pytest.mark.parametrize("name", ["one.gif", "one.webm"])
def test_kind_place_and_speed_of_a_video_can_be_chosen(rllib_command, tmp_path, name):
    checkpoint_of(Drawn, tmp_path)
    result = rllib_command("record", "run", "-o", f"videos/{name}", "--fps", 5)
    assert result.exit_code == 0, result.output
    size, fps, frames = frames_of(tmp_path / "videos" / name)
    assert (size, fps, len(frames)) == ((48, 32), 5, 4)


def test_a_window_is_drawn_where_there_is_a_display(rllib_command, tmp_path, monkeypatch):
    checkpoint_of(Drawn, tmp_path)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(Drawn, "num_shown", 0)
    result = rllib_command("play", "run", "--episodes", 2, "--fps", 1000)
    assert result.exit_code == 0 and "video" not in result.output, result.output
    assert Drawn.num_shown == 4 + 6


def test_without_a_display_play_writes_a_video(rllib_command, tmp_path, monkeypatch):
    checkpoint_of(Drawn, tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    result = rllib_command("play", "run", "--episodes", 1)
    assert result.exit_code == 0 and "There is no display, so a video is written" in result.stderr
    assert (tmp_path / "run" / "checkpoint_000001.mp4").stat().st_size > 0


class Modes(CountingEnv):
    """Draws itself in the render modes that are set for it."""

    metadata: ClassVar = {"render_modes": []}

    def __init__(self, config=None):
        super().__init__(config)
        self.render_mode = (config or {}).get("render_mode")

    def render(self):
        forms = {"ansi": f"step {self.t}", "rgb_array": np.zeros((32, 48, 3), np.uint8), "human": None}
        return forms.get(self.render_mode)


@pytest.mark.parametrize("has_display", [False, True])
@pytest.mark.parametrize(
    "modes",
    [["human"], ["rgb_array"], ["ansi"], ["human", "rgb_array", "ansi"], ["rgb_array", "ansi"], ["human", "ansi"],
     [None, "rgb_array"], [None, "depth_array"], ["rgb_array_list"]],
)  # fmt: skip
def test_what_the_environment_draws_is_shown(rllib_command, tmp_path, monkeypatch, modes, has_display):
    checkpoint_of(Modes, tmp_path)
    monkeypatch.setitem(Modes.metadata, "render_modes", modes)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.setenv(name, ":0") if has_display else monkeypatch.delenv(name, raising=False)
    result = rllib_command("play", "run", "--episodes", 1, "--fps", 1000)
    wanted = ["human"] * has_display + ["rgb_array", "ansi"]
    shown = next((mode for mode in wanted if mode in modes), None)
    assert result.exit_code == (0 if shown else 2), result.output
    assert ("step 3" in result.output) == (shown == "ansi")
    assert bool(list(tmp_path.glob("run/*.mp4"))) == (shown == "rgb_array")
    if shown is None:
        assert f"in the render modes {modes[-1]} alone, and here {wanted[0]} is needed" in result.stderr


@pytest.mark.parametrize("frame", [None, np.zeros((4, 4)), np.zeros((4, 4, 3), np.float32), [np.zeros((4, 4, 3))]])
def test_what_is_no_picture_is_one_line(rllib_command, tmp_path, monkeypatch, frame):
    checkpoint_of(Drawn, tmp_path)
    monkeypatch.setattr(Drawn, "render", lambda self: frame)
    result = rllib_command("record", "run")
    assert result.exit_code == 2 and "Error: a frame is uint8 [height, width, 3], but got " in result.stderr
    assert not list(tmp_path.glob("run/*.mp4"))


class Several(gymnasium.vector.VectorEnv):
    """A vector environment that draws its environments; it has one unless more are asked for."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}

    def __init__(self, config):
        self.num_envs, self.render_mode = config.num_envs, config.get("render_mode")
        self.single_observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Box(-1, 1, (self.num_envs, 2))
        self.action_space = gymnasium.spaces.MultiDiscrete([2] * self.num_envs)

    def reset(self, *, seed=None, options=None):
        return np.zeros((self.num_envs, 2), np.float32), {}

    def step(self, actions):
        ended = np.ones(self.num_envs, bool)
        return np.zeros((self.num_envs, 2), np.float32), np.ones(self.num_envs), ended, ~ended, {}

    def render(self):
        return (np.zeros((32, 32, 3), np.uint8),) * self.num_envs


@pytest.mark.parametrize("verb", ["play", "record"])
def test_a_vector_environment_of_one_is_shown(rllib_command, tmp_path, verb):
    checkpoint_of(Several, tmp_path)
    result = rllib_command(verb, "run")
    assert result.exit_code == 0 and "mp4" in result.stdout, result.stderr


def test_the_window_keeps_the_pace(monkeypatch):
    now, slept = [0.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(play.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(play.time, "sleep", sleep)

    class Env:
        def render(self):
            now[0] += 0.02

    draw = play._Window(Env(), fps=20)
    for _ in range(3):
        draw()
    assert slept == pytest.approx([0.03] * 3)


def test_an_environment_that_cannot_be_drawn_is_named(rllib_command, tmp_path):
    checkpoint_of(Undrawable, tmp_path)
    result = rllib_command("record", "run")
    assert result.exit_code == 2
    assert "Undrawable does not draw itself: made with render_mode='rgb_array', it has" in result.output


class Unseen(CountingEnv):
    """Keeps the mode, and has no render() of its own."""

    def __init__(self, config=None):
        super().__init__(config)
        self.render_mode = (config or {}).get("render_mode")


def test_an_environment_without_render_is_named_with_what_it_needs(rllib_command, tmp_path):
    checkpoint_of(Unseen, tmp_path)
    result = rllib_command("record", "run")
    assert result.exit_code == 2 and "its class has no render()" in result.output, result.output
    assert not list(tmp_path.glob("**/*.mp4"))


def test_what_is_missing_is_named(rllib_command, tmp_path, monkeypatch):
    assert "there is no checkpoint nowhere" in rllib_command("record", "nowhere").output
    checkpoint_of(Drawn, tmp_path)
    assert "x.avi has none of the endings of videos: .mp4" in rllib_command("record", "run", "-o", "x.avi").output
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    result = rllib_command("record", "run")
    assert result.exit_code == 2 and "[video]'" in result.output


@pytest.mark.parametrize("display", ["", ":0"])
def test_no_frames_per_second_of_the_environment_are_one_line(rllib_command, tmp_path, monkeypatch, display):
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.setitem(Drawn.metadata, "render_fps", float("nan"))
    checkpoint_of(Drawn, tmp_path)
    result = rllib_command("play", "run")
    assert result.exit_code == 2 and "metadata['render_fps'] of the environment is nan" in result.output
    assert rllib_command("play", "run", "--fps", 1000).exit_code == 0


def test_a_package_that_drawing_needs_is_named(rllib_command, tmp_path, monkeypatch):
    def render(self):
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed, pip install it")

    monkeypatch.setattr(Drawn, "render", render)
    checkpoint_of(Drawn, tmp_path)
    result = rllib_command("record", "run")
    assert result.exit_code == 2 and "cannot be drawn: pygame is not installed" in result.output


@pytest.mark.parametrize("library", [None, "libEGL.so.1"])
def test_nothing_looks_for_a_display_where_there_is_none(rllib_command, tmp_path, monkeypatch, library):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "MUJOCO_GL"):
        monkeypatch.setenv(name, "")  # is taken back at the end
        monkeypatch.delenv(name)
    monkeypatch.setattr(rllib.runs.video, "find_library", lambda name: library)
    checkpoint_of(Drawn, tmp_path)
    assert rllib_command("record", "run").exit_code == 0
    assert os.environ["SDL_VIDEODRIVER"] == "dummy"
    assert os.environ.get("MUJOCO_GL") == (library and "egl")


@pytest.mark.parametrize("source", ["info", "method"])
def test_masks_from_elsewhere_reach_the_policy(rllib_command, tmp_path, source):
    class Masked(Drawn):
        def action_masks(self):
            return np.array([False, True])

        def reset(self, **how):
            observation, _ = super().reset(**how)
            return observation, {"action_mask": self.action_masks()}

        def step(self, action):
            assert action == 1
            observation, *rest, _ = super().step(action)
            return observation, *rest, {"action_mask": self.action_masks()}

    register_env("masked and drawn", Masked)
    checkpoint_of("masked and drawn", tmp_path, action_mask_from=source)
    result = rllib_command("record", "run", "--explore")
    assert result.exit_code == 0, result.output


def test_frames_of_another_kind_are_refused(tmp_path):
    with VideoFile(tmp_path / "a.mp4", 10) as video:
        with pytest.raises(ValueError, match=r"uint8 \[height, width, 3\], but got float64 \[2, 2, 3\]"):
            video.add(np.zeros((2, 2, 3)))
        video.add(np.zeros((4, 6, 3), np.uint8))
        with pytest.raises(ValueError, match=r"one size: \[4, 6, 3\], but this one has \[6, 4, 3\]"):
            video.add(np.zeros((6, 4, 3), np.uint8))
    with VideoFile(tmp_path / "never.mp4", 10):
        pass
    assert not (tmp_path / "never.mp4").exists()


def test_the_checkpoint_is_not_changed(rllib_command, tmp_path):
    path = checkpoint_of(Drawn, tmp_path)
    before = json.loads((path / "manifest.json").read_text())
    assert rllib_command("record", "run").exit_code == 0
    assert json.loads((path / "manifest.json").read_text()) == before


@pytest.mark.parametrize("output", ["file/a.mp4", "directory.mp4"])
def test_a_video_that_cannot_be_written_is_one_line(rllib_command, tmp_path, output):
    checkpoint_of(Drawn, tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "directory.mp4").mkdir()
    result = rllib_command("record", "run", "-o", output)
    assert result.exit_code == 2 and result.output.startswith(f"Error: {output} cannot be written: "), result.output
    assert result.output.count("\n") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("name", ["a.mp4", "a.gif", "a.webm"])
def test_a_video_on_a_full_disk_is_one_line_and_removed(rllib_command, tmp_path, capfd, name):
    checkpoint_of(Drawn, tmp_path)
    (tmp_path / name).symlink_to("/dev/full")
    result = rllib_command("record", "run", "-o", name, "--episodes", "1")
    assert result.exit_code == 1, result.output
    (line,) = [line for line in result.output.splitlines() if not line.startswith("episode")]
    assert line.startswith("Error: the disk is full: ") and line.endswith(
        f"{name} cannot be written. Make room, then repeat the command."
    )
    assert not (tmp_path / name).is_symlink() and capfd.readouterr().err == ""


def test_why_ffmpeg_has_failed_is_said(tmp_path, monkeypatch):
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\necho Unknown encoder >&2; exec 0<&-; exit 8\n")
    program.chmod(0o755)
    monkeypatch.setattr(ffmpeg, "get_ffmpeg_exe", lambda: str(program))
    message = r"a\.mp4 cannot be written: ffmpeg ended with exit code 8\. Unknown encoder"
    with pytest.raises(OSError, match=message), VideoFile(tmp_path / "a.mp4", 10) as video:
        for _ in range(9):
            video.add(np.zeros((400, 600, 3), np.uint8))
    assert not (tmp_path / "a.mp4").exists()


def test_play_has_another_name(rllib_command, tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    checkpoint_of(Drawn, tmp_path)
    result = rllib_command("enjoy", "run", "--episodes", 1)
    assert result.exit_code == 0 and "episode 1  return 6  length 3" in result.output, result.output


@pytest.mark.parametrize("verb", ["evaluate", "play", "record", "export"])
def test_a_checkpoint_of_something_else_is_named(rllib_command, verb):
    result = rllib_command(verb, CHECKPOINTS / "format_1")
    last = result.output.splitlines()[-1]
    assert result.exit_code == 2 and last.startswith("Error: "), result.output
    assert "format_1 is a checkpoint, but not one of an algorithm: its algorithm.json has no algorithm" in last
    assert "Give what Algorithm.save() or `rllib train` wrote" in last
