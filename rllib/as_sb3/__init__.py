"""Programs that were written for Stable-Baselines3, run without a change.

    python -m rllib.as_sb3 script.py ARGUMENTS

runs a program whose `from stable_baselines3 import ...` gives this library's objects, and so do `sb3_contrib`, `sbx`
and `rl_zoo3`. In a program or a notebook, `import rllib.as_sb3` as the first line does the same. It holds for this
process and its workers, and goes before a Stable-Baselines3 that is installed. A name that is not here raises
NotServedError where it is used (docs/start/from_sb3.md).
"""

from rllib.compat.programs import hook
from runtime import worker_imports

hook.install("stable_baselines3", "sb3_contrib", "sbx", "rl_zoo3")
worker_imports.add(__name__)
