"""Exported policies do what the policy does: on batches of any size, over the steps of a memory, in whole episodes."""

import contextlib
import errno
import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rllib import (
    AlgorithmConfig,
    CrossQConfig,
    DQNConfig,
    IQLConfig,
    PPOConfig,
    R2D2Config,
    SACConfig,
    TD3Config,
    load_policy,
)
from rllib.algorithms.base.wiring import playable_environment
from rllib.core import RLModuleSpec
from rllib.core.modules.module_policy import ModulePolicySpec
from rllib.env import MultiAgentEnv
from rllib.env.factories.adapters import adapted, adapters_of
from rllib.env.factories.registry import EnvContext
from rllib.evaluation import seeding
from rllib.models.architectures import ARCHITECTURES
from rllib.models.attention.spec import Attention
from rllib.models.dense.network_spec import UserArchitecture
from rllib.models.dense.spec import Dense
from rllib.models.groups.spec import Group
from rllib.models.implicit.spec import ImplicitQuantiles
from rllib.models.memory.spec import Memory
from rllib.models.observations.flat_spaces import values_of_leaves
from rllib.models.residual.spec import Residual
from rllib.models.user.model_v2 import ModelV2Spec, RecurrentNetwork, TorchFC
from rllib.models.user.module import CustomSpec, RecurrentSpec
from rllib.models.user.user_model import UserModelSpec
from rllib.policies import PolicySpec
from rllib.serving.export import FORMATS, checked_format, export_policy, export_weights
from rllib.serving.exported_policy import ExportedPolicy, ExportError
from tests.algorithms.test_custom_networks import Cell, Net, Q
from tests.algorithms.test_recall import RecurrentPPO
from tests.core.test_modules import Lstm, Mlp
from tests.envs import MaskedProbe, MatchParts, MatchPicture, SampledEnv, StructuredProbe

torch.set_num_threads(1)
SMALL = {"fcnet_hiddens": [16]}
FEW_ROWS = {"train_batch_size": 100, "sgd_minibatch_size": 50, "num_sgd_iter": 2}


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


class CellOfParts(Cell):
    """Reads one part of an observation that has a mask as well."""

    def __init__(self, observation_space, action_space, num_outputs):
        super().__init__(observation_space["observations"], action_space, num_outputs)

    def forward(self, observation, state):
        return super().forward(observation["observations"], state)


class Remembering(RecurrentNetwork, torch.nn.Module):
    """A network for RLlib's TorchModelV2 with a GRU."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        torch.nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.gru = torch.nn.GRU(obs_space.shape[0], 8, batch_first=True)
        self.policy, self.value = torch.nn.Linear(8, num_outputs), torch.nn.Linear(8, 1)

    def get_initial_state(self):
        return [torch.zeros(8)]

    def forward_rnn(self, inputs, state, seq_lens):
        self.features, state = self.gru(inputs, state[0][None])
        return self.policy(self.features), [state[0]]

    def value_function(self):
        return self.value(self.features).reshape(-1)


def ppo(**model):
    return PPOConfig().training(**FEW_ROWS, model={**SMALL, **model})


def masked_beside(source, config):
    return config.environment(MaskedProbe, env_config={"mask": source}, action_mask_from=source)


def residual(network):
    model = {"network": network, "fcnet_hiddens": [16]}
    return SACConfig().environment("Pendulum-v1").training(model=model, num_steps_sampled_before_learning_starts=100)


def sampled(space, action_space):
    return ppo().environment(SampledEnv, env_config={"space": space, "action_space": action_space})


def custom(model, **settings):
    """PPO with a network of the user's."""
    return PPOConfig().training(**FEW_ROWS, model={"custom_model": model, **settings})


def of_module(module):
    spec = RLModuleSpec(module_class=module, model_config={"width": 8})
    return PPOConfig().training(**FEW_ROWS).rl_module(rl_module_spec=spec).environment("CartPole-v1")


def action_values(config=None, model=None, **training):
    training |= {"model": model or SMALL, "num_steps_sampled_before_learning_starts": 100}
    return (config or DQNConfig()).training(**training).environment("CartPole-v1")


RECORDED = Path(__file__).parents[1] / "data/offline/pendulum_small.json"
CASES = {
    "filter": lambda: ppo().rollouts(observation_filter="MeanStdFilter").environment("CartPole-v1"),
    "one-hot": lambda: ppo().environment("FrozenLake-v1"),
    "images": lambda: ppo(fcnet_hiddens=[], conv_filters=[[4, [4, 4], 2]]).environment(MatchPicture),
    "lstm": lambda: ppo(use_lstm=True, lstm_cell_size=8, vf_share_layers=False).environment("CartPole-v1"),
    "gru": lambda: ppo(use_gru=True, lstm_cell_size=8).environment("Pendulum-v1"),
    "attention": lambda: ppo(
        use_attention=True,
        attention_num_transformer_units=2,
        attention_dim=8,
        attention_num_heads=2,
        attention_head_dim=4,
        attention_memory_inference=6,
        attention_memory_training=6,
        vf_share_layers=False,
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
    "filter and lstm": lambda: (
        ppo(use_lstm=True, lstm_cell_size=8).rollouts(observation_filter="MeanStdFilter").environment("CartPole-v1")
    ),
    "ignored keys": lambda: ppo().environment(MatchParts, ignore_observation_keys=["goal"]),
    "keys of the value": lambda: ppo(vf_share_layers=False).environment(MatchParts, critic_observation_keys=["goal"]),
    "choices that begin at 3": lambda: sampled(gymnasium.spaces.Discrete(4, start=3), gymnasium.spaces.Discrete(2, 5)),
    "float64": lambda: sampled(gymnasium.spaces.Box(-2, 2, (3,), np.float64), gymnasium.spaces.Box(-4, 4, (2,))),
    "bits": lambda: sampled(gymnasium.spaces.MultiBinary(5), gymnasium.spaces.MultiBinary(3)),
    "bounds": lambda: ppo(free_log_std=True).environment("Pendulum-v1"),
    "squashed": lambda: SACConfig().environment("Pendulum-v1"),
    "residual blocks": lambda: residual("simba"),
    "residual blocks on the sphere, filter": lambda: residual("simbav2"),
    "squashed, gru and the action before": lambda: (
        SACConfig()
        .training(model={"use_gru": True, "lstm_cell_size": 8, "lstm_use_prev_action": True, "fcnet_hiddens": []})
        .environment("Pendulum-v1")
    ),
    "means within the bounds": lambda: (
        IQLConfig().environment("Pendulum-v1").offline_data(input_=str(RECORDED)).training(model={"fcnet_hiddens": [8]})
    ),
    "deterministic": lambda: TD3Config().environment("Pendulum-v1"),
    "quantiles": lambda: DQNConfig().training(num_quantiles=3).environment("CartPole-v1"),
    "atoms and noise": lambda: DQNConfig().training(num_atoms=3, noisy=True).environment("CartPole-v1"),
    "dueling": lambda: DQNConfig().training(dueling=True).environment("CartPole-v1"),
    "dueling, atoms and noise": lambda: action_values(dueling=True, num_atoms=3, noisy=True),
    "implicit quantiles": lambda: action_values(num_quantiles=4, implicit_quantiles=True),
    "action values and lstm": lambda: action_values(R2D2Config(), {**SMALL, "use_lstm": True, "lstm_cell_size": 8}),
    "state-dependent noise": lambda: ppo(use_sde=True).environment("Pendulum-v1"),
    "batch renormalisation": lambda: CrossQConfig().environment("Pendulum-v1"),
    "custom": lambda: custom(Net).environment("CartPole-v1"),
    "custom action values": lambda: action_values(model={"custom_model": Q}, num_atoms=3),
    "custom actor": lambda: SACConfig().training(policy_model_config={"custom_model": Q}).environment("Pendulum-v1"),
    "custom memory": lambda: custom(Cell).environment("CartPole-v1"),
    "custom memory and mask": lambda: masked_beside("info", custom(CellOfParts)),
    "custom memory, filter": lambda: (
        custom(Cell).rollouts(observation_filter="MeanStdFilter").environment("CartPole-v1")
    ),
    "custom action values by a memory": lambda: action_values(R2D2Config(), {"custom_model": Cell}),
    "TorchModelV2 and parts": lambda: custom(TorchFC, fcnet_hiddens=[16]).environment(MatchParts),
    "TorchModelV2 with a memory": lambda: custom(Remembering).environment("CartPole-v1"),
    "RLModule": lambda: of_module(Mlp),
    "RLModule with a memory": lambda: of_module(Lstm),
    "an algorithm's own memory": lambda: (
        AlgorithmConfig(algo_class=RecurrentPPO).training(**FEW_ROWS).environment("CartPole-v1")
    ),
}
# Architecture -> cases with it.
OF_ARCHITECTURES = {
    Dense: ("bounds", "state-dependent noise", "batch renormalisation"),
    Residual: ("residual blocks",),
    Memory: ("lstm", "gru"),
    Attention: ("attention",),
    ImplicitQuantiles: ("implicit quantiles",),
    UserModelSpec: ("custom", "custom action values", "custom actor", "custom memory"),
    ModelV2Spec: ("TorchModelV2 and parts", "TorchModelV2 with a memory"),
    ModulePolicySpec: ("RLModule", "RLModule with a memory"),
    RecurrentSpec: ("an algorithm's own memory",),
}


def derived(kind):
    return {kind}.union(*map(derived, kind.__subclasses__()))


def test_all_architectures_are_here():
    of_users = {kind for kind in derived(UserArchitecture) if kind.__module__.startswith("rllib.")}
    # A group's actions are a Tuple, which is refused; the others are bases.
    assert {*ARCHITECTURES, *of_users} - {Group, UserArchitecture, CustomSpec} == set(OF_ARCHITECTURES)


@pytest.mark.parametrize("case", CASES)
def test_the_module_acts_as_the_policy(case, tmp_path, monkeypatch):
    """As torch computes it, which is quick; the programs made of it are compared below."""
    monkeypatch.setattr("rllib.serving.export.Torch.write", lambda module, path: path.write_bytes(b""))
    monkeypatch.setattr(
        "rllib.serving.export.Torch.load",
        lambda path, module: lambda inputs: [output.numpy() for output in module(*map(torch.from_numpy, inputs))],
    )
    with CASES[case]().build() as algo:
        for kind, cases in OF_ARCHITECTURES.items():
            assert case not in cases or type(algo.get_policy().spec.architecture) is kind
        if "filter" in case or case in ("lstm", "parts and masks", "mask and lstm"):
            algo.train()
        parity = export_policy(algo, tmp_path / "policy").parity
    assert parity.num_rows in (138, 1500)  # 64 or 20 of them met in the environment
    assert max(parity.max_error.values()) <= 1e-5
    assert parity.num_ties == 0


QUICK = {
    "torch": ("filter", "lstm"),
    "onnx": ("filter", "lstm", "images", "mask in the observation"),
    "torchscript": ("filter", "keys of the value", "bounds"),
}
# Formats with a memory's state among inputs and outputs.
WITH_STATE = ("torch", "onnx")
MEMORIES = "lstm", "gru", "attention", "memory", "the step before"
REMEMBERS = {name for name in CASES if any(word in name for word in MEMORIES)}


def program_case(format, case):
    return pytest.param(format, case, marks=[] if case in QUICK[format] else [pytest.mark.slow])


def needs(format):
    for name in ("onnx", "onnxruntime", "onnxscript") if format == "onnx" else ():
        pytest.importorskip(name, reason="the extra onnx is not installed")


PROGRAMS = [(format, case) for format in QUICK for case in CASES if format in WITH_STATE or case not in REMEMBERS]


@pytest.mark.parametrize("format, case", [program_case(format, case) for format, case in PROGRAMS])
def test_programs_act_as_the_policy(format, case, tmp_path):
    needs(format)
    with CASES[case]().build() as algo:
        if "filter" in case:
            algo.train()
        export = export_policy(algo, tmp_path / "policy", format)
    assert export.path.name == {"torch": "policy.pt2", "onnx": "policy.onnx", "torchscript": "policy.pt"}[format]
    described = json.loads((tmp_path / f"{export.path.name}.json").read_text())
    assert [port["name"] for port in described["inputs"]] == [port.name for port in export.inputs]
    assert described["parity"]["num_rows"] == export.parity.num_rows in (138, 1500)
    assert max(export.parity.max_error.values()) <= 1e-5
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([export.path.name, f"{export.path.name}.json"])


@pytest.mark.parametrize("format", ["torchscript", pytest.param("onnx", marks=pytest.mark.slow)])
def test_actions_can_be_the_only_output(format, tmp_path):
    """As programs of robots that were trained by rsl_rl call them: obs -> actions, after reset()."""
    needs(format)
    with CASES["keys of the value"]().rollouts(observation_filter="MeanStdFilter").build() as algo:
        export = export_policy(algo, tmp_path / "policy", format, only_actions=True)
        with CASES["bounds"]().build() as other:
            names = [port.name for port in ExportedPolicy(other, "default_policy", True).inputs]
    assert [port.name for port in export.outputs] == ["actions"] and names == ["obs"]
    if format == "torchscript":
        program = torch.jit.load(str(export.path))
        program.reset()
        rows = [torch.zeros(3, *port.shape, dtype=getattr(torch, port.dtype)) for port in export.inputs]
        assert program(*rows).shape == (3, *export.outputs[0].shape)


def test_a_memory_is_refused_where_actions_are_the_only_output(tmp_path):
    with CASES["gru"]().build() as algo, pytest.raises(ExportError, match="has a memory, whose state is an input"):
        export_policy(algo, tmp_path / "policy", "torchscript")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- several agents


class TwoKinds(MultiAgentEnv):
    """Two agents of different spaces, one with a mask; nothing happens."""

    def __init__(self, config=None):
        super().__init__()
        self.agents = self.possible_agents = ["plain", "masked"]
        level = {"action_mask": gymnasium.spaces.MultiBinary(2), "level": gymnasium.spaces.Discrete(3)}
        self.observation_spaces = {
            "plain": gymnasium.spaces.Box(-1, 1, (4,), np.float32),
            "masked": gymnasium.spaces.Dict(level),
        }
        self.action_spaces = {"plain": gymnasium.spaces.Discrete(3), "masked": gymnasium.spaces.Discrete(2)}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._observations(), {}

    def step(self, actions):
        self.t += 1
        return self._observations(), dict.fromkeys(actions, 1.0), {"__all__": self.t == 5}, {"__all__": False}, {}

    def _observations(self):
        mask = np.array([1, self.t % 2], np.int8)
        return {"plain": np.full(4, self.t / 5, np.float32), "masked": {"action_mask": mask, "level": self.t % 3}}


@pytest.mark.parametrize("format", ["torch", pytest.param("onnx", marks=pytest.mark.slow)])
def test_each_of_several_policies_is_exported(format, tmp_path):
    needs(format)
    config = PPOConfig().training(**FEW_ROWS).environment(TwoKinds).rollouts(observation_filter="MeanStdFilter")
    policies = {
        "plain": PolicySpec(config={"model": {"custom_model": Cell}}),
        "masked": PolicySpec(config={"model": {**SMALL, "use_lstm": True, "lstm_cell_size": 8}}),
    }
    with config.multi_agent(policies=policies, policy_mapping_fn=lambda agent, *_, **__: agent).build() as algo:
        algo.train()
        exports = {name: export_policy(algo, tmp_path / name, format, policy_id=name) for name in policies}
    inputs = {name: [port.name for port in export.inputs] for name, export in exports.items()}
    assert inputs == {"plain": ["obs", "state_in"], "masked": ["obs.action_mask", "obs.level", "state_in"]}
    assert all(max(export.parity.max_error.values()) <= 1e-5 for export in exports.values())
    assert [export.parity.num_rows for export in exports.values()] == [1480, 1480]


# ---------------------------------------------------------------------- whole episodes


def evaluated(algo):
    """Returns of the first evaluation's 8 episodes, sorted, and the seeds of their environments, one for each."""
    returns = algo.evaluate(8)["hist_stats"]["episode_reward"]
    stream = seeding.EVALUATION_ENVIRONMENTS
    return sorted(returns), [seeding.environment_seed(algo.seed, stream, index, 1) for index in range(8)]


def loaded(export, format):
    """The file as a function of arrays."""
    if format == "torch":
        program = torch.export.load(export.path).module()
        return lambda inputs: [output.numpy() for output in program(*map(torch.from_numpy, inputs))]
    session = pytest.importorskip("onnxruntime").InferenceSession(export.path)
    names = [port.name for port in export.inputs]
    return lambda inputs: session.run(None, dict(zip(names, inputs)))


def episode(act, export, env, space, seed):
    """The return of one episode that the exported policy plays."""
    (observation, _), total, over = env.reset(seed=seed), 0.0, False
    ports = list(export.inputs)
    state = [np.zeros((1, *ports.pop().shape), np.float32)] if ports[-1].name == "state_in" else []
    while not over:
        leaves = values_of_leaves(space, observation)
        inputs = [np.asarray(leaf, port.dtype)[None] for leaf, port in zip(leaves, ports, strict=True)]
        action, *outputs = act([*inputs, *state])
        state = outputs[-1:] if state else []
        observation, reward, terminated, truncated, _ = env.step(action[0])
        total, over = total + float(reward), terminated or truncated
    return total


MASKS = "mask in the observation", "mask in the info", "mask and lstm"
PLAYED = ("filter", "lstm", "custom memory", "images", "filter and parts", *MASKS)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["torch", "onnx"])
@pytest.mark.parametrize("case", PLAYED)
def test_the_exported_policy_gets_the_returns_of_evaluate(format, case, tmp_path):
    needs(format)
    with CASES[case]().debugging(seed=1).build() as algo:
        algo.train()
        expected, seeds = evaluated(algo)
        export = export_policy(algo, tmp_path / "policy", format)
        factory = adapted(playable_environment(algo.config), adapters_of(algo.config))
        act, space = loaded(export, format), algo.observation_space
        envs = [factory.make(EnvContext(algo.config.env_config)) for _ in seeds]
        assert sorted(episode(act, export, env, space, seed) for env, seed in zip(envs, seeds)) == expected


def test_whole_episodes_of_a_file_without_rllib(tmp_path):
    """In a process that has torch and gymnasium alone, with the returns of an evaluation's own episodes."""
    program = tmp_path / "act.py"
    program.write_text(
        "import sys, gymnasium, torch\n"
        "policy = torch.export.load(sys.argv[1]).module()\n"
        "env = gymnasium.make('CartPole-v1')\n"
        "for seed in map(int, sys.argv[2:]):\n"
        "    (obs, _), total, over = env.reset(seed=seed), 0.0, False\n"
        "    while not over:\n"
        "        action = policy(torch.from_numpy(obs)[None])[0]\n"
        "        obs, reward, terminated, truncated, _ = env.step(int(action))\n"
        "        total, over = total + reward, terminated or truncated\n"
        "    print(total)\n"
        "assert 'rllib' not in sys.modules\n"
    )
    with CASES["filter"]().debugging(seed=1).build() as algo:
        algo.train()
        expected, seeds = evaluated(algo)
        path = export_policy(algo, tmp_path / "policy").path
    found = subprocess.run(
        [sys.executable, program, path, *map(str, seeds)], capture_output=True, text=True, check=True
    )
    assert sorted(map(float, found.stdout.split())) == expected and len(set(expected)) > 1


# ---------------------------------------------------------------------- weights by name


def tower(size):
    return torch.nn.ModuleDict({"hidden_0": torch.nn.Linear(4, 16), "head": torch.nn.Linear(16, size)})


def test_weights_with_a_filter_make_a_torch_module(tmp_path):
    module = torch.nn.ModuleDict({"policy": tower(2), "value": tower(1)})
    rows = np.random.default_rng(1).uniform(-0.4, 0.4, (9, 4)).astype(np.float32)
    with CASES["filter"]().build() as algo:
        algo.train()
        tensors = load_file(export_weights(algo.get_policy(), tmp_path / "weights"))
        fetches = algo.compute_actions(rows, explore=False, full_fetch=True)[2]
    count, mean, m2 = (tensors.pop(f"filter.{name}") for name in ("count", "mean", "m2"))
    module.load_state_dict(tensors)
    normal = ((torch.from_numpy(rows) - mean) / (m2 / count + 1e-8).sqrt()).clamp(-10, 10).float()
    with torch.no_grad():
        logits, values = (
            module[name]["head"](torch.tanh(module[name]["hidden_0"](normal))) for name in ("policy", "value")
        )
    np.testing.assert_allclose(logits, fetches["action_dist_inputs"], atol=1e-6)
    np.testing.assert_allclose(values[:, 0], fetches["vf_preds"], atol=1e-5)


def test_weights_of_a_memory_make_a_torch_module(tmp_path):
    shared = {"hidden_0": torch.nn.Linear(4, 16), "lstm": torch.nn.LSTM(16, 8)}
    heads = {name: {"head": torch.nn.Linear(8, size)} for name, size in (("policy", 2), ("value", 1))}
    module = torch.nn.ModuleDict(
        {name: torch.nn.ModuleDict(layers) for name, layers in {"shared": shared, **heads}.items()}
    )
    steps = np.random.default_rng(1).uniform(-0.4, 0.4, (5, 4)).astype(np.float32)
    with ppo(use_lstm=True, lstm_cell_size=8, vf_share_memory=True).environment("CartPole-v1").build() as algo:
        algo.train()
        module.load_state_dict(load_file(export_weights(algo.get_policy(), tmp_path / "weights")))
        state, expected = algo.get_policy().get_initial_state(), []
        for step in steps:
            _, state, fetches = algo.compute_single_action(step, state, explore=False, full_fetch=True)
            expected.append(fetches["action_dist_inputs"])
    with torch.no_grad():
        hidden, _ = module["shared"]["lstm"](torch.tanh(module["shared"]["hidden_0"](torch.from_numpy(steps))))
        logits = module["policy"]["head"](hidden)
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_weights_come_back_by_name(tmp_path):
    rows = np.random.default_rng(1).uniform(-0.4, 0.4, (9, 4)).astype(np.float32)
    with CASES["filter"]().build() as algo:
        algo.train()
        tensors = load_file(export_weights(algo.get_policy(), tmp_path / "weights"))
        expected = algo.compute_actions(rows, explore=False, full_fetch=True)[2]
    with CASES["filter"]().debugging(seed=2).build() as other:
        policy = other.get_policy()
        statistics = {name: tensors.pop(f"filter.{name}").numpy() for name in ("count", "mean", "m2")}
        assert policy.parameters().keys() == tensors.keys()
        for name, array in policy.parameters().items():
            array[...] = tensors[name]
        policy.filter.set_state(statistics)
        found = other.compute_actions(rows, explore=False, full_fetch=True)[2]
    for name in ("action_dist_inputs", "vf_preds"):
        np.testing.assert_array_equal(found[name], expected[name])


# ---------------------------------------------------------------------- what is refused


def test_an_export_that_differs_is_not_written(tmp_path, monkeypatch):
    def off(module, path):
        for leaf in module._network[0].leaves:
            leaf.mul_(1.01)
        path.write_bytes(b"")

    monkeypatch.setattr("rllib.serving.export.Torch.write", off)
    monkeypatch.setattr(
        "rllib.serving.export.Torch.load",
        lambda path, module: lambda inputs: [output.numpy() for output in module(*map(torch.from_numpy, inputs))],
    )
    with CASES["bounds"]().build() as algo, pytest.raises(ExportError, match="the export differs"):
        export_policy(algo, tmp_path / "policy")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("format", ["torch", "onnx", "torchscript"])
def test_a_full_disk_is_an_error_that_names_the_file(format, tmp_path, monkeypatch):
    """Written by torch itself, the file would end the process."""
    needs(format)
    path = (tmp_path / "policy").with_suffix(FORMATS[format].suffix)

    def full(dir, prefix):
        draft = tmp_path / "draft"
        draft.mkdir()
        (draft / path.name).symlink_to("/dev/full")
        return contextlib.nullcontext(draft)

    monkeypatch.setattr("rllib.serving.export.tempfile.TemporaryDirectory", full)
    with ppo().environment("CartPole-v1").build() as algo, pytest.raises(OSError) as caught:
        export_policy(algo, path, format)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert not path.exists()


def test_what_cannot_be_exported_is_named(tmp_path):
    with ppo().environment(StructuredProbe).build() as algo:
        with pytest.raises(ExportError, match=r"its actions are of the space Dict.*rllib.load_policy"):
            ExportedPolicy(algo, "default_policy")
        with pytest.raises(ExportError, match="format must be one of torch, onnx, torchscript, but got 'tflite'"):
            export_policy(algo, tmp_path / "policy", "tflite")


@pytest.mark.parametrize(
    ("name", "format", "expected"),
    [
        ("policy", None, "torch"), ("policy.pt2", None, "torch"), ("policy.onnx", None, "onnx"),
        ("policy.pt", None, "torchscript"), ("policy.v1", None, "torch"), ("policy.v1", "onnx", "onnx"),
        ("policy.pt", "torchscript", "torchscript"),
    ],
)  # fmt: skip
def test_the_format_is_that_of_the_suffix(name, format, expected):
    assert checked_format(name, format) == expected


@pytest.mark.parametrize(("name", "format"), [("policy.onnx", "torch"), ("policy.PT", "onnx"), ("policy.pt2", "onnx")])
def test_a_suffix_of_another_format_is_refused(name, format, tmp_path):
    told = rf"format='{format}' writes .* files, but .*{name} ends as those of"
    with ppo().environment("CartPole-v1").build() as algo:
        with pytest.raises(ExportError, match=told):
            export_policy(algo, tmp_path / name, format)
        for weights in ((tmp_path / "policy.safetensors", format), (tmp_path / "policy", "safetensors")):
            with pytest.raises(ExportError, match=r"safetensors files have weights alone. export_weights\("):
                export_policy(algo, *weights)
        with pytest.raises(ExportError, match="this writes weights alone"):
            export_weights(algo.get_policy(), tmp_path / name)
    assert not list(tmp_path.iterdir())


class ByLength(Net):
    def forward(self, observation):
        return super().forward(observation.reshape(len(observation), -1))


@pytest.mark.parametrize("format", ["torch", "torchscript"])
def test_a_network_for_one_number_of_rows_is_named(format, tmp_path):
    advice = pytest.raises(ExportError, match=r"cannot be exported in this format: .*x\.shape\[0\] instead of len")
    with custom(ByLength).environment("CartPole-v1").build() as algo, advice:
        export_policy(algo, tmp_path / "policy", format)
    assert not list(tmp_path.iterdir())


class Unknown(Net):
    def forward(self, observation):
        dist_inputs, values = super().forward(observation)
        return torch.special.i1e(dist_inputs), values


@pytest.mark.slow
def test_an_operation_that_onnx_lacks_is_named(tmp_path):
    needs("onnx")
    cause = pytest.raises(ExportError, match=r"cannot be exported in this format: No ONNX function found.*i1e")
    with custom(Unknown).environment("CartPole-v1").build() as algo, cause:
        export_policy(algo, tmp_path / "policy", "onnx")
    assert not list(tmp_path.iterdir())


class Stuck(MaskedProbe):
    """From some time on no action is legal."""

    is_stuck = False

    def reset(self, **given):
        observation, info = super().reset(**given)
        if self.is_stuck:
            observation["action_mask"][:] = 0
        return observation, info


def test_an_environment_without_a_legal_action_is_named(tmp_path, monkeypatch):
    with ppo().environment(Stuck).build() as algo:
        monkeypatch.setattr(Stuck, "is_stuck", True)
        with pytest.raises(ExportError, match=r"no action is legal: the action mask is \[0"):
            export_policy(algo, tmp_path / "policy", "torchscript")


def test_other_things_than_algorithms_and_policies_are_refused(tmp_path):
    with PPOConfig().environment("CartPole-v1").training(model={"fcnet_hiddens": [4]}).build() as algo:
        checkpoint = algo.save(tmp_path / "checkpoint")
        for wrong in (load_policy(checkpoint), str(checkpoint), algo.get_policy()):
            with pytest.raises(TypeError, match=r"export_policy takes an algorithm.*from_checkpoint"):
                export_policy(wrong, tmp_path / "policy")
        for wrong in (load_policy(checkpoint), str(checkpoint), algo):
            with pytest.raises(TypeError, match=r"export_weights takes a policy.*get_policy"):
                export_weights(wrong, tmp_path / "weights")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with CASES["bounds"]().build() as algo, pytest.raises(ImportError, match=r"needs the extra onnx.*\[onnx\]"):
        export_policy(algo, tmp_path / "policy", "onnx")
