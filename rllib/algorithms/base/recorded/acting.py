"""Recorded steps of a trained policy: it acts in new environments, and what happens becomes a dataset."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from gymnasium import Space, spaces

from rllib.evaluation.callbacks import DefaultCallbacks
from rllib.evaluation.offline.recorder import Output
from rllib.evaluation.settings import NO_POSTPROCESS, RolloutSettings
from rllib.evaluation.worker_set import WorkerSet
from rllib.exploration.disturbed import Disturbed
from rllib.offline.dataset import Dataset
from rllib.offline.writing.metadata import metadata_of
from rllib.offline.writing.rolling import new_run_id
from rllib.offline.writing.step_formats import NPZ
from rllib.policy import Snapshots
from rllib.processes import exit_when_terminated
from rllib.sample_batch import DEFAULT_POLICY, EPS_ID

_ENVIRONMENTS, _STEPS_AT_ONCE, _STEPS_OF_ENVIRONMENT = 8, 256, 2500


@dataclass(frozen=True, kw_only=True)
class ActingPlan:
    """Plan of a recording: its length, and the way in which the policy acts.

    Attributes:
        num_episodes: whole episodes; None: num_steps are counted.
        num_steps: steps of all environments together; each one's last episode is cut.
        explore: explore as in training; False takes the most probable actions.
        random_share: share of the steps with a uniformly random action.
        noise: standard deviation of noise that is added to actions of a Box, where [-1, 1] spans its bounds.
        num_workers: processes; 0: this one.
        seed: seed of environments and actions.

    Raises:
        ValueError: unless exactly one of num_episodes and num_steps is given, and for numbers that cannot be.
    """

    num_episodes: int | None = None
    num_steps: int | None = None
    explore: bool = False
    random_share: float = 0.0
    noise: float = 0.0
    num_workers: int = 0
    seed: int = 0

    def __post_init__(self):
        if (self.num_episodes is None) == (self.num_steps is None):
            raise ValueError("give either a number of episodes or a number of steps")
        if (self.num_episodes or self.num_steps or 0) < 1:
            raise ValueError("at least one episode or step is recorded")
        if not 0 <= self.random_share <= 1:
            raise ValueError(f"the share of random actions, {self.random_share}, must be between 0 and 1")
        if not 0 <= self.noise < np.inf:
            raise ValueError(f"the deviation of the noise, {self.noise}, must be a number from 0 on")


class Actor(Protocol):
    """The parts of an algorithm that acts."""

    observation_space: Space
    action_space: Space
    config: Any
    timesteps: int
    agents: Any
    rollout_device: str | None
    _rollout_settings: RolloutSettings

    def snapshots(self) -> Snapshots: ...


def recorded_steps(algorithm: Actor, plan: ActingPlan) -> Dataset:
    """The steps that an algorithm's present policy makes in new environments.

    Of N episodes each environment plays its share to the end: taking those that end first would favour short ones.

    Args:
        algorithm: with one policy, and environments that it steps.
        plan: how much, and how it acts.

    Returns:
        a dataset; metadata["behaviour"] says how the policy acted, and the mean return of its whole episodes.

    Raises:
        ValueError: where there is no environment, several agents, or one that drives its own loop; and for noise on
            actions that are choices.
    """
    settings = algorithm._rollout_settings
    if settings.env is None or settings.is_external or algorithm.agents is not None:
        raise ValueError(
            "steps are recorded in environments that are stepped and have one agent, which this checkpoint has not"
        )
    if algorithm.rollout_device is not None:
        raise ValueError("the environment hands over tensors, which stay on their device and are not recorded")
    if plan.noise and not (isinstance(algorithm.action_space, spaces.Box) and algorithm.action_space.dtype.kind == "f"):
        raise ValueError(f"noise is added to actions of a Box of floats, but these are of {algorithm.action_space}")
    total = plan.num_episodes or plan.num_steps
    num_workers = min(plan.num_workers, total)
    share = -(-total // max(num_workers, 1))
    # Of steps each environment makes enough of them that few are of episodes that are cut at the end.
    num_envs = min(_ENVIRONMENTS, max(1, share // (1 if plan.num_steps is None else _STEPS_OF_ENVIRONMENT)))
    at_once = num_envs * max(num_workers, 1)
    length = _STEPS_AT_ONCE if plan.num_steps is None else min(_STEPS_AT_ONCE, -(-plan.num_steps // at_once))
    facts = _facts(algorithm, plan)
    metadata = metadata_of(algorithm.observation_space, algorithm.action_space, **facts)
    with tempfile.TemporaryDirectory(prefix="rllib-record-") as directory:
        exit_when_terminated()
        output = Output(directory=directory, format_=NPZ, metadata=metadata, run_id=new_run_id())
        workers = WorkerSet(_settings(settings, plan, num_envs, num_workers, length, output), num_workers)
        try:
            # Rewards are recorded as they are, so that there is nothing to scale them by.
            snapshots = {name: replace(each, return_state=None) for name, each in algorithm.snapshots().items()}
            returns = _play(workers, snapshots, plan, at_once)
        finally:
            workers.stop()
        indices = range(1, num_workers + 1) if num_workers else (0,)
        # In the order of the workers: the ids of their episodes are random.
        parts = [Dataset.from_path(f"{directory}/*_worker-{index}_*") for index in indices]
        dataset = _chosen(parts, plan, num_envs)
    if plan.num_steps is None:
        returns = dataset.returns
    mean = float(np.mean(returns)) if len(returns) else None
    metadata = {**dataset.metadata, "behaviour": {**facts["behaviour"], "mean_return": mean}}
    return replace(dataset, metadata=metadata, source="the recorded steps", notices=[])


def _facts(algorithm: Actor, plan: ActingPlan) -> Mapping[str, Any]:
    env = algorithm._rollout_settings.env
    return {
        "env": env.name,
        "max_episode_steps": getattr(getattr(env, "spec", None), "max_episode_steps", None),
        "gamma": algorithm.config.get("gamma", None),
        "seed": plan.seed,
        "algorithm": algorithm.config.algorithm_name,
        "behaviour": {
            "timesteps": algorithm.timesteps,
            "explore": plan.explore,
            "random_share": plan.random_share,
            "noise": plan.noise,
        },
    }


def _settings(settings: RolloutSettings, plan: ActingPlan, num_envs, num_workers, length, output) -> RolloutSettings:
    """Settings of workers that only act: nothing is changed for learning, no hook of the user is called."""
    own = settings.only_policy
    exploration, explore = own.exploration, plan.explore
    if plan.random_share or plan.noise:
        exploration = Disturbed(inner=exploration, explores=explore, random_share=plan.random_share, noise=plan.noise)
        explore = True
    unchanged = {"postprocess": NO_POSTPROCESS, "learner": None, "make_return_scale": None}
    own = replace(own, exploration=exploration, explore=explore, **unchanged)
    return replace(
        settings,
        policies={DEFAULT_POLICY: own},
        num_envs=num_envs,
        num_workers=num_workers,
        fragment_length=length,
        seed=plan.seed,
        complete_episodes=False,
        clip_rewards=None,
        time_limit_ends_episode=False,
        callbacks=DefaultCallbacks,
        config=None,
        sequences=False,
        acting_device=None,
        spans_directory=None,
        make_recorder=output,
    )


def _play(workers: WorkerSet, snapshots: Snapshots, plan: ActingPlan, at_once: int) -> list[float]:
    """Samples until there is enough, of episodes in each environment; returns the returns of whole episodes."""
    steps, returns = 0, []
    played = np.zeros(at_once, int)
    while True:
        for number, (_, report) in enumerate(workers.sample(snapshots)):
            steps += report.env_steps
            first = number * (at_once // max(workers.num_workers, 1))
            for episode in report.episodes:
                played[first + episode.env_index] += 1
                returns.append(episode.episode_return)
        enough = steps >= plan.num_steps if plan.num_steps else (played >= -(-plan.num_episodes // at_once)).all()
        if enough:
            return returns


def _chosen(of_workers: Sequence[Dataset], plan: ActingPlan, num_envs: int) -> Dataset:
    """The steps that were asked for, of those that each worker has made."""
    dataset = Dataset.concat(of_workers)
    if plan.num_steps is not None:
        return dataset.first(plan.num_steps)
    number = dataset.columns[EPS_ID][dataset.starts[:-1]] & 0xFFFFFFFF
    worker = np.repeat(np.arange(len(of_workers)), [each.num_episodes for each in of_workers])
    environment, rank = worker * num_envs + number % num_envs, number // num_envs
    share, more = divmod(plan.num_episodes, num_envs * len(of_workers))
    return dataset.taking(np.flatnonzero(rank < share + (environment < more)))
