"""Attributes of Ray's remote functions, classes, handles and references that are not here, and what to use instead."""

_INSTEAD = {
    "bind": "call tasks and methods one after the other with .remote(...), and pass references as arguments",
    "_remote": "use .options(...).remote(...)",
    **dict.fromkeys(
        ("_function", "__ray_actor_class__", "__ray_metadata__"), "the function or class itself is __wrapped__"
    ),
    **dict.fromkeys(
        ("_actor_id", "_ray_actor_id"), "a method of the actor may return runtime.get_runtime_context().get_actor_id()"
    ),
    **dict.fromkeys(
        ("task_id", "job_id", "owner_address", "call_site", "size"),
        "a reference has the methods binary(), hex(), future() and is_nil()",
    ),
    **dict.fromkeys(
        ("nil", "from_random", "from_hex", "from_binary"),
        "references come from .remote(...) and put() alone. Use None for one that is not there yet",
    ),
}


def advice(name: str) -> str:
    """What to use instead of an attribute that programs for Ray have, as the end of a message; "" for other names."""
    return f": {_INSTEAD[name]}." if name in _INSTEAD else ""
