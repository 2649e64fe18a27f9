"""Base classes of the callbacks of `learn`.

An algorithm calls `init_callback` and `on_training_start`, then in each iteration `on_rollout_start`, `on_step` for
each step of its environments, and `on_rollout_end`; at last `on_training_end`. Subclasses override the methods of these
names with an underscore. learning.py says when.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rllib.did_you_mean import misspelt_override

# Methods by which `learn` calls an object.
CALLED = (
    "init_callback", "on_training_start", "on_rollout_start", "update_locals", "on_step", "on_rollout_end",
    "on_training_end",
)  # fmt: skip
# Methods that a subclass of BaseCallback overrides.
OVERRIDDEN = tuple(f"_{name}" for name in CALLED if name != "update_locals")


class BaseCallback:
    """Base class of callbacks.

    Args:
        verbose: 0: prints nothing; 1: prints messages; 2: prints more of them.

    Attributes:
        model: the algorithm.
        parent: the callback that calls this one, or None.
        n_calls: calls of `on_step` so far.
        num_timesteps: environment steps so far.
        locals: variables of the present iteration: its `result` (of `train()`), and the arguments of `learn`.
        globals: {}.
    """

    model: Any

    def __init__(self, verbose: int = 0):
        self.verbose = verbose
        self.n_calls = self.num_timesteps = 0
        self.locals: dict[str, Any] = {}
        self.globals: dict[str, Any] = {}
        self.parent: BaseCallback | None = None

    @property
    def training_env(self) -> Any:
        """Environments like those that are trained in (`Algorithm.get_env`); workers step their own."""
        return self.model.get_env()

    @property
    def logger(self) -> Any:
        """Takes values into the result of the iteration: `self.logger.record("mine/value", 1.0)`."""
        return self.model.logger

    # ------------------------------------------------------------------ called by the algorithm

    def init_callback(self, model: Any) -> None:
        """Takes the algorithm, before anything else."""
        self.model = model
        self._init_callback()

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        """Called once, before the first iteration of a `learn`."""
        self.locals, self.globals = locals_, globals_
        self.num_timesteps = self.model.num_timesteps
        self._on_training_start()

    def on_rollout_start(self) -> None:
        """Called before each iteration."""
        self._on_rollout_start()

    def on_step(self) -> bool | None:
        """Called for each step of the environments. Returns False to end the training."""
        self.n_calls += 1
        self.num_timesteps = self.model.num_timesteps
        return self._on_step()

    def on_rollout_end(self) -> None:
        """Called after the steps of each iteration."""
        self._on_rollout_end()

    def on_training_end(self) -> None:
        """Called once, after the last iteration of a `learn` that no exception has ended."""
        self._on_training_end()

    def close(self) -> None:
        """Called when a `learn` ends, by an exception as well."""

    def update_locals(self, locals_: Mapping[str, Any]) -> None:
        """Takes the variables of a new iteration."""
        self.locals.update(locals_)
        self.update_child_locals(locals_)

    def update_child_locals(self, locals_: Mapping[str, Any]) -> None:
        """Hands the variables on to callbacks that this one calls."""

    # ------------------------------------------------------------------ overridden

    def _init_callback(self) -> None: ...

    def _on_training_start(self) -> None: ...

    def _on_rollout_start(self) -> None: ...

    def _on_step(self) -> bool | None:
        """Returns False to end the training; True, or nothing, to continue."""
        return True

    def _on_rollout_end(self) -> None: ...

    def _on_training_end(self) -> None: ...


def ends(answer: Any) -> bool:
    """Whether what a callback's `on_step` has returned ends the training."""
    return answer is not None and not answer


class ConvertCallback(BaseCallback):
    """A function as a callback.

    Args:
        callback: called with (locals, globals) for each step; returns False to end the training.
        verbose: see BaseCallback.
    """

    def __init__(self, callback: Callable[[dict[str, Any], dict[str, Any]], bool | None] | None, verbose: int = 0):
        super().__init__(verbose)
        self.callback = callback

    def _on_step(self) -> bool | None:
        return True if self.callback is None else self.callback(self.locals, self.globals)


class CallbackList(BaseCallback):
    """Several callbacks as one; all are called at each step, though one of them ends the training.

    Args:
        callbacks: called in this order.
    """

    def __init__(self, callbacks: Iterable[BaseCallback]):
        super().__init__()
        self.callbacks = callbacks_of(list(callbacks))

    def _init_callback(self) -> None:
        for each in self.callbacks:
            each.init_callback(self.model)

    def _on_training_start(self) -> None:
        for each in self.callbacks:
            each.on_training_start(self.locals, self.globals)

    def _on_rollout_start(self) -> None:
        for each in self.callbacks:
            each.on_rollout_start()

    def _on_step(self) -> bool:
        return not any([ends(each.on_step()) for each in self.callbacks])

    def _on_rollout_end(self) -> None:
        for each in self.callbacks:
            each.on_rollout_end()

    def _on_training_end(self) -> None:
        for each in self.callbacks:
            each.on_training_end()

    def update_child_locals(self, locals_: Mapping[str, Any]) -> None:
        for each in self.callbacks:
            each.update_locals(locals_)

    def close(self) -> None:
        for each in self.callbacks:
            close(each)


class EventCallback(BaseCallback):
    """Base of callbacks that call another one when something happens.

    Args:
        callback: called by `_on_event`; None: nothing is.
        verbose: see BaseCallback.
    """

    def __init__(self, callback: BaseCallback | None = None, verbose: int = 0):
        super().__init__(verbose)
        self.callback = callback_of(callback, self)

    def init_callback(self, model: Any) -> None:
        super().init_callback(model)
        if self.callback is not None:
            self.callback.init_callback(model)

    def _on_training_start(self) -> None:
        if self.callback is not None:
            self.callback.on_training_start(self.locals, self.globals)

    def _on_event(self) -> bool:
        """Calls the other callback. Returns whether training continues."""
        return self.callback is None or not ends(self.callback.on_step())

    def update_child_locals(self, locals_: Mapping[str, Any]) -> None:
        if self.callback is not None:
            self.callback.update_locals(locals_)

    def close(self) -> None:
        if self.callback is not None:
            close(self.callback)


def close(callback: Any) -> None:
    """Closes a callback, which may be of another library and have nothing to close."""
    if hasattr(callback, "close"):
        callback.close()


def callback_of(given: Any, parent: BaseCallback) -> Any:
    """The callback, in a form that `callbacks_of` takes, which another one calls; several are one; None: none."""
    found = callbacks_of(given)
    if not found:
        return None
    callback = found[0] if len(found) == 1 else CallbackList(found)
    callback.parent = parent
    return callback


def callbacks_of(given: Any) -> list:
    """The callbacks in an argument of `learn`.

    Args:
        given: None, a function of (locals, globals), an object with the methods of BaseCallback, or a list of these.

    Raises:
        TypeError: for anything else, with what to write.
    """
    if given is None:
        return []
    if isinstance(given, list | tuple):
        return [each for part in given for each in callbacks_of(part)]
    if isinstance(given, type):
        raise TypeError(f"callback={given.__name__} is a class. Give an object of it: callback={given.__name__}(...).")
    lacks = [name for name in CALLED if not callable(getattr(given, name, None))]
    if not lacks:
        own = type(given)
        if issubclass(own, BaseCallback) and (problem := misspelt_override(own, BaseCallback, OVERRIDDEN)):
            raise TypeError(f"callback={problem}")
        return [given]
    if hasattr(given, "on_train_result"):
        raise TypeError(
            f"callback={given!r:.80} has hooks of the run. Give it to the config, .callbacks({type(given).__name__})."
        )
    if callable(given):
        return [ConvertCallback(given)]
    raise TypeError(
        f"callback={given!r:.80} must be a function of (locals, globals), or an object derived from "
        f"rllib.callbacks.BaseCallback: it has no {', '.join(lacks)}."
    )
