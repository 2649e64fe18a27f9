"""Points that are to go to a target, with the interface of Isaac Lab's environments and with that of mjlab's.

What defines the interface, at isaac-sim/IsaacLab 2.3.2 (below source/) and mujocolab/mjlab 1.6.0 (below src/); facts,
and no code of theirs:

- isaaclab/isaaclab/envs/direct_rl_env.py, `reset` and `step`: (groups, extras) and (groups, rewards, terminated,
  time-outs, extras), all tensors on one device. Ended environments are reset within a step, and no final observation is
  kept. `_configure_gym_env_spaces`: a Dict of the group "policy" and, with a state space, "critic".
- isaaclab/isaaclab/envs/manager_based_rl_env.py, `_reset_idx`: extras["log"] is a new dict at each reset of some, and
  stays until the next. Properties: `num_envs`, `device`, `step_dt`, `max_episode_length`; attributes `cfg`,
  `episode_length_buf`, `common_step_counter`, `extras`.
- isaaclab_tasks/isaaclab_tasks/utils/parse_cfg.py, `parse_env_cfg`; isaaclab/isaaclab/app/app_launcher.py,
  `AppLauncher`.
- isaaclab_rl's scripts record by gymnasium.wrappers.RecordVideo, mjlab/utils/wrappers/video_recorder.py by its own
  VideoRecorder: both count steps from 0 on.
- mjlab/envs/manager_based_rl_env.py: no gymnasium.Env, `device` an argument, groups "actor" and "critic", spaces of
  mjlab/utils/spaces.py; mjlab/tasks/registry.py: `list_tasks`, `load_env_cfg`, `load_rl_cfg`.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import torch


@dataclass
class SceneCfg:
    num_envs: int = 32
    env_spacing: float = 2.0


@dataclass
class SimCfg:
    device: str = "cpu"
    dt: float = 0.05
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81)


@dataclass
class PointMassCfg:
    scene: SceneCfg = field(default_factory=SceneCfg)
    sim: SimCfg = field(default_factory=SimCfg)
    decimation: int = 2
    episode_length_s: float = 2.0
    seed: int | None = None
    is_finite_horizon: bool = False
    asymmetric: bool = True
    as_arrays: bool = False
    commands: dict = field(default_factory=dict)
    events: dict = field(default_factory=lambda: {"push": SimpleNamespace(force=1.0)})


class Points:
    """The points themselves: a position and a velocity in the plane, a hidden mass, and a target at the origin."""

    def __init__(self, cfg: PointMassCfg, device: str):
        self.cfg, self.num_envs, self.device = cfg, cfg.scene.num_envs, device
        self.step_dt = cfg.sim.dt * cfg.decimation
        self.max_episode_length = math.ceil(cfg.episode_length_s / self.step_dt)
        self.common_step_counter, self.extras, self.closed = 0, {}, False
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long, device=device)
        self.seeds: list[int] = []
        self.counted: list[int] = []  # values of common_step_counter at which curricula were computed
        if cfg.seed is not None:
            self.seed(cfg.seed)
        self.state = torch.zeros(self.num_envs, 4, device=device)
        self.mass = torch.ones(self.num_envs, 1, device=device)
        self.sums = torch.zeros(self.num_envs, device=device)

    def seed(self, seed: int) -> int:
        self.seeds.append(seed)
        torch.manual_seed(seed)
        return seed

    def begin(self, ids: torch.Tensor) -> None:
        count = len(ids)
        self.counted.append(self.common_step_counter)
        self.extras["log"] = {"Episode_Reward/near": self.sums[ids].mean(), "Episode_Termination/away": 0.5}
        self.state[ids] = torch.cat((torch.rand(count, 2) * 2 - 1, torch.zeros(count, 2)), 1).to(self.device)
        self.mass[ids] = 0.5 + torch.rand(count, 1, device=self.device)
        self.episode_length_buf[ids] = 0
        self.sums[ids] = 0.0

    def reset_all(self, seed: int | None) -> None:
        if seed is not None:
            self.seed(seed)
        self.begin(torch.arange(self.num_envs, device=self.device))

    def advance(self, action: torch.Tensor):
        assert isinstance(action, torch.Tensor) and action.shape == (self.num_envs, 2)
        position, velocity = self.state.split(2, 1)
        velocity = 0.9 * velocity + self.step_dt * action.to(self.device).clamp(-5, 5) / self.mass
        self.state = torch.cat((position + self.step_dt * velocity, velocity), 1)
        self.episode_length_buf += 1
        self.common_step_counter += 1
        distance = self.state[:, :2].norm(dim=1)
        terminated, time_outs = distance > 2.0, self.episode_length_buf >= self.max_episode_length
        rewards = self.step_dt * (1.0 - distance)
        self.sums += rewards
        if len(ids := (terminated | time_outs).nonzero().squeeze(-1)):
            self.begin(ids)
        return rewards, terminated, time_outs

    def groups(self, name: str) -> dict:
        groups = {name: self.state.clone()}
        if self.cfg.asymmetric:
            groups["critic"] = torch.cat((self.state, self.mass), 1)
        return {key: part.numpy() for key, part in groups.items()} if self.cfg.as_arrays else groups


class PointMassEnv(gymnasium.Env):
    """As isaaclab.envs.DirectRLEnv."""

    is_vector_env = True
    metadata = {"render_modes": [None, "human", "rgb_array"]}  # noqa: RUF012  (gymnasium's form)

    def __init__(self, cfg: PointMassCfg, render_mode: str | None = None, **kwargs):
        self.cfg, self.render_mode = cfg, render_mode
        self.points = Points(cfg, cfg.sim.device)
        self.single_observation_space = gymnasium.spaces.Dict()
        self.single_observation_space["policy"] = gymnasium.spaces.Box(-np.inf, np.inf, (4,))
        if cfg.asymmetric:
            self.single_observation_space["critic"] = gymnasium.spaces.Box(-np.inf, np.inf, (5,))
        self.single_action_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
        batch = gymnasium.vector.utils.batch_space
        self.observation_space = batch(self.single_observation_space["policy"], self.num_envs)
        self.action_space = batch(self.single_action_space, self.num_envs)

    num_envs = property(lambda self: self.points.num_envs)
    device = property(lambda self: self.points.device)
    step_dt = property(lambda self: self.points.step_dt)
    max_episode_length = property(lambda self: self.points.max_episode_length)

    @property
    def common_step_counter(self):
        return self.points.common_step_counter

    @common_step_counter.setter
    def common_step_counter(self, value):
        self.points.common_step_counter = value

    @property
    def episode_length_buf(self):
        return self.points.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, value):
        self.points.episode_length_buf = value

    def reset(self, seed=None, options=None):
        self.points.reset_all(seed)
        return self.points.groups("policy"), self.points.extras

    def step(self, action):
        results = self.points.advance(action)
        return self.points.groups("policy"), *results, self.points.extras

    def render(self):
        return np.full((4, 4, 3), len(self.points.counted) % 256, np.uint8)

    def close(self):
        self.points.closed = True


class Recorder(gymnasium.Wrapper):
    """As gymnasium's RecordVideo and mjlab's VideoRecorder: a file for each video that has ended."""

    def __init__(self, env, video_folder, step_trigger, video_length, name_prefix="rl-video", disable_logger=False):
        self.env, self.folder, self.trigger, self.length = env, Path(video_folder), step_trigger, video_length
        self.prefix, self.made, self.frames, self.path = name_prefix, 0, [], None
        self.folder.mkdir(parents=True, exist_ok=True)
        assert env.render_mode == "rgb_array"

    unwrapped = property(lambda self: self.env.unwrapped)

    def reset(self, **kwargs):
        return self.env.reset(**kwargs)

    def step(self, action):
        if self.path is None and self.trigger(self.made):
            self.path = self.folder / f"{self.prefix}-step-{self.made}.mp4"
        self.made += 1
        result = self.env.step(action)
        if self.path:
            self.frames.append(self.env.render())
            if len(self.frames) == self.length:
                self.finish()
        return result

    def finish(self):
        if self.path:
            self.path.write_text(str(len(self.frames)))
        self.frames, self.path = [], None

    def close(self):
        self.finish()
        self.env.close()


@dataclass
class Space:
    """As mjlab.utils.spaces.Space."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"


@dataclass
class BoxSpace(Space):
    low: float = -math.inf
    high: float = math.inf


@dataclass
class DictSpace(Space):
    spaces: dict[str, Space] = field(default_factory=dict)


class MjlabPointMass:
    """As mjlab.envs.ManagerBasedRlEnv."""

    is_vector_env = True
    metadata = {"render_modes": [None, "rgb_array"]}  # noqa: RUF012

    def __init__(self, cfg: PointMassCfg, device: str, render_mode: str | None = None, **kwargs):
        self.points, self.cfg, self.render_mode = Points(cfg, device), cfg, render_mode
        parts = {"actor": BoxSpace((4,)), "critic": BoxSpace((5,))}
        self.single_observation_space, self.single_action_space = DictSpace(spaces=parts), BoxSpace((2,))

    unwrapped = property(lambda self: self)
    num_envs, device, step_dt = PointMassEnv.num_envs, PointMassEnv.device, PointMassEnv.step_dt
    max_episode_length, common_step_counter = PointMassEnv.max_episode_length, PointMassEnv.common_step_counter
    episode_length_buf = PointMassEnv.episode_length_buf

    def reset(self, *, seed=None, env_ids=None, options=None):
        self.points.reset_all(seed)
        return self.points.groups("actor"), self.points.extras

    def step(self, action):
        results = self.points.advance(action)
        return self.points.groups("actor"), *results, self.points.extras

    render = PointMassEnv.render

    def close(self):
        self.points.closed = True
