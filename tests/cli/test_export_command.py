"""`rllib export`: what is written, and what is said where nothing is."""

import importlib.util
import json
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file

import rllib
from rllib import PPOConfig
from rllib.serving import export
from tests.envs import StructuredProbe

CARTPOLE = Path(__file__).parents[1] / "checkpoints" / "format_1_ppo"


def test_the_file_lies_beside_the_checkpoint(rllib_command, tmp_path):
    checkpoint = write_checkpoint_of("CartPole-v1", tmp_path)
    result = rllib_command("export", "run")
    assert result.exit_code == 0, result.output
    assert f"{checkpoint}.pt2  " in result.output and "reads   obs float32[batch, 4]" in result.output
    assert "equal   to the policy on 138 observations" in result.output
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        checkpoint.name, f"{checkpoint.name}.pt2", f"{checkpoint.name}.pt2.json"
    }  # fmt: skip


def write_checkpoint_of(env, path) -> Path:
    config = PPOConfig().environment(env).training(model={"fcnet_hiddens": [4]})
    with config.build() as algo:
        return algo.save(path / "run" / "checkpoint_000001")


def test_one_of_several_policies(rllib_command, tmp_path):
    config = PPOConfig().environment("pettingzoo:mpe2.simple_speaker_listener_v4").multi_agent(policies="own")
    with config.training(model={"fcnet_hiddens": [4]}).build() as algo:
        checkpoint = algo.save(tmp_path / "run" / "checkpoint_000001")
        weights = algo.get_weights()["listener_0"]
    result = rllib_command("export", "run")
    assert result.exit_code and "choose one with --policy: listener_0, speaker_0" in result.output
    result = rllib_command("export", "run", "--policy", "listener_0")
    assert result.exit_code == 0, result.output
    assert "reads   obs float32[batch, 11]" in result.output and "equal   to the policy on" in result.output
    assert json.loads(Path(f"{checkpoint}_listener_0.pt2.json").read_text())["policy_id"] == "listener_0"
    result = rllib_command("export", "run", "--policy", "listener_0", "--format", "safetensors")
    assert sum(array.size for array in load_file(f"{checkpoint}_listener_0.safetensors").values()) == weights.size


def test_an_onnx_graph(rllib_command, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    result = rllib_command("export", CARTPOLE, "--format", "onnx", "-o", "here/policy")
    assert result.exit_code == 0, result.output
    assert "here/policy.onnx  " in result.output and "equal   to the policy on 138 observations" in result.output
    session = onnxruntime.InferenceSession(tmp_path / "here" / "policy.onnx")
    assert [port.name for port in session.get_inputs()] == ["obs"]


@pytest.mark.parametrize(("name", "read"), [("p.pt", torch.jit.load), ("p.safetensors", load_file)])
def test_the_name_of_the_file_says_the_format(rllib_command, tmp_path, name, read):
    write_checkpoint_of("CartPole-v1", tmp_path)
    result = rllib_command("export", "run", "-o", name)
    assert result.exit_code == 0, result.output
    assert read(tmp_path / name)
    result = rllib_command("export", "run", "-o", "p.onnx", "--format", "torch")
    assert result.exit_code and "format='torch' writes .pt2 files" in result.output


@pytest.mark.parametrize(("name", "kind", "better"), [
    ("q.safetensors", "onnx", "q.onnx"), ("q.onnx", "safetensors", "q.safetensors"), ("q.pt", "torch", "q.pt2"),
    ("q.v2.ONNX", "torchscript", "q.v2.pt"),
])  # fmt: skip
def test_a_name_of_another_format_is_refused(rllib_command, tmp_path, monkeypatch, name, kind, better):
    write_nothing(monkeypatch)
    refused = rllib_command("export", CARTPOLE, "-o", name, "--format", kind)
    assert refused.exit_code == 2 and f"Use the name {better}, or the format" in refused.output, refused.output
    assert "(" not in refused.output and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "kind", "written"), [
    ("policy.v2", None, "policy.v2.pt2"), ("a.tflite", None, "a.tflite.pt2"),
    ("b.torchscript", None, "b.torchscript.pt2"),
    ("policy.v2", "safetensors", "policy.v2.safetensors"), ("policy.v2.PT2", None, "policy.v2.PT2"),
])  # fmt: skip
def test_every_file_ends_as_its_format(rllib_command, tmp_path, monkeypatch, name, kind, written):
    write_nothing(monkeypatch)
    more = ("--format", kind) if kind else ()
    result = rllib_command("export", CARTPOLE, "-o", name, "--no-verify", *more)
    assert result.exit_code == 0 and f"{written}  " in result.output, result.output
    assert {path.name for path in tmp_path.iterdir()} - {f"{written}.json"} == {written}


@pytest.mark.parametrize("words", [("-o", "q.pt"), ("-o", "q", "--format", "torchscript")], ids=str)
def test_a_policy_with_a_memory_is_exported_under_the_name_that_is_advised(rllib_command, tmp_path, words):
    config = PPOConfig().environment("CartPole-v1").training(model={"use_lstm": True, "lstm_cell_size": 4})
    with config.build() as algo:
        algo.save(tmp_path / "run" / "checkpoint_000001")
    refused = rllib_command("export", "run", *words)
    assert refused.exit_code == 2 and "has a memory" in refused.output and "(algorithm" not in refused.output
    assert "a name that ends in .pt2" in refused.output
    for advised in (("-o", "q.pt2"), ("-o", "q.pt2", "--format", "torch")):
        assert rllib_command("export", "run", *advised).exit_code == 0


def test_weights_by_name(rllib_command, tmp_path):
    result = rllib_command("export", CARTPOLE, "--format", "safetensors", "-o", "weights")
    assert result.exit_code == 0 and "weights.safetensors  " in result.output, result.output
    policy = rllib.load_policy(CARTPOLE).policy
    found = load_file(tmp_path / "weights.safetensors")
    assert {name: array.tolist() for name, array in found.items()} == {
        name: array.tolist() for name, array in policy.parameters().items()
    }


@pytest.mark.parametrize("kind", ["torch", "safetensors"])
@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("file/policy", "File exists"),
        ("directory.out", "Is a directory. Name a file in it, such as "),
        ("directory", "Is a directory. Name a file in it, such as "),
        ("directory/", "Is a directory. Name a file in it, such as "),
    ],
)
def test_a_place_that_cannot_be_written_is_one_line(rllib_command, tmp_path, monkeypatch, kind, output, reason):
    write_nothing(monkeypatch)
    (tmp_path / "file").write_text("")
    (tmp_path / "directory.out").mkdir()
    (tmp_path / "directory").mkdir()
    before = sorted(tmp_path.rglob("*"))
    result = rllib_command("export", CARTPOLE, "--format", kind, "-o", output)
    told = f"Error: {output.rstrip('/')} cannot be written: {reason}"
    assert result.exit_code == 2 and result.output.startswith(told), result.output
    assert result.output.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def write_nothing(monkeypatch):
    """What is written is not what these tests are about, and making a program takes seconds."""
    monkeypatch.setattr(export.Torch, "write", lambda module, path: path.write_bytes(b"half"))


def test_a_difference_is_exit_3_and_leaves_the_file_that_was_there(rllib_command, tmp_path, monkeypatch):
    write_nothing(monkeypatch)

    def off(inputs, module):
        action, dist_inputs, value = (output.numpy() for output in module(*map(torch.from_numpy, inputs)))
        return action, dist_inputs, value + 0.01

    monkeypatch.setattr(export.Torch, "load", lambda path, module: partial(off, module=module))
    for name in ("policy.pt2", "policy.pt2.json"):
        (tmp_path / name).write_text("of before")
    result = rllib_command("export", CARTPOLE, "-o", "policy.pt2")
    assert result.exit_code == 3, result.output
    assert "the export differs from the policy: value by 0.0" in result.output and result.output.count("\n") == 1
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        ("policy.pt2", "policy.pt2.json"), "of before"
    )


def test_what_cannot_be_expressed_is_named(rllib_command, tmp_path):
    write_checkpoint_of(StructuredProbe, tmp_path)
    result = rllib_command("export", "run", "-o", "policy")
    assert result.exit_code == 2 and "Error: this policy cannot be exported: its actions are of the space Dict" in (
        result.output
    )
    assert not list(tmp_path.glob("policy*"))


def test_a_missing_extra_is_named(rllib_command, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *of: None if name == "onnx" else find(name, *of))
    result = rllib_command("export", CARTPOLE, "--format", "onnx", "-o", "policy")
    assert result.exit_code == 2 and result.output.count("\n") == 1
    assert "needs the extra onnx, but there is no onnx" in result.output
    assert result.output.endswith("[onnx]'.\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["torch", "safetensors"])
def test_a_policy_that_is_not_there_is_named(rllib_command, tmp_path, kind):
    result = rllib_command("export", CARTPOLE, "--format", kind, "--policy", "other", "-o", "policy")
    assert result.exit_code == 2 and "no policy 'other'" in result.output and "default_policy" in result.output
    assert not list(tmp_path.iterdir())


def test_the_description_says_which_policy(rllib_command, tmp_path, monkeypatch):
    write_nothing(monkeypatch)
    result = rllib_command("export", CARTPOLE, "--policy", "default_policy", "--no-verify", "-o", "policy")
    assert result.exit_code == 0 and "equal" not in result.output, result.output
    described = json.loads((tmp_path / "policy.pt2.json").read_text())
    assert described["policy_id"] == "default_policy" and described["parity"] is None
