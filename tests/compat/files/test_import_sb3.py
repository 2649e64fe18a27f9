"""Models of Stable-Baselines3 as checkpoints: the actions, values and targets of real zips, and what is refused."""

import io
import json
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from gymnasium import spaces

import rllib
from rllib import Algorithm, import_sb3, load_policy
from rllib.cli import command
from tests.compat.files.sb3_models import DATA, box, changed, discrete, layers, linear, write_zip

GOLDEN = np.load(DATA / "golden.npz")


class Parts(gym.Env):
    """The environment of ppo_parts.zip."""

    observation_space = spaces.Dict(
        {
            "goal": spaces.Box(-1, 1, (2,), np.float32),
            "at": spaces.Box(-1, 1, (3,), np.float32),
            "mode": spaces.Discrete(2),
        }
    )
    action_space = spaces.MultiBinary(3)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}


class Choices(Parts):
    """The environment of ppo_choices.zip."""

    observation_space = spaces.Discrete(5)
    action_space = spaces.MultiDiscrete([3, 2])


class Picture(Parts):
    """A small picture."""

    observation_space = spaces.Box(0, 255, (36, 40, 3), np.uint8)
    action_space = spaces.Discrete(4)


ENVS = {
    "ppo_cartpole": "CartPole-v1",
    "ppo_pendulum": "Pendulum-v1",
    "ppo_sde": "Pendulum-v1",
    "ppo_parts": Parts,
    "ppo_choices": Choices,
    "a2c_cartpole": "CartPole-v1",
    "dqn_cartpole": "CartPole-v1",
    "sac_pendulum": "Pendulum-v1",
    "sac_sde": "Pendulum-v1",
    "td3_pendulum": "Pendulum-v1",
    "ddpg_pendulum": "Pendulum-v1",
}
NAMES = list(ENVS)


def observations(name: str) -> list:
    """The observations of golden.npz, one by one."""
    prefix = f"{name}/obs/"
    found = {key.removeprefix(prefix): GOLDEN[key] for key in GOLDEN.files if key.startswith(prefix)}
    if "" in found:
        return list(found[""])
    return [dict(zip(found, row)) for row in zip(*found.values())]


def encoded(rows: np.ndarray) -> np.ndarray:
    """Rows as critics read them, closed by a 1."""
    return np.concatenate([rows, np.ones((len(rows), 1), np.float32)], 1)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Name -> the imported model, made once."""
    directory, made = tmp_path_factory.mktemp("imported"), {}

    def get(name: str):
        if name not in made:
            made[name] = import_sb3(DATA / f"{name}.zip", directory / name, env=ENVS[name])
        return made[name]

    return get


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_those_of_the_model(name, imported):
    policy = load_policy(imported(name).path)
    actions = [policy.compute_single_action(each, explore=False) for each in observations(name)]
    np.testing.assert_allclose(np.array(actions), GOLDEN[f"{name}/actions"], atol=2e-6)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("ppo", "a2c"))])
def test_values_are_those_of_the_model(name, imported):
    with Algorithm.from_checkpoint(imported(name).path) as algo:
        policy = algo.policies["default_policy"]
        stored = np.stack([spaces.flatten(algo.observation_space, each) for each in observations(name)])
        if isinstance(algo.observation_space, spaces.Discrete):
            stored = np.array(observations(name))
        np.testing.assert_allclose(policy.values(stored), GOLDEN[f"{name}/values"], atol=1e-5)


def test_action_values_and_their_target_are_those_of_the_model(imported):
    with Algorithm.from_checkpoint(imported("dqn_cartpole").path) as algo:
        stored = np.stack(observations("dqn_cartpole"))
        for policy, key in ((algo.policies["default_policy"], "values"), (algo.trainee.target, "target_values")):
            found = policy.action_values(stored).q_values()
            np.testing.assert_allclose(found, GOLDEN[f"dqn_cartpole/{key}"], atol=1e-5)
        different = GOLDEN["dqn_cartpole/values"] - GOLDEN["dqn_cartpole/target_values"]
        assert np.abs(different).max() > 1e-4, "the test needs a target that differs"


@pytest.mark.parametrize("name", ["sac_pendulum", "sac_sde", "td3_pendulum", "ddpg_pendulum"])
def test_critics_and_their_targets_are_those_of_the_model(name, imported):
    with Algorithm.from_checkpoint(imported(name).path) as algo:
        learner = algo.learners["default_policy"]
        layout = learner.vector.layouts["critics"]
        module = learner.vector.modules["critics"]
        inputs = {"observation": encoded(np.stack(observations(name))), "action": GOLDEN[f"{name}/judged"]}
        for weights, key in (
            (learner.vector["critics"], "values"),
            (learner.targets["critics"].weights, "target_values"),
        ):
            critics = module.torch(layout, torch.from_numpy(weights.copy()))
            with torch.no_grad():
                found = critics(*(torch.from_numpy(inputs[each]) for each in module.reads))
            np.testing.assert_allclose(found.numpy().reshape(len(found), -1).T, GOLDEN[f"{name}/{key}"], atol=1e-4)


def test_temperature_and_steps_go_on(imported):
    made = imported("sac_pendulum")
    with zipfile.ZipFile(DATA / "sac_pendulum.zip") as archive:
        log_alpha = torch.load(io.BytesIO(archive.read("pytorch_variables.pth")), weights_only=True)["log_ent_coef"]
    assert made.timesteps >= 64
    with Algorithm.from_checkpoint(made.path) as algo:
        assert algo.trainee.temperature.alpha == pytest.approx(float(log_alpha.detach().exp()))
        assert algo.timesteps == made.timesteps
    with Algorithm.from_checkpoint(imported("sac_sde").path) as algo:
        assert (algo.trainee.temperature.alpha, algo.config.alpha_lr) == (pytest.approx(0.2), 0.0)


def test_settings_are_those_of_the_model(imported):
    with Algorithm.from_checkpoint(imported("ppo_cartpole").path) as algo:
        config = algo.config
        assert (config.train_batch_size, config.sgd_minibatch_size, config.num_sgd_iter) == (64, 16, 2)
        assert (config.clip_param, config.lambda_, config.num_envs_per_worker) == (0.2, 0.95, 2)
    with Algorithm.from_checkpoint(imported("ppo_pendulum").path) as algo:
        assert (algo.config.lr, algo.config.lambda_) == (1e-3, 0.9)
        assert algo.config.model["fcnet_activation"] == "elu"


def test_settings_that_are_pickled(tmp_path):
    kind = "<class 'stable_baselines3.common.utils.FloatSchedule'>"
    clip = {":type:": kind, ":serialized:": "", "value_schedule": "ConstantSchedule(val=0.125)"}
    rate = {":type:": "<class 'function'>", ":serialized:": ""}
    model = changed(DATA / "ppo_cartpole.zip", tmp_path / "model.zip", clip_range=clip, learning_rate=rate)
    made = import_sb3(model, tmp_path / "made", env="CartPole-v1", config={"gamma": 0.5})
    assert any(sentence.startswith("learning_rate: pickled in the model") for sentence in made.left_out)
    with Algorithm.from_checkpoint(made.path) as algo:
        assert (algo.config.clip_param, algo.config.lr, algo.config.gamma) == (0.125, 3e-4, 0.5)


@pytest.mark.parametrize("name", ["ppo_pendulum", "dqn_cartpole", "sac_pendulum", "td3_pendulum"])
def test_a_model_learns_on(name, imported):
    overrides = {"train_batch_size": 64, "sgd_minibatch_size": 32} if name.startswith("ppo") else {}
    with Algorithm.from_checkpoint(imported(name).path, overrides) as algo:
        before = algo.timesteps
        result = algo.train()
        assert result["timesteps_total"] > before


def test_vecnormalize_becomes_the_filter(tmp_path):
    made = import_sb3(
        DATA / "ppo_normalized.zip", tmp_path / "made", env="Pendulum-v1", vecnormalize=DATA / "vecnormalize.pkl"
    )
    policy = load_policy(made.path)
    actions = [policy.compute_single_action(each, explore=False) for each in observations("ppo_normalized")]
    np.testing.assert_allclose(np.array(actions), GOLDEN["ppo_normalized/actions"], atol=5e-6)
    with Algorithm.from_checkpoint(made.path) as algo:
        assert algo.config.observation_clip == 5.0
        scale = algo.trainee.return_scale
        expected = -3.0 / np.sqrt(scale.variance + 1e-8)
        assert GOLDEN["ppo_normalized/reward"][0] == pytest.approx(expected, rel=1e-6)


def test_spaces_are_read_where_no_environment_is_named(tmp_path):
    made = import_sb3(DATA / "ppo_cartpole.zip", tmp_path / "made")
    policy = load_policy(made.path)
    np.testing.assert_array_equal(policy.observation_space.low, gym.make("CartPole-v1").observation_space.low)
    actions = [policy.compute_single_action(each, explore=False) for each in observations("ppo_cartpole")]
    np.testing.assert_array_equal(actions, GOLDEN["ppo_cartpole/actions"])
    with pytest.raises(ValueError, match="observation_space, Dict, cannot be read without running code"):
        import_sb3(DATA / "ppo_parts.zip", tmp_path / "other")


# ---------------------------------------------------------------------- pictures, quantiles: zips put together here


class NatureCNN(torch.nn.Module):
    """The features extractor of Stable-Baselines3, under its names."""

    def __init__(self, shape, features: int):
        super().__init__()
        kernels = [(shape[0], 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)]
        parts = [part for kernel in kernels for part in (torch.nn.Conv2d(*kernel), torch.nn.ReLU())]
        self.cnn = torch.nn.Sequential(*parts, torch.nn.Flatten())
        size = self.cnn(torch.zeros(1, *shape)).shape[1]
        self.linear = torch.nn.Sequential(torch.nn.Linear(size, features), torch.nn.ReLU())

    def forward(self, images):
        return self.linear(self.cnn(images))


def pictures(rng, rows: int = 6) -> np.ndarray:
    return rng.integers(0, 256, (rows, 36, 40, 3), dtype=np.uint8)


@pytest.mark.parametrize("hiddens", [[], [8]])
def test_pictures(hiddens, tmp_path):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    extractor = NatureCNN((3, 36, 40), 16)
    parameters = {f"features_extractor.{name}": value.numpy() for name, value in extractor.state_dict().items()}
    parameters |= {f"{copy}_{name}": value for copy in ("pi", "vf") for name, value in parameters.items()}
    width = [16, *hiddens][-1]
    heads = {**linear(rng, "action_net", width, 4), **linear(rng, "value_net", width, 1)}
    own = {
        **layers(rng, "mlp_extractor.policy_net", 16, *hiddens),
        **layers(rng, "mlp_extractor.value_net", 16, *hiddens),
    }
    kwargs = {"net_arch": hiddens, "activation_fn": "<class 'torch.nn.modules.activation.ReLU'>"}
    model = write_zip(
        tmp_path / "model.zip", "PPO", box((3, 36, 40), 0, 255, "uint8"), discrete(4), {**parameters, **own, **heads},
        policy_kwargs=kwargs,
    )  # fmt: skip
    made = import_sb3(model, tmp_path / "made", env=Picture)
    images = pictures(rng)
    with torch.no_grad():
        features = extractor(torch.from_numpy(images).permute(0, 3, 1, 2) / 255.0).numpy()
    if hiddens:
        weight, bias = own["mlp_extractor.policy_net.0.weight"], own["mlp_extractor.policy_net.0.bias"]
        features = np.maximum(features @ weight.T + bias, 0)
    expected = features @ heads["action_net.weight"].T + heads["action_net.bias"]
    policy = load_policy(made.path).policy
    np.testing.assert_allclose(policy.dist_inputs(images), expected, atol=1e-4)
    assert any("convolutions" in sentence for sentence in made.left_out) == bool(hiddens)


def test_pictures_of_another_size_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    extractor = NatureCNN((3, 44, 40), 16)
    parameters = {f"features_extractor.{name}": value.numpy() for name, value in extractor.state_dict().items()}
    heads = {**linear(rng, "action_net", 16, 4), **linear(rng, "value_net", 16, 1)}
    model = write_zip(
        tmp_path / "model.zip", "PPO", box((3, 36, 40), 0, 255, "uint8"), discrete(4), {**parameters, **heads}
    )
    with pytest.raises(ValueError, match="trained with images of another size"):
        import_sb3(model, tmp_path / "made", env=Picture)


def actor(rng, *hiddens: int) -> dict:
    width = [3, *hiddens][-1]
    heads = {**linear(rng, "actor.mu", width, 1), **linear(rng, "actor.log_std", width, 1)}
    return {**layers(rng, "actor.latent_pi", 3, *hiddens), **heads}


def test_quantiles_of_tqc(tmp_path):
    rng = np.random.default_rng(0)
    parameters = actor(rng, 8, 8)
    for copy in ("critic", "critic_target"):
        for number in range(3):
            parameters |= layers(rng, f"{copy}.qf{number}", 4, 6, 6, 25)
    model = write_zip(
        tmp_path / "model.zip", "TQC", box((3,), -8, 8), box((1,), -2, 2), parameters,
        variables={"log_ent_coef": torch.tensor([-1.0])}, policy_kwargs={"n_critics": 3, "n_quantiles": 25},
    )  # fmt: skip
    made = import_sb3(model, tmp_path / "made", env="Pendulum-v1")
    assert (made.algorithm, made.timesteps) == ("TQC", 1234)
    with Algorithm.from_checkpoint(made.path) as algo:
        assert (algo.config.n_critics, algo.config.n_quantiles) == (3, 25)
        own = algo.learners["default_policy"].vector.named_parameters("critics")
        np.testing.assert_array_equal(own["2.head.bias"], parameters["critic.qf2.4.bias"])
        assert algo.trainee.temperature.alpha == pytest.approx(np.exp(-1.0))


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"policy_class": {"__module__": "__main__"}}, "policy is a class of __main__"),
        ({"policy_class": {"__module__": "sb3_contrib.ppo_recurrent.policies"}}, "class of sb3_contrib.ppo"),
        ({"policy_class": None}, "a class of an unknown module"),
        ({"cg_max_steps": 15}, "is a model of TRPO"),
        ({"policy_kwargs": {"features_extractor_class": "<class '__main__.Mine'>"}}, "features extractor, __main__"),
        ({"policy_kwargs": {"activation_fn": "<class 'torch.nn.modules.activation.Softsign'>"}}, "Softsign"),
        ({"policy_kwargs": {"activation_fn": "<class '__main__.Tanh'>"}}, "activation, __main__.Tanh"),
        ({"policy_kwargs": {"squash_output": True}}, "squash_output=True"),
        ({"observation_space": None}, "does not say its observation_space"),
        ({"action_space": discrete(3)}, "has 2 values, and the model's 3"),
        ({"observation_space": box((6,), -1, 1)}, r"has the shape \[4\], and the model's \[6\]"),
        ({"observation_space": discrete(4)}, "is a Box, and the model's a Discrete"),
    ],
)  # fmt: skip
def test_what_is_refused_by_its_settings(data, message, tmp_path):
    model = changed(DATA / "ppo_cartpole.zip", tmp_path / "model.zip", **data)
    with pytest.raises(ValueError, match=message):
        import_sb3(model, tmp_path / "made", env="CartPole-v1")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"features_extractor.lstm.weight": np.ones(3)}, "has no parameter 'features_extractor.cnn.0.weight'"),
        ({"extra.weight": np.ones(3)}, "has parameters that no network here has: 'extra.weight'"),
        ({"mlp_extractor.shared_net.0.weight": np.ones((4, 4))}, "mlp_extractor.shared_net.0.weight"),
        ({"mlp_extractor.policy_net.1.weight": np.ones(8)}, "a layer of another kind"),
        ({"mlp_extractor.policy_net.2.weight": np.ones((8, 5))}, "reads 5 numbers, and the one before it has 8"),
        ({"value_net.bias": np.ones(2)}, "has 1 rows and 2 biases"),
        ({"action_net.weight": np.ones((3, 8)), "action_net.bias": np.ones(3)}, "weights by name must match"),
        ({"action_net.bias": np.array([np.nan, 0])}, "other things than finite numbers"),
        ({"action_net.weight": None}, "has no parameter 'action_net.weight'"),
    ],
)
def test_what_is_refused_by_its_parameters(more, message, tmp_path):
    rng = np.random.default_rng(0)
    parameters = {
        **layers(rng, "mlp_extractor.policy_net", 4, 8, 8), **layers(rng, "mlp_extractor.value_net", 4, 8, 8),
        **linear(rng, "action_net", 8, 2), **linear(rng, "value_net", 8, 1), **more,
    }  # fmt: skip
    parameters = {name: value for name, value in parameters.items() if value is not None}
    model = write_zip(tmp_path / "model.zip", "PPO", box((4,), -1, 1), discrete(2), parameters)
    with pytest.raises(ValueError, match=message):
        import_sb3(model, tmp_path / "made", env="CartPole-v1")


def test_statistics_of_another_environment_are_refused(tmp_path):
    with pytest.raises(ValueError, match="statistics of 3 numbers, and observations of this environment have 4"):
        import_sb3(
            DATA / "ppo_cartpole.zip", tmp_path / "made", env="CartPole-v1", vecnormalize=DATA / "vecnormalize.pkl"
        )


# ---------------------------------------------------------------------- the command


def run(*words: str):
    return CliRunner().invoke(command, list(map(str, words)))


def test_command_makes_a_run_that_goes_on(tmp_path):
    output = tmp_path / "run"
    done = run("import-sb3", DATA / "ppo_cartpole.zip", "--env", "CartPole-v1", "-o", output, "lr=1e-4")
    assert done.exit_code == 0, done.output
    assert "imported    PPO on CartPole-v1, trained for" in done.output
    assert "left out    memories of the optimizers" in done.output
    done = run("evaluate", output, "--episodes", "2", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["episodes"] == 2
    done = run("train", "--resume", output, "--stop", "iterations=1", "-q")
    assert done.exit_code == 0, done.output
    assert (output / "checkpoint_000001").is_dir()


def test_command_without_an_environment_makes_a_checkpoint(tmp_path):
    done = run("import-sb3", DATA / "ppo_cartpole.zip", "-o", tmp_path / "made")
    assert done.exit_code == 0, done.output
    assert load_policy(tmp_path / "made").metadata["env"] is None


def test_command_keeps_what_is_there(tmp_path):
    (tmp_path / "file").write_text("mine")
    done = run("import-sb3", DATA / "ppo_cartpole.zip", "--env", "CartPole-v1", "-o", tmp_path)
    assert done.exit_code == 2
    assert "exists already" in done.output
    with pytest.raises(ValueError, match="exists already, and an import writes a new directory"):
        rllib.import_sb3(DATA / "ppo_cartpole.zip", tmp_path, env="CartPole-v1")
    with pytest.raises(ValueError, match="exists already, and an import writes a new directory"):
        rllib.import_ray(DATA.with_name("ray") / "ppo_new", tmp_path, env="CartPole-v1")


def test_command_names_a_file_that_is_missing(tmp_path):
    done = run("import-sb3", tmp_path / "none.zip", "--env", "CartPole-v1", "-o", tmp_path / "made")
    assert done.exit_code == 2
    assert f"there is no {tmp_path / 'none.zip'}" in done.output
    (tmp_path / "model.zip").write_bytes(b"")
    done = run("import-sb3", tmp_path / "model", "--env", "CartPole-v1", "-o", tmp_path / "made")
    assert done.exit_code == 2 and "model.zip?" in done.output


@pytest.mark.parametrize("words", [("evaluate",), ("train", "--resume"), ("export",), ("serve",)])
def test_commands_name_the_import_for_a_zip(words):
    done = run(*words, DATA / "ppo_cartpole.zip")
    assert done.exit_code == 2
    assert "rllib import-sb3" in done.output


def test_load_policy_names_the_import_for_a_zip():
    with pytest.raises(rllib.storage.checkpoint.CheckpointError, match="rllib import-sb3"):
        load_policy(DATA / "ppo_cartpole.zip")
