"""Methods that users' algorithms override as in RLlib."""

import functools
import inspect
from collections.abc import Callable

# Method that RLlib's users override, and that is never called here -> what to override instead.
_NEVER_CALLED = {
    "execution_plan": "override training_step",
    "step": "override training_step, or use the callback on_train_result",
    "save_checkpoint": "override algorithm_state, whose values checkpoints hold",
    "load_checkpoint": "override set_algorithm_state",
    "validate_config": "mark methods of the config class with @relation",
}


def refuse_methods_of_rllib(cls: type) -> None:
    """Raises a TypeError if an algorithm class defines a method that would be silently ignored."""
    for name, instead in _NEVER_CALLED.items():
        if name in vars(cls):
            raise TypeError(f"{cls.__name__}.{name} would never be called: {instead} (docs/project/extend.md)")


def taking_a_config(setup: Callable) -> Callable:
    """A method `setup` of a subclass that may be called with the config, as RLlib's is, or without."""
    takes_config = len(inspect.signature(setup).parameters) > 1

    @functools.wraps(setup)
    def call(self, config=None) -> None:
        if takes_config:
            setup(self, self.config)
        else:
            setup(self)

    return call
