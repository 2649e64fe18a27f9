"""close() of environments, wherever they are stepped and however a run ends."""

import contextlib
import os
import signal
import threading
from collections import Counter
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from test_external_worker import BOX, CHOICE

from rllib import IMPALAConfig, PPOConfig, tune
from rllib.client import EpisodeLost, PolicyClient, RunEnded
from rllib.env.multi_agent import MultiAgentEnv
from tests.envs import ProbeFailure

pytestmark = pytest.mark.usefixtures("workers_know_the_module")


class Noting(gymnasium.Env):
    """Writes into a folder which of its instances were made and closed.

    Config:
        folder: for a file of each instance.
        raises_in: index of the worker whose constructor ("__init__") or step ("step") raises.
        stands_in: index of the worker whose steps never return.
        stands_later: whether they return until the folder has a file "stand".
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    count = 0

    def __init__(self, config):
        Noting.count += 1
        self.folder, self.where = Path(config["folder"]), config.worker_index
        self.raises = config.get("raises_in") == (self.where, "step")
        self.stands = config.get("stands_in") == self.where
        self.stands_later = config.get("stands_later", False)
        self.name = f"{config.worker_index}-{os.getpid()}-{Noting.count}"
        if config.get("raises_in") == (self.where, "__init__"):
            raise ProbeFailure("no licence")
        (self.folder / f"made-{self.name}").touch()

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.raises:
            raise ProbeFailure("asked to")
        if self.stands and (not self.stands_later or (self.folder / "stand").exists()):
            (self.folder / "stands").touch()
            threading.Event().wait()
        return np.zeros(2, np.float32), 1.0, self.steps == 10, False, {}

    def close(self):
        (self.folder / f"closed-{self.name}").touch()


class NotingAgents(MultiAgentEnv):
    observation_space, action_space = Noting.observation_space, Noting.action_space

    def __init__(self, config):
        super().__init__()
        self.inner, self.possible_agents = Noting(config), ["a", "b"]
        self.agents = self.possible_agents

    def reset(self, *, seed=None, options=None):
        observation, _ = self.inner.reset()
        return {"a": observation, "b": observation}, {}

    def step(self, actions):
        observation, reward, terminated, truncated, _ = self.inner.step(0)
        over = {"a": terminated, "b": terminated, "__all__": terminated}
        seen = {"a": observation, "b": observation}
        return seen, {"a": reward, "b": reward}, over, {"__all__": truncated}, {}

    def close(self):
        self.inner.close()


def instances(folder) -> Counter:
    """Index of a worker -> its instances."""
    return Counter(path.name.split("-")[1] for path in folder.glob("made-*"))


def open_ones(folder) -> set[str]:
    names = {
        kind: {path.name.removeprefix(f"{kind}-") for path in folder.glob(f"{kind}-*")} for kind in ("made", "closed")
    }
    return names["made"] - names["closed"]


def small(config, folder, env=Noting, **env_config):
    config.environment(env, env_config={"folder": str(folder), **env_config}).debugging(seed=1)
    config.rollouts(num_rollout_workers=2, rollout_fragment_length=10).training(train_batch_size=40)
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
    if isinstance(config, PPOConfig):
        config.training(sgd_minibatch_size=20, num_sgd_iter=1)
    return config


@pytest.mark.parametrize(
    "config, env, settings",
    [
        (PPOConfig, Noting, {"num_rollout_workers": 0}),
        (PPOConfig, Noting, {"num_envs_per_worker": 2, "gym_env_vectorize_mode": "async"}),
        (PPOConfig, NotingAgents, {}),
        (IMPALAConfig, Noting, {}),
        (PPOConfig, Noting, {"evaluation_num_workers": 1, "evaluation_interval": 1, "evaluation_duration": 1}),
    ],
)
def test_a_run_that_stops_closes_all_environments(config, env, settings, tmp_path):
    with small(config(), tmp_path, env).update_from_dict(settings).build() as algorithm:
        algorithm.train()
    assert len(instances(tmp_path)) > settings.get("num_rollout_workers", 2) and not open_ones(tmp_path)


def test_a_worker_in_the_middle_of_a_step_closes_its_environments(tmp_path):
    """As after Ctrl-C; the step would never return."""
    algorithm = small(PPOConfig(), tmp_path, stands_in=2).build()
    collect = algorithm.workers.begin_sampling(algorithm.snapshots())
    while not (tmp_path / "stands").exists():
        threading.Event().wait(0.01)
    algorithm.stop()
    assert len(instances(tmp_path)) == 3 and not open_ones(tmp_path)
    del collect


def test_the_recorded_steps_of_a_worker_in_the_middle_of_a_step_are_written(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("rllib.evaluation.worker_set._FRAGMENT_S", 0.1)
    config = small(PPOConfig(), tmp_path, stands_in=2, stands_later=True)
    algorithm = config.offline_data(output=str(tmp_path / "output")).build()
    algorithm.train()
    (tmp_path / "stand").touch()
    collect = algorithm.workers.begin_sampling(algorithm.snapshots())
    while not (tmp_path / "stands").exists():
        threading.Event().wait(0.01)
    algorithm.stop()
    assert len(list((tmp_path / "output").glob("*_worker-2_*"))) == 1
    assert not caplog.records and not open_ones(tmp_path)
    del collect


def test_a_build_that_fails_closes_the_environments_of_other_workers(tmp_path):
    with pytest.raises(ProbeFailure, match="no licence"):
        small(PPOConfig(), tmp_path, raises_in=(2, "__init__")).build()
    assert instances(tmp_path)["1"] == 1 and not open_ones(tmp_path)


def test_a_worker_that_is_replaced_closes_its_environments(tmp_path):
    config = small(PPOConfig(), tmp_path, raises_in=(2, "step")).fault_tolerance(recreate_failed_workers=True)
    with config.fault_tolerance(max_num_worker_restarts=1).build() as algorithm, pytest.raises(ProbeFailure):
        algorithm.train()
    assert instances(tmp_path)["2"] == 2 and not open_ones(tmp_path)


class Interrupting(tune.Callback):
    """Ctrl-C when a trial is in the middle of a step."""

    def __init__(self, folder):
        self.folder = folder

    def on_step_begin(self, iteration, trials, **info):
        if (self.folder / "stands").exists():
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_trial_that_is_interrupted_closes_its_environments(num_workers, tmp_path, monkeypatch):
    monkeypatch.setattr("rllib.tune.running.trials.INTERRUPTED_CLOSE_S", 0.1)
    config = small(PPOConfig(), tmp_path, stands_in=num_workers).rollouts(num_rollout_workers=num_workers)
    with pytest.raises(KeyboardInterrupt):
        tune.run(
            "PPO", config=config.to_dict(), stop={"training_iteration": 1000}, verbose=0,
            local_dir=str(tmp_path / "results"), callbacks=[Interrupting(tmp_path)],
        )  # fmt: skip
    assert instances(tmp_path) and not open_ones(tmp_path)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("inference_mode", ["remote", "local"])
def test_clients_of_remote_workers_hear_that_the_run_has_ended(num_workers, inference_mode):
    config = PPOConfig().environment(observation_space=BOX, action_space=CHOICE).external(listen="127.0.0.1:0")
    config.rollouts(num_rollout_workers=num_workers, rollout_fragment_length=20)
    algorithm = config.training(train_batch_size=20, sgd_minibatch_size=20, num_sgd_iter=1).build()
    [url] = algorithm.workers.foreach_worker(lambda worker: worker.env.url)
    heard = []

    def play():
        try:
            with PolicyClient(url, inference_mode=inference_mode, retry_s=0.0) as client:
                while True:
                    with contextlib.suppress(EpisodeLost):
                        episode = client.start_episode()
                        for _ in range(5):
                            client.get_action(episode, np.zeros(2, np.float32))
                            client.log_returns(episode, 1.0)
                        client.end_episode(episode, np.zeros(2, np.float32))
        except (RunEnded, ConnectionError) as error:
            heard.append(error)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    algorithm.train()
    algorithm.stop()
    thread.join(60)
    assert isinstance(heard[0], RunEnded)
