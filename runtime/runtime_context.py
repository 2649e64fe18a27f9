"""Where the calling code runs."""

from __future__ import annotations

from .engines.base import Context


class RuntimeContext:
    """What `get_runtime_context()` gives. Ids are hexadecimal strings, None where there is no such thing."""

    def __init__(self, context: Context):
        self._context = context

    def get_session_id(self) -> str:
        """Id of the session: one `init()` to its `shutdown()`."""
        return self._context.session_id

    get_job_id = get_session_id

    def get_node_id(self) -> str:
        """Id of this machine in the session."""
        return self._context.node_id

    def get_worker_id(self) -> str:
        """Id of this process in the session."""
        return self._context.worker_id

    def get_actor_id(self) -> str | None:
        """Id of the actor whose method runs here."""
        return self._context.actor_id

    def get_task_id(self) -> str | None:
        """Id of the task or call that runs here."""
        return self._context.task_id

    def get_actor_name(self) -> str | None:
        """The actor's name, for messages."""
        return self._context.name if self._context.actor_id is not None else None

    def get_task_name(self) -> str | None:
        """The task's name, for messages."""
        return self._context.name if self._context.actor_id is None else None

    def get_gpu_ids(self) -> list[str]:
        """The GPUs that the task or actor holds, as CUDA_VISIBLE_DEVICES writes them."""
        return list(self._context.gpu_ids)

    def get_assigned_resources(self) -> dict[str, float]:
        """What the task or actor holds."""
        return dict(self._context.resources)

    def __repr__(self):
        return f"RuntimeContext({self._context})"
