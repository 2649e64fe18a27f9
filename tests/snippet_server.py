"""Runs Python files, each in a fork of a process that has imported the library and torch. Run as a script.

Standard input names a file a line; the answer is its exit code. It runs as `python FILE` would in the directory of the
file, where `output.txt` has what it writes, but that algorithms make one epoch by default.
"""

import atexit
import contextlib
import dataclasses
import gc
import os
import runpy
import sys
import threading
import traceback
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # an optimizer imports it, which takes as long as torch itself

import rllib
from rllib.runs.sidecar import Sidecar


def main() -> None:
    preload()
    for line in sys.stdin:
        if os.fork() == 0:
            # As the interpreter ends, but for the freeing of all that was imported, which takes 0.3 s.
            code = run(Path(line.rstrip("\n")))
            threading._shutdown()
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.wait()
        print(os.waitstatus_to_exitcode(status), flush=True)


def preload() -> None:
    """Imports all that the library loads on first use, as far as its packages are installed."""
    for name in rllib.__all__:
        with contextlib.suppress(ImportError):
            getattr(rllib, name)
    for name in rllib.__all__:
        if name.endswith("Config"):
            lighten(getattr(rllib, name).settings)
    gc.freeze()  # a collection in a fork would copy all that was imported
    Sidecar.start = lambda self: None  # as in all tests that are not marked `sidecar` (conftest.py)


def lighten(settings: dict) -> None:
    """Changes a default that no program shows: PPO's 30 epochs take five times as long as its samples."""
    if "num_sgd_iter" in settings:
        settings["num_sgd_iter"] = dataclasses.replace(settings["num_sgd_iter"], default=1)


def run(path: Path) -> int:
    """Runs a file as `python FILE`; returns the exit code."""
    os.chdir(path.parent)
    with open(os.devnull, "rb") as nothing, open("output.txt", "wb") as output:
        for file, descriptors in ((nothing, (0,)), (output, (1, 2))):
            for descriptor in descriptors:
                os.dup2(file.fileno(), descriptor)
    np.random.seed()  # a process of its own would draw others, too
    torch.seed()
    sys.argv, sys.path[0] = [str(path)], str(path.parent)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
