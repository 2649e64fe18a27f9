"""skrl PPO on a MuJoCo task: environment steps a second (benchmarks/peers/setup mujoco_ppo)."""

import tempfile
from importlib.metadata import version

import gymnasium
import mujoco_ppo_common as task
import torch
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from skrl.resources.preprocessors.torch import RunningStandardScaler
from skrl.trainers.torch import SequentialTrainer, SequentialTrainerCfg
from torch import nn


def tower(inputs: int, outputs: int) -> nn.Module:
    layers = []
    for width in task.HIDDENS:
        layers += [nn.Linear(inputs, width), nn.Tanh()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


class Policy(GaussianMixin, Model):
    def __init__(self, **spaces):
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self)
        self.net = tower(self.num_observations, self.num_actions)
        self.log_std = nn.Parameter(torch.zeros(self.num_actions))

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {"log_std": self.log_std}


class Value(DeterministicMixin, Model):
    def __init__(self, **spaces):
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = tower(self.num_observations, 1)

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {}


class TimedPPO(PPO):
    """Notes the end of every rollout, where the update begins."""

    def update(self, **kwargs) -> None:
        self.iterations.note()
        super().update(**kwargs)


def main() -> None:
    iterations = task.Iterations(__doc__)
    torch.set_num_threads(1)
    env = wrap_env(gymnasium.make_vec(task.ENV, num_envs=task.ENVS, vectorization_mode="sync"))
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": "cpu"}
    cfg = PPO_CFG(
        rollouts=task.STEPS,
        learning_epochs=task.EPOCHS,
        mini_batches=task.BATCH // task.MINIBATCH,
        discount_factor=task.GAMMA,
        gae_lambda=task.LAMBDA,
        learning_rate=task.LR,
        grad_norm_clip=task.GRAD_CLIP,
        ratio_clip=task.CLIP,
        value_clip=0.0,
        value_loss_scale=task.VALUE_SHARE,
        observation_preprocessor=RunningStandardScaler,
        observation_preprocessor_kwargs={"size": env.observation_space, "device": "cpu"},
        value_preprocessor=RunningStandardScaler,
        value_preprocessor_kwargs={"size": 1, "device": "cpu"},
    )
    with tempfile.TemporaryDirectory() as folder:
        cfg.experiment.directory, cfg.experiment.write_interval, cfg.experiment.checkpoint_interval = folder, 0, 0
        models = {"policy": Policy(**spaces), "value": Value(**spaces)}
        memory = RandomMemory(memory_size=task.STEPS, num_envs=task.ENVS, device="cpu")
        agent = TimedPPO(models=models, memory=memory, cfg=cfg, **spaces)
        agent.iterations = iterations
        limits = SequentialTrainerCfg(timesteps=iterations.count * task.STEPS, headless=True, disable_progressbar=True)
        SequentialTrainer(env=env, agents=agent, cfg=limits).train()
    iterations.report(skrl=version("skrl"), torch=torch.__version__)


if __name__ == "__main__":
    main()
