"""From a factory to a running stream of environments."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gymnasium.vector import VectorEnv

from rllib.env.agents import is_external
from rllib.env.factories.registry import EnvContext, EnvFactory, worker_name
from rllib.env.streams.base import EnvironmentStream
from rllib.env.streams.first_results import env_name
from rllib.env.streams.process import EnvironmentProcess
from rllib.env.streams.processes import ProcessStream
from rllib.env.streams.sync import SyncStream, close_all
from rllib.env.streams.vector import VectorEnvStream
from rllib.errors import EnvironmentPackageError
from rllib.sample_batch import Column

if TYPE_CHECKING:
    from rllib.env.tensors.stream import TensorStream


def make_stream(
    factory: EnvFactory,
    *,
    num_envs: int,
    seeds: list[int],
    worker_index: int = 0,
    num_workers: int = 0,
    env_config: dict | None = None,
    check: bool | int = True,
    in_evaluation: bool = False,
    replace_failed: bool = False,
    info_columns: Sequence[Column] = (),
    tensors: bool = False,
) -> "EnvironmentStream | TensorStream":
    """Makes the environments of one worker.

    Args:
        factory: from `registry.resolve`.
        num_envs: number of environments.
        seeds: one int per environment, for its first reset; later resets continue its generator.
        worker_index, num_workers: for the EnvContext and for messages; the index of the driver is 0.
        env_config: the user's dict.
        check: number of first results of each environment that are checked against its spaces.
        in_evaluation: for the EnvContext.
        replace_failed: an environment that raises in step() or reset() is replaced by a new one.
        info_columns: keys of the info dicts that are written as columns.
        tensors: make a TensorStream over one VectorEnv that hands over tensors; it checks and replaces nothing.

    Raises:
        ValueError: if the number of seeds differs from num_envs, the spaces are not supported, or a VectorEnv has
            another number of environments.
        Exception: whatever the environment's constructor raises, with a note; those already made are closed.
    """
    make = environment_maker(factory, num_envs, seeds, worker_index, num_workers, env_config, in_evaluation)
    if tensors:
        return _tensor_stream(make(0), seeds, worker_index)
    remake = make if replace_failed else None
    return stream_over(
        make,
        seeds,
        worker=worker_name(worker_index, in_evaluation),
        warns=worker_index == 0,
        checked_steps=int(check),
        remake=remake,
        info_columns=info_columns,
    )


def environment_maker(
    factory: EnvFactory,
    num_envs: int,
    seeds: Sequence[int],
    worker_index: int,
    num_workers: int,
    env_config: dict | None,
    in_evaluation: bool,
) -> Callable[[int], Any]:
    """A function that makes a worker's environment with an index; arguments as for `make_stream`.

    Raises:
        ValueError: if the number of seeds differs from num_envs.
    """
    if len(seeds) != num_envs:
        raise ValueError(f"each environment needs one seed, but there are {len(seeds)} for {num_envs} environments")

    def make(index: int) -> Any:
        context = EnvContext(env_config, worker_index, index, num_workers, num_envs, in_evaluation=in_evaluation)
        return make_environment(factory, context)

    return make


def _tensor_stream(env, seeds: list[int], worker_index: int) -> "TensorStream":
    from rllib.env.tensors.stream import TensorStream

    try:
        if not isinstance(env, VectorEnv):
            raise TypeError(
                f"tensor_rollouts=True needs one vector environment for all environments of the worker, but "
                f"{env_name(env)} is no gymnasium.vector.VectorEnv. rllib.env.tensors.adapters has adapters."
            )
        hand_over_tensors(env)
        return TensorStream(env, seeds, worker_index=worker_index)
    except BaseException:
        close_all([env])
        raise


def hand_over_tensors(env: Any) -> None:
    """Lets an environment that computes in another library's arrays hand over torch tensors, where it can."""
    if in_tensors := getattr(env, "in_tensors", None):
        in_tensors()


def stream_over(make: Callable, seeds: list[int], **options) -> EnvironmentStream:
    """The stream over environments from `make(index)`, one for each seed, or one VectorEnv for all seeds."""
    made = []
    try:
        for index in range(len(seeds)):
            made.append(make(index))
            if isinstance(made[0], VectorEnv):
                return VectorEnvStream(made[0], seeds, **options)
            # To ask a process would wait for its constructor, and constructors are to run at the same time.
            if not isinstance(made[0], EnvironmentProcess) and is_external(made[0]):
                raise TypeError(
                    f"{env_name(made[0])} drives its own loop, which was not known before the workers started. Leave "
                    "observation_space and action_space out of .environment(): then the driver makes one environment, "
                    "and does not step it."
                )
        if isinstance(made[0], EnvironmentProcess):
            return ProcessStream(made, seeds, **options)
        return SyncStream(made, seeds, **options)
    except BaseException:
        close_all(made)
        raise


def make_environment(factory: EnvFactory, context: EnvContext):
    """One environment, or one VectorEnv; an error of its constructor gets a note that says which."""
    try:
        return factory.make(context)
    except EnvironmentPackageError:
        raise  # it says all, and is the same in every worker
    except Exception as error:
        error.add_note(
            f"environment {context.vector_index} of {context.worker} ({factory.name}) could not be "
            f"made with env_config={dict(context)!r}"
        )
        raise
