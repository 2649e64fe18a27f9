"""Settings for rsl_rl, with the fields of isaaclab_rl/rsl_rl/rl_cfg.py; some are left open, as there."""

from dataclasses import MISSING, dataclass, field
from typing import Any

_LEFT_OPEN = field(default_factory=lambda: MISSING)


@dataclass
class ActorCriticCfg:
    class_name: str = "ActorCritic"
    init_noise_std: float = 0.5
    actor_obs_normalization: bool = True
    critic_obs_normalization: bool = True
    actor_hidden_dims: list = field(default_factory=lambda: [32, 16])
    critic_hidden_dims: list = field(default_factory=lambda: [48])
    activation: str = "elu"


@dataclass
class AlgorithmCfg:
    class_name: str = "PPO"
    value_loss_coef: float = 0.5
    use_clipped_value_loss: bool = True
    clip_param: float = 0.25
    entropy_coef: float = 0.002
    num_learning_epochs: int = 4
    num_mini_batches: int = 2
    learning_rate: float = 5e-4
    schedule: str = "adaptive"
    gamma: float = 0.98
    lam: float = 0.9
    desired_kl: float = 0.02
    max_grad_norm: float = 0.7


@dataclass
class PointRunnerCfg:
    class_name: str = "OnPolicyRunner"
    seed: int = 7
    num_steps_per_env: int = 8
    max_iterations: int = 2
    save_interval: int = 1
    experiment_name: str = "point_of_rsl_rl"
    run_name: str = ""
    empirical_normalization: Any = _LEFT_OPEN
    obs_groups: Any = _LEFT_OPEN
    clip_actions: float | None = None
    actor: Any = _LEFT_OPEN
    critic: Any = _LEFT_OPEN
    policy: ActorCriticCfg = field(default_factory=ActorCriticCfg)
    algorithm: AlgorithmCfg = field(default_factory=AlgorithmCfg)


@dataclass
class MemoryRunnerCfg(PointRunnerCfg):
    policy: Any = field(default_factory=lambda: ActorCriticCfg(class_name="ActorCriticRecurrent"))
