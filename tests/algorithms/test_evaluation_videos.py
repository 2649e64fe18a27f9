"""The setting evaluation_videos: a GIF in the run's directory and in TensorBoard, and what is said without one."""

import subprocess
import sys

import pytest

from rllib import PPOConfig
from tests.cli.test_play import Drawn, frames_of
from tests.cli.test_play_agents import Drawn as DrawnGame
from tests.envs import CountingEnv

pytest.importorskip("imageio_ffmpeg", reason="needs the extra `video`")
GIF = b"GIF89a"


def config(directory, env=Drawn, **env_config):
    return (
        PPOConfig()
        .environment(env, env_config=env_config)
        .training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1)
        .evaluation(evaluation_interval=2, evaluation_duration=1, evaluation_videos=2)
        .reporting(log_dir=directory)
    )


def picture_in(events_file) -> tuple[int, int, int, bytes]:
    """Step, width, height and first bytes of the only picture, read in a separate process: tensorboardX loads torch."""
    code = """
import struct, sys
sys.modules["torch"] = None
from tensorboardX.proto.event_pb2 import Event
data, at = open(sys.argv[1], "rb").read(), 0
while at < len(data):
    (length,) = struct.unpack_from("<Q", data, at)
    event = Event.FromString(data[at + 12 : at + 12 + length])
    at += length + 16
    for value in event.summary.value:
        if value.tag == "evaluation/video":
            image = value.image
            print(event.step, image.width, image.height, image.encoded_image_string[:6].hex())
"""
    command = [sys.executable, "-c", code, events_file]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    step, width, height, start = run.stdout.split()
    return int(step), int(width), int(height), bytes.fromhex(start)


@pytest.mark.sidecar
def test_episodes_after_an_evaluation_become_a_video_in_tensorboard(tmp_path):
    with config(tmp_path, lengths=[3, 5]).build() as algo:
        assert "evaluation" not in algo.train()
        result = algo.train()
        assert result["evaluation"]["video"] == "videos/iteration_000002.gif"
        assert "video" not in algo.evaluate(1)
    size, _, brightness = frames_of(tmp_path / "videos" / "iteration_000002.gif")
    assert size == (48, 32) and len(brightness) == 4 + 6
    (events,) = tmp_path.glob("events.out.tfevents*")
    assert picture_in(events) == (result["timesteps_total"], *size, GIF)


def test_videos_change_nothing_in_the_training(tmp_path):
    def weights(videos):
        settings = config(tmp_path / str(videos)).debugging(seed=3).evaluation(evaluation_videos=videos)
        with settings.build() as algo:
            for _ in range(4):
                algo.train()
            return algo.policy.weights.tobytes()

    assert weights(0) == weights(1)


def test_an_environment_that_does_not_draw_itself_is_refused_by_build(tmp_path):
    with pytest.raises(ValueError, match="CountingEnv does not draw itself"):
        config(tmp_path, CountingEnv).build()


def test_no_frames_per_second_are_refused_by_build(tmp_path, monkeypatch):
    monkeypatch.setitem(Drawn.metadata, "render_fps", float("nan"))
    with pytest.raises(ValueError, match="render_fps"):
        config(tmp_path).build()


def test_videos_need_evaluations(tmp_path):
    with pytest.raises(ValueError, match="evaluation_videos=2 needs evaluation_interval"):
        config(tmp_path).evaluation(evaluation_interval=None).build()


def test_a_missing_package_is_named_by_build(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ImportError, match=r"pip install .*\[video\]'"):
        config(tmp_path).build()


def test_several_agents_are_recorded(tmp_path):
    with config(tmp_path, DrawnGame).training(model={"fcnet_hiddens": [4]}).build() as algo:
        algo.train()
        result = algo.train()
    assert (tmp_path / result["evaluation"]["video"]).read_bytes().startswith(GIF)
