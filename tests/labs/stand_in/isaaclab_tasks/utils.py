"""As isaaclab_tasks.utils."""

from point_mass import PointMassCfg


def parse_env_cfg(task_name, device="cuda:0", num_envs=None, use_fabric=None):
    cfg = PointMassCfg()
    cfg.sim.device = device
    if num_envs is not None:
        cfg.scene.num_envs = num_envs
    return cfg
