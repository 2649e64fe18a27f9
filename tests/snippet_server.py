"""Runs Python files, each in a fork of a process that has imported the library and torch. Run as a script.

Standard input names a file a line; the answer is its exit code. It runs as `python FILE` would in the directory of the
file, where `output.txt` has what it writes.
"""

import contextlib
import gc
import os
import runpy
import sys
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
            # Not by a call in the loop: the interpreter is to end as ever, with what is registered for its exit.
            return run(Path(line.rstrip("\n")))
        _, status = os.wait()
        print(os.waitstatus_to_exitcode(status), flush=True)


def preload() -> None:
    """Imports all that the library loads on first use, as far as its packages are installed."""
    for name in rllib.__all__:
        with contextlib.suppress(ImportError):
            getattr(rllib, name)
    gc.freeze()  # a collection in a fork would copy all that was imported
    Sidecar.start = lambda self: None  # as in all tests that are not marked `sidecar` (conftest.py)


def run(path: Path) -> None:
    os.chdir(path.parent)
    with open(os.devnull, "rb") as nothing, open("output.txt", "wb") as output:
        for file, descriptors in ((nothing, (0,)), (output, (1, 2))):
            for descriptor in descriptors:
                os.dup2(file.fileno(), descriptor)
    np.random.seed()  # a process of its own would draw others, too
    torch.seed()
    sys.argv, sys.path[0] = [str(path)], str(path.parent)
    runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    main()
