"""Callbacks of Stable-Baselines3 that print tables of their own."""

from rllib.callbacks import evaluations


class EvalCallback(evaluations.EvalCallback):
    """`rllib.callbacks.EvalCallback`, which gives each evaluation to the logger's outputs at once."""

    def _evaluate(self) -> None:
        super()._evaluate()
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)
