"""Changes of files that somebody makes who hands a checkpoint on: its manifest fits afterwards."""

import hashlib
import json
from pathlib import Path

from rllib.storage.checkpoint import MANIFEST


def rewrite(checkpoint: Path, name: str, content: bytes) -> None:
    """Gives a file of a checkpoint another content."""
    (checkpoint / name).write_bytes(content)
    manifest = json.loads((checkpoint / MANIFEST).read_bytes())
    manifest["files"][name] = {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (checkpoint / MANIFEST).write_text(json.dumps(manifest))
