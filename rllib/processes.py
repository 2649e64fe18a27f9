"""Processes of a run as the machine sees them: starting the runtime, cores and GPUs that they claim, shared memory."""

import functools
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

import runtime
from runtime.errors import PlatformError, UnschedulableError
from runtime.host.machine import cpu_count
from runtime.session import engine
from runtime.unpicklable import find, picklable

logger = logging.getLogger(__name__)

# Imported once by the zygote, so that workers share the pages and start within milliseconds.
PRELOAD = ("numpy", "gymnasium", "rllib.evaluation.worker_set", "rllib.evaluation.postprocess.advantages")
_WITHOUT_PROCESSES = (
    "Training and evaluation do without: .rollouts(num_rollout_workers=0), .learners(num_learners=0) and "
    ".evaluation(evaluation_num_workers=0)."
)


def exit_when_terminated() -> None:
    """From now on SIGTERM ends the program as sys.exit does, so that workers stop and open files are closed.

    A program that handles the signal keeps its handler. Without effect in other threads than the main one.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, functools.partial(_exit, os.getpid()))


def _exit(process: int, number: int, frame) -> None:
    if os.getpid() == process:
        sys.exit(128 + number)  # as a shell reports it
    signal.signal(number, signal.SIG_DFL)  # a fork has the handler, but not what it ends
    os.kill(os.getpid(), number)


def unpicklable_part(value, name: str) -> str | None:
    """The innermost part of a value that cannot be sent to another process: "f (captures lock) is a _thread.lock".

    Args:
        value: to be sent.
        name: name of the value.

    Returns:
        None where all of it can be sent.
    """
    if picklable(value):
        return None
    path, part = find(value, name)
    return f"{path} is a {type(part).__module__}.{type(part).__qualname__}"


def ensure_runtime() -> None:
    """Starts the runtime with the workers' imports done beforehand, unless it runs already.

    Raises:
        PlatformError: on another system than Linux.
    """
    if runtime.is_initialized():
        return
    try:
        runtime.init(preload=PRELOAD, ignore_reinit_error=True)  # another thread may have built one meanwhile
    except PlatformError as error:
        raise PlatformError(f"{error} {_WITHOUT_PROCESSES}") from None


def allocator(num_workers: int) -> Callable[..., np.ndarray]:
    """`allocate(shape, dtype)` for an array that becomes one of a WorkerSet's `shared` ones without being copied."""
    if not num_workers:
        return np.empty
    ensure_runtime()
    return runtime.empty


def num_cores() -> int:
    """Cores that this process may use; in a trial or another actor the CPUs that it holds, at least 1."""
    held = runtime.get_runtime_context().get_assigned_resources() if runtime.is_initialized() else {}
    return max(1, int(held["CPU"])) if "CPU" in held else cpu_count()


def num_free_cores() -> int:
    """Cores that this process may use and no process of its session has claimed, at least 1.

    A trial has the CPUs that it holds; elsewhere they are those that no worker, trial or task holds.
    """
    cores = num_cores()
    if not runtime.is_initialized() or "CPU" in runtime.get_runtime_context().get_assigned_resources():
        return cores
    return max(1, min(cores, int(runtime.available_resources().get("CPU", 0))))


class GpuClaim(NamedTuple):
    """GPUs that processes of one kind ask for.

    Attributes:
        count: number of the processes.
        each: GPUs of each; several processes share one GPU if this is a fraction.
        what: the processes.
        setting: name of the setting that says `each`.
    """

    count: int
    each: float
    what: str
    setting: str


def check_cores(count: int, setting: str) -> None:
    """Refuses more cores for this process than the machine has.

    Args:
        count: number that is asked for.
        setting: name of the setting that says it.

    Raises:
        ValueError: naming both numbers.
    """
    if count > (there := cpu_count()):
        raise ValueError(
            f"{setting}={count}, but this process may use {there} of the machine's cores, and threads that share one "
            f"wait for one another. Use .learners({setting}={there})."
        )


def check_gpus(claims: Sequence[GpuClaim]) -> None:
    """Refuses what would wait for GPUs for ever: the processes of a run hold theirs at the same time.

    Raises:
        UnschedulableError: if they ask for more than the session has, and no autoscaler adds nodes.
    """
    claims = [claim for claim in claims if claim.count and claim.each]
    if not claims:
        return
    ensure_runtime()
    asked, total = sum(claim.count * claim.each for claim in claims), runtime.cluster_resources().get("GPU", 0)
    # A fraction is of one GPU: three processes with 0.6 each need three. Fractions have four digits (options.py).
    per_gpu = [int(1 / claim.each + 1e-3) or 1 / claim.each for claim in claims]
    fits = all(claim.count <= total * number for claim, number in zip(claims, per_gpu))
    if (fits and asked <= total + 1e-3) or engine().can_grow():
        return
    parts = " and ".join(f"{claim.count} {claim.what} with {claim.setting}={claim.each:g} each" for claim in claims)
    raise UnschedulableError(
        f"{parts} ask for {asked:g} GPUs, but this session has {total:g}. Use fewer of these processes or smaller "
        "fractions of a GPU, such as .resources(num_gpus=0.5), or give the session more: "
        "runtime.init(num_gpus=...), or further nodes of a Ray cluster."
    )


def log_crowd(what: str, count: int, cpus_each: float) -> None:
    """Logs that processes of one kind claim more CPUs than there are, and thus take turns.

    Args:
        what: the processes.
        count: number of them.
        cpus_each: CPUs that each claims, num_cpus_per_worker.
    """
    if not count:
        return
    ensure_runtime()
    cpus, asked = runtime.cluster_resources().get("CPU", 0), count * cpus_each
    if asked > cpus and not engine().can_grow():
        logger.warning(
            "%d %s with num_cpus_per_worker=%g claim %g CPUs, but this session has %g: they take turns, which is "
            "seldom faster than %d of them with more num_envs_per_worker",
            *(count, what, cpus_each, asked, cpus, max(1, int(cpus // max(cpus_each, 1)))),
        )
