"""rlox PPO on a MuJoCo task: environment steps a second (benchmarks/peers/setup mujoco_ppo)."""

import mujoco_ppo_common as task
import rlox
import torch
from rlox.algorithms.ppo import PPO
from rlox.callbacks import Callback


class Clock(Callback):
    """Notes the end of every rollout."""

    def __init__(self, iterations: task.Iterations):
        self._iterations = iterations

    def on_rollout_end(self, **kwargs) -> None:
        self._iterations.note()


def main() -> None:
    iterations = task.Iterations(__doc__)
    torch.set_num_threads(1)
    # Its network for continuous actions has two layers of 64 units by default.
    trainer = PPO(
        task.ENV,
        n_envs=task.ENVS,
        seed=0,
        callbacks=[Clock(iterations)],
        n_steps=task.STEPS,
        n_epochs=task.EPOCHS,
        batch_size=task.MINIBATCH,
        learning_rate=task.LR,
        gamma=task.GAMMA,
        gae_lambda=task.LAMBDA,
        clip_eps=task.CLIP,
        vf_coef=task.VALUE_SHARE,
        ent_coef=0.0,
        max_grad_norm=task.GRAD_CLIP,
        clip_vloss=False,
        normalize_obs=True,
        normalize_rewards=True,
    )
    trainer.train(iterations.count * task.BATCH)
    iterations.report(rlox=rlox.__version__, torch=torch.__version__)


if __name__ == "__main__":
    main()
