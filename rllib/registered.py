"""Registries of the user's environments, wrappers, networks, action distributions and readers, each by name."""

import pickle
from collections.abc import Callable, Iterator

import cloudpickle


class Registry:
    """Classes and functions of one kind, by the names that the user registered them under.

    Args:
        function: public function that registers one, for messages: "register_env".
        title: an entry, for messages, with {!r} in place of its name: "environment {!r}".
        needs: description of an entry, for messages: "a class".
        example: an entry in Python, for messages: "MyClass".
    """

    def __init__(self, function: str, title: str, needs: str, example: str):
        self.function, self.title, self.example = function, title, example
        self._needs = needs
        self._values: dict[str, Callable | Registered] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __reduce__(self):
        # Represents the registry of the process that unpickles it.
        return _registry_of, (self.function,)

    def register(self, name: str, value: "Callable | Registered") -> None:
        """Registers a class or function; a later call with the same name replaces it.

        Raises:
            TypeError: if name is no string, or the value cannot be called.
        """
        if not isinstance(name, str):
            raise TypeError(f"{self.function} needs a string as name, but got {name!r}")
        if not callable(value) and not isinstance(value, Registered):
            raise TypeError(
                f"{self.function}({name!r}, ...) needs {self._needs}, but got {value!r:.80}. "
                f"Use {self.function}({name!r}, {self.example})."
            )
        self._values[name] = value

    def get(self, name: str) -> Callable:
        """The class or function that is registered under a name.

        Raises:
            KeyError: if there is none.
            ValueError: if it could not be pickled in the process that registered it.
        """
        value = self._values[name]
        return value.value() if isinstance(value, Registered) else value

    def entries(self) -> "list[Registered]":
        """All entries, to be registered in another process."""
        return [
            value if isinstance(value, Registered) else Registered(self, name, value)
            for name, value in self._values.items()
        ]


class Registered:
    """A registered class or function, pickled here and unpickled on first use.

    Another process pays only for entries that it uses: it imports no module for others, and an entry that cannot be
    pickled is an error only where it is used.

    Args:
        registry: contains it, in every process that registers it.
        name: its name there.
        value: the class or function.
    """

    def __init__(self, registry: Registry, name: str, value: Callable):
        self._registry, self._name, self._pickled, self._problem = registry, name, None, None
        try:
            self._pickled = cloudpickle.dumps(value)
        except Exception as error:  # whatever a user's object raises when it is pickled
            self._problem = f"{type(error).__name__}: {error}"

    def register(self) -> None:
        """Registers it in this process."""
        self._registry.register(self._name, self)

    def value(self) -> Callable:
        """The registered class or function.

        Raises:
            ValueError: if it could not be pickled in the process that registered it.
        """
        if self._pickled is None:
            raise ValueError(
                f"{self._registry.title.format(self._name)} was registered in another process and cannot be sent here "
                f"({self._problem}). Register one that can be pickled, or call {self._registry.function} where the "
                "algorithm is built."
            )
        return pickle.loads(self._pickled)


ENVIRONMENTS = Registry(
    "register_env", "environment {!r}", "a function that makes the environment", "lambda config: MyEnv(config)"
)
WRAPPERS = Registry("register_wrapper", "wrapper {!r}", "a class or function that wraps an environment", "MyWrapper")
MODELS = Registry("register_model", "model['custom_model']={!r}", "a class", "MyClass")
ACTION_DISTRIBUTIONS = Registry("register_action_dist", "model['custom_action_dist']={!r}", "a class", "MyClass")
INPUTS = Registry(
    "register_input", "input_={!r}", "a function that makes a reader", "lambda ioctx: MyReader(ioctx)"
)
REGISTRIES = (ENVIRONMENTS, WRAPPERS, MODELS, ACTION_DISTRIBUTIONS, INPUTS)


def _registry_of(function: str) -> Registry:
    return next(registry for registry in REGISTRIES if registry.function == function)
