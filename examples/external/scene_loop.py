"""A scene with many agents that stops while it waits, as in Unity: `FixedUpdate` asks for all of them at once."""

from rllib.client import EpisodeLost, PolicyClient

DECISION_PERIOD = 5  # updates


class Academy:
    """Component of a scene; each of its `worlds` is an agent with an episode of its own."""

    def __init__(self, worlds, address, **settings):
        self.worlds, self.client, self.count = worlds, PolicyClient(address, **settings), 0

    def Start(self):
        self.episodes = {self.client.start_episode(): world for world in self.worlds}

    def FixedUpdate(self):
        self.count += 1
        if self.count % DECISION_PERIOD:
            return
        try:
            for episode, world in list(self.episodes.items()):
                self.client.log_returns(episode, world.take_reward())
                if world.is_over():
                    self.client.end_episode(episode, world.observe(), truncated=world.was_cut_off())
                    world.restart()
                    del self.episodes[episode]
                    self.episodes[self.client.start_episode()] = world
            seen = {episode: world.observe() for episode, world in self.episodes.items()}
            for episode, action in self.client.get_action(list(seen), seen).items():
                self.episodes[episode].apply(action)
        except EpisodeLost:
            for world in self.worlds:
                world.restart()
            self.Start()

    def OnDestroy(self):
        self.client.close()
