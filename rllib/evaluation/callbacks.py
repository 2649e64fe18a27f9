"""Hooks for the user's code: a class whose methods are called during a run (docs/callbacks.md).

    class Print(DefaultCallbacks):
        def on_train_result(self, *, algorithm, result, **kwargs):
            print(result["episode_reward_mean"])

    PPOConfig().callbacks(Print)

Names and arguments are Ray 2.6's; all are keywords, and `**kwargs` takes those that may come later. The driver has one
object of the class and every worker has its own: they communicate through an episode's
`custom_metrics` and `hist_data`, which come back in the results.

An object in the place of the class is a pattern: the driver and every worker begin with a copy of it.
"""

import copy
import difflib
import inspect
from collections.abc import Callable, Sequence


class DefaultCallbacks:
    """Base class of callbacks. Its hooks do nothing; override those that you need."""

    # ------------------------------------------------------------------ in the driver

    def on_algorithm_init(self, *, algorithm, **kwargs) -> None:
        """Called once, when the algorithm is built."""

    def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs) -> None:
        """Before each update.

        Args:
            policy: the policy that is trained.
            train_batch: the SampleBatch; changes to it are learned from.
            result: a dict; its items are added to the learner's statistics.
        """

    def on_train_result(self, *, algorithm, result, **kwargs) -> None:
        """After each iteration; what is put into the result is logged with it."""

    def on_evaluate_start(self, *, algorithm, **kwargs) -> None:
        """Before each evaluation."""

    def on_evaluate_end(self, *, algorithm, evaluation_metrics, **kwargs) -> None:
        """After each evaluation; evaluation_metrics is {"evaluation": statistics}."""

    def on_workers_recreated(self, *, algorithm, worker_set, worker_ids, is_evaluation, **kwargs) -> None:
        """After failed workers were replaced.

        Args:
            algorithm: the algorithm that has the workers.
            worker_set: the set they belong to.
            worker_ids: their indices, from 1.
            is_evaluation: whether they evaluate.
        """

    def get_state(self) -> dict:
        """The state of the driver's object for a checkpoint, JSON-able; empty where there is none."""
        return {}

    def set_state(self, state: dict) -> None:
        """Restores the state that `get_state` returned, after `on_algorithm_init`."""

    # ------------------------------------------------------------------ in the driver and in the workers

    def on_create_policy(self, *, policy_id, policy) -> None:
        """Once in each process that has the policy, when it is made."""

    # ------------------------------------------------------------------ where environments are

    def on_sub_environment_created(self, *, worker, sub_environment, env_context, **kwargs) -> None:
        """For each environment of a worker, when it has been made; also for one that replaces a failed one.

        Args:
            worker: a rllib.evaluation.worker.Worker.
            sub_environment: the environment, without gymnasium's outermost standard wrappers.
            env_context: the EnvContext that it was made with.
        """

    def on_episode_created(self, *, worker, base_env, policies, env_index, episode, **kwargs) -> None:
        """Before an environment is reset.

        Args:
            worker: a rllib.evaluation.worker.Worker.
            base_env: its environments (`get_sub_environments()`), an episode_hooks.BaseEnv.
            policies: {"default_policy": policy}.
            env_index: of the environment within the worker.
            episode: the new RunningEpisode.
        """

    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs) -> None:
        """After a reset; `episode` has the first observation. Arguments as for `on_episode_created`."""

    def on_episode_step(self, *, worker, base_env, policies, episode, env_index, **kwargs) -> None:
        """After each step, the last included. Arguments as for `on_episode_created`."""

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs) -> None:
        """After an episode's last step, before the environment is reset. Arguments as for `on_episode_created`.

        Values in the episode's `custom_metrics` and `hist_data` are returned in the results.
        """

    def on_postprocess_trajectory(
        self, *, worker, episode, agent_id, policy_id, policies, postprocessed_batch, original_batches, **kwargs
    ) -> None:
        """For each part of an episode in a full fragment, when advantages or the like have been computed.

        Args:
            worker: the RolloutWorker.
            episode: the RunningEpisode of the rows.
            agent_id, policy_id: "agent0" and "default_policy".
            policies: {"default_policy": policy}.
            postprocessed_batch: SampleBatch of the rows; changes to its columns are learned from.
            original_batches: {"agent0": ("default_policy", policy, rows without the computed columns)}.
        """

    def on_sample_end(self, *, worker, samples, **kwargs) -> None:
        """Called when a fragment is complete; `samples` is the SampleBatch that is sent, its columns still writable."""


HOOKS = tuple(name for name in vars(DefaultCallbacks) if name.startswith("on_"))
# Hooks of later versions of RLlib that have no counterpart here.
_LATER_HOOKS = ("on_checkpoint_loaded", "on_env_runners_recreated", "on_environment_created", "on_sample_start")


def hears(callbacks: DefaultCallbacks, hook: str) -> bool:
    """Whether this object does anything when the hook is called."""
    return getattr(type(callbacks), hook) is not getattr(DefaultCallbacks, hook)


def tell_recreated_workers(algorithm, worker_set, is_evaluation: bool) -> None:
    """Calls `on_workers_recreated` if workers of the set, which may be None, were replaced since the last call."""
    if worker_set is not None and (recreated := worker_set.pop_replaced()):
        algorithm.callbacks.on_workers_recreated(
            algorithm=algorithm, worker_set=worker_set, worker_ids=recreated, is_evaluation=is_evaluation
        )


Made = Callable[[], DefaultCallbacks] | DefaultCallbacks


def make_multi_callbacks(callback_class_list: Sequence[Made]) -> type[DefaultCallbacks]:
    """One class of callbacks from several: each hook calls those of its parts that define it, in the given order.

    Args:
        callback_class_list: classes derived from DefaultCallbacks, objects of one, or functions that return such an
            object.

    Raises:
        ValueError: if one of them is none of these.
    """
    parts = tuple(callback_class_list)
    for part in parts:
        if problem := callbacks_problem(part):
            raise ValueError(problem)

    def init(self):
        self._parts = [_made(part) for part in parts]

    def get_state(self):
        states = {str(position): part.get_state() for position, part in enumerate(self._parts)}
        return {position: state for position, state in states.items() if state}

    def set_state(self, state):
        for position, part in enumerate(self._parts):
            if str(position) in state:
                part.set_state(state[str(position)])

    def forward(hook):
        def call(self, **kwargs):
            for part in self._parts:
                getattr(part, hook)(**kwargs)

        return call

    def is_heard(hook):
        kinds = [type(part) if isinstance(part, DefaultCallbacks) else part for part in parts]
        return any(getattr(kind, hook, None) is not getattr(DefaultCallbacks, hook) for kind in kinds)

    methods = {"__init__": init, "get_state": get_state, "set_state": set_state}
    hooks = {hook: forward(hook) for hook in HOOKS if is_heard(hook)}
    return type("MultiCallbacks", (DefaultCallbacks,), {**methods, **hooks})


def make_callbacks(given) -> DefaultCallbacks:
    """The object whose hooks are called.

    Args:
        given: None, a class derived from DefaultCallbacks, an object of one, a function that returns such an object,
            or a list of these.

    Raises:
        ValueError: if it is none of these, or has a hook that cannot be called.
    """
    if isinstance(given, (list, tuple)):
        given = make_multi_callbacks(given)
    made = _made(DefaultCallbacks if given is None else given)
    if problem := callbacks_problem(type(made)):
        raise ValueError(problem)
    return made


def _made(given: Made) -> DefaultCallbacks:
    """A new object. A given one is copied, so that a second run with the same config does not go on with its state."""
    return copy.deepcopy(given) if isinstance(given, DefaultCallbacks) else given()


def callbacks_problem(given) -> str | None:
    """Sentence on the mistake in the setting `callbacks_class`; None if it is valid."""
    if isinstance(given, (list, tuple)):
        return next(filter(None, map(callbacks_problem, given)), None)
    if isinstance(given, DefaultCallbacks):
        return callbacks_problem(type(given))
    if given is None or (callable(given) and not isinstance(given, type)):
        return None
    if not isinstance(given, type) or not issubclass(given, DefaultCallbacks):
        return (
            f"callbacks_class={given!r} must be a class derived from DefaultCallbacks, an object of one, or a list of "
            "these. Use .callbacks(MyCallbacks) with `from rllib import DefaultCallbacks`."
        )
    for name in dir(given):
        if name.startswith("on_") and (problem := _hook_problem(given, name)):
            return f"callbacks_class={given.__name__} {problem}"
    return None


def _hook_problem(owner: type[DefaultCallbacks], name: str) -> str | None:
    if name not in HOOKS:
        near = difflib.get_close_matches(name, HOOKS, n=1)
        if not near and name not in _LATER_HOOKS:
            return None  # a method of the user's own
        hint = f"Did you mean {near[0]}?" if near else f"The hooks are {', '.join(HOOKS)}."
        return f"has {name}, which nothing calls. {hint} A method of your own needs a name that is less like a hook's."
    declared = inspect.signature(getattr(DefaultCallbacks, name)).parameters.values()
    given = [parameter.name for parameter in declared if parameter.kind is parameter.KEYWORD_ONLY]
    try:
        inspect.signature(getattr(owner, name)).bind(None, **dict.fromkeys(given))
    except TypeError as error:
        return (
            f"has {name}{inspect.signature(getattr(owner, name))}, which cannot be called with {', '.join(given)} "
            f"({error}). Use def {name}(self, *, {', '.join(given)}, **kwargs)."
        )
    return None
