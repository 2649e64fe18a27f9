"""The first code of the node, the zygote and spawned workers. Run as a script: python -I boot.py CONFIG_JSON

The config names the `module` whose `main(config)` is called under the driver's import path, `path`; `inherited` are
descriptors for this process alone. A node gets `main(config, zygote's pid, socket to it)`: the zygote imports most, so
it is started before the node imports anything. Nothing of the runtime can be imported here, at the top.
"""

import importlib
import json
import os
import socket
import sys
from collections.abc import Collection

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # a thread forbids the fork


def start_zygote(config: dict):
    """Starts the zygote as a child.

    Returns:
        Its pid and the socket to it.
    """
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.set_inheritable(its.fileno(), True)
    given = json.loads(config["environment"] or "{}").get("env_vars", {})
    defaults = {name: "1" for name in THREAD_VARIABLES if name not in os.environ and name not in given}
    arguments = {
        "module": "runtime.engines.zeromq.session.zygote",
        "path": config["path"],
        "channel": its.fileno(),
        "parent": os.getpid(),
        "preload": config["preload"],
        "env_vars": given,
        "defaults": list(defaults),
        "outer": {name: os.environ.get(name) for name in given},
    }
    pid = os.posix_spawn(sys.executable, command(arguments, given), {**os.environ, **defaults, **given})
    its.close()
    return pid, ours


def command(config: dict, env_vars: Collection[str] = ()) -> list[str]:
    """The command line of a process that begins here, with these variables of the user in its environment."""
    # -I ignores the variables that Python itself reads; -P keeps this file's directory out of the import path as well.
    isolation = "-P" if any(name.startswith("PYTHON") for name in env_vars) else "-I"
    return [sys.executable, isolation, os.path.abspath(__file__), json.dumps(config)]


def main():
    config = json.loads(sys.argv[1])
    for descriptor in config.get("inherited", {}).values():
        os.set_inheritable(descriptor, False)
    zygote = start_zygote(config) if config.get("has_zygote") else ()
    sys.path[:] = config["path"]
    importlib.import_module(config["module"]).main(config, *zygote)


if __name__ == "__main__":
    main()
