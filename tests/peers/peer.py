"""A peer's functions, called in the peer's own environment with our inputs."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
VENVS = ROOT / "benchmarks" / "peers" / "venvs"
FOLDER = Path(__file__).parent


class Peer:
    """A process of a peer's python that runs functions of theirs/. It starts with the first call.

    Args:
        name: of the environment that `benchmarks/peers/setup NAME` makes.

    Raises:
        FileNotFoundError: if it is not set up.
    """

    def __init__(self, name: str):
        self._python = VENVS / name / "bin" / "python"
        if not self._python.exists():
            raise FileNotFoundError(f"{self._python}: run benchmarks/peers/setup {name}")
        self._process: subprocess.Popen | None = None

    def _start(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment.pop("PYTHONPATH", None)
        self._directory = tempfile.TemporaryDirectory()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        self._process = subprocess.Popen(
            [str(self._python), "-P", str(FOLDER / "serve.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            text=True,
        )

    def call(self, function: str, settings: Any = None, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        """What `function(settings, **arrays)` of theirs returns.

        Args:
            function: "MODULE.FUNCTION" of theirs/.
            settings: plain data, its first argument.
            arrays: of any shape and type.

        Raises:
            RuntimeError: with the peer's traceback.
        """
        if self._process is None:
            self._start()
        given, results = (Path(self._directory.name, name) for name in ("given.npz", "results.npz"))
        np.savez(given, **arrays)
        message = {
            "function": function,
            "settings": {} if settings is None else settings,
            "given": str(given),
            "results": str(results),
        }
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        except BaseException:
            # Interrupted, by a time limit: its answer would be taken for that of the next call.
            self.close()
            raise
        if not answer:
            self._errors.seek(0)
            said = self._errors.read().decode()[-2000:]
            self.close()
            raise RuntimeError(f"the peer's process has ended: {said}")
        if problem := json.loads(answer)["problem"]:
            raise RuntimeError(problem)
        with np.load(results, allow_pickle=False) as found:
            return dict(found)

    def close(self) -> None:
        """Ends the process; the next call starts another one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            self._errors.close()
            self._directory.cleanup()
