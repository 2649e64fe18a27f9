"""What a checkpoint may run when it is restored: this library, the environment's class, and the rest on request."""

import hashlib
import json
from pathlib import Path

import pytest

import rllib
from rllib import Algorithm, DefaultCallbacks, PPOConfig
from rllib.algorithms.ppo import PPO
from rllib.errors import CheckpointError
from rllib.storage import signatures
from rllib.storage.checkpoint import read_checkpoint, write_checkpoint
from rllib.tune import Checkpoint
from rllib.tune.trainables.pickles import read_pickle, write_pickle
from tests.envs import CountingEnv


def config(env="CartPole-v1", env_config=None) -> PPOConfig:
    return (
        PPOConfig()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=0)
        .training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
    )


def _change_setting(path, **settings):
    """What somebody may do who hands a checkpoint on: other settings, with a manifest that fits."""
    state = read_checkpoint(path)
    state["algorithm.json"]["class"] = PPO
    write_checkpoint(path, {**state, "config.json": {**state["config.json"], **settings}})


def test_a_checkpoint_runs_no_function_that_its_environment_names(tmp_path):
    with config().build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    _change_setting(path, env="os:system", env_config={"command": f"touch {tmp_path / 'owned'}"})
    with pytest.raises(ValueError, match="is no environment class"):
        Algorithm.from_checkpoint(path)
    _change_setting(path, env=touch, env_config={"command": str(tmp_path / "owned")})
    with pytest.raises(ValueError, match=r"holds code of yours.*env \(test_checkpoint_code:touch\)"):
        Algorithm.from_checkpoint(path)
    assert not (tmp_path / "owned").exists()


def touch(command):
    Path(command).touch()


def test_code_of_the_users_in_a_checkpoint_is_loaded_when_asked_for(tmp_path):
    class Callbacks(DefaultCallbacks):
        pass

    with config(lambda config: CountingEnv(), env_config={"rewards": [min]}).callbacks(Callbacks).build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    message = r"env \(pickled\), env_config\['rewards'\]\[0\] \(builtins:min\), callbacks_class \(pickled\)"
    with pytest.raises(ValueError, match=message):
        Algorithm.from_checkpoint(path)
    with Algorithm.from_checkpoint(path, load_user_code=True) as restored:
        assert restored.config.env_config == {"rewards": [min]}
    given = {"env": CountingEnv, "env_config": {"rewards": []}, "callbacks_class": None}
    with Algorithm.from_checkpoint(path, given) as restored:
        assert restored.config.callbacks_class is None


def test_an_environments_class_is_all_that_a_checkpoint_imports(tmp_path):
    with config(CountingEnv).build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    with Algorithm.from_checkpoint(path) as restored:
        assert restored.config.env is CountingEnv


class OwnPPO(PPO):
    pass


def test_a_checkpoint_of_an_own_algorithm_is_restored_by_its_class(tmp_path):
    with OwnPPO(config()) as algo:
        path = algo.save(tmp_path / "checkpoint")
    with pytest.raises(ValueError, match=r"of OwnPPO, an algorithm of your own .* Use OwnPPO.from_checkpoint\(path\)"):
        Algorithm.from_checkpoint(path)
    with OwnPPO.from_checkpoint(path) as restored:
        assert type(restored) is OwnPPO


def test_the_checkpoint_of_a_trial_is_taken_as_a_path(tmp_path):
    with config().build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    with PPO.from_checkpoint(Checkpoint(path)) as restored:
        restored.restore(Checkpoint(path))


def test_a_schedule_of_the_users_is_code(tmp_path):
    def falling(timestep):
        return 1e-3 / (1 + timestep)

    with config().training(lr=falling).build() as algo:
        algo.train()
        path = algo.save(tmp_path / "checkpoint")
    with pytest.raises(ValueError, match=r"holds code of yours.*lr \(pickled\)"):
        Algorithm.from_checkpoint(path)
    with Algorithm.from_checkpoint(path, load_user_code=True) as restored:
        assert restored.trainee.scheduled("lr") == {"lr": falling(64)}


class TestTheRunThatWroteIt:
    """Code in a checkpoint needs no consent where its signature shows that this run has written it."""

    pytestmark = pytest.mark.usefixtures("own_checkpoints")

    @pytest.fixture
    def path(self, tmp_path):
        class Callbacks(DefaultCallbacks):
            pass

        made = config(lambda config: CountingEnv()).callbacks(Callbacks).training(lr=lambda timestep: 1e-3)
        with made.build() as algo:
            return algo.save(tmp_path / "checkpoint")

    def test_loads_its_own_code(self, path):
        with Algorithm.from_checkpoint(path) as restored:
            assert restored.config.callbacks_class.__name__ == "Callbacks"
            restored.train()

    def test_records_where_it_has_recorded(self, tmp_path, monkeypatch):
        with config().offline_data(output=str(tmp_path / "data")).build() as algo:
            path = algo.save(tmp_path / "runs" / "checkpoint")
        with Algorithm.from_checkpoint(path) as restored:
            assert restored.config.output == str(tmp_path / "data")
        monkeypatch.setattr(signatures, "_key", bytes(32))
        with pytest.raises(CheckpointError, match="give output again"):
            Algorithm.from_checkpoint(path)

    def test_loads_none_of_a_later_run(self, path, monkeypatch):
        monkeypatch.setattr(signatures, "_key", bytes(32))
        with pytest.raises(CheckpointError, match="holds code of yours"):
            Algorithm.from_checkpoint(path)

    @pytest.mark.parametrize("name", ["config.json", "user_code/0.pkl", "user_code/index.json"])
    def test_loads_none_of_a_file_that_has_been_changed(self, path, name):
        content = (path / name).read_bytes() + b" "
        (path / name).write_bytes(content)
        manifest = json.loads((path / "manifest.json").read_bytes())
        manifest["files"][name] = {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (path / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(CheckpointError, match="holds code of yours"):
            Algorithm.from_checkpoint(path)

    @pytest.mark.parametrize("signed", [None, 3, "", "zz", "00", "é"])
    def test_a_signature_of_another_form_is_none(self, path, signed):
        manifest = json.loads((path / "manifest.json").read_bytes())
        (path / "manifest.json").write_text(json.dumps({**manifest, "signature": signed}))
        with pytest.raises(CheckpointError, match="holds code of yours"):
            Algorithm.from_checkpoint(path)

    def test_runs_no_function_that_a_string_names(self, tmp_path):
        with config().build() as algo:
            path = algo.save(tmp_path / "checkpoint")
        _change_setting(path, env="os:system", env_config={"command": f"touch {tmp_path / 'owned'}"})
        with pytest.raises(ValueError, match="is no environment class"):
            Algorithm.from_checkpoint(path)
        assert not (tmp_path / "owned").exists()


def test_what_has_not_been_loaded_is_not_written_and_signed(tmp_path):
    with config().callbacks(type("Callbacks", (DefaultCallbacks,), {})).build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    with pytest.raises(TypeError, match="has not been loaded, so it cannot be written again"):
        write_checkpoint(tmp_path / "signed", read_checkpoint(path))


def _restored(made, folder):
    with config(made).build() as algo:
        path = algo.save(folder / "checkpoint")
    made.num_made = 5
    with Algorithm.from_checkpoint(path, load_user_code=True) as restored:
        assert restored.config.env is made


def _read_by_tune(made, folder):
    write_pickle(folder, "some.pkl", made)
    made.num_made = 5
    assert read_pickle(folder, "some.pkl", load_user_code=True) is made


def _checked(made, folder):
    made.num_made = 5
    rllib.check_env(made)


@pytest.mark.parametrize("read", [_restored, _read_by_tune, _checked])
def test_classes_of_this_program_stay_as_they_are(read, tmp_path):
    class Own(CountingEnv):  # a checkpoint holds it whole, as one of the main program
        num_made = 0

        def close(self):
            pass

    before = Own.close
    read(Own, tmp_path)
    assert Own.close is before and Own.num_made == 5
