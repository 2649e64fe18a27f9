"""The place where the calling code runs: session, process, task, actor, resources."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .scheduling import Placement


@dataclass(frozen=True, slots=True)
class RuntimeContext:
    """The result of `get_runtime_context()`. Ids are hexadecimal strings, None where there is no such thing.

    Attributes:
        namespace: where names of actors are looked up, unless another one is given.
        was_current_actor_reconstructed: whether the actor that runs here was started again after it had died.
    """

    session_id: str
    node_id: str
    worker_id: str
    actor_id: str | None = None
    task_id: str | None = None
    name: str | None = None
    gpu_ids: tuple[str, ...] = ()
    resources: dict[str, float] = field(default_factory=dict)
    placement: Placement | None = None
    namespace: str = ""
    runtime_env: dict = field(default_factory=dict)
    was_current_actor_reconstructed: bool = False
    _make_handle: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def current_actor(self) -> Any:
        """An ActorHandle of the actor that runs here, to hand it to others. Its calls have the defaults of the options.

        Raises:
            RuntimeError: it is no actor.
        """
        if self._make_handle is None:
            raise RuntimeError("current_actor is the actor in whose method it is asked for; this is not an actor")
        return self._make_handle()

    def get_session_id(self) -> str:
        """Id of the session: one `init()` to its `shutdown()`."""
        return self.session_id

    get_job_id = get_session_id

    @property
    def job_id(self) -> str:
        """See get_job_id."""
        return self.session_id

    def get_node_id(self) -> str:
        """Id of this machine in the session."""
        return self.node_id

    def get_worker_id(self) -> str:
        """Id of this process in the session."""
        return self.worker_id

    def get_actor_id(self) -> str | None:
        """Id of the actor whose method runs here."""
        return self.actor_id

    def get_task_id(self) -> str | None:
        """Id of the task or call that runs here."""
        return self.task_id

    def get_actor_name(self) -> str | None:
        """The actor's name, for messages."""
        return self.name if self.actor_id is not None else None

    def get_task_name(self) -> str | None:
        """The task's name, for messages."""
        return self.name if self.actor_id is None else None

    def get_task_function_name(self) -> str | None:
        """The name of the function that runs here."""
        return self.get_task_name()

    @property
    def placement_group_id(self) -> str | None:
        """Id of the placement group that the task or actor runs in."""
        return self.placement.group.hex() if self.placement is not None else None

    def get_placement_group_id(self) -> str | None:
        """See placement_group_id."""
        return self.placement_group_id

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether what this task or actor starts is placed in its group, unless options say otherwise."""
        return self.placement is not None and self.placement.captures

    def get_gpu_ids(self) -> list[str]:
        """The GPUs that the task or actor holds, as CUDA_VISIBLE_DEVICES writes them."""
        return list(self.gpu_ids)

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """The accelerators that the task or actor holds, by resource: {"GPU": ["0"]}."""
        return {"GPU": self.get_gpu_ids()}

    def get_runtime_env_string(self) -> str:
        """The runtime environment as JSON."""
        return json.dumps(self.runtime_env)

    def get(self) -> dict:
        """Ids of job, node, task, actor and placement group, as far as there are any, by name."""
        ids = {name: getattr(self, name) for name in ("job_id", "node_id", "task_id", "actor_id")}
        return {name: value for name, value in ids.items() if value is not None}

    def get_assigned_resources(self) -> dict[str, float]:
        """Resources that the task or actor holds."""
        return dict(self.resources)
