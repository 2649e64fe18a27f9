"""A call of `learn`: iterations, and the calls of its callbacks.

Stable-Baselines3 calls `on_step` after each step of its environments. Here steps are sampled in fragments, by several
processes, so `on_step` is called after an iteration, once for each of its steps: `n_calls` and `num_timesteps` count as
there, and the weights are those after the iteration's updates. Programs that count by either act at the same steps,
rounded up to whole iterations.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from rllib.callbacks.base import close, ends

# Variables of a single step in Stable-Baselines3's loops.
_OF_STEPS = frozenset({
    "actions", "clipped_actions", "dones", "infos", "log_probs", "new_obs", "obs_tensor", "rewards", "values",
})  # fmt: skip


class _Locals(dict[str, Any]):
    """Variables of an iteration; for further ones of Stable-Baselines3 the error says where to look."""

    def __missing__(self, name):
        without = "" if "rewards" in self else ", without observations and rewards"
        raise KeyError(
            f"there is no {name!r} here: on_step is called after the iteration{without}. "
            f"There are {', '.join(self)}. Returns of episodes are result['hist_stats']['episode_reward']; single "
            "steps are seen by on_episode_step of rllib.DefaultCallbacks (docs/guide/own_code.md)."
        )

    def get(self, name, default=None):
        """The variable; for those of a single step the error, since a default would silently count for all steps."""
        return self[name] if name in _OF_STEPS else super().get(name, default)


class Learning:
    """Runs iterations until enough steps have been sampled, or a callback ends them.

    Args:
        model: the algorithm.
        callbacks: objects with the methods of BaseCallback.
        clock: returns the number of environment steps so far, as callbacks count them.
        variables: `locals` of the callbacks.

    Attributes:
        step: environment steps up to the one that `on_step` is being called for; None between its calls.
    """

    def __init__(self, model: Any, callbacks: Sequence[Any], clock: Callable[[], int], variables: Mapping[str, Any]):
        self._model, self._callbacks, self._clock = model, callbacks, clock
        self._locals = _Locals(self=model, **variables)
        self.step: int | None = None
        self._last_step = clock()
        self._goes_on = True

    def run(self, is_done: Callable[[], bool]) -> None:
        """Runs iterations until `is_done()`, or a callback ends them."""
        try:
            for each in self._callbacks:
                each.init_callback(self._model)
                each.on_training_start(self._locals, {})
            while self._goes_on and not is_done():
                for each in self._callbacks:
                    each.on_rollout_start()
                self._model.train()
            for each in self._callbacks:
                each.on_training_end()
        finally:
            for each in self._callbacks:
                close(each)

    def on_result(self, result: MutableMapping[str, Any]) -> None:
        """Calls the callbacks for the steps of an iteration; `train` calls this before the result is written.

        Args:
            result: result of the iteration; gets what callbacks have recorded.
        """
        for each in self._callbacks:
            each.update_locals({"result": result})
        if self._callbacks:
            self._call_on_step()
        for each in self._callbacks:
            each.on_rollout_end()
        self._model.logger.move_into(result)

    def _call_on_step(self) -> None:
        now, at_once = self._clock(), self._model.n_envs
        of_steps = iter(self._model._steps_of_iteration())
        while self._goes_on and self._last_step + at_once <= now:
            self._last_step = self.step = self._last_step + at_once
            if variables := next(of_steps, None):
                for each in self._callbacks:
                    each.update_locals(variables)
            self._goes_on = not any([ends(each.on_step()) for each in self._callbacks])
        self.step = None
