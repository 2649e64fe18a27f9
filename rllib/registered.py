"""What the user registered under a name, in a form that another process can take over."""

import pickle
from abc import ABC, abstractmethod
from typing import Any

import cloudpickle


class Registered(ABC):
    """A registered value, pickled here and unpickled when it is asked for.

    Another process pays only for what it uses: it imports no module for an entry that is never asked for, and an entry
    that cannot be pickled is an error only where it is used.

    Args:
        title: for messages, with the name: "environment 'corridor'".
        value: a class or function of the user's.
        remedy: what to do if it cannot be pickled.
    """

    def __init__(self, title: str, value: Any, remedy: str):
        self._title, self._remedy, self._pickled, self._problem = title, remedy, None, None
        try:
            self._pickled = cloudpickle.dumps(value)
        except Exception as error:  # whatever a user's object raises when it is pickled
            self._problem = f"{type(error).__name__}: {error}"

    @abstractmethod
    def register(self) -> None:
        """Registers it in this process."""

    def value(self) -> Any:
        """The registered value.

        Raises:
            ValueError: if it could not be pickled in the process that registered it.
        """
        if self._pickled is None:
            raise ValueError(
                f"{self._title} was registered in another process and cannot be sent here ({self._problem}). "
                f"{self._remedy}"
            )
        return pickle.loads(self._pickled)
