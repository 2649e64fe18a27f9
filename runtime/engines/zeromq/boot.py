"""Where the node and the zygote begin. Run as a script, so that the zygote starts before anything is imported.

    python -I boot.py CONFIG_JSON

The config's `path` is the driver's import path; `inherited` are descriptors for this process alone; the rest is for
`node.main`.
"""

import json
import os
import socket
import sys

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # a thread forbids the fork


def start_zygote(config: dict):
    """Starts the zygote as a child.

    Returns:
        Its pid and the socket to it.
    """
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.set_inheritable(its.fileno(), True)
    arguments = {
        "role": "zygote",
        "path": config["path"],
        "channel": its.fileno(),
        "parent": os.getpid(),
        "preload": config["preload"],
    }
    environment = {**dict.fromkeys(THREAD_VARIABLES, "1"), **os.environ}
    pid = os.posix_spawn(sys.executable, command(arguments), environment)
    its.close()
    return pid, ours


def command(config: dict) -> list[str]:
    """The command line of a process that begins here."""
    return [sys.executable, "-I", os.path.abspath(__file__), json.dumps(config)]


def main():
    config = json.loads(sys.argv[1])
    for descriptor in config.get("inherited", {}).values():
        os.set_inheritable(descriptor, False)
    zygote = start_zygote(config) if config["role"] == "node" else None
    sys.path[:] = config["path"]
    if zygote is not None:
        from runtime.engines.zeromq import node

        node.main(config, *zygote)
    else:
        from runtime.engines.zeromq import zygote as process

        if config["role"] == "zygote":
            process.main(config["channel"], config["parent"], config["preload"])
        else:
            process.spawned(config["settings"], config["parent"])


if __name__ == "__main__":
    main()
