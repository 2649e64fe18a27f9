"""Sources of an algorithm's samples: the protocol, the table of their kinds, and the choice among them.

A further kind (files, clients in other processes) needs a class with the members of `Source` in its own file, a row of
`SOURCES`, and a setting by which `source_kind` chooses it, checked before the kinds of runs with an environment.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from gymnasium import Space

from rllib.algorithms.base import wiring
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.recorded.data import RecordedData
from rllib.algorithms.base.recorded.output import output_of
from rllib.config.conflicts import Mistake
from rllib.evaluation.asked_workers import AskedWorkers
from rllib.evaluation.offline.recorder import Output
from rllib.evaluation.offline.source import RecordedRows, RecordedSource, StreamedSource
from rllib.evaluation.sampling_worker import SampleReport
from rllib.evaluation.settings import RolloutSettings
from rllib.evaluation.worker_set import WorkerSet
from rllib.learners.learner import Learner
from rllib.offline.dataset import Dataset
from rllib.policy import Snapshot, Snapshots
from rllib.sample_batch import SampleBatch

if TYPE_CHECKING:
    from runtime.util.fleet import Fleet, Request


class Source(Protocol):
    """Provides samples: the interface of `algorithm.workers` that algorithms, checkpoints and results use.

    Each batch comes with its SampleReport, whose env_steps advance the run's clock (`Algorithm.timesteps`): a source
    without an environment reports the number of its rows as env_steps and rows. A source outside of this process must
    copy the snapshots' weights before the call returns, since the next update changes them.

    A batch has the same columns as a worker's: observations as env/spaces/observations.py stores them, filtered if the
    policy has a filter, the policy's columns (`Policy.columns`), and the columns of the algorithm's
    `make_postprocess()`. A source without workers fills them itself.

    Attributes:
        num_healthy_workers: number of live remote workers, clients or readers; 0 if this process does the work.
        num_restarts: number of remote workers, clients or readers that were replaced so far.
        num_in_flight: number of requests whose answers were not taken yet.
    """

    @property
    def num_healthy_workers(self) -> int: ...

    @property
    def num_restarts(self) -> int: ...

    @property
    def num_in_flight(self) -> int: ...

    def sample(self, snapshots: Snapshots) -> list[tuple[SampleBatch, SampleReport]]:
        """One round: batches sampled by these policies, each with its report, in a reproducible order."""

    def begin_sampling(self, snapshots: Snapshots) -> Callable[[], list[tuple[SampleBatch, SampleReport]]]:
        """Begins a round and returns a function that waits for it; only called if there are remote workers."""

    def foreach_worker(self, function: Callable, *args, local_worker: bool = True) -> list:
        """[function(worker, *args) for each worker], the local one first; [] without workers."""

    def foreach_env(self, function: Callable[[Any], Any]) -> list[list]:
        """[function(environment) for each environment] of every worker, in order."""

    def foreach_env_with_context(self, function: Callable[[Any, Any], Any]) -> list[list]:
        """[function(environment, its EnvContext) for each environment] of every worker, in order."""

    def pop_replaced(self) -> list[int]:
        """Indices of the workers that were replaced since the last call, for the hook on_workers_recreated."""

    def change_settings(self, settings: RolloutSettings) -> None:
        """Continues with other policies of several agents, or another mapping."""

    def get_state(self) -> list:
        """JSON-able state of all random streams of the source, for checkpoints."""

    def set_state(self, state: list, restores: int) -> None:
        """Restores the state of `get_state`, starts afresh if it does not fit, and drops requests in flight.

        Args:
            state: state of a source of any kind.
            restores: number of times that the run was restored from a checkpoint, including this one, by which
                environments get seeds that the run has not used.
        """

    def stop(self) -> None:
        """Ends the source's processes and closes its environments and files. A second call does nothing."""


class AsynchronousSource(Source, Protocol):
    """A source whose workers are kept busy while the learner learns (IMPALA, A3C, Ape-X).

    Attributes:
        fleet: the remote workers; requests are kept in flight, and answers taken, by its methods.
    """

    @property
    def fleet(self) -> "Fleet": ...

    def request(self, method: str, snapshots: Snapshots, *args) -> "Request":
        """Makes a request that calls a method of each worker with these policies: "sample" or "compute_gradient"."""


class NoWorkers(AskedWorkers):
    """The source of a run without an environment: it has no worker, and methods that would sample raise an error."""

    num_healthy_workers = num_restarts = num_in_flight = 0

    def foreach_worker(self, function: Callable, *args, local_worker: bool = True, remote_worker_ids=()) -> list:
        """[], as there is no worker."""
        return []

    def local_worker(self) -> None:
        """None, as there is no worker."""

    def remote_workers(self) -> list:
        """[], as there is no worker."""
        return []

    def pop_replaced(self) -> list[int]:
        """[], as there is no worker."""
        return []

    def change_settings(self, settings: RolloutSettings) -> None:
        """Does nothing: there are no workers."""

    def get_state(self) -> list:
        """[], as there are no random streams."""
        return []

    def set_state(self, state: list, restores: int) -> None:
        """Does nothing: there are no workers that could restore the state."""

    def stop(self) -> None:
        """Does nothing: there are no processes to end."""

    def _refuse(self, *args, **kwargs) -> NoReturn:
        raise RuntimeError(
            "this algorithm was built from an observation_space and an action_space, without an environment to sample "
            'from. It acts, and learns from batches by learn(). For train(), build it with .environment("CartPole-v1").'
        )

    sample = begin_sampling = request = share_out = _refuse
    # Methods of the fleet, which is this object itself.
    take = keep_in_flight = _refuse

    @property
    def fleet(self) -> "NoWorkers":
        """A fleet without members; its methods raise an error."""
        return self


class Sampler(Protocol):
    """The members of an algorithm that its source uses."""

    config: AlgorithmConfig
    learner: Learner
    rollout_device: str | None
    workers_learn: bool
    seed: int

    recorded: RecordedData | None
    directory: Path
    observation_space: Space | None
    action_space: Space | None

    def snapshots(self) -> Mapping[str, Snapshot]: ...

    def recorded_rows(self) -> RecordedRows | None: ...

    def streamed_rows(self, dataset: Dataset) -> SampleBatch: ...


def _workers(algorithm: Sampler, settings: RolloutSettings, **more) -> WorkerSet:
    config = algorithm.config
    return WorkerSet(
        settings,
        config.num_rollout_workers,
        wiring.actor_options(config),
        wiring.fault_tolerance(config),
        [config.get_rollout_fragment_length(i + 1) for i in range(config.num_rollout_workers)],
        present=algorithm.snapshots,
        quorum=config.get("sample_quorum", 1.0),
        **more,
    )


def _tensors(algorithm: Sampler, settings: RolloutSettings, **more) -> WorkerSet:
    """One worker in this process, which acts by the learner's own weights on the device of the environments."""
    from rllib.evaluation.tensors.worker import TensorRolloutWorker

    return _workers(algorithm, settings, **{"worker_class": TensorRolloutWorker, "shared": [algorithm.learner], **more})


def _agents(algorithm: Sampler, settings: RolloutSettings, **more) -> WorkerSet:
    from rllib.evaluation.multi_agent.worker import MultiAgentWorker

    return _workers(algorithm, settings, **{"worker_class": MultiAgentWorker, **more})


def _external(algorithm: Sampler, settings: RolloutSettings, **more) -> WorkerSet:
    """Workers whose environments drive their own loops.

    Raises:
        ValueError: for an algorithm whose workers step environments themselves, or compute gradients.
    """
    if "worker_class" in more or algorithm.workers_learn or algorithm.config.needs_goals:
        name = type(algorithm).__name__
        with_goals = " with hindsight" if algorithm.config.needs_goals else ""
        raise algorithm.config.error(
            Mistake(
                f"{name}{with_goals} does not learn from an environment that drives its own loop.",
                ("env", "listen"),
                advice="All algorithms but A3C, ES and ARS do, without hindsight, such as PPO, IMPALA, DQN and SAC.",
            )
        )
    from rllib.evaluation.external.worker import ExternalWorker

    return _workers(algorithm, settings, **{"worker_class": ExternalWorker, **more})


def _recorded(algorithm: Sampler, settings: RolloutSettings, **more) -> RecordedSource:
    if algorithm.recorded.stream is not None:
        return StreamedSource(algorithm.recorded.stream, algorithm.streamed_rows)
    return RecordedSource(algorithm.seed, algorithm.recorded_rows(), algorithm.config.train_batch_size)


def _nothing(algorithm: Sampler, settings: RolloutSettings, **more) -> NoWorkers:
    return NoWorkers()


# Kind -> function of the algorithm, its rollout settings, and further arguments of WorkerSet if the source is one
SOURCES: Mapping[str, Callable[..., Source]] = {
    "workers": _workers,
    "tensors": _tensors,
    "agents": _agents,
    "external": _external,
    "recorded": _recorded,
    "nothing": _nothing,
}


def source_kind(algorithm: Sampler, settings: RolloutSettings) -> str:
    """The kind of source, as named in SOURCES, that the settings of an algorithm ask for."""
    if algorithm.config.is_offline:
        return "recorded"
    if settings.env is None:
        return "nothing"
    if settings.is_external:
        return "external"
    if settings.agents is not None:
        return "agents"
    return "workers" if algorithm.rollout_device is None else "tensors"


def make_source(algorithm: Sampler, settings: RolloutSettings, **more: Any) -> Source:
    """Makes the source of an algorithm's samples, and starts its processes.

    Args:
        algorithm: the algorithm, with learners made already.
        settings: settings of the workers.
        more: further arguments of WorkerSet, for algorithms with their own class of workers.

    Raises:
        the environment's own exception, if it cannot be made; see WorkerSet.
    """
    kind = source_kind(algorithm, settings)
    if algorithm.config.output is not None:
        if kind in _WHY_NO_OUTPUT or (kind == "external" and settings.agents is not None):
            kind = kind if kind in _WHY_NO_OUTPUT else "agents"
            problem = f"{_WHY_NO_OUTPUT[kind]}, and its steps cannot be written to files."
            raise algorithm.config.error(Mistake(problem, ("output", "env"), ({"output": None},)))
        settings = replace(settings, make_recorder=_output(algorithm, settings))
    return SOURCES[kind](algorithm, settings, **more)


# Kind of source -> reason why its steps are not written.
_WHY_NO_OUTPUT = {
    "tensors": "the environment hands over tensors, which stay on its device",
    "agents": "the environment has several agents",
    "nothing": "there is no environment to sample from",
}


def _output(algorithm: Sampler, settings: RolloutSettings) -> Output:
    """The workers' output, by the settings of offline_data."""
    return output_of(
        algorithm.config,
        algorithm.observation_space,
        algorithm.action_space,
        algorithm.directory,
        env=wiring.environment_name(algorithm.config),
        max_episode_steps=wiring.time_limit_of(settings.env),
        seed=algorithm.seed,
    )
