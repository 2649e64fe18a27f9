"""Programs of Ray's eras whose classes lie in a second file and import Ray by the paths of their time, with workers.

Each program trains with a remote worker, which gets the classes of the second file by their names, and restores its own
checkpoint.
"""

import pytest

# Ray 0.8: the old gym API, dicts of settings, agents' policies as tuples.
OF_0_8 = """
    import gym
    import numpy as np
    import ray
    from ray.rllib.agents.callbacks import DefaultCallbacks
    from ray.rllib.env import MultiAgentEnv
    from ray.rllib.models import ModelCatalog
    from ray.rllib.models.torch.torch_modelv2 import TorchModelV2
    from ray.rllib.policy.policy import Policy
    from ray.rllib.utils import try_import_torch

    torch, nn = try_import_torch()


    class Pairs(MultiAgentEnv):
        def __init__(self, config):
            self.num_agents = config["num_agents"]
            self.envs = [gym.make("CartPole-v1") for _ in range(self.num_agents)]
            self.observation_space = self.envs[0].observation_space
            self.action_space = self.envs[0].action_space

        def reset(self):
            self.done = set()
            return {i: env.reset() for i, env in enumerate(self.envs)}

        def step(self, actions):
            observations, rewards, dones, infos = {}, {}, {}, {}
            for i, action in actions.items():
                observations[i], rewards[i], dones[i], infos[i] = self.envs[i].step(action)
                if dones[i]:
                    self.done.add(i)
            dones["__all__"] = len(self.done) == self.num_agents
            return observations, rewards, dones, infos


    class Net(TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            nn.Module.__init__(self)
            width = model_config["custom_model_config"]["width"]
            self.hidden = nn.Linear(4, width)
            self.logits, self.value = nn.Linear(width, num_outputs), nn.Linear(width, 1)

        def forward(self, input_dict, state, seq_lens):
            self.features = torch.tanh(self.hidden(input_dict["obs"].float()))
            return self.logits(self.features), state

        def value_function(self):
            return self.value(self.features).squeeze(1)


    class ByHand(Policy):
        def __init__(self, observation_space, action_space, config):
            Policy.__init__(self, observation_space, action_space, config)

        def compute_actions(self, obs_batch, state_batches=None, **kwargs):
            return [int(observation[2] > 0) for observation in obs_batch], [], {}


    class Callbacks(DefaultCallbacks):
        def on_episode_end(self, worker, base_env, policies, episode, **kwargs):
            episode.custom_metrics["length"] = episode.length


    def policy_of(agent_id, *args, **kwargs):
        return ["learned", "by_hand"][agent_id]


    ModelCatalog.register_custom_model("net", Net)
"""
MAIN_0_8 = """
    import ray
    import ray.rllib.agents.ppo as ppo
    from ray.rllib.agents.ppo import ppo as by_module
    from of_mine import ByHand, Callbacks, Pairs, policy_of
    from ray.tune.registry import register_env
    from ray.tune.result import TRAINING_ITERATION

    ray.init(num_cpus=2)
    register_env("pairs", lambda config: Pairs(config))
    env = Pairs({"num_agents": 2})
    config = by_module.DEFAULT_CONFIG.copy()
    config.update({
        "env_config": {"num_agents": 2}, "num_workers": 1, "framework": "torch", "callbacks": Callbacks,
        "train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 1, "rollout_fragment_length": 64,
        "model": {"custom_model": "net", "custom_model_config": {"width": 8}},
        "multiagent": {
            "policies": {
                "learned": (None, env.observation_space, env.action_space, {}),
                "by_hand": (ByHand, env.observation_space, env.action_space, {}),
            },
            "policy_mapping_fn": policy_of,
            "policies_to_train": ["learned"],
        },
    })
    trainer = ppo.PPOTrainer(config=config, env="pairs")
    result = trainer.train()
    assert result["custom_metrics"]["length_mean"] > 0 and set(result["policy_reward_mean"]) == {"learned", "by_hand"}
    trainer.restore(trainer.save())
    print(result[TRAINING_ITERATION])
"""
# Ray 2.6: gymnasium, fluent settings.
OF_2_6 = """
    import gymnasium as gym
    import numpy as np
    import ray
    from ray.rllib.algorithms.callbacks import DefaultCallbacks
    from ray.rllib.evaluation import Episode, RolloutWorker
    from ray.rllib.models.torch.fcnet import FullyConnectedNetwork
    from ray.rllib.models.torch.torch_modelv2 import TorchModelV2
    from ray.rllib.policy import sample_batch
    from ray.rllib.utils.framework import try_import_torch

    torch, nn = try_import_torch()


    class Walk(gym.Env):
        observation_space = gym.spaces.Box(0.0, 99.0, (1,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def __init__(self, config):
            self.length, self.worker = config["length"], config.worker_index

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.t += 1
            return np.full(1, self.t, np.float32), 1.0, self.t >= self.length, False, {}


    class Net(TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, **kwargs):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            nn.Module.__init__(self)
            self.fc = FullyConnectedNetwork(obs_space, action_space, num_outputs, model_config, name + "_fc")

        def forward(self, input_dict, state, seq_lens):
            return self.fc(input_dict, state, seq_lens)[0], []

        def value_function(self):
            return self.fc.value_function()


    class Callbacks(DefaultCallbacks):
        def on_episode_end(self, *, worker: RolloutWorker, base_env, policies, episode: Episode, env_index, **kwargs):
            episode.custom_metrics["worker"] = worker.worker_index

        def on_postprocess_trajectory(self, *, postprocessed_batch, **kwargs):
            assert len(postprocessed_batch[sample_batch.SampleBatch.OBS])
"""
MAIN_2_6 = """
    import ray
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.algorithms.ppo.ppo import PPOConfig
    from of_mine import Callbacks, Net, Walk

    ray.init(num_cpus=2)
    config = (
        PPOConfig()
        .environment(Walk, env_config={"length": 5})
        .framework("torch")
        .rollouts(num_rollout_workers=1, rollout_fragment_length="auto")
        .training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1)
        .training(model={"custom_model": Net, "fcnet_hiddens": [8]})
        .callbacks(Callbacks)
    )
    algo = config.build()
    result = algo.train()
    assert result["episode_len_mean"] == 5 and result["custom_metrics"]["worker_mean"] == 1
    path = algo.save()
    algo.stop()
    again = Algorithm.from_checkpoint(path)
    assert again.iteration == 1 and again.train()["training_iteration"] == 2
    again.stop()
    print(result["training_iteration"])
"""
# Ray 2.60: the new API stack.
OF_2_60 = """
    import gymnasium as gym
    import numpy as np
    import ray
    import torch
    from ray.rllib.callbacks.callbacks import RLlibCallback
    from ray.rllib.core import columns
    from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
    from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
    from ray.rllib.env.multi_agent_env import MultiAgentEnv
    from torch import nn


    class Two(MultiAgentEnv):
        def __init__(self, config=None):
            super().__init__()
            self.agents = self.possible_agents = ["a", "b"]
            self.observation_spaces = {i: gym.spaces.Box(0.0, 99.0, (1,), np.float32) for i in "ab"}
            self.action_spaces = {i: gym.spaces.Discrete(2) for i in "ab"}

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return {i: np.zeros(1, np.float32) for i in "ab"}, {}

        def step(self, actions):
            self.t += 1
            over = self.t >= 5
            observations = {i: np.full(1, self.t, np.float32) for i in "ab"}
            return observations, {i: 1.0 for i in "ab"}, {"__all__": over}, {"__all__": False}, {}


    class Net(TorchRLModule, ValueFunctionAPI):
        def setup(self):
            width = self.model_config["width"]
            self.encoder = nn.Sequential(nn.Linear(1, width), nn.Tanh())
            self.logits, self.value = nn.Linear(width, 2), nn.Linear(width, 1)

        def _forward(self, batch, **kwargs):
            return {columns.Columns.ACTION_DIST_INPUTS: self.logits(self.encoder(batch[columns.Columns.OBS]))}

        def compute_values(self, batch, embeddings=None):
            return self.value(self.encoder(batch[columns.Columns.OBS])).squeeze(-1)


    class Callbacks(RLlibCallback):
        def on_episode_end(self, *, episode, metrics_logger, **kwargs):
            metrics_logger.log_value("length", len(episode), reduce="mean")
"""
MAIN_2_60 = """
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS
    from of_mine import Callbacks, Net, Two

    ray.init(num_cpus=2)
    spec = RLModuleSpec(module_class=Net, model_config={"width": 8})
    config = (
        PPOConfig()
        .environment(Two)
        .env_runners(num_env_runners=1)
        .multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda agent_id, episode, **kwargs: agent_id)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"a": spec, "b": spec}))
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        .callbacks(Callbacks)
    )
    algo = config.build_algo()
    result = algo.train()
    assert result[ENV_RUNNER_RESULTS]["length"] == 5
    assert algo.env_runner_group.foreach_env_runner("foreach_env", kwargs={"function": str})
    algo.restore_from_path(algo.save_to_path())
    algo.stop()
    print(result["training_iteration"])
"""


@pytest.mark.parametrize(
    ("of_mine", "program"),
    [(OF_0_8, MAIN_0_8), (OF_2_6, MAIN_2_6), (OF_2_60, MAIN_2_60)],
    ids=["0.8", "2.6", "2.60"],
)
def test_a_program_with_a_second_file_trains_with_workers(run_program, of_mine, program):
    code, out, err = run_program(program, files={"of_mine.py": of_mine})
    assert code == 0, err
    assert out.splitlines()[-1] == "1"
