"""As isaaclab_tasks: its import registers tasks, once the application runs."""

import gymnasium
from isaaclab import app

assert app.started, "the application is not running"

AGENTS = f"{__name__}.agents"
ENTRIES = {
    "Isaac-Point-v0": {"rsl_rl_cfg_entry_point": f"{AGENTS}.rsl_rl:PointRunnerCfg"},
    "Isaac-Point-Play-v0": {},
    "Isaac-Point-Own-v0": {
        "rllib_cfg_entry_point": f"{AGENTS}:point.yaml",
        "rsl_rl_other_cfg_entry_point": f"{AGENTS}.rsl_rl:PointRunnerCfg",
    },
    "Isaac-Point-Function-v0": {"rllib_cfg_entry_point": f"{AGENTS}.own:point"},
    "Isaac-Point-Dict-v0": {"rllib_cfg_entry_point": {"max_iterations": 2, "config": {"gamma": 0.5}}},
    "Isaac-Point-Memory-v0": {"rsl_rl_cfg_entry_point": f"{AGENTS}.rsl_rl:MemoryRunnerCfg"},
    "Isaac-Point-Missing-v0": {"rsl_rl_cfg_entry_point": f"{AGENTS}.needs_a_package:Cfg"},
    "Isaac-Point-Bare-v0": {},
}

for name, entry in ENTRIES.items():
    if name not in gymnasium.registry:
        gymnasium.register(
            id=name,
            entry_point="point_mass:PointMassEnv",
            disable_env_checker=True,
            kwargs={"env_cfg_entry_point": "point_mass:PointMassCfg", **entry},
        )
