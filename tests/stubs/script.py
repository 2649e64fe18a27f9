"""A user's script, for type checkers: what they must accept, infer, and (`type: ignore`) refuse."""

from typing import Annotated, Self, assert_type

import numpy as np

import runtime
from rllib import (
    Algorithm,
    AlgorithmConfig,
    DefaultCallbacks,
    DQNConfig,
    IMPALAConfig,
    PPOConfig,
    RolloutWorker,
    SampleBatch,
    tune,
)
from rllib.algorithms.dqn import DQN
from rllib.algorithms.impala import IMPALA
from rllib.algorithms.ppo import PPO
from rllib.config.sections import above, section


class Print(DefaultCallbacks):
    def on_train_result(self, *, algorithm, result, **kwargs):
        print(result["episode_reward_mean"])


points = [[0, 1e-3], [10_000, 1e-4]]
ppo = (
    PPOConfig()
    .environment("CartPole-v1", env_config={"max_episode_steps": 100})
    .rollouts(num_rollout_workers=2, num_envs_per_worker=4, rollout_fragment_length="auto")
    .training(gamma=0.9, lr=points, clip_param=[(0, 0.3), (1000, 0.1)], entropy_coeff=0.01, lambda_=0.95)
    .training(model={"fcnet_hiddens": [64, 64]}, train_batch_size=2000, grad_clip=None, num_sgd_iter=4)
    .callbacks(Print)
    .debugging(seed=1)
)
assert_type(ppo, PPOConfig)
assert_type(ppo.num_sgd_iter, int)
with ppo.build() as algo:
    assert_type(algo, PPO)
    assert_type(algo.config, PPOConfig)
    weights = algo.get_weights()["default_policy"]
    print(algo.train()["episode_reward_mean"], algo.save("results/first"))

assert_type(PPO.from_checkpoint("results/first"), PPO)
assert_type(Algorithm.from_checkpoint("results/first"), Algorithm)

worker = RolloutWorker.from_config(ppo)
batch, _ = worker.sample()
assert_type(batch[SampleBatch.REWARDS], np.ndarray)
assert_type(batch[:10], SampleBatch)
assert_type(len(batch) + batch.env_steps(), int)
print(batch["rewards"].mean(), worker.policy.compute_actions(batch["obs"])[0])

dqn = DQNConfig().training(gamma=0.9, lr=[[0, 1e-3], [10000, 1e-4]], n_step=3, hiddens=(64,), double_q=False)
dqn = dqn.exploration(exploration_config={"type": "EpsilonGreedy"}).rollouts(num_rollout_workers=0)
assert_type(dqn.build("CartPole-v1"), DQN)
impala = IMPALAConfig().training(gamma=0.9, lr=5e-4, entropy_coeff=[[0, 0.01], [1_000, 0.0]], broadcast_interval=2)
assert_type(impala.resources(num_gpus=0).evaluation(evaluation_interval=1).build(), IMPALA)
# Names of later Ray versions
later = PPOConfig().env_runners(num_env_runners=2).training(num_epochs=3, minibatch_size=64)
assert_type(later.evaluation(evaluation_num_env_runners=1), PPOConfig)
base: AlgorithmConfig = ppo
trainer: Algorithm = base.build()

PPOConfig().training(gama=0.9)  # type: ignore
PPOConfig().training(lr="fast")  # type: ignore
PPOConfig().training(n_step=3)  # type: ignore
IMPALAConfig().rollouts(batch_mode="whole")  # type: ignore


class OwnConfig(PPOConfig):
    @section
    def training(self, *, bonus: Annotated[float, "reward for new states", above(0)] = 0.1) -> Self:
        """Settings of my learner."""
        return self


assert_type(OwnConfig().training(bonus=0.2, gamma=0.9).environment("CartPole-v1"), OwnConfig)


@runtime.remote
def double(number: int) -> int:
    return 2 * number


@runtime.remote(num_cpus=2, num_returns=2)
def both(number: int) -> tuple[int, int]:
    return number, -number


@runtime.remote
class Counter:
    def __init__(self, start: int = 0):
        self.value = start

    @runtime.method(num_returns=2)
    def add(self, amount: int) -> tuple[int, int]:
        self.value += amount
        return amount, self.value


@runtime.remote(max_restarts=1)
class Log:
    def write(self, line: str) -> None:
        print(line)


with runtime.init(num_cpus=2):
    assert_type(runtime.get(double.remote(2)), int)
    assert_type(runtime.get([double.options(num_cpus=1).remote(i) for i in range(2)]), list)
    first, second = both.remote(1)
    counter = Counter.options(name="counter").remote(3)
    assert_type(Log.remote(), runtime.ActorHandle)
    amount, value = counter.add.remote(2)
    done, pending = runtime.wait([runtime.put(1.0), runtime.put(2.0)], num_returns=1)
    assert_type(runtime.get(done), list[float])
    runtime.kill(counter)

search = {"env": "CartPole-v1", "lr": tune.grid_search([1e-3, 1e-4])}
analysis = tune.run("PPO", config=search, metric="loss", mode="min")
print(analysis.best_config["lr"], analysis.dataframe())
