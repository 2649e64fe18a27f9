"""AIRL's reward of states, used again where the dynamics are others (M5; Fu et al., arXiv:1710.11248, section 7.1).

    python benchmarks/reward_transfer.py                      three seeds of AIRL and of GAIL
    python benchmarks/reward_transfer.py --seeds 1 --algorithms AIRL

A reward is learned from 50 episodes of a SAC policy on Pendulum-v1. Then PPO begins anew, where the pendulum
has half its mass, with that reward in place of the environment's, and is judged by the environment's. GAIL's reward
reads the same: it is one for telling the expert's states from those of its own last policy, and need not be of use
to another one. The last line trains by the environment's own reward.
"""

import tempfile
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import PendulumEnv
from measure import ROOT, aligned, arguments, machine

from rllib import AIRLConfig, GAILConfig, PPOConfig, load_reward

DATA = ROOT / "tests" / "data" / "offline" / "pendulum_expert_sac_50eps.zip"
ALGORITHMS = {"AIRL": AIRLConfig, "GAIL": GAILConfig}
FIRST_SEED = 3000
EPISODES = 50
# Those of ppo/pendulum.
OF_PPO = {
    "train_batch_size": 4096, "sgd_minibatch_size": 64, "num_sgd_iter": 10, "lr": 1e-3, "gamma": 0.9, "lambda_": 0.95,
    "standardize_advantages": "minibatch", "use_kl_loss": False, "kl_coeff": 0.0, "grad_clip": 0.5, "clip_param": 0.2,
    "adam_epsilon": 1e-5, "vf_loss_coeff": 0.5, "vf_clip_param": None,
    "model": {"fcnet_hiddens": [64, 64], "free_log_std": True},
}  # fmt: skip


class Light(gymnasium.Wrapper):
    """Pendulum with half its mass; with a reward that was learned, that of the observation before the action."""

    def __init__(self, config):
        super().__init__(gymnasium.wrappers.TimeLimit(PendulumEnv(), 200))
        self.unwrapped.m = 0.5
        self._reward, self._seen = config.get("reward") and load_reward(config["reward"]), None

    def reset(self, **options):
        self._seen, info = self.env.reset(**options)
        return self._seen, info

    def step(self, action):
        seen, reward, terminated, truncated, info = self.env.step(action)
        if self._reward is not None:
            reward = float(self._reward.ask(self._seen[None])[0])
        self._seen = seen
        return seen, reward, terminated, truncated, info


def configured(config, env, seed: int, env_config=None, scale: bool = False):
    """PPO's settings; `scale`: rewards are divided by the deviation of returns, since a learned one has no unit."""
    config.environment(env, env_config=env_config or {}, normalize_returns=scale)
    return config.rollouts(num_rollout_workers=0, num_envs_per_worker=4).training(**OF_PPO).debugging(seed=seed)


def learned(name: str, seed: int, steps: int, place: Path) -> float:
    """Learns a reward and saves it; the return of the policy that it has trained meanwhile."""
    config = configured(ALGORITHMS[name](), "Pendulum-v1", seed)
    config.offline_data(demonstrations=str(DATA)).training(discriminator_inputs=["obs"])
    if name == "GAIL":
        config.training(reward_form="airl", absorbing=False)  # episodes have one length: no form is biased
    with config.build() as algo:
        algo.learn(steps)
        algo.save(place)
        return algo.evaluate(EPISODES)["episode_reward_mean"]


def trained_by(reward: Path | None, seed: int, steps: int) -> float:
    """The return, by the environment's own reward, of a policy that was trained by this one."""
    config = configured(PPOConfig(), Light, seed, {"reward": reward and str(reward)}, scale=reward is not None)
    with config.evaluation(evaluation_config={"env_config": {"reward": None}}).build() as algo:
        algo.learn(steps)
        return algo.evaluate(EPISODES)["episode_reward_mean"]


def main() -> None:
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150_000, help="of each training")
    parser.add_argument("--algorithms", nargs="*", choices=ALGORITHMS, default=list(ALGORITHMS))
    given = parser.parse_args()
    print(machine())
    lines = [("reward", "seed", "where it was learned", "anew with half the mass")]
    with tempfile.TemporaryDirectory() as directory:
        for name in given.algorithms:
            for seed in range(FIRST_SEED, FIRST_SEED + given.seeds):
                place = Path(directory) / f"{name}_{seed}"
                first = learned(name, seed, given.steps, place)
                lines.append((name, str(seed), f"{first:.0f}", f"{trained_by(place, seed, given.steps):.0f}"))
        lines.append(("its own", str(FIRST_SEED), "-", f"{trained_by(None, FIRST_SEED, given.steps):.0f}"))
    aligned(lines)
    for name in given.algorithms:
        print(f"{name}: {np.mean([float(line[3]) for line in lines if line[0] == name]):.0f}")


if __name__ == "__main__":
    main()
