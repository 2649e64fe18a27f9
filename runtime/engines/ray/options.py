"""The options of tasks, actors and calls as Ray takes them."""

from __future__ import annotations

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...calls.options import DYNAMIC, STREAMING, ActorOptions, TaskOptions
from ..definitions import CallOptions
from .placement import strategy_options
from .worker import WORKING_DIR, RaisedAgain


def task_options(options: TaskOptions, what: str) -> dict:
    """Options of a remote function; `what` is its name for messages."""
    return {
        "num_cpus": options.num_cpus,
        "num_gpus": options.num_gpus,
        "resources": options.resources or None,
        "memory": options.memory or None,
        **returned(options.returns),
        "max_retries": options.max_retries,
        "retry_exceptions": [RaisedAgain] if options.retry_exceptions else False,
        "max_calls": options.max_calls,
        "runtime_env": _variables(options.runtime_env),
        **strategy_options(options.scheduling_strategy, what),
    }


def actor_options(options: ActorOptions, node: str | None, what: str) -> dict:
    """Options of an actor that goes to `node`, if it can start there now, or to where Ray places it."""
    cpus = 0 if options.oversubscribe else options.num_cpus
    if cpus is None and options.held():
        cpus = 0  # with other resources Ray would hold one
    placed = {"num_cpus": cpus} if cpus is not None else {}
    placed |= strategy_options(options.scheduling_strategy, what)
    if options.max_concurrency is not None:
        placed["max_concurrency"] = options.max_concurrency
    if node is not None:
        # Elsewhere while others hold its GPUs or custom resources there. No public strategy of Ray does both.
        placed["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True, _spill_on_unavailable=True)
    return {
        **placed,
        "num_gpus": options.num_gpus or None,
        "resources": options.resources or None,
        "memory": options.memory or None,
        "runtime_env": _variables(options.environment),
        "name": options.name,
        "namespace": options.namespace,
        "lifetime": "detached" if options.detached else None,
        "get_if_exists": options.get_if_exists,
        "max_restarts": options.max_restarts,
        "max_task_retries": options.max_task_retries or 0,
        "max_pending_calls": options.max_pending_calls,
    }


def call_options(options: CallOptions | None) -> dict:
    """Options of a call of an actor; None: it is a plain one. max_pending_calls is the actor's on Ray."""
    if options is None:
        return {}
    group = {} if options.concurrency_group is None else {"concurrency_group": options.concurrency_group}
    return {
        **group,
        "max_task_retries": options.max_task_retries,
        "retry_exceptions": [RaisedAgain] if options.retry_exceptions else False,
    }


def _variables(runtime_env: dict) -> dict | None:
    """The variables of a runtime_env: Ray sees no more of it. The directory is one of them; `worker` enters it."""
    variables = dict(runtime_env.get("env_vars", {}))
    if directory := runtime_env.get("working_dir"):
        variables[WORKING_DIR] = directory
    return {"env_vars": variables} if variables else None


def returned(returns: int) -> dict:
    """num_returns of a call with this number of values; see options.return_code."""
    if returns < DYNAMIC:
        return {"num_returns": max(1, returns)}
    if returns == DYNAMIC:
        return {"num_returns": "dynamic"}
    return {"num_returns": "streaming", "_generator_backpressure_num_objects": returns - STREAMING or -1}
