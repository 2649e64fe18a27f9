"""What a run writes of the steps of loops outside (`output`): each that was reported, and nothing else."""

import threading
from typing import ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, flatten

from rllib import DQNConfig, ExternalEnv, PPOConfig, SACConfig
from rllib.client import PolicyClient, RunEnded
from rllib.offline.dataset import Dataset


class Told(ExternalEnv):
    """Episodes of two to four steps, of which each third is logged and each fifth is not learned from."""

    spaces = Box(-1, 1, (2,)), Discrete(2)
    told: ClassVar[
        list
    ] = []  # (observation, action, reward, following, terminated, truncated) of each step that has ended

    def __init__(self, config):
        super().__init__(self.spaces[1], self.spaces[0])

    def run(self):
        rng = np.random.default_rng(0)
        self.spaces[0].seed(0), self.spaces[1].seed(0)
        for number in range(10**6):
            episode = self.start_episode(training_enabled=number % 5 != 0)
            seen, length = self.spaces[0].sample(), 2 + number % 3
            for t in range(length):
                if number % 3 == 0:
                    action = self.spaces[1].sample()
                    self.log_action(episode, seen, action)
                else:
                    action = self.get_action(episode, seen)
                reward, following = float(rng.integers(9)), self.spaces[0].sample()
                self.log_returns(episode, reward)
                end = t == length - 1
                step = seen, action, reward, following, end and number % 2 == 0, end and number % 2 == 1
                seen = following
                self.told.append(step)
            self.end_episode(episode, seen, truncated=number % 2 == 1)


@pytest.mark.parametrize("format_", ["json", "npz"])
@pytest.mark.parametrize(
    ("observations", "actions", "config_class"),
    [
        (Box(-1, 1, (2,)), Discrete(2), DQNConfig),
        (Box(-1, 1, (2,)), Box(-3, 5, (2,)), SACConfig),
        (Dict(a=Discrete(3), b=Box(0, 1, (2,))), Dict(c=Discrete(2), d=Box(-1, 1, (2,))), PPOConfig),
    ],
)
def test_files_hold_what_the_loop_has_reported(tmp_path, observations, actions, config_class, format_):
    world = type("World", (Told,), {"spaces": (observations, actions), "told": []})
    config = config_class().environment(world).rollouts(num_rollout_workers=0, rollout_fragment_length=10)
    config.training(train_batch_size=40, model={"fcnet_hiddens": [8]}).framework("torch")
    config.offline_data(output=str(tmp_path), output_config={"format": format_}, output_max_rows_per_file=1)
    if config_class is PPOConfig:
        config.training(sgd_minibatch_size=40)
    config.reporting(min_sample_timesteps_per_iteration=40)
    with config.build() as algo:
        for _ in range(2):
            algo.train()
    found = Dataset.from_path(tmp_path, observation_space=observations, action_space=actions)
    count = len(found)
    assert count > 80  # those that are not learned from are there as well
    steps = world.told[:count]
    order = np.argsort(found.columns["eps_id"] * 100 + found.columns["t"], kind="stable")
    columns = {name: column[order] for name, column in found.columns.items()}
    np.testing.assert_allclose(columns["obs"], [_flat(observations, step[0]) for step in steps], atol=1e-6)
    np.testing.assert_allclose(columns["new_obs"], [_flat(observations, step[3]) for step in steps], atol=1e-6)
    np.testing.assert_allclose(columns["rewards"], [step[2] for step in steps])
    taken = [_numbers(actions, step[1]) for step in steps]
    np.testing.assert_allclose(columns["actions"].reshape(count, -1), taken, atol=1e-5)
    assert columns["terminateds"].tolist()[:-1] == [step[4] for step in steps][:-1]
    assert columns["truncateds"].tolist()[:-1] == [step[5] for step in steps][:-1]


def _flat(space, value):
    return value if isinstance(space, Box) else flatten(space, value)


def _numbers(space, value):
    if isinstance(space, Dict):
        return np.concatenate([np.ravel(value[key]) for key in space])
    return np.ravel(value)


@pytest.mark.parametrize("mode", ["remote", "local"])
def test_the_steps_of_clients_are_recorded_however_they_act(tmp_path, mode):
    config = PPOConfig().environment(observation_space=Box(-1, 1, (2,)), action_space=Discrete(2))
    config.external(listen="127.0.0.1:0").rollouts(num_rollout_workers=0)
    config.training(train_batch_size=60, sgd_minibatch_size=60, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
    config.offline_data(output=str(tmp_path), output_config={"format": "npz"})
    told = []

    def play(url):
        rng = np.random.default_rng(1)
        with PolicyClient(url, inference_mode=mode) as client:
            try:
                while True:
                    episode, seen = client.start_episode(), rng.uniform(-1, 1, 2).astype(np.float32)
                    for number in range(6):
                        told.append((seen, client.get_action(episode, seen), number))
                        client.log_returns(episode, number)
                        seen = rng.uniform(-1, 1, 2).astype(np.float32)
                    client.end_episode(episode, seen)
            except RunEnded:
                return

    with config.build() as algo:
        url = algo.workers.foreach_worker(lambda worker: worker.env.url)[0]
        thread = threading.Thread(target=play, args=(url,))
        thread.start()
        algo.train()
    thread.join(60)
    found = Dataset.from_path(tmp_path)
    assert len(found) >= 60
    for name, index in (("obs", 0), ("actions", 1), ("rewards", 2)):
        np.testing.assert_array_equal(found.columns[name], [step[index] for step in told[: len(found)]])


def test_episodes_of_several_agents_are_refused(tmp_path):
    config = PPOConfig().environment(observation_space={"a": Box(-1, 1, (2,))}, action_space={"a": Discrete(2)})
    config.external(listen="127.0.0.1:0").rollouts(num_rollout_workers=0)
    with pytest.raises(ValueError, match="several agents, and its steps cannot be written"):
        config.multi_agent(policies="shared").offline_data(output=str(tmp_path)).build()
