"""A trainable whose results are known in advance."""

from rllib import tune


class Climber(tune.Trainable):
    """Climbs by config["rate"] in each step; its weights are the height."""

    def setup(self, config):
        self.height = 0.0

    def step(self):
        self.height += self.config["rate"]
        return {"height": self.height, "rate": self.config["rate"]}

    def save_checkpoint(self, checkpoint_dir):
        return {"height": self.height}

    def load_checkpoint(self, checkpoint):
        self.height = checkpoint["height"]
