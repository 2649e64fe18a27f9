"""Video files, and what drawing does to the process that draws."""

import multiprocessing
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from rllib.compat.programs.sb3.environments import DummyVecEnv, VecVideoRecorder
from rllib.runs.video import DEFAULT_FPS, VideoFile, fps_of
from tests.cli.test_play import Drawn, ffmpeg, frames_of

FRAME = np.zeros((32, 48, 3), np.uint8)

DRAWING = """
import signal
import gymnasium
from rllib.runs.video import draw_without_display

draw_without_display()
env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
env.reset()
env.render()
print("drawn", flush=True)
signal.pause()
"""


def test_a_process_that_draws_by_pygame_ends_by_sigterm():
    """SDL would take the signal, and hold it as an event that is read only by programs with a window."""
    pytest.importorskip("pygame", reason="pygame is not installed, which is of the extra video")
    with subprocess.Popen([sys.executable, "-c", DRAWING], stdout=subprocess.PIPE, text=True) as process:
        assert any(line == "drawn\n" for line in process.stdout)  # pygame greets before it
        process.send_signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("fps", [12, 12.5, 1 / np.float32(0.08), np.int64(12), np.array(12.5), 0.001, 1e6])
def test_frames_per_second_are_any_number_that_videos_can_have(tmp_path, fps):
    assert fps_of(SimpleNamespace(metadata={"render_fps": fps})) == fps
    for ending in ("mp4", "gif", "webm"):
        with VideoFile(tmp_path / f"a.{ending}", fps) as video:
            video.add(FRAME)
    if fps in (12, 12.5):
        assert frames_of(tmp_path / "a.mp4")[1] == fps


@pytest.mark.parametrize("metadata", [{}, None, {"render_fps": None}, {"render_fps": 0}])
def test_an_environment_without_frames_per_second_has_the_usual_ones(metadata):
    assert fps_of(SimpleNamespace(metadata=metadata)) == DEFAULT_FPS


@pytest.mark.parametrize("fps", [-5, float("nan"), np.float32("inf"), 1e-9, 1e12, "fast", [30, 30]])
def test_no_frames_per_second_are_refused_before_the_first_frame(tmp_path, monkeypatch, fps):
    with pytest.raises(ValueError, match=r"fps is .*, but has to be a number from 0\.001 to 1000000"):
        VideoFile(tmp_path / "a.mp4", fps)
    monkeypatch.setitem(Drawn.metadata, "render_fps", fps)
    with pytest.raises(ValueError, match="render_fps"):
        VecVideoRecorder(DummyVecEnv([lambda: Drawn({"render_mode": "rgb_array"})]), tmp_path, lambda step: True)


@pytest.mark.parametrize("size", [32, 512])  # less than a pipe holds, and more
def test_forks_of_the_process_neither_delay_nor_change_a_video(tmp_path, size):
    """An environment may start processes while it is recorded, and they may end when it ends."""
    fork = multiprocessing.get_context("fork")
    path, over = tmp_path / "a.mp4", fork.Event()
    frames = [np.full((size, size, 3), 20 * step, np.uint8) for step in range(3)]
    with VideoFile(path, 10) as video:
        video.add(frames[0])
        process = fork.Process(target=over.wait, args=(20,))
        process.start()
        ended = fork.Process(target=video.close)
        ended.start()
        ended.join()
        for frame in frames[1:]:
            video.add(frame)
    try:
        assert process.is_alive()
        np.testing.assert_allclose(frames_of(path)[2], [0, 20, 40], atol=6)
    finally:
        over.set()
        process.join()
    assert ended.exitcode == process.exitcode == 0


@pytest.mark.parametrize("size", [2, 512])  # less than a pipe holds, and more
def test_a_video_that_ffmpeg_does_not_write_is_removed(tmp_path, monkeypatch, size):
    """It may be a script that ends without an error."""
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.setattr(ffmpeg, "get_ffmpeg_exe", lambda: str(program))
    with pytest.raises(OSError, match="ffmpeg ended"), VideoFile(tmp_path / "a.mp4", 10) as video:
        for _ in range(9):
            video.add(np.zeros((size, size, 3), np.uint8))
    assert not (tmp_path / "a.mp4").exists()


def missing(tmp_path) -> str:
    return str(tmp_path / "nothing")


def damaged(tmp_path) -> str:
    """A program for which the system has no loader."""
    (tmp_path / "damaged").write_bytes(b"\0")
    (tmp_path / "damaged").chmod(0o755)
    return str(tmp_path / "damaged")


@pytest.mark.parametrize("program", [missing, damaged])
def test_an_ffmpeg_that_cannot_be_run_is_named(tmp_path, monkeypatch, program):
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", path := program(tmp_path))
    with pytest.raises((ImportError, OSError), match=f"ffmpeg.*{path}"), VideoFile(tmp_path / "a.mp4", 10) as video:
        video.add(FRAME)
    assert not (tmp_path / "a.mp4").exists()


def test_a_missing_ffmpeg_is_named_before_the_first_frame(monkeypatch):
    def get_ffmpeg_exe():
        raise RuntimeError("No ffmpeg exe could be found. Install ffmpeg on your system.")

    monkeypatch.setattr(ffmpeg, "get_ffmpeg_exe", get_ffmpeg_exe)
    with pytest.raises(ImportError, match="videos need ffmpeg: No ffmpeg"):
        VideoFile("a.mp4", 10)
