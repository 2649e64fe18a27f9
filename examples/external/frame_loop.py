"""A game that goes on while it waits, as in Godot: `_physics_process` is called each frame, and must not block.

The game keeps its last action until the answer is there. The request is made by a thread, one at a time.
"""

from concurrent.futures import ThreadPoolExecutor

from rllib.client import EpisodeLost, PolicyClient

ACTS_EVERY = 8  # frames


class Controller:
    """Node of a scene; `world` has observe(), apply(action), take_reward(), is_over(), was_cut_off() and restart()."""

    def __init__(self, world, address, **settings):
        self.world, self.client = world, PolicyClient(address, **settings)
        self.thread, self.answer, self.frame = ThreadPoolExecutor(1), None, 0

    def _ready(self):
        self.episode = self.client.start_episode()

    def _physics_process(self, delta):
        self.frame += 1
        if self.answer is not None and self.answer.done():
            try:
                self.world.apply(self.answer.result())
            except EpisodeLost:
                self._begin_again()
            self.answer = None
        if self.answer is None and self.world.is_over():
            self.client.log_returns(self.episode, self.world.take_reward())
            self.client.end_episode(self.episode, self.world.observe(), truncated=self.world.was_cut_off())
            self._begin_again()
        if self.answer is None and self.frame % ACTS_EVERY == 0:
            self.client.log_returns(self.episode, self.world.take_reward())
            self.answer = self.thread.submit(self.client.get_action, self.episode, self.world.observe())

    def _begin_again(self):
        self.world.restart()
        self.episode = self.client.start_episode()

    def _exit_tree(self):
        self.thread.shutdown()
        self.client.close()
