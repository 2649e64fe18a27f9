"""Objects of the library that files hold as the class and the arguments that they were made with."""

import inspect
import re
from typing import Any

# Modules of the library, none of which does anything when it is imported; not __main__.
_PATH = re.compile(r"rllib(\.[a-z][a-z0-9_]*)+:[A-Z]\w*")


class ByArguments:
    """Base class of settings that are objects: a file names the class, and has the arguments.

    Classes of the library alone are written so, as making an object of another class would run a user's code. Where an
    attribute has another name than the constructor's argument, a subclass overrides `arguments`.
    """

    def arguments(self) -> dict[str, Any]:
        """Arguments by which the class makes an equal object."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}


def is_library_path(path: str) -> bool:
    """Whether "module:class" names a class of the library."""
    return _PATH.fullmatch(path) is not None
