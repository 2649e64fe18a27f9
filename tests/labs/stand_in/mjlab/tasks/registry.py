"""As mjlab.tasks.registry."""

from types import SimpleNamespace

from point_mass import PointMassCfg

_RUNNER = {
    "num_steps_per_env": 16,
    "max_iterations": 2,
    "save_interval": 1,
    "experiment_name": "point_of_mjlab",
    "seed": 42,
    "obs_groups": {"actor": ("actor",), "critic": ("critic",)},
    "actor": {
        "class_name": "MLPModel",
        "hidden_dims": (32,),
        "activation": "elu",
        "obs_normalization": True,
        "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"},
        "cnn_cfg": None,
        "rnn_type": None,
    },
    "critic": {"class_name": "MLPModel", "hidden_dims": (24, 24), "activation": "elu", "obs_normalization": True},
    "algorithm": {"class_name": "PPO", "num_mini_batches": 4, "learning_rate": 1e-3, "entropy_coef": 0.005},
}


def list_tasks():
    return ["Mjlab-Point", "Mjlab-Tracking"]


def load_env_cfg(task_name, play=False):
    assert task_name in list_tasks()
    commands = {"motion": SimpleNamespace(motion_file="")} if task_name == "Mjlab-Tracking" else {}
    return PointMassCfg(commands=commands, episode_length_s=5.0 if play else 2.0)


def load_rl_cfg(task_name):
    return _RUNNER
