"""Networks that were registered in the driver, in the processes of trials."""

import pytest
import torch

from rllib import register_model, tune
from rllib.registered import MODELS

pytestmark = pytest.mark.usefixtures("two_cpus")

SMALL = {"train_batch_size": 200, "sgd_minibatch_size": 100, "num_sgd_iter": 1, "rollout_fragment_length": 100}


@pytest.fixture(autouse=True)
def steering(monkeypatch):
    """A network of a class that exists in this process alone; it always steers to one side."""

    class Steers(torch.nn.Module):
        def __init__(self, observation_space, action_space, num_outputs, side):
            super().__init__()
            self.layer = torch.nn.Linear(observation_space.shape[0], 1)
            self.side = torch.eye(num_outputs)[side]
            torch.set_num_threads(1)

        def forward(self, observation):
            values = self.layer(observation)
            return 100 * self.side + 0 * values, values[:, 0]

    monkeypatch.setattr(MODELS, "_values", {})
    register_model("steers", Steers)


def test_a_registered_network_reaches_trials_and_its_settings_may_be_searched(run):
    config = {
        **SMALL,
        "env": "CartPole-v1",
        "num_rollout_workers": 0,
        "model": {"custom_model": "steers", "custom_model_config": {"side": tune.grid_search([0, 1])}},
    }
    trials = run("PPO", config=config, stop={"training_iteration": 1}).trials
    assert [trial.config["model"]["custom_model_config"]["side"] for trial in trials] == [0, 1]
    for trial in trials:
        # A pole that is always pushed to the same side falls in 8 to 10 steps; at random in more than 20.
        assert trial.last_result["episode_len_mean"] < 11
