"""The session: from `init()` (or the first use) to `shutdown()`."""

from __future__ import annotations

import atexit
import contextlib
import difflib
import importlib
import importlib.util
import inspect
import logging
import os
import platform
import threading
from collections.abc import Callable
from dataclasses import replace

from . import context
from .calls.options import check_name, check_quantity, check_resources, is_neutral
from .engines.base import Engine, EngineConfig
from .host import machine
from .runtime_env import check_runtime_env, merged

logger = logging.getLogger("runtime")

ENGINES = {"local": "runtime.engines.local", "ray": "runtime.engines.ray", "zeromq": "runtime.engines.zeromq"}
SMALLEST_STORE_BYTES = 2**20
MEMORY_USAGE_THRESHOLD = 0.95

# Further arguments of Ray's init, of all its versions: the ones without effect here, and replacements for others.
_WITHOUT_EFFECT = (
    *("configure_logging", "dashboard_host", "dashboard_port", "include_webui", "logging_config", "logging_format"),
    *("webui_host", "_enable_object_reconstruction", "_metrics_export_port"),
)
_REPLACED = {
    "_memory": "limit tasks and actors by .options(memory=...)",
    "_node_ip_address": "sessions are reached within this machine only",
    "_plasma_directory": "take object_spilling_directory for what does not fit into memory",
    "_redis_password": "sessions are private to their user",
    "_system_config": "take the arguments and environment variables of runtime.init",
    "_temp_dir": "set the environment variable XDG_RUNTIME_DIR or TMPDIR, where sessions have their directories",
    "job_config": "take namespace=... and runtime_env=...",
    "labels": "take resources={'name': 1} and ask for it in .options(resources=...)",
    "memory": "limit tasks and actors by .options(memory=...)",
    "redis_address": "take address='session' to join one of this machine, or engine='ray' with address=...",
    "redis_password": "sessions are private to their user",
}
_lock = threading.RLock()
_before_shutdown: list[Callable[[], None]] = []
_driver_pid: int | None = None  # the process that called init(); None where it has none, as in workers


class SessionContext(dict):
    """Result of `init`: the session's resources by name; as a context manager it ends the session.

        with runtime.init(num_cpus=2) as session:
            print(session["CPU"], session.session_dir)

    Attributes:
        address_info: "address" (for `init(address=...)` in another process), "session_dir", "session_id", "node_id" and
            "node_ip_address"; `session["node_id"]` finds them too, as in Ray.
        python_version: Python version of this process.
        dashboard_url: "", since there is none.
    """

    dashboard_url = ""
    python_version = platform.python_version()

    def __init__(self, resources: dict[str, float], address_info: dict[str, str]):
        super().__init__(resources)
        self.address_info = address_info

    @property
    def session_dir(self) -> str:
        """The directory of the session; "" where it has none."""
        return self.address_info["session_dir"]

    def disconnect(self) -> None:
        """Ends the session, as `shutdown` does."""
        shutdown()

    def __missing__(self, key):
        return self.address_info[key]

    def __enter__(self) -> SessionContext:
        return self

    def __exit__(self, *exception) -> None:
        shutdown()


def init(
    engine: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    object_store_memory: int | None = None,
    object_spilling_directory: str | os.PathLike | None = None,
    object_spilling_bytes: int | None = None,
    memory_usage_threshold: float | None = None,
    preload=(),
    ignore_reinit_error: bool = False,
    local_mode: bool = False,
    log_to_driver: bool = True,
    logging_level: int | str | None = None,
    address: str | None = None,
    include_dashboard: bool | None = None,
    namespace: str | None = None,
    runtime_env: dict | None = None,
    **of_ray,
) -> SessionContext:
    """Starts a session, on this machine or on a Ray cluster. Without it, the first use starts one with the defaults.

    Args:
        engine: "zeromq" (processes, the default), "ray" (a Ray cluster) or "local" (all in this process and in order,
            for debugging); without it the environment variable RUNTIME_ENGINE decides. An address in this place, where
            Ray takes it, is understood.
        num_cpus, num_gpus: how many to hand out; default what this process may use.
        resources: further resources of your own, name -> quantity.
        object_store_memory: bytes of shared memory that objects may take; default 30 % of the memory.
        object_spilling_directory: where objects go when that is full; default the first of $TMPDIR, /tmp and /var/tmp
            that is on a disk. Its files have no name, and vanish with the session.
        object_spilling_bytes: bytes of disk that objects may take; 0: none; default: all but 5 % of the disk.
        memory_usage_threshold: share of the machine's memory, or of what its control group may use, that may be in use.
            Beyond it tasks and actors are ended, those first that run again (OutOfMemoryError). 1: none is ended.
            Default: the environment variable RUNTIME_MEMORY_USAGE_THRESHOLD, else 0.95.
        preload: names of modules that worker processes find already imported, e.g. ["gymnasium"].
        ignore_reinit_error: do nothing when there is a session already, instead of raising.
        local_mode: the same as engine="local".
        log_to_driver: show what tasks and actors print, on the stream (stdout or stderr) that they print on. What
            several print alike within 5 s is shown once and counted, unless RUNTIME_DEDUP_LOGS=0 is set.
        logging_level: level of the logger "runtime", as logging.Logger.setLevel takes it; None leaves it as it is.
        address: "session" or, as in Ray, "auto": joins the session of this user that was started last, as a further
            driver; or the `session_dir` of the session to join. Its references and actors are its own and end with it;
            the session ends with the driver that has started it. None or "local": a new session.
            With engine="ray", a cluster's: "host:port", "auto" (one of this machine), "ray://host:port" or "local"
            (a new one here); without it RAY_ADDRESS decides, as in Ray.
        include_dashboard: goes to Ray; the other engines have no dashboard and take False (or None) only.
        namespace: namespace of the names of actors (see `get_actor`); default one of the session's own.
        runtime_env: {"env_vars": {...}, "working_dir": path} for all tasks and actors, not for this process; see
            `options.TaskOptions`. Ray takes what else it knows, as {"pip": [...]}.
        of_ray: further arguments of Ray's init, which go to Ray. The other engines log what has no effect here, such as
            dashboard_host, and refuse the rest with what to use instead.

    Returns:
        The session's resources by name, with its address; a context manager that ends the session.

    Raises:
        RuntimeError: there is a session already, or the new one's supervisor did not start.
        ValueError, TypeError: an argument that is unknown or cannot be; nothing is left running.
        OSError: no directory, socket or process could be made, e.g. on a full disk; nothing is left running.
        ConnectionError: there is no session, or cluster, at `address`.
        ImportError: engine="ray", and Ray is not installed or too old.
        PlatformError: engine="zeromq" on another system than Linux.
    """
    global _driver_pid
    if address is None and _is_address(engine):
        engine, address = None, engine
    with _lock:
        if context.current_engine() is not None:
            if ignore_reinit_error:
                return _session_context()
            raise RuntimeError(
                "there is a session already; call runtime.shutdown() first, or init(ignore_reinit_error=True)"
            )
        name = _engine_name(engine, local_mode)
        if name == "zeromq":
            machine.check_is_linux("tasks and actors in processes", "Use runtime.init('local'), all in this process")
        if name != "ray":
            _check_arguments_of_ray(of_ray)
        namespace = check_name("namespace", namespace)
        if name != "ray" and not is_neutral(include_dashboard, (None, False)):
            raise ValueError(
                f"include_dashboard={include_dashboard!r}: there is no dashboard; leave include_dashboard out"
            )
        environment = "" if name == "ray" else merged("", check_runtime_env("runtime_env", runtime_env))
        if logging_level is not None:
            logger.setLevel(logging_level)
        given = {"num_cpus": num_cpus, "num_gpus": num_gpus, "resources": resources}
        given["object_store_memory"] = object_store_memory
        if name == "ray" or is_neutral(address, (None, "local")):
            config = _config(num_cpus, num_gpus, resources, object_store_memory, preload, log_to_driver, environment)
            if name == "ray":
                given |= {"address": address, "namespace": namespace, "runtime_env": runtime_env}
                given |= {"include_dashboard": include_dashboard, **of_ray}
                given["object_spilling_directory"] = object_spilling_directory
                if object_spilling_bytes is not None:
                    raise ValueError("object_spilling_bytes is not available with Ray, which takes 95 % of the disk")
                if memory_usage_threshold is not None:
                    raise ValueError(
                        "memory_usage_threshold is a setting of each node in Ray: set RAY_memory_usage_threshold there"
                    )
                config = replace(config, given={key: value for key, value in given.items() if value is not None})
            else:
                config = replace(config, **_spilling(object_spilling_directory, object_spilling_bytes))
                config = replace(config, memory_usage_threshold=_memory_usage_threshold(memory_usage_threshold))
        else:
            given |= {"preload": preload or None, "object_spilling_directory": object_spilling_directory}
            given["object_spilling_bytes"] = object_spilling_bytes
            given["memory_usage_threshold"] = memory_usage_threshold
            _check_joinable(name, address, [key for key, value in given.items() if value is not None])
            config = EngineConfig({}, address=address, log_to_driver=bool(log_to_driver), environment=environment)
        config = replace(config, namespace=namespace or os.urandom(16).hex())
        started = importlib.import_module(ENGINES[name]).start(config)
        context.set_engine(started)
        if _driver_pid is None:
            atexit.register(shutdown)
        _driver_pid = os.getpid()
        return _session_context()


def _session_context() -> SessionContext:
    current = context.current_engine()
    return SessionContext(current.totals, current.address_info())


def shutdown() -> None:
    """Ends the session with all its tasks, actors and objects. Harmless when there is none."""
    with contextlib.ExitStack() as stack:
        stack.callback(_end_session)  # whatever comes before it, such as Ctrl-C
        if _driver_pid == os.getpid() and context.current_engine() is not None:
            for function in reversed(_before_shutdown):
                stack.callback(function)


def _end_session() -> None:
    with _lock:
        engine = context.current_engine()
        if engine is None or _driver_pid is None:
            if engine is not None:
                raise RuntimeError(
                    "runtime.shutdown() belongs to the process that called init(), not to a task or an actor"
                )
            return
        context.set_engine(None)
        if _driver_pid == os.getpid():
            engine.stop()


def before_shutdown(function: Callable[[], None]) -> Callable[[], None]:
    """Has a function called before each session of this process ends, while its actors can still be asked."""
    _before_shutdown.append(function)
    return function


def is_initialized() -> bool:
    """Whether there is a session in this process."""
    return context.current_engine() is not None


def engine() -> Engine:
    """The session's engine; starts a session with the defaults when there is none."""
    current = context.current_engine()
    if current is None:
        init(ignore_reinit_error=True)
        current = context.current_engine()
    return current


def _check_arguments_of_ray(given) -> None:
    for name in given:
        if name in _REPLACED:
            raise ValueError(f"init({name}=...) is Ray's; {_REPLACED[name]}, or leave it out")
        if name not in _WITHOUT_EFFECT:
            nearest = difflib.get_close_matches(name, inspect.signature(init).parameters, n=1, cutoff=0.5)
            hint = f". Did you mean {nearest[0]!r}?" if nearest else ""
            raise TypeError(f"init() got an unexpected keyword argument {name!r}{hint}")
    if given:
        logger.warning("without effect on this engine, and ignored: init(%s=...)", "=..., ".join(given))


def _check_joinable(engine_name, address, given) -> None:
    if not isinstance(address, str):
        raise TypeError(f"address must be a string or None, got {address!r}")
    if engine_name == "local":
        raise ValueError(f"address={address!r}: the engine 'local' is inside one process and cannot be joined")
    if address not in ("session", "auto") and (os.sep not in address or "://" in address):
        raise ValueError(
            f"address={address!r}: the engine {engine_name!r} runs on one machine; give 'session', or the directory of "
            f"a session, or take a Ray cluster: init(engine='ray', address={address!r})"
        )
    if given:
        raise ValueError(
            f"address={address!r} joins a session that has its resources already; leave out {', '.join(given)}"
        )


def _is_address(given) -> bool:
    """Whether this is an address instead of an engine's name: "auto", "session", a directory, or with a port."""
    return isinstance(given, str) and (given in ("auto", "session") or os.sep in given or ":" in given)


def _engine_name(given, local_mode) -> str:
    source = "engine" if given is not None else "the environment variable RUNTIME_ENGINE"
    name = given if given is not None else os.environ.get("RUNTIME_ENGINE") or "zeromq"
    if local_mode:
        if given not in (None, "local"):
            raise ValueError(f"local_mode=True means engine='local', but engine={given!r} was given as well")
        name = "local"
    if name not in ENGINES:
        raise ValueError(f"{source}={name!r} is unknown; there are {_known()}")
    return name


def _known() -> str:
    first, *others = sorted(map(repr, ENGINES), reverse=True)
    return f"{first}, {' and '.join(others)}"


def _config(num_cpus, num_gpus, resources, object_store_memory, preload, log_to_driver, environment) -> EngineConfig:
    num_cpus = machine.cpu_count() if num_cpus is None else check_quantity("num_cpus", num_cpus)
    gpu_ids = machine.gpu_ids()
    if num_gpus is not None:
        if check_quantity("num_gpus", num_gpus) != int(num_gpus):
            raise ValueError(f"num_gpus must be a whole number, got {num_gpus!r}")
        gpu_ids = tuple([*gpu_ids, *map(str, range(len(gpu_ids), int(num_gpus)))][: int(num_gpus)])
    memory = machine.memory_bytes()
    if object_store_memory is None:
        object_store_memory = int(0.3 * memory)
    elif check_quantity("object_store_memory", object_store_memory) < SMALLEST_STORE_BYTES:
        raise ValueError(
            f"object_store_memory={object_store_memory!r} is in bytes, and at least {SMALLEST_STORE_BYTES}"
        )
    totals = {
        "CPU": num_cpus,
        "GPU": len(gpu_ids),
        "memory": int(0.7 * memory),
        **check_resources("resources", resources),
    }
    return EngineConfig(
        resources={name: quantity for name, quantity in totals.items() if quantity},
        gpu_ids=gpu_ids,
        object_store_memory=int(object_store_memory),
        preload=_module_names(preload),
        log_to_driver=bool(log_to_driver),
        environment=environment,
        dedup_logs=os.environ.get("RUNTIME_DEDUP_LOGS", "1") != "0",
        timeline=os.environ.get("RUNTIME_TIMELINE", "0") not in ("", "0"),
    )


def _spilling(directory, size_bytes) -> dict:
    if directory is not None:
        directory = os.path.abspath(os.fspath(directory))
        if not os.path.isdir(directory) or not os.access(directory, os.W_OK | os.X_OK):
            raise ValueError(f"object_spilling_directory={directory!r} must be a directory that can be written to")
    if size_bytes is not None:
        size_bytes = int(check_quantity("object_spilling_bytes", size_bytes))
    return {"spilling_directory": directory, "spilling_bytes": size_bytes}


def _memory_usage_threshold(given) -> float:
    name = "memory_usage_threshold"
    if given is None:
        name = "the environment variable RUNTIME_MEMORY_USAGE_THRESHOLD"
        given = os.environ.get("RUNTIME_MEMORY_USAGE_THRESHOLD") or MEMORY_USAGE_THRESHOLD
    try:
        threshold = None if isinstance(given, bool) else float(given)
    except (TypeError, ValueError):
        threshold = None
    if threshold is None:
        raise TypeError(f"{name} must be a number, got {given!r}")
    if not 0 < threshold <= 1:
        raise ValueError(f"{name}={given!r} must be above 0 and at most 1, a share of the memory; 1 ends no process")
    return threshold


def _module_names(preload) -> tuple[str, ...]:
    if isinstance(preload, str) or not all(isinstance(name, str) for name in preload):
        raise TypeError(f"preload must be a list of module names, got {preload!r}")
    for name in preload:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise ValueError(f"preload names the module {name!r}, which is not installed")
    return tuple(preload)
