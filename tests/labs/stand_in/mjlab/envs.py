"""As mjlab.envs."""

from point_mass import MjlabPointMass as ManagerBasedRlEnv

__all__ = ["ManagerBasedRlEnv"]
