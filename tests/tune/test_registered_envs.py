"""Environments that were registered in the driver, in the processes of trials."""

import threading

import pytest

import runtime
from rllib import tune
from rllib.algorithms.ppo import PPOConfig
from rllib.registered import ENVIRONMENTS

pytestmark = pytest.mark.usefixtures("two_cpus")

SMALL = {"train_batch_size": 200, "sgd_minibatch_size": 100, "num_sgd_iter": 1, "rollout_fragment_length": 100}
ONCE = {"training_iteration": 1}


@pytest.fixture(autouse=True)
def corridor(monkeypatch):
    """An environment of a class that exists in this process alone, and an entry that cannot travel."""
    import gymnasium

    class Corridor(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(-1, 1, (1,)), gymnasium.spaces.Discrete(2)

        def __init__(self, config):
            self.length = config["length"]

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return self.observation_space.low, {}

        def step(self, action):
            self.t += 1
            return self.observation_space.low, 1.0, self.t >= self.length, False, {}

    lock = threading.Lock()
    monkeypatch.setattr(ENVIRONMENTS, "_values", {})
    tune.register_env("corridor", lambda config: Corridor(config))
    tune.register_env("immovable", lambda config: lock)


@pytest.mark.parametrize("num_rollout_workers", [0, 1])
def test_a_registered_environment_reaches_trials_with_a_dict(run, num_rollout_workers):
    config = {**SMALL, "env": "corridor", "env_config": {"length": 5}, "num_rollout_workers": num_rollout_workers}
    (trial,) = run("PPO", config=config, stop=ONCE).trials
    assert trial.last_result["episode_reward_mean"] == 5


def test_a_registered_environment_reaches_trials_with_a_config_object(run):
    config = PPOConfig().environment("corridor", env_config={"length": 5}).update_from_dict(SMALL)
    (trial,) = run(config, stop=ONCE).trials
    assert trial.last_result["episode_reward_mean"] == 5


def test_a_registered_environment_reaches_functions_that_build_an_algorithm(run):
    def trains(config):
        algorithm = PPOConfig().environment("corridor", env_config={"length": 5}).update_from_dict(SMALL).build()
        yield {"reward": algorithm.train()["episode_reward_mean"]}
        algorithm.stop()

    (trial,) = run(trains).trials
    assert trial.last_result["reward"] == 5


def test_a_registered_environment_that_cannot_travel_says_so_where_it_is_used(run):
    with pytest.raises(tune.TuneError, match=r"'immovable' was registered in another process.*cannot be sent here"):
        run("PPO", config={**SMALL, "env": "immovable"}, stop=ONCE)


def test_a_trial_in_the_drivers_process_leaves_that_as_it_was(run):
    before = dict(ENVIRONMENTS._values)  # private: the entries show nowhere else
    runtime.shutdown()
    runtime.init(engine="local")
    try:
        (trial,) = run(lambda config: {"loss": 1.0}).trials
    finally:
        runtime.shutdown()
        runtime.init(num_cpus=2, preload=["numpy", "rllib.tune.running.actor"])
    assert trial.last_result["loss"] == 1.0 and ENVIRONMENTS._values == before
    with pytest.raises(RuntimeError):
        tune.get_trial_id()
