"""RLlib's spelling of a policy server: `lambda ioctx: PolicyServerInput(ioctx, "localhost", 9900)`."""

import os
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from rllib.config.io_context import IOContext
from rllib.env.policy_server.server_settings import TOKEN_VARIABLE
from rllib.notices import log_unused_arguments


class PolicyServerInput:
    """Address of a policy server of a run. The server itself is made by the worker, see `.external(listen=...)`.

    Args:
        ioctx: the IOContext that the function of `input_` has got.
        address: host where it listens.
        port: port of the first worker; worker i listens on port + i - 1, whether the function adds that or not.
        idle_timeout, max_sample_queue_size: accepted for programs written for RLlib; they have no effect, which a
            warning says where they are given, since a client waits for its action, and no samples queue.
        token: that clients must send; it must be that of the variable RLLIB_TOKEN, which workers in other processes
            read.

    Raises:
        ValueError: for an address that is none, or a token that is not in the variable.
    """

    def __init__(
        self,
        ioctx: Any,
        address: str,
        port: int,
        idle_timeout: float = 3.0,
        max_sample_queue_size: int = 20,
        *,
        token: str | None = None,
    ):
        reason = "a client waits for its action, and no samples queue"
        waits, queues = idle_timeout != 3.0, max_sample_queue_size != 20
        log_unused_arguments("PolicyServerInput", reason, idle_timeout=waits, max_sample_queue_size=queues)
        if not isinstance(address, str) or not address or type(port) is not int or not 0 <= port < 65536:
            raise ValueError(f"PolicyServerInput needs a host and a port, but got {address!r:.80} and {port!r:.20}")
        if token is not None and token != os.environ.get(TOKEN_VARIABLE):
            raise ValueError(
                f"put the token of PolicyServerInput into the variable {TOKEN_VARIABLE}, where workers find it, or its "
                'file into .external(listen="HOST:PORT", token_file=...): settings are stored in checkpoints'
            )
        self.worker_index, self.address, self.port = getattr(ioctx, "worker_index", 0), address, port

    @property
    def listen(self) -> str:
        """The address as `.external(listen=...)` has it."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def made_for_first_worker(function: Callable[[IOContext], Any], config: Mapping[str, Any]) -> Any:
    """Result of a function of RLlib's `input_` for the first worker.

    Args:
        function: of an IOContext, whose worker has the attribute num_workers.
        config: settings of the run; the function may read it.
    """
    num_workers = config["num_rollout_workers"]
    worker = SimpleNamespace(num_workers=num_workers)
    return function(IOContext(config.get("log_dir"), config, min(num_workers, 1), worker))


def address_of_input(function: Callable[[IOContext], Any], config: Mapping[str, Any]) -> str:
    """The address "HOST:PORT" that a function of RLlib's `input_` gives the first worker.

    Raises:
        TypeError: if it returns no PolicyServerInput.
    """
    made = made_for_first_worker(function, config)
    if not isinstance(made, PolicyServerInput):
        raise TypeError(
            f"listen is a function that returns {made!r:.80}. It must return a PolicyServerInput, or be an address, "
            'as in .external(listen="127.0.0.1:9900")'
        )
    return made.listen
