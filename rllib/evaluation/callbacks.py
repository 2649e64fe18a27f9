"""Hooks for the user's code: a class whose methods are called during a run (docs/guide/own_code.md).

    class Print(DefaultCallbacks):
        def on_train_result(self, *, algorithm, result, **kwargs):
            print(result["episode_reward_mean"])

    PPOConfig().callbacks(Print)

Names and arguments are Ray 2.6's; all are keywords, and `**kwargs` takes those that may come later. Hooks that name
arguments of RLlib's new API stack get these (hooks/arguments.py). The driver has one
object of the class and every worker has its own: they communicate through an episode's
`custom_metrics` and `hist_data`, which come back in the results.

An object instead of the class is a pattern: the driver and every worker begin with a copy of it.
"""

import copy
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rllib.did_you_mean import did_you_mean
from rllib.evaluation.hooks.arguments import LATER, LaterArguments, adapt, is_new_style, named_arguments
from rllib.evaluation.hooks.functions import functions_problem, methods_of
from rllib.storage.states import paired

if TYPE_CHECKING:
    from rllib.core.metrics.metrics_logger import Call

logger = logging.getLogger(__name__)


class DefaultCallbacks:
    """Base class of callbacks. Its hooks do nothing; override those that you need."""

    # Of an object that calls the hooks of several others.
    _parts: "Sequence[DefaultCallbacks] | None" = None
    # [name of the class, state] of a restored checkpoint's callbacks that this run is without.
    _left_out: Sequence[Sequence] = ()

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
        """After each evaluation; evaluation_metrics has the statistics, and is {"evaluation": statistics} as well."""

    def on_workers_recreated(self, *, algorithm, worker_set, worker_ids, is_evaluation, **kwargs) -> None:
        """After failed workers were replaced.

        Args:
            algorithm: the algorithm that has the workers.
            worker_set: the set they belong to.
            worker_ids: their indices, from 1.
            is_evaluation: whether they evaluate.
        """

    def on_env_runners_recreated(
        self, *, algorithm, env_runner_group, env_runner_indices, is_evaluation, **kwargs
    ) -> None:
        """As `on_workers_recreated`, by the names of RLlib's new API stack."""

    def on_checkpoint_loaded(self, *, algorithm, **kwargs) -> None:
        """After the algorithm's state was restored from a checkpoint."""

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

    def on_environment_created(self, *, env_runner, env, env_context, **kwargs) -> None:
        """Once in a worker, when its environments have been made.

        Args:
            env_runner: a rllib.evaluation.worker.Worker.
            env: its environments (`envs`), a BaseEnv.
            env_context: the EnvContext that the first was made with.
        """

    def on_episode_created(self, *, worker, base_env, policies, env_index, episode, **kwargs) -> None:
        """Before an environment is reset.

        Args:
            worker: a rllib.evaluation.worker.Worker.
            base_env: its environments (`get_sub_environments()`), an episode_hooks.BaseEnv.
            policies: {"default_policy": policy}.
            env_index: index of the environment within the worker.
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
# Hooks of other versions of RLlib that have no counterpart here.
_OTHER_HOOKS = (
    *("on_sample_start", "on_evaluate_offline_start", "on_evaluate_offline_end"),
    "on_offline_eval_runners_recreated",
)


def hears(callbacks: DefaultCallbacks, hook: str) -> bool:
    """Whether this object does anything when the hook is called."""
    return _defines(type(callbacks), hook)


def _defines(kind: Callable, hook: str) -> bool:
    """Whether a class does anything in a hook; a function that makes the object may return one that does."""
    return getattr(kind, hook, None) is not getattr(DefaultCallbacks, hook)


def remembers_episodes(callbacks: DefaultCallbacks) -> bool:
    """Whether episodes keep all their steps for these hooks."""
    later = vars(callbacks).get("_later")
    return later is not None and later.remembers_episodes


def pop_logged(callbacks: DefaultCallbacks) -> "list[Call] | None":
    """Values that hooks of this worker have logged since the last time; None without any."""
    later = vars(callbacks).get("_later")
    return None if later is None else later.pop_calls()


def call_recreated_hooks(algorithm, worker_set, is_evaluation: bool) -> None:
    """Calls `on_workers_recreated` if workers of the set, which may be None, were replaced since the last call."""
    if worker_set is not None and (recreated := worker_set.pop_replaced()):
        algorithm.callbacks.on_workers_recreated(
            algorithm=algorithm, worker_set=worker_set, worker_ids=recreated, is_evaluation=is_evaluation
        )
        algorithm.callbacks.on_env_runners_recreated(
            algorithm=algorithm, env_runner_group=worker_set, env_runner_indices=recreated, is_evaluation=is_evaluation
        )


Made = Callable[[], DefaultCallbacks] | DefaultCallbacks | list | tuple


def make_multi_callbacks(callback_class_list: Sequence[Made]) -> type[DefaultCallbacks]:
    """One class of callbacks from several: each hook calls those of its parts that define it, in the given order.

    Args:
        callback_class_list: classes derived from DefaultCallbacks, objects of one, functions that return such an
            object, or lists of these.

    Raises:
        ValueError: if one of them is none of these.
    """
    for part in callback_class_list:
        if problem := callbacks_problem(part):
            raise ValueError(problem)
    parts = [make_multi_callbacks(part) if isinstance(part, list | tuple) else part for part in callback_class_list]

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
        return any(_defines(kind, hook) for kind in kinds)

    methods = {"__init__": init, "get_state": get_state, "set_state": set_state}
    hooks = {hook: forward(hook) for hook in HOOKS if is_heard(hook)}
    return type("MultiCallbacks", (DefaultCallbacks,), {**methods, **hooks})


def make_callbacks(given, functions: Mapping[str, Callable | Sequence[Callable]] | None = None) -> DefaultCallbacks:
    """The object whose hooks are called.

    Args:
        given: None, a class derived from DefaultCallbacks, an object of one, a function that returns such an object,
            or a list of these.
        functions: hook -> a function, or a list of them, which are called after the methods of `given`.

    Raises:
        ValueError: if it is none of these, or has a hook that cannot be called.
    """
    if functions:
        own = _of_functions(functions)
        given = own if given is None else [*(given if isinstance(given, list | tuple) else [given]), own]
    if isinstance(given, (list, tuple)):
        given = make_multi_callbacks(given)
    made = _made(DefaultCallbacks if given is None else given)
    if problem := callbacks_problem(type(made)):
        raise ValueError(problem)
    if type(made) is not DefaultCallbacks:
        made._later = LaterArguments()
        for part in _single(made):
            adapt(part, tuple(hook for hook in HOOKS if hears(part, hook)), made._later)
    return made


def _single(callbacks: DefaultCallbacks) -> list[DefaultCallbacks]:
    """The objects whose own hooks are called: of several in one, each of them, however deep it lies."""
    if callbacks._parts is None:
        return [callbacks]
    return [single for part in callbacks._parts for single in _single(part)]


def states_of(callbacks: DefaultCallbacks) -> list[list]:
    """[name of the class, state] of each object that has a state, for `restore_states`."""
    states = [[type(part).__name__, part.get_state()] for part in _single(callbacks) if _has_state(part)]
    return [*states, *callbacks._left_out]


def restore_states(callbacks: DefaultCallbacks, saved: Sequence[Sequence] | Mapping) -> None:
    """Restores the states of `states_of` in the objects of the same classes, in their order.

    States of classes that are not there are kept: `states_of` returns them again, for a run that has these classes.

    Args:
        callbacks: the driver's.
        saved: what `states_of` returned; of earlier checkpoints, what `get_state` of all together did.
    """
    callbacks._left_out = ()
    if isinstance(saved, Mapping):
        callbacks.set_state(saved)
        return
    pairs, left = paired(_single(callbacks), saved)
    for part, state in pairs:
        part.set_state(state)
    callbacks._left_out = left
    if left:
        logger.info("the checkpoint keeps the states of callbacks that this run is without: %s",
                    ", ".join(name for name, _ in left))  # fmt: skip


def _has_state(callbacks: DefaultCallbacks) -> bool:
    return type(callbacks).get_state is not DefaultCallbacks.get_state


def _of_functions(functions: Mapping[str, Callable | Sequence[Callable]]) -> type[DefaultCallbacks]:
    """A class whose hooks are these functions."""
    return type("CallbackFunctions", (DefaultCallbacks,), methods_of(functions))


def _made(given: Made) -> DefaultCallbacks:
    """A new object. A given one is copied, so that a second run with the same config has its own state."""
    return copy.deepcopy(given) if isinstance(given, DefaultCallbacks) else given()


def callbacks_problem(given, functions: Mapping[str, Callable | Sequence[Callable]] | None = None) -> str | None:
    """Sentence on the mistake in the settings `callbacks_class` and `callback_functions`; None if they are valid."""
    if functions and (problem := functions_problem(functions, HOOKS) or callbacks_problem(_of_functions(functions))):
        return problem
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
    names = [name for name in dir(given) if name.startswith("on_")]
    for name in (name for name in names if getattr(given, name) is not getattr(DefaultCallbacks, name, None)):
        if problem := _hook_problem(given, name):
            return f"callbacks_class={given.__name__} {problem}"
    return None


def _hook_problem(owner: type[DefaultCallbacks], name: str) -> str | None:
    if name not in HOOKS:
        hint = did_you_mean(name, HOOKS)
        if not hint and name not in _OTHER_HOOKS:
            return None  # a method of the user's own
        hint = hint or f" The hooks are {', '.join(HOOKS)}."
        return f"has {name}, which nothing calls.{hint} A method of your own needs a name that is less like a hook's."
    declared = inspect.signature(getattr(DefaultCallbacks, name)).parameters.values()
    given = [parameter.name for parameter in declared if parameter.kind is parameter.KEYWORD_ONLY]
    method, later = getattr(owner, name), LATER.get(name, {})
    if is_new_style(method) or named_arguments(method)[0] & later.keys():
        return _later_problem(method, name, [*given, *later])
    try:
        inspect.signature(method).bind(None, **dict.fromkeys(given))
    except TypeError as error:
        return (
            f"has {name}{inspect.signature(method)}, which cannot be called with {', '.join(given)} "
            f"({error}). Use def {name}(self, *, {', '.join(given)}, **kwargs)."
        )
    return None


def _later_problem(method: Callable, name: str, known: list[str]) -> str | None:
    """Sentence on an argument that a hook of RLlib's new API stack needs and does not get; None if there is none."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    rest = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    needed = [each.name for each in parameters if each.default is each.empty and each.kind not in rest]
    if unknown := [each for each in needed if each not in known]:
        return (
            f"has {name}{inspect.signature(method)}, but there is no argument {', '.join(unknown)}. The arguments are "
            f"{', '.join(known)}."
        )
    return None
