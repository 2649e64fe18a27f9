"""Programs that were written for Ray, run without a change.

    python -m rllib.as_ray script.py ARGUMENTS

runs a program whose `import ray` and `from ray.rllib... import ...` give this library's objects. In a program or a
notebook, `import rllib.as_ray` as the first line does the same. It holds for this process and its workers, and goes
before a Ray that is installed. A name that is not here raises NotServedError where it is used; `rllib convert` lists
all of them, and writes our imports instead (docs/start/from_rllib.md).
"""

from rllib.compat.programs import hook, old_gym
from runtime import worker_imports

hook.install("ray")
old_gym.install()
worker_imports.add(__name__)
