"""Checkpoints of Ray RLlib as checkpoints: the outputs of real ones, and what is refused."""

import json
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rllib import Algorithm, import_ray, load_policy
from rllib.cli import command
from rllib.storage.checkpoint import CheckpointError

DATA = Path(__file__).parents[2] / "data" / "ray"
GOLDEN = np.load(DATA / "golden.npz")
NAMES = sorted({key.partition("/")[0] for key in GOLDEN.files})


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Name -> the imported checkpoint, made once."""
    directory, made = tmp_path_factory.mktemp("imported"), {}

    def get(name: str):
        if name not in made:
            made[name] = import_ray(DATA / name, directory / name)
        return made[name]

    return get


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_the_network(name, imported):
    policy = load_policy(imported(name).path).policy
    stored = policy.filter(GOLDEN[f"{name}/obs"])
    found = policy.action_values(stored).q_values() if name.startswith("dqn") else policy.dist_inputs(stored)
    np.testing.assert_allclose(found, GOLDEN[f"{name}/outputs"], atol=1e-4)
    if f"{name}/values" in GOLDEN.files:
        np.testing.assert_allclose(policy.values(stored), GOLDEN[f"{name}/values"], atol=1e-4)


def test_settings_and_steps_go_on(imported):
    made = imported("ppo_new")
    assert (made.algorithm, made.env) == ("PPO", "CartPole-v1")
    assert made.timesteps >= 64
    with Algorithm.from_checkpoint(made.path) as algo:
        assert (algo.config.gamma, algo.config.lr) == (0.9, 1e-3)
        assert algo.config.model["fcnet_activation"] == "relu"
        assert algo.timesteps == made.timesteps


@pytest.mark.parametrize("name", ["ppo_new_shared", "ppo_old", "dqn_new"])
def test_a_checkpoint_learns_on(name, imported):
    with Algorithm.from_checkpoint(imported(name).path) as algo:
        before = algo.timesteps
        assert algo.train()["timesteps_total"] > before


def test_what_is_not_carried_over_is_said(imported):
    assert any("critics" in sentence for sentence in imported("sac_new").left_out)
    assert not any("critics" in sentence for sentence in imported("ppo_old").left_out)
    assert any("shared" in sentence for sentence in imported("ppo_new_shared").left_out)


# ---------------------------------------------------------------------- Ray 2.6, put together here


def relu(rows, weights: dict, name: str) -> np.ndarray:
    return np.maximum(linear(rows, weights, name), 0)


def linear(rows, weights: dict, name: str) -> np.ndarray:
    return rows @ weights[f"{name}._model.0.weight"].T + weights[f"{name}._model.0.bias"]


class _Rays:
    """Classes of Ray's by name, so that they can be pickled without it."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch

    def __call__(self, path: str, **attributes):
        module, _, name = path.rpartition(".")
        made = type(name, (), {"__module__": module, "__qualname__": name})
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            package = ".".join(parts[:end])
            if package not in sys.modules:
                self._monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
        self._monkeypatch.setattr(sys.modules[module], name, made, raising=False)
        value = made()
        value.__dict__.update(attributes)
        return value


def slim(rng, name: str, before: int, width: int) -> dict:
    return {
        f"{name}._model.0.weight": rng.normal(size=(width, before)).astype(np.float32),
        f"{name}._model.0.bias": rng.normal(size=width).astype(np.float32),
    }


def weights_of_ray_2_6(rng) -> dict:
    return {
        **slim(rng, "_hidden_layers.0", 4, 8),
        **slim(rng, "_value_branch_separate.0", 4, 8),
        **slim(rng, "_logits", 8, 2),
        **slim(rng, "_value_branch", 8, 1),
    }


def write_ray_2_6(path: Path, weights: dict, monkeypatch, model=None, **state) -> Path:
    rays = _Rays(monkeypatch)
    count, mean, squares = 5, np.arange(4.0), np.full(4, 8.0)
    stat = rays("ray.rllib.utils.filter.RunningStat", _n=count, _M=mean, _S=squares)
    given = {"demean": True, "destd": True, "clip": None, "rs": stat, "shape": np.array([4])}
    filtered = rays("ray.rllib.utils.filter.MeanStdFilter", **given)
    algorithm = type(rays("ray.rllib.algorithms.ppo.ppo.PPO"))
    config = rays("ray.rllib.algorithms.ppo.ppo.PPOConfig", env="CartPole-v1", gamma=0.95, sgd_minibatch_size=64)
    spec = {"policy_class": "PPOTorchPolicy", "config": {"model": {"fcnet_activation": "tanh", **(model or {})}}}
    policy = {"weights": weights, "policy_spec": spec, "global_timestep": 100, "_optimizer_variables": []}
    whole = {
        "algorithm_class": algorithm,
        "config": config,
        "worker": {"filters": {"default_policy": filtered}, "policy_mapping_fn": algorithm},
        "counters": {"num_env_steps_sampled": 100},
        **state,
    }
    (path / "policies/default_policy").mkdir(parents=True)
    (path / "policies/default_policy/policy_state.pkl").write_bytes(pickle.dumps(policy))
    (path / "algorithm_state.pkl").write_bytes(pickle.dumps(whole))
    metadata = {"type": "Algorithm", "checkpoint_version": "1.1", "format": "cloudpickle", "ray_version": "2.6.3"}
    (path / "rllib_checkpoint.json").write_text(json.dumps(metadata))
    return path


def test_a_checkpoint_of_ray_2_6(tmp_path, monkeypatch):
    weights = weights_of_ray_2_6(np.random.default_rng(0))
    made = import_ray(write_ray_2_6(tmp_path / "ray", weights, monkeypatch), tmp_path / "made")
    assert (made.algorithm, made.env, made.timesteps) == ("PPO", "CartPole-v1", 100)
    policy = load_policy(made.path).policy
    observations = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32) * 20
    # Ray divides by the deviation of the sample, sqrt(8 / 4), and clips nothing.
    seen = (observations - np.arange(4.0)) / (np.sqrt(2.0) + 1e-8)
    np.testing.assert_allclose(policy.filter(observations), seen, rtol=1e-5)
    hidden = np.tanh(seen @ weights["_hidden_layers.0._model.0.weight"].T + weights["_hidden_layers.0._model.0.bias"])
    expected = hidden @ weights["_logits._model.0.weight"].T + weights["_logits._model.0.bias"]
    np.testing.assert_allclose(policy.dist_inputs(policy.filter(observations)), expected, atol=1e-4)


def test_a_module_in_a_policy_of_ray_2_6(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    weights = {}
    for name, inputs, outputs in (
        *(("encoder.actor_encoder", 4, 8), ("encoder.critic_encoder", 4, 8), ("pi", 8, 2), ("vf", 8, 1)),
    ):
        weights[f"{name}.net.mlp.0.weight"] = rng.normal(size=(outputs, inputs)).astype(np.float32)
        weights[f"{name}.net.mlp.0.bias"] = rng.normal(size=outputs).astype(np.float32)
    path = write_ray_2_6(tmp_path / "ray", weights, monkeypatch, worker={})
    rows = rng.normal(size=(5, 4)).astype(np.float32)
    policy = load_policy(import_ray(path, tmp_path / "made").path).policy
    encoded = np.tanh(
        rows @ weights["encoder.actor_encoder.net.mlp.0.weight"].T + weights["encoder.actor_encoder.net.mlp.0.bias"]
    )
    expected = encoded @ weights["pi.net.mlp.0.weight"].T + weights["pi.net.mlp.0.bias"]
    np.testing.assert_allclose(policy.dist_inputs(rows), expected, atol=1e-4)


def test_dueling_streams_of_ray_2_6(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    weights = {
        **slim(rng, "_hidden_layers.0", 4, 8), **slim(rng, "_hidden_layers.1", 8, 6),
        **slim(rng, "_value_branch", 6, 1),
        **slim(rng, "advantage_module.dueling_A_0", 6, 5), **slim(rng, "advantage_module.A", 5, 2),
        **slim(rng, "value_module.dueling_V_0", 6, 5), **slim(rng, "value_module.V", 5, 1),
    }  # fmt: skip
    dqn = type(_Rays(monkeypatch)("ray.rllib.algorithms.dqn.dqn.DQN"))
    config = {"env": "CartPole-v1", "num_atoms": 1}
    path = write_ray_2_6(tmp_path / "ray", weights, monkeypatch, algorithm_class=dqn, config=config, worker={})
    policy = load_policy(import_ray(path, tmp_path / "made").path).policy
    rows = rng.normal(size=(5, 4)).astype(np.float32)
    hidden = np.tanh(linear(np.tanh(linear(rows, weights, "_hidden_layers.0")), weights, "_hidden_layers.1"))
    advantages = linear(relu(hidden, weights, "advantage_module.dueling_A_0"), weights, "advantage_module.A")
    value = linear(relu(hidden, weights, "value_module.dueling_V_0"), weights, "value_module.V")
    expected = value + advantages - advantages.mean(1, keepdims=True)
    np.testing.assert_allclose(policy.action_values(rows).q_values(), expected, atol=1e-4)


def test_actor_and_critics_of_ray_2_6(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    weights = {"log_alpha": np.array([-1.0], np.float32), "target_entropy": np.array([-1.0], np.float32)}
    for name, inputs, outputs in (("action_model", 3, 2), ("q_net", 4, 1), ("twin_q_net", 4, 1)):
        weights |= slim(rng, f"{name}._hidden_layers.0", inputs, 8) | slim(rng, f"{name}._logits", 8, outputs)
        weights |= slim(rng, f"{name}._value_branch", 8, 1)
    sac = type(_Rays(monkeypatch)("ray.rllib.algorithms.sac.sac.SAC"))
    config = {"env": "Pendulum-v1", "policy_model_config": {"fcnet_activation": "relu"}}
    path = write_ray_2_6(tmp_path / "ray", weights, monkeypatch, algorithm_class=sac, config=config, worker={})
    made = import_ray(path, tmp_path / "made")
    rows = rng.normal(size=(5, 3)).astype(np.float32)
    expected = linear(relu(rows, weights, "action_model._hidden_layers.0"), weights, "action_model._logits")
    np.testing.assert_allclose(load_policy(made.path).policy.dist_inputs(rows), expected, atol=1e-4)
    with Algorithm.from_checkpoint(made.path) as algo:
        critics = algo.learners["default_policy"].vector.named_parameters("critics")
        hidden = weights["twin_q_net._hidden_layers.0._model.0.weight"]
        np.testing.assert_array_equal(critics["1.hidden_0.weight"], hidden)
        np.testing.assert_array_equal(critics["0.head.bias"], weights["q_net._logits._model.0.bias"])
        assert algo.trainee.temperature.alpha == pytest.approx(np.exp(-1.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"custom_model": "mine"}}, "is a custom_model"),
        ({"model": {"fcnet_activation": "softsign"}}, "fcnet_activation 'softsign'"),
        ({"weights": {"lstm.weight_ih_l0": np.ones(3)}}, "lstm.weight_ih_l0"),
        ({"weights": {"_convs.0._model.0.weight": np.ones((1, 1, 2, 2))}}, "_convs.0._model.0.weight"),
        ({"weights": {"_logits._model.0.weight": np.ones((3, 8)), "_logits._model.0.bias": np.ones(3)}}, "must match"),
        ({"weights": {"_logits._model.0.weight": np.full((2, 8), np.inf)}}, "other things than finite numbers"),
        ({"weights": {"_logits._model.0.weight": "text"}}, "no arrays by name"),
        ({"config": None}, "does not name its environment"),
        ({"algorithm_class": None}, None),
    ],
)
def test_what_is_refused(change, message, tmp_path, monkeypatch):
    weights = weights_of_ray_2_6(np.random.default_rng(0)) | change.pop("weights", {})
    path = write_ray_2_6(tmp_path / "ray", weights, monkeypatch, **change)
    if message is None:  # the policy's class names the algorithm as well
        assert import_ray(path, tmp_path / "made").algorithm == "PPO"
        return
    with pytest.raises(ValueError, match=message):
        import_ray(path, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_an_algorithm_that_is_not_taken(tmp_path, monkeypatch):
    rays = _Rays(monkeypatch)
    marwil = type(rays("ray.rllib.algorithms.marwil.marwil.MARWIL"))
    weights = weights_of_ray_2_6(np.random.default_rng(0))
    path = write_ray_2_6(tmp_path / "ray", weights, monkeypatch, algorithm_class=marwil)
    with pytest.raises(ValueError, match="is of MARWIL, and checkpoints of PPO, IMPALA"):
        import_ray(path, tmp_path / "made")


def test_a_network_of_the_users_own(tmp_path, monkeypatch):
    path = tmp_path / "ray"
    for file in (DATA / "ppo_new").rglob("*"):
        if file.is_file():
            place = path / file.relative_to(DATA / "ppo_new")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
    mine = type(_Rays(monkeypatch)("mine.networks.Net"))
    made = {"class": mine, "ctor_args_and_kwargs": ((), {})}
    (path / "learner_group/learner/rl_module/default_policy/class_and_ctor_args.pkl").write_bytes(pickle.dumps(made))
    with pytest.raises(ValueError, match=r"a class of your own, mine\.networks\.Net"):
        import_ray(path, tmp_path / "made")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "it has neither policies/ nor learner_group"),
        ({"rllib_checkpoint.json": b"{"}, "it is not JSON"),
        ({"rllib_checkpoint.json": b'{"format": "msgpack"}'}, "is in msgpack"),
        ({"policies/other/policy_state.pkl": b""}, "has no policy 'default_policy', but other"),
        ({"policies/default_policy/x": b""}, "has no policies/default_policy/policy_state.pkl"),
        ({"policies/default_policy/policy_state.pkl": pickle.dumps(3)}, "holds no weights"),
    ],
)
def test_what_is_no_checkpoint(files, message, tmp_path):
    path = tmp_path / "ray"
    path.mkdir()
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        import_ray(path, tmp_path / "made")


# ---------------------------------------------------------------------- the command


def run(*words: str):
    return CliRunner().invoke(command, list(map(str, words)))


def test_command_makes_a_run_that_goes_on(tmp_path):
    done = run("import-ray", DATA / "ppo_old", "-o", tmp_path / "run", "train_batch_size=64")
    assert done.exit_code == 0, done.output
    assert "imported    PPO on CartPole-v1" in done.output
    done = run("train", "--resume", tmp_path / "run", "--stop", "iterations=1", "-q")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "checkpoint_000001").is_dir()


@pytest.mark.parametrize("words", [("evaluate",), ("train", "--resume")])
def test_commands_name_the_import_for_a_checkpoint_of_ray(words):
    done = run(*words, DATA / "ppo_old")
    assert done.exit_code == 2
    assert "rllib import-ray" in done.output


def test_load_policy_names_the_import_for_a_checkpoint_of_ray():
    with pytest.raises(CheckpointError, match="rllib import-ray"):
        load_policy(DATA / "ppo_new")
