"""Makes the checkpoints in this folder with Ray RLlib, and what their networks answer.

Run with the interpreter of an environment that has Ray 2.60 with RLlib:  python make.py [NAME ...]

Ray 2.60 has both API stacks; its old one writes the files that Ray 2.1 and later wrote (DQN and SAC do not build on it,
so that the tests put their files together). Of each checkpoint only the files that the import reads are kept.
"""

import shutil
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import ray
import torch
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.connectors.env_to_module import MeanStdFilter

HERE = Path(__file__).parent
ROWS = 16
KEPT = (
    "rllib_checkpoint.json", "algorithm_state.pkl", "class_and_ctor_args.pkl",
    "learner_group/learner/rl_module/default_policy/*.pkl", "policies/default_policy/policy_state.pkl",
    "env_runner/env_to_module_connector/*MeanStdFilter*/state.pkl",
)  # fmt: skip
SMALL = {"fcnet_hiddens": [8, 8]}


def new(config, env: str, model: dict, **training):
    config.environment(env).env_runners(num_env_runners=0, rollout_fragment_length=16).learners(num_learners=0)
    return config.training(**training).rl_module(model_config={**SMALL, **model}).debugging(seed=1)


def old(config, env: str, model: dict, **training):
    config.api_stack(enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False)
    config.environment(env).env_runners(num_env_runners=0, rollout_fragment_length=16).framework("torch")
    return config.training(model={**SMALL, **model}, **training).debugging(seed=1)


PPO = {"train_batch_size": 64, "minibatch_size": 32, "num_epochs": 1, "lr": 1e-3, "gamma": 0.9}
OFF = {"train_batch_size": 16, "num_steps_sampled_before_learning_starts": 16}
CONFIGS = {
    "ppo_new": lambda: new(PPOConfig(), "CartPole-v1", {"fcnet_activation": "relu"}, **PPO).env_runners(
        env_to_module_connector=lambda env=None, spaces=None, device=None: MeanStdFilter()
    ),
    "ppo_new_shared": lambda: new(PPOConfig(), "Pendulum-v1", {"vf_share_layers": True, "head_fcnet_hiddens": [6],
                                                               "head_fcnet_activation": "tanh"}, **PPO),
    "appo_new": lambda: new(APPOConfig(), "CartPole-v1", {}, train_batch_size_per_learner=32),
    "dqn_new": lambda: new(DQNConfig(), "CartPole-v1", {"head_fcnet_hiddens": [6]}, **OFF),
    "sac_new": lambda: new(SACConfig(), "Pendulum-v1", {"fusionnet_hiddens": [8]}, **OFF),
    "ppo_old": lambda: old(PPOConfig(), "CartPole-v1", {}, **PPO).env_runners(observation_filter="MeanStdFilter"),
    "ppo_old_shared": lambda: old(PPOConfig(), "Pendulum-v1", {"vf_share_layers": True, "free_log_std": True}, **PPO),
}  # fmt: skip


def answers(name: str, algorithm, observations: np.ndarray) -> dict[str, np.ndarray]:
    given = torch.from_numpy(observations)
    with torch.no_grad():
        if "_old" in name:
            policy = algorithm.get_policy()
            outputs, _ = policy.model({"obs": given, "obs_flat": given})
            return {"outputs": outputs.numpy(), "values": policy.model.value_function().numpy()}
        module = algorithm.learner_group._learner.module["default_policy"].unwrapped()
        if name == "ppo_new":
            connector = next(each for each in algorithm.env_runner._env_to_module if isinstance(each, MeanStdFilter))
            given = torch.from_numpy(np.stack([connector._filters[None](each, update=False) for each in observations]))
        if name.startswith("dqn"):
            return {"outputs": module.compute_q_values({"obs": given})["qf_preds"].numpy()}
        found = {"outputs": module.forward_inference({"obs": given})["action_dist_inputs"].numpy()}
        return found if name.startswith("sac") else {**found, "values": module.compute_values({"obs": given}).numpy()}


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    golden = {}
    if (HERE / "golden.npz").exists():
        golden |= np.load(HERE / "golden.npz")
    for name in sys.argv[1:] or CONFIGS:
        print(name, flush=True)
        algorithm = CONFIGS[name]().build_algo()
        for _ in range(2):
            algorithm.train()
        space = gym.make(algorithm.config.env).observation_space
        observations = np.random.default_rng(3).uniform(-1, 1, (ROWS, *space.shape)).astype(np.float32)
        given = observations
        if name == "ppo_old":
            filtered = algorithm.env_runner.filters["default_policy"]
            given = np.stack([filtered(each, update=False) for each in observations])
        golden |= {f"{name}/obs": observations}
        golden |= {f"{name}/{key}": each for key, each in answers(name, algorithm, given).items()}
        whole = HERE / f"{name}_whole"
        algorithm.save(str(whole))
        keep(whole, HERE / name)
        algorithm.stop()
        np.savez_compressed(HERE / "golden.npz", **golden)


def keep(whole: Path, target: Path) -> None:
    """Moves the files that are read."""
    shutil.rmtree(target, ignore_errors=True)
    for pattern in KEPT:
        for file in whole.glob(pattern):
            place = target / file.relative_to(whole)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
    shutil.rmtree(whole)


if __name__ == "__main__":
    main()
