"""Exported policies do what the policy does: on batches of any size, over the steps of a memory, in whole episodes."""

import json
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch

from rllib import DQNConfig, PPOConfig, SACConfig, TD3Config
from rllib.serving.export import export_policy
from rllib.serving.exported_policy import ExportedPolicy, ExportError
from tests.envs import MaskedProbe, MatchParts, MatchPicture, SampledEnv, StructuredProbe

torch.set_num_threads(1)
SMALL = {"fcnet_hiddens": [16]}


class Everything(gymnasium.Env):
    """Observations of all kinds, with a mask; nothing happens."""

    observation_space = gymnasium.spaces.Dict(
        {
            "action_mask": gymnasium.spaces.MultiBinary(5),
            "level": gymnasium.spaces.Discrete(4, start=2),
            "pair": gymnasium.spaces.Tuple(
                [gymnasium.spaces.Box(-5, 5, (2,), np.float32), gymnasium.spaces.MultiDiscrete([2, 3])]
            ),
        }
    )
    action_space = gymnasium.spaces.MultiDiscrete([2, 3])

    def __init__(self, config=None):
        pass

    def _observation(self):
        mask = np.array([1, self.np_random.integers(2), 1, 0, self.np_random.integers(2)], np.int8)
        pair = self.np_random.uniform(-5, 5, 2).astype(np.float32), np.array([1, 2])
        return {"action_mask": mask, "level": int(self.np_random.integers(2, 6)), "pair": pair}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action):
        return self._observation(), 1.0, False, bool(self.np_random.random() < 0.1), {}


def ppo(**model):
    return PPOConfig().training(model={**SMALL, **model}, train_batch_size=100, sgd_minibatch_size=50, num_sgd_iter=2)


def masked_beside(source, config):
    return config.environment(MaskedProbe, env_config={"mask": source}, action_mask_from=source)


def sampled(space, action_space):
    return ppo().environment(SampledEnv, env_config={"space": space, "action_space": action_space})


CASES = {
    "filter": lambda: ppo().rollouts(observation_filter="MeanStdFilter").environment("CartPole-v1"),
    "one-hot": lambda: ppo().environment("FrozenLake-v1"),
    "images": lambda: ppo(fcnet_hiddens=[], conv_filters=[[4, [4, 4], 2]]).environment(MatchPicture),
    "lstm": lambda: ppo(use_lstm=True, lstm_cell_size=8, vf_share_layers=False).environment("CartPole-v1"),
    "gru": lambda: ppo(use_gru=True, lstm_cell_size=8).environment("Pendulum-v1"),
    "attention": lambda: ppo(
        use_attention=True, attention_num_transformer_units=2, attention_dim=8, attention_num_heads=2,
        attention_head_dim=4, attention_memory_inference=6, attention_memory_training=6, vf_share_layers=False
    ).environment("CartPole-v1"),
    "the step before": lambda: ppo(
        use_lstm=True, lstm_cell_size=8, lstm_use_prev_action=True, lstm_use_prev_reward=True
    ).environment("Pendulum-v1"),
    "parts and masks": lambda: ppo().environment(Everything, action_mask_key="action_mask"),
    "mask in the observation": lambda: ppo().environment(MaskedProbe),
    "mask in the info": lambda: masked_beside("info", ppo()),
    "mask by a method": lambda: masked_beside("method", ppo()),
    "mask and lstm": lambda: ppo(use_lstm=True, lstm_cell_size=8).environment(MaskedProbe),
    "mask in the info and the step before": lambda: masked_beside(
        "info", ppo(use_lstm=True, lstm_cell_size=8, lstm_use_prev_action=True, lstm_use_prev_reward=True)
    ),
    "filter and parts": lambda: ppo().rollouts(observation_filter="MeanStdFilter").environment(MatchParts),
    "filter and lstm": lambda: ppo(use_lstm=True, lstm_cell_size=8)
    .rollouts(observation_filter="MeanStdFilter")
    .environment("CartPole-v1"),
    "ignored keys": lambda: ppo().environment(MatchParts, ignore_observation_keys=["goal"]),
    "choices that begin at 3": lambda: sampled(gymnasium.spaces.Discrete(4, start=3), gymnasium.spaces.Discrete(2, 5)),
    "float64": lambda: sampled(gymnasium.spaces.Box(-2, 2, (3,), np.float64), gymnasium.spaces.Box(-4, 4, (2,))),
    "bits": lambda: sampled(gymnasium.spaces.MultiBinary(5), gymnasium.spaces.MultiBinary(3)),
    "bounds": lambda: ppo(free_log_std=True).environment("Pendulum-v1"),
    "squashed": lambda: SACConfig().environment("Pendulum-v1"),
    "deterministic": lambda: TD3Config().environment("Pendulum-v1"),
    "atoms and noise": lambda: DQNConfig().training(num_atoms=3, noisy=True).environment("CartPole-v1"),
    "dueling": lambda: DQNConfig().training(dueling=True).environment("CartPole-v1"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_module_acts_as_the_policy(case, tmp_path, monkeypatch):
    """As torch computes it, which is quick; the programs made of it are compared below."""
    monkeypatch.setattr("rllib.serving.export._write_torch", lambda module, path: path.write_bytes(b""))
    monkeypatch.setattr(
        "rllib.serving.export._load_torch",
        lambda path, module: lambda inputs: [output.numpy() for output in module(*map(torch.from_numpy, inputs))],
    )
    with CASES[case]().build() as algo:
        if "filter" in case or case in ("lstm", "parts and masks", "mask and lstm"):
            algo.train()
        parity = export_policy(algo, tmp_path / "policy").parity
    assert parity.num_rows in (138, 1500)  # 64 or 20 of them met in the environment
    assert max(parity.max_error.values()) <= 1e-5
    assert parity.num_ties == 0


def program_case(format, case):
    slow = [] if case in ("filter", "lstm") else [pytest.mark.slow]
    return pytest.param(format, case, marks=slow)


@pytest.mark.parametrize("format, case", [program_case(format, case) for format in ("torch", "onnx") for case in CASES])
def test_programs_act_as_the_policy(format, case, tmp_path):
    if format == "onnx":
        pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
        pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    with CASES[case]().build() as algo:
        export = export_policy(algo, tmp_path / "policy", format)
    assert export.path.name == {"torch": "policy.pt2", "onnx": "policy.onnx"}[format]
    described = json.loads((tmp_path / f"{export.path.name}.json").read_text())
    assert [port["name"] for port in described["inputs"]] == [port.name for port in export.inputs]
    assert described["parity"]["num_rows"] == export.parity.num_rows
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([export.path.name, f"{export.path.name}.json"])


def test_whole_episodes_of_a_file_without_rllib(tmp_path):
    """In a process that has torch and gymnasium alone, with the returns that the algorithm's player gets."""
    program = tmp_path / "act.py"
    program.write_text(
        "import sys, gymnasium, torch\n"
        "policy = torch.export.load(sys.argv[1]).module()\n"
        "env = gymnasium.make('CartPole-v1')\n"
        "for seed in range(5):\n"
        "    (obs, _), total, over = env.reset(seed=seed), 0.0, False\n"
        "    while not over:\n"
        "        action = policy(torch.from_numpy(obs)[None])[0]\n"
        "        obs, reward, terminated, truncated, _ = env.step(int(action))\n"
        "        total, over = total + reward, terminated or truncated\n"
        "    print(total)\n"
        "assert 'rllib' not in sys.modules\n"
    )
    expected = []
    with CASES["filter"]().debugging(seed=1).build() as algo, gymnasium.make("CartPole-v1") as env:
        algo.train()
        path = export_policy(algo, tmp_path / "policy").path
        for seed in range(5):
            (obs, _), total, over = env.reset(seed=seed), 0.0, False
            while not over:
                obs, reward, terminated, truncated, _ = env.step(algo.compute_single_action(obs, explore=False))
                total, over = total + reward, terminated or truncated
            expected.append(total)
    found = subprocess.run([sys.executable, program, path], capture_output=True, text=True, check=True)
    assert [float(line) for line in found.stdout.split()] == expected


def test_an_export_that_differs_is_not_written(tmp_path, monkeypatch):
    def off(module, path):
        for leaf in module._network[0].leaves:
            leaf.mul_(1.01)
        path.write_bytes(b"")

    monkeypatch.setattr("rllib.serving.export._write_torch", off)
    monkeypatch.setattr(
        "rllib.serving.export._load_torch",
        lambda path, module: lambda inputs: [output.numpy() for output in module(*map(torch.from_numpy, inputs))],
    )
    with CASES["bounds"]().build() as algo, pytest.raises(ExportError, match="the export differs"):
        export_policy(algo, tmp_path / "policy")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported_is_named(tmp_path):
    with ppo().environment(StructuredProbe).build() as algo:
        with pytest.raises(ExportError, match=r"its actions are of the space Dict.*rllib.load_policy"):
            ExportedPolicy(algo, "default_policy")
        with pytest.raises(ExportError, match="format must be one of torch, onnx, but got 'tflite'"):
            export_policy(algo, tmp_path / "policy", "tflite")


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with CASES["bounds"]().build() as algo, pytest.raises(ImportError, match=r"needs the extra onnx.*rllib\[onnx\]"):
        export_policy(algo, tmp_path / "policy", "onnx")
