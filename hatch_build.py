"""Makes the stubs of the package, rllib-stubs/, whenever it is built or installed (see tools/stubs.py).

A wheel has the tuned examples inside of the package, since folders beside it belong to everybody.
"""

import subprocess
import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StubsHook(BuildHookInterface):
    def initialize(self, version, build_data):
        root = Path(self.root)
        # An sdist brings the stubs along, so that a wheel is made of it without the sources of the tools.
        if (root / "tools" / "stubs.py").exists():
            # As a module of the current folder: where an editable install names this folder in a .pth file, pip takes
            # it out of PYTHONPATH for the build.
            subprocess.run([sys.executable, "-m", "tools.stubs"], check=True, cwd=root)
        if self.target_name == "wheel" and version != "editable":
            build_data["force_include"]["tuned_examples"] = "rllib/tuned_examples"
