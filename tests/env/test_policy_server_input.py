"""RLlib's PolicyServerInput: the address that it stands for, and where it may stand."""

import types

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib import PolicyServerInput, PPOConfig
from rllib.env.policy_server.policy_server_input import address_of_input
from rllib.env.policy_server.served import served_environment

SPACES = {"observation_space": Box(-1, 1, (2,)), "action_space": Discrete(3)}


def test_rllibs_input_names_the_address(monkeypatch):
    def its(ioctx):
        """As in RLlib's example, which adds the worker's number itself."""
        return PolicyServerInput(ioctx, "localhost", 9900 + ioctx.worker_index - (1 if ioctx.worker_index > 0 else 0))

    assert address_of_input(its, {"num_rollout_workers": 0}) == address_of_input(its, {"num_rollout_workers": 2})
    config = PPOConfig().environment(**SPACES).external(listen=its).rollouts(num_rollout_workers=2)
    settings = served_environment(config).settings
    assert (settings.host, settings.port) == ("localhost", 9900)
    config.external(listen=lambda ioctx: PolicyServerInput(ioctx, "::1", ioctx.config["train_batch_size"], 3.0, 20))
    assert served_environment(config).settings.host == "::1" and served_environment(config).settings.port == 4000
    with pytest.raises(TypeError, match=r"must return a PolicyServerInput.*\.external\(listen="):
        served_environment(config.external(listen=lambda ioctx: "localhost:9900"))
    context = types.SimpleNamespace(worker_index=1)
    for address, port in (("", 1), ("localhost", 99999), ("localhost", "9900")):
        with pytest.raises(ValueError, match="needs a host and a port"):
            PolicyServerInput(context, address, port)
    monkeypatch.delenv("RLLIB_TOKEN", raising=False)
    with pytest.raises(ValueError, match="the variable RLLIB_TOKEN"):
        PolicyServerInput(context, "localhost", 9900, token="secret")
    monkeypatch.setenv("RLLIB_TOKEN", "secret")
    assert PolicyServerInput(context, "localhost", 9900, token="secret").listen == "localhost:9900"


def test_a_run_serves_at_the_address_of_the_input():
    config = PPOConfig().environment(**SPACES).rollouts(num_rollout_workers=0)
    config.external(listen=lambda ioctx: PolicyServerInput(ioctx, "127.0.0.1", 0))
    with config.build() as algorithm:
        assert algorithm.workers.local_worker().stream.environments[0].url.startswith("http://127.0.0.1:")


def test_a_run_serves_where_the_input_of_offline_data_is_a_server():
    def by_rllibs_example(ioctx):
        return PolicyServerInput(ioctx, "127.0.0.1", 0) if ioctx.worker.num_workers == 0 else None

    config = PPOConfig().environment(**SPACES).rollouts(num_rollout_workers=0)
    with config.offline_data(input_=by_rllibs_example).build() as algorithm:
        assert algorithm.workers.local_worker().stream.environments[0].url.startswith("http://127.0.0.1:")
        assert algorithm.recorded is None


def test_an_input_that_is_no_server_is_data():
    for config in (PPOConfig().offline_data(input_=np.ones), PPOConfig().update_from_dict({"input": lambda _: None})):
        with pytest.raises(ValueError, match="PPO learns from its own policy's steps"):
            config.environment("CartPole-v1").build()
