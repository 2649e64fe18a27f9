"""A peer's functions, called in the peer's own environment with our inputs."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
VENVS = ROOT / "benchmarks" / "peers" / "venvs"
FOLDER = Path(__file__).parent


class Peer:
    """A process of a peer's python that runs functions of theirs/.

    Args:
        name: of the environment that `benchmarks/peers/setup NAME` makes.

    Raises:
        FileNotFoundError: if it is not set up.
    """

    def __init__(self, name: str):
        python = VENVS / name / "bin" / "python"
        if not python.exists():
            raise FileNotFoundError(f"{python}: run benchmarks/peers/setup {name}")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment.pop("PYTHONPATH", None)
        self._directory = tempfile.TemporaryDirectory()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        self._process = subprocess.Popen(
            [str(python), "-P", str(FOLDER / "serve.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            text=True,
        )

    def call(self, function: str, settings: dict | None = None, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        """What `function(settings, **arrays)` of theirs returns.

        Args:
            function: "MODULE.FUNCTION" of theirs/.
            settings: plain data.
            arrays: of any shape and type.

        Raises:
            RuntimeError: with the peer's traceback.
        """
        given, results = (Path(self._directory.name, name) for name in ("given.npz", "results.npz"))
        np.savez(given, **arrays)
        message = {"function": function, "settings": settings or {}, "given": str(given), "results": str(results)}
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self._errors.seek(0)
            raise RuntimeError(f"the peer's process has ended: {self._errors.read().decode()[-2000:]}")
        if problem := json.loads(answer)["problem"]:
            raise RuntimeError(problem)
        with np.load(results, allow_pickle=False) as found:
            return dict(found)

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()
        self._directory.cleanup()
