"""Plugin for mypy, which ignores what a decorator makes of a class (python/mypy#3135): `plugins = runtime.mypy_plugin`.

With it a class below `@runtime.remote` has `remote` and `options`, as pyright infers without a plugin.
"""

from collections.abc import Callable

from mypy.nodes import ARG_STAR, ARG_STAR2, Argument, Var
from mypy.plugin import ClassDefContext, Plugin
from mypy.plugins.common import add_method_to_class
from mypy.types import AnyType, TypeOfAny

_ACTORS = "runtime.remote.actors"
# Method that the class gets -> name of the class that it returns
_METHODS = {"remote": f"{_ACTORS}.ActorHandle", "options": f"{_ACTORS}.RemoteClass"}


def _is_remote(context: ClassDefContext) -> bool:
    """Adds the methods to the class that is decorated; False asks mypy to call again once their types are known."""
    for name, returned in _METHODS.items():
        type_ = context.api.named_type_or_none(returned)
        if type_ is None:
            return False
        anything = AnyType(TypeOfAny.explicit)
        arguments = [
            Argument(Var("args", anything), anything, None, ARG_STAR),
            Argument(Var("kwargs", anything), anything, None, ARG_STAR2),
        ]
        add_method_to_class(context.api, context.cls, name, arguments, type_, is_classmethod=True)
    return True


class RemoteClasses(Plugin):
    """The plugin."""

    def get_class_decorator_hook_2(self, fullname: str) -> Callable[[ClassDefContext], bool] | None:
        return _is_remote if fullname == "runtime.api.remote" else None


def plugin(version: str) -> type[Plugin]:
    """The plugin's class, for mypy."""
    return RemoteClasses
