"""Makes the stubs of the package, rllib-stubs/, whenever it is built or installed (see tools/stubs.py)."""

import os
import subprocess
import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StubsHook(BuildHookInterface):
    def initialize(self, version, build_data):
        root = Path(self.root)
        path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
        # An sdist brings the stubs along, so that a wheel is made of it without the sources of the tools.
        if (root / "tools" / "stubs.py").exists():
            program = [sys.executable, str(root / "tools" / "stubs.py")]
            subprocess.run(program, check=True, env={**os.environ, "PYTHONPATH": path})
