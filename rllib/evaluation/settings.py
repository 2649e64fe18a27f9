"""The values that rollout workers and evaluation need, in one picklable object."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from gymnasium import Space

from rllib.env.disturbances.disturbed import RangedFactory
from rllib.env.disturbances.settings import Interval
from rllib.env.factories.make import make_stream
from rllib.env.factories.registry import EnvFactory
from rllib.env.factories.settable_tasks import TaskFactory
from rllib.evaluation import seeding
from rllib.evaluation.callbacks import DefaultCallbacks
from rllib.evaluation.postprocess.base import Postprocess
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.postprocess.return_scale import ReturnScale
from rllib.exploration.explorers import STOCHASTIC_SAMPLING, Exploration
from rllib.learners.learner import Learner
from rllib.models.dense.network_spec import NetworkSpec
from rllib.policy import Policy
from rllib.sample_batch import DEFAULT_POLICY, Column

if TYPE_CHECKING:
    from rllib.env.multi_agent.stream import MultiAgentStream
    from rllib.evaluation.multi_agent.settings import AgentSettings
    from rllib.evaluation.teacher import TeacherSettings

NO_POSTPROCESS = Postprocess()


@dataclass(frozen=True)
class PolicySettings:
    """Settings of one policy in a worker: its network, how it explores, and what its rows are given.

    A worker has a Lane (lane.py) for each policy: its explorer, and the columns of the slots in which it acts.

    Args:
        spec: description of the network.
        postprocess: what the algorithm adds to each fragment.
        exploration: description of the exploration.
        explore: take exploratory actions; False takes the most likely actions.
        learner: makes the learner of a worker's own policy, where workers compute gradients; None: they do not.
        marks_waiting: whether rows of several agents have the column `waited`.
        teacher: its teacher, which it learns from; None: there is none.
        observation_space: space of what the policy reads, where a teacher reads more; None: what the environments give.
        make_return_scale: makes what scales the policy's rewards by the spread of their discounted returns, of a number
            of slots, after they are clipped; None leaves them as they are.
    """

    spec: NetworkSpec
    postprocess: Postprocess = NO_POSTPROCESS
    exploration: Exploration = STOCHASTIC_SAMPLING
    explore: bool = True
    learner: Callable[[Policy], Learner] | None = None
    marks_waiting: bool = False
    teacher: "TeacherSettings | None" = None
    observation_space: Space | None = None
    make_return_scale: Callable[..., ReturnScale] | None = None

    @property
    def teacher_reads_more(self) -> bool:
        """Whether the environments give a teacher what the policy does not read."""
        return self.teacher is not None and self.teacher.observation_space != self.observation_space


@dataclass(frozen=True, kw_only=True)
class EnvironmentSettings:
    """Settings of the environments that workers step: how each is made, seeded, checked and replaced.

    Args:
        env: makes one environment; None: there are none, and nothing can be sampled.
        env_config: handed to it.
        num_envs: environments of one worker.
        num_envs_of_episodes: environments of a worker that plays a number of episodes for evaluation; None: num_envs.
        seed: the run's seed.
        seeds_driver: whether the driver's global generators are seeded where environments are stepped in its process:
            the user has given the seed. Workers' processes are always seeded.
        num_workers: remote workers of the set this one belongs to.
        check_env: steps are checked against the spaces while they are still cheap to check.
        replace_failed_envs: an environment that raises is replaced by a new one, and the others continue.
        info_columns: keys of the environments' info dicts that batches have as columns.
        cost_column: the info column that episodes sum up as their cost; None: they have none.
        agents: policies of the agents, where environments have several; None: there is one agent.
        is_external: whether the environment drives its own loop (env/external/).
        env_tasks: (worker, index of an environment in it) -> the task that env_task_fn has set last, which an
            environment that is made in its place takes over. It is changed in place.
        disturbance_ranges: parameter -> the range that an adaptation has reached, for environments that are made in the
            place of others. It is changed in place.
    """

    env: EnvFactory | None
    env_config: dict
    num_envs: int
    num_envs_of_episodes: int | None = None
    seed: int
    seeds_driver: bool = False
    num_workers: int = 0
    check_env: bool = True
    replace_failed_envs: bool = False
    info_columns: tuple[Column, ...] = ()
    cost_column: str | None = None
    agents: "AgentSettings | None" = None
    is_external: bool = False
    env_tasks: dict[tuple[int, int], Any] = field(default_factory=dict)
    disturbance_ranges: dict[str, Interval] = field(default_factory=dict)

    def seeds(self, kind: int, indices: range, incarnation: int) -> list[int]:
        """One seed for each of these environments, of the given kind of stream."""
        return [seeding.environment_seed(self.seed, kind, i, incarnation) for i in indices]

    def open_stream(
        self,
        kind: int,
        indices: range,
        worker_index: int,
        incarnation: int,
        tensors: bool = False,
        arrays: bool = False,
    ) -> Any:
        """The environments with these indices, each on its own seed of the given kind of stream.

        With `tensors` it is a TensorStream over a VectorEnv that hands over tensors; with several agents it is a
        MultiAgentStream, or with `arrays` a VectorAgentsStream over a MultiAgentVectorEnv.

        The global generators of this process are seeded first (see `seed_process`).
        """
        imported_torch = "torch" in sys.modules
        self.seed_process(kind, worker_index, incarnation)
        options: dict[str, Any] = {
            "num_envs": len(indices),
            "seeds": self.seeds(kind, indices, incarnation),
            "worker_index": worker_index,
            "num_workers": self.num_workers,
            "env_config": self.env_config,
            "check": self.check_env,
            "replace_failed": self.replace_failed_envs,
            "in_evaluation": kind == seeding.EVALUATION_ENVIRONMENTS,
        }
        factory = RangedFactory(TaskFactory(self.env, self.env_tasks), self.disturbance_ranges)
        if self.agents is None:
            stream = make_stream(factory, **options, info_columns=self.info_columns, tensors=tensors)
        else:
            from rllib.env.multi_agent.make import make_agents_stream

            stream = make_agents_stream(factory, **options, arrays=arrays)
        if not imported_torch:  # an environment may have imported it
            self.seed_process(kind, worker_index, incarnation, torch_alone=True)
        return stream

    def open_agents(self, kind: int, indices: range, worker_index: int, incarnation: int) -> "MultiAgentStream":
        """The same of environments with several agents."""
        return self.open_stream(kind, indices, worker_index, incarnation)

    def reseed(
        self, stream: Any, indices: range, worker_index: int, incarnation: int, kind: int = seeding.ENVIRONMENTS
    ) -> None:
        """Seeds the next resets of a worker's environments, and the global generators, as `open_stream` seeds new ones.

        Args:
            stream: the environments.
            indices, worker_index, incarnation, kind: as for `open_stream`.
        """
        stream.reseed(self.seeds(kind, indices, incarnation))
        self.seed_process(kind, worker_index, incarnation)

    def seed_process(self, kind: int, worker_index: int, incarnation: int, torch_alone: bool = False) -> None:
        """Seeds the global generators of this process; the driver's only where the user has given the seed.

        Args:
            kind: kind of stream, as for `open_stream`.
            worker_index: no two workers get the same seed.
            incarnation: nor does a worker that replaces another.
            torch_alone: leave the others as they are.
        """
        if worker_index or self.seeds_driver:
            stream = seeding.PROCESSES if kind == seeding.ENVIRONMENTS else seeding.EVALUATION_PROCESSES
            seed = seeding.seed_torch if torch_alone else seeding.seed_process
            seed(self.seed, stream, worker_index, incarnation)


class Recorder(Protocol):
    """Writes the steps of a worker, as they were before the algorithm changed rewards or flags."""

    def note(self, fragment: Fragment) -> None:
        """Copies what `Lane.finish` will change."""

    def write(self, fragment: Fragment) -> None:
        """Writes the steps of a fragment that was noted and is finished."""

    def start_over(self) -> None:
        """Ends the running episodes, which were dropped."""

    def close(self) -> None:
        """Writes what waits, and closes the files."""


@dataclass(frozen=True, kw_only=True)
class RolloutSettings(EnvironmentSettings):
    """Settings of rollout workers and evaluation: the environments, the policies, and how they are sampled.

    Args:
        policies: policy id -> settings of this policy.
        fragment_length: steps of each environment per fragment.
        acts_among_all: workers pad inference batches to the number of environments of all workers (`Policy.act_among`),
            so that results have the same bits for any number of workers.
        complete_episodes: samples until every episode begun in the fragment is over.
        normalize_actions: the policy's actions in [-1, 1] are stretched to the bounds of a Box space.
        clip_actions: actions are clipped to those bounds.
        clip_rewards: True keeps the sign only, a number clips to [-number, number]; statistics are of the raw rewards.
        time_limit_ends_episode: truncated episodes count as terminated: what follows them is worth nothing.
        sample_timeout_s: waits longer than this are reported (seconds).
        callbacks: makes the object with the user's hooks.
        config: the algorithm's, for the hooks.
        drops_logged_rows: steps of an external environment whose actions the policy has not chosen are not learned
            from.
        max_lag_updates: rows that a client of an external environment has acted in by weights that are older by more
            updates are not learned from; None: all are.
        sequences: batches keep each environment's steps together and carry the observations to bootstrap from, so that
            values can be computed by the learner (Fragment.to_sequences).
        acting_device: torch device on which the networks of remote workers compute; None: in numpy, or on the CPU.
        spans_directory: where workers record what they do when (spans.py); None: they do not.
        make_recorder: makes what writes the steps of a RolloutWorker, its argument, to files; None: they are not
            written.
    """

    policies: Mapping[str, PolicySettings]
    fragment_length: int
    acts_among_all: bool = True
    complete_episodes: bool = False
    normalize_actions: bool = True
    clip_actions: bool = False
    clip_rewards: bool | float | None = None
    time_limit_ends_episode: bool = False
    sample_timeout_s: float = 60.0
    callbacks: Callable[[], DefaultCallbacks] = DefaultCallbacks
    config: Any = None
    drops_logged_rows: bool = False
    max_lag_updates: int | None = None
    sequences: bool = False
    acting_device: str | None = None
    spans_directory: str | None = None
    make_recorder: "Callable[[Any], Recorder] | None" = None

    def without_teachers(self, env: EnvFactory | None) -> Self:
        """The settings without teachers; `env`: factory of environments whose observations are the policies'."""
        policies = {policy_id: replace(own, teacher=None) for policy_id, own in self.policies.items()}
        return replace(self, env=env, policies=policies)

    def clip(self, rewards: np.ndarray) -> None:
        """Clips rewards of the environment in place, as `clip_rewards` says."""
        if self.clip_rewards is True:  # the sign alone (DQN, Nature 2015)
            np.sign(rewards, out=rewards)
        elif self.clip_rewards:
            np.clip(rewards, -self.clip_rewards, self.clip_rewards, out=rewards)

    @property
    def only_policy(self) -> PolicySettings:
        """Settings of the policy of a run that has one."""
        return self.policies[DEFAULT_POLICY]
