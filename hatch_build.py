"""What a build does beside copying files, whenever the package is built or installed.

- The stubs of the package, rllib-stubs/, are made (tools/stubs.py).
- A wheel has the tuned examples inside of the package, since folders beside it belong to everybody.
- The description is README.md with links to the repository, since an index shows it alone.
"""

import re
import subprocess
import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


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


class DescriptionHook(MetadataHookInterface):
    def update(self, metadata):
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, metadata["urls"]["Repository"])}


def absolute(text: str, repository: str) -> str:
    """A page of Markdown whose links and pictures lie in the repository; those within the page and elsewhere stay."""
    return re.sub(r"(\]\()(?!https?:|#|mailto:)", rf"\1{repository}/", text)
