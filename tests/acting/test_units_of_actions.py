"""Actions reach an environment as `normalize_actions` and `clip_actions` say, by whatever way a policy acts."""

import asyncio
import contextlib
import itertools
import threading

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rllib import DDPGConfig, load_policy
from rllib import sample_batch as sb
from rllib.algorithms.pg import PGConfig
from rllib.client import EpisodeLost, PolicyClient, RunEnded
from rllib.env.multi_agent import MultiAgentEnv
from rllib.serving.exported_policy import ExportedPolicy
from tests.serving.serving_support import AppClient
from tests.tensor_envs import Tensors

OBSERVATION = np.array([0.5, -1], np.float32)
OBSERVED, NUMBERS = Box(-1, 1, (2,)), Box(np.array([-2, 0], np.float32), np.array([4, 10], np.float32))
# The network's outputs for an action: the second number lies far below its bound.
OUTPUTS = np.float32([0.3, -4])
# Actions that environments of this process were given.
taken: list = []


class Still(gymnasium.Env):
    observation_space, action_space = OBSERVED, NUMBERS

    def __init__(self, config=None):
        self._t = 0

    def reset(self, *, seed=None, options=None):
        self._t = 0
        return OBSERVATION, {}

    def step(self, action):
        taken.append(np.array(action))
        self._t += 1
        return OBSERVATION, 0.0, self._t == 4, False, {}


class OneOfSeveral(MultiAgentEnv):
    """An agent in a world for several."""

    def __init__(self, config=None):
        super().__init__()
        self.possible_agents = self.agents = ["only"]
        self.observation_spaces, self.action_spaces = {"only": OBSERVED}, {"only": NUMBERS}
        self._inner = Still()

    def reset(self, *, seed=None, options=None):
        return {"only": self._inner.reset()[0]}, {}

    def step(self, action_dict):
        seen, reward, over, _, _ = self._inner.step(action_dict["only"])
        return {"only": seen}, {"only": reward}, {"only": over, "__all__": over}, {"__all__": False}, {}


def vector(context):
    return SyncVectorEnv([Still] * context.num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def tensors(context):
    return Tensors(vector(context))


UNITS = {
    "stretched": {},
    "clipped": {"normalize_actions": False, "clip_actions": True},
    "as drawn": {"normalize_actions": False},
}
ALGORITHMS = {"PG": PGConfig, "DDPG": DDPGConfig}
ENVIRONMENTS = {"gymnasium": Still, "vector": vector, "tensors": tensors, "agents": OneOfSeveral}


def expected(actions, algorithm: str, units: str) -> np.ndarray:
    """Actions of the environment for those of the policy; tanh spans the bounds in any case."""
    if algorithm == "DDPG" or units == "stretched":
        actions = actions * [3, 5] + [1, 5]
    return actions if units == "as drawn" else np.clip(actions, NUMBERS.low, NUMBERS.high)


def built(algorithm: str, units: str, env=Still, **settings):
    """The algorithm, whose policy has OUTPUTS for any observation."""
    config = ALGORITHMS[algorithm]().rollouts(num_rollout_workers=0, rollout_fragment_length=8)
    if env is None:
        config.environment(observation_space=OBSERVED, action_space=NUMBERS).external(listen="127.0.0.1:0")
    else:
        config.environment(env, disable_env_checking=True)
    hidden = {"policy_model_config": {"fcnet_hiddens": [4]}} if algorithm == "DDPG" else {}
    config.training(**hidden or {"model": {"fcnet_hiddens": [4]}})
    algo = config.debugging(seed=1).update_from_dict({**UNITS[units], **settings}).build()
    policy = algo.get_policy()
    policy.weights[:] = 0
    policy.parameters()["policy.head.bias"][:2] = OUTPUTS
    taken.clear()
    return algo


def sampled(algo) -> np.ndarray:
    """The policy's actions [T, 2] in a fragment that the worker samples with the policy's present weights."""
    algo.workers.local_worker().load_snapshots({"default_policy": algo.snapshot("default_policy")})
    batch, *_ = algo.workers.local_worker().sample()
    return np.asarray(batch.policy_batches["default_policy"][sb.ACTIONS] if algo.agents else batch[sb.ACTIONS])


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize(
    ("environment", "algorithm"),
    # Without DDPG's worlds of tensors, which it refuses.
    [each for each in itertools.product(ENVIRONMENTS, ALGORITHMS) if each != ("tensors", "DDPG")],
)
def test_of_rollouts_and_evaluations(environment, algorithm, units):
    with built(algorithm, units, ENVIRONMENTS[environment]) as algo:
        drawn = sampled(algo)
        assert len(drawn) == len(taken) == 8
        np.testing.assert_allclose(taken, expected(drawn, algorithm, units), rtol=1e-5)
        taken.clear()
        algo.evaluate(1)
        own = np.tanh(OUTPUTS) if algorithm == "DDPG" else OUTPUTS
        np.testing.assert_allclose(taken[0], expected(own, algorithm, units), rtol=1e-5)


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_of_programs_and_servers(algorithm, units, tmp_path):
    """All of them take the most probable action."""
    with built(algorithm, units) as algo:
        algo.save(tmp_path / "checkpoint")
        algo.export_policy_model(tmp_path / "export")
        loaded, exported = load_policy(tmp_path / "checkpoint"), load_policy(tmp_path / "export")
        actions = {
            "compute_single_action": algo.compute_single_action(OBSERVATION, explore=False),
            "player": algo.make_player().act(OBSERVATION),
            "player of a checkpoint": loaded.make_player().act(OBSERVATION),
            "player of an export": exported.make_player().act(OBSERVATION),
            "program": ExportedPolicy(algo, "default_policy")(torch.from_numpy(OBSERVATION[None]))[0][0].numpy(),
        }

    async def asked():
        return (await AppClient(tmp_path / "checkpoint").act({"observation": OBSERVATION.tolist()})).json()["action"]

    actions["server"] = asyncio.run(asked())
    own = np.tanh(OUTPUTS) if algorithm == "DDPG" else OUTPUTS
    for way, action in actions.items():
        np.testing.assert_allclose(action, expected(own, algorithm, units), rtol=1e-5, atol=1e-5, err_msg=way)


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("inference", ["remote", "local"])
def test_of_clients(inference, algorithm, units):
    with built(algorithm, units, None) as algo:
        client = PolicyClient(algo.workers.local_worker().env.url, inference_mode=inference, retry_s=0.0)

        def play():
            with contextlib.suppress(RunEnded, EpisodeLost), client:
                while True:
                    episode = client.start_episode()
                    for _ in range(4):
                        taken.append(client.get_action(episode, OBSERVATION))
                        client.log_returns(episode, 0.0)
                    client.end_episode(episode, OBSERVATION)

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        drawn = sampled(algo)
        algo.stop()
        thread.join(30)
    assert not thread.is_alive()
    np.testing.assert_allclose(taken[: len(drawn)], expected(drawn, algorithm, units), rtol=1e-5)
