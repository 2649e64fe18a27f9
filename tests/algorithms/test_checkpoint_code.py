"""What a checkpoint may run when it is restored: this library, the environment's class, and the rest on request."""

from pathlib import Path

import pytest

from rllib import Algorithm, DefaultCallbacks, PPOConfig
from rllib.algorithms.ppo import PPO
from rllib.storage.checkpoint import read_checkpoint, write_checkpoint
from rllib.tune import Checkpoint
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
        assert restored.scheduled("lr") == {"lr": falling(64)}
