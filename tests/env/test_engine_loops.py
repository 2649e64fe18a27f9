"""The engines' loops of examples/external, called by a stand-in for an engine."""

import importlib.util
import threading
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib import PPOConfig
from rllib.client import RunEnded

EXAMPLES = Path(__file__).parents[2] / "examples" / "external"


class Corridor:
    """A world with a clock of its own: its body moves each frame by the last action, and each cell pays 1."""

    def __init__(self):
        self.episodes = -1
        self.restart()

    def restart(self):
        self.place, self.paid, self.frames, self.direction = 0, 0.0, 0, 0
        self.episodes += 1

    def tick(self):
        self.frames += 1
        self.place += self.direction
        self.paid += self.direction

    def observe(self):
        return np.array([self.place, self.frames], np.float32)

    def apply(self, action):
        assert action in (0, 1)
        self.direction = action

    def take_reward(self):
        reward, self.paid = self.paid, 0.0
        return reward

    def is_over(self):
        return self.place >= 40 or self.frames >= 200

    def was_cut_off(self):
        return self.place < 40


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def algorithm():
    config = PPOConfig().environment(observation_space=Box(-np.inf, np.inf, (2,)), action_space=Discrete(2))
    config.external(listen="127.0.0.1:0").rollouts(num_rollout_workers=0)
    config.training(train_batch_size=32, sgd_minibatch_size=32, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
    with config.debugging(seed=0).build() as built:
        yield built


def play(algorithm, worlds, frame, begin, end):
    """Runs an engine beside the training, until the run ends."""
    ended = []

    def engine():
        try:
            begin()
            while True:
                for world in worlds:
                    world.tick()
                frame()
        except RunEnded as error:
            ended.append(error)
        finally:
            end()

    running = threading.Thread(target=engine, daemon=True)
    running.start()
    results = [algorithm.train() for _ in range(2)]
    algorithm.stop()
    running.join(30)
    assert ended and not running.is_alive()
    return results[-1]


def test_a_game_that_goes_on(algorithm):
    address = algorithm.workers.local_worker().stream.environments[0].url
    world, module = Corridor(), loaded("frame_loop")
    controller = module.Controller(world, address)
    begin, end = controller._ready, controller._exit_tree
    result = play(algorithm, [world], lambda: controller._physics_process(1 / 60), begin, end)
    assert result["timesteps_total"] >= 64 and world.episodes >= 1
    # No upper bound: the game goes on while the algorithm learns, as long as that takes.
    assert all(each.episode_return >= 0 for each in algorithm.metrics.episodes)


def test_a_scene_that_waits(algorithm):
    address = algorithm.workers.local_worker().stream.environments[0].url
    worlds, module = [Corridor() for _ in range(4)], loaded("scene_loop")
    academy = module.Academy(worlds, address)
    result = play(algorithm, worlds, academy.FixedUpdate, academy.Start, academy.OnDestroy)
    assert result["timesteps_total"] >= 64 and result["external"]["clients"] == 1
    # What was paid before an episode's first action counts in its return, and each cell is paid once.
    assert all(0 <= each.episode_return <= 45 for each in algorithm.metrics.episodes)
