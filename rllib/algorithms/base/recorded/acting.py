"""Recorded steps of a trained policy: it acts in new environments, and what happens becomes a dataset."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from gymnasium import Space, spaces

from rllib.env.episodes import Episode
from rllib.evaluation.callbacks import DefaultCallbacks
from rllib.evaluation.evaluator import Duration, environments_of
from rllib.evaluation.offline.recorder import Output
from rllib.evaluation.offline.recording_worker import EvaluationRecordingWorker, RecordingWorker
from rllib.evaluation.settings import NO_POSTPROCESS, RolloutSettings
from rllib.evaluation.worker_set import WorkerSet
from rllib.exploration.disturbed import Disturbed
from rllib.offline.dataset import Dataset
from rllib.offline.writing.metadata import metadata_of
from rllib.offline.writing.rolling import new_run_id
from rllib.offline.writing.step_formats import NPZ
from rllib.policy import Snapshots
from rllib.processes import exit_when_terminated
from rllib.sample_batch import DEFAULT_POLICY

_STEPS_AT_ONCE, _STEPS_OF_ENVIRONMENT = 256, 2500


@dataclass(frozen=True, kw_only=True)
class ActingPlan:
    """Plan of a recording: its length, and the way in which the policy acts.

    Attributes:
        num_episodes: whole episodes, games where the environment says that a life was lost; None: num_steps are
            counted.
        num_steps: steps of all environments together; each one's last episode is cut.
        explore: explore as in training; False takes the most probable actions.
        random_share: share of the steps with a uniformly random action.
        noise: standard deviation of noise that is added to actions of a Box, where [-1, 1] spans its bounds.
        num_workers: processes; 0: this one. With as_evaluation those of the evaluation are taken.
        seed: seed of environments and actions; None: the run's.
        as_evaluation: the next evaluation is recorded: evaluation_config counts, the actions are the evaluation's, and
            episodes are played to the end where steps are counted. False: in the training environment, without its
            disturbances.

    Raises:
        ValueError: unless exactly one of num_episodes and num_steps is given, for numbers that cannot be, and for
            disturbed actions of an evaluation.
    """

    num_episodes: int | None = None
    num_steps: int | None = None
    explore: bool = False
    random_share: float = 0.0
    noise: float = 0.0
    num_workers: int = 0
    seed: int | None = None
    as_evaluation: bool = False

    def __post_init__(self):
        if (self.num_episodes is None) == (self.num_steps is None):
            raise ValueError("give either a number of episodes or a number of steps")
        if (self.num_episodes or self.num_steps or 0) < 1:
            raise ValueError("at least one episode or step is recorded")
        if not 0 <= self.random_share <= 1:
            raise ValueError(f"the share of random actions, {self.random_share}, must be between 0 and 1")
        if not 0 <= self.noise < np.inf:
            raise ValueError(f"the deviation of the noise, {self.noise}, must be a number from 0 on")
        if self.as_evaluation and (self.random_share or self.noise):
            raise ValueError("an evaluation's actions are not disturbed: leave out random_share and noise")


class Actor(Protocol):
    """The parts of an algorithm that acts."""

    observation_space: Space
    action_space: Space
    config: Any
    timesteps: int
    agents: Any
    rollout_device: str | None
    _evaluations: Any

    def snapshots(self) -> Snapshots: ...


def recorded_steps(algorithm: Actor, plan: ActingPlan) -> tuple[Dataset, list[Episode]]:
    """The steps that an algorithm's present policy makes in new environments, on seeds that training never uses.

    Each environment plays its share to the end and rests then: taking the episodes that end first would favour short
    ones.

    Args:
        algorithm: with one policy, and environments that it steps.
        plan: how much, and how it acts.

    Returns:
        a dataset, and the statistics of its whole episodes. metadata["behaviour"] says how the policy acted, and the
        mean return of these episodes; where lives are lost they are games, and the dataset's are lives.

    Raises:
        ValueError: where there is no environment, several agents, or one that drives its own loop; and for noise on
            actions that are choices.
    """
    evaluations = algorithm._evaluations
    settings = evaluations.settings if plan.as_evaluation else evaluations.settings_of_training
    if settings.env is None or settings.is_external or algorithm.agents is not None:
        raise ValueError(
            "steps are recorded in environments that are stepped and have one agent, which this checkpoint has not"
        )
    if algorithm.rollout_device is not None:
        raise ValueError("the environment hands over tensors, which stay on their device and are not recorded")
    if plan.noise and not (isinstance(algorithm.action_space, spaces.Box) and algorithm.action_space.dtype.kind == "f"):
        raise ValueError(f"noise is added to actions of a Box of floats, but these are of {algorithm.action_space}")
    explore = plan.explore or (plan.as_evaluation and algorithm.config.explores_in_evaluation)
    plan = replace(plan, explore=explore, seed=settings.seed if plan.seed is None else plan.seed)
    unit = "timesteps" if plan.num_episodes is None else "episodes"
    duration = Duration(plan.num_episodes or plan.num_steps, unit)
    num_workers, worker_class = plan.num_workers, RecordingWorker
    if plan.as_evaluation:
        num_workers = algorithm.config.evaluation_num_workers
        worker_class = EvaluationRecordingWorker
    num_workers = min(num_workers, duration.amount)
    facts = _facts(algorithm, settings, plan)
    metadata = metadata_of(algorithm.observation_space, algorithm.action_space, **facts)
    with tempfile.TemporaryDirectory(prefix="rllib-record-") as directory:
        exit_when_terminated()
        output = Output(directory=directory, format_=NPZ, metadata=metadata, run_id=new_run_id())
        num_envs = _num_envs(evaluations.settings, plan, duration, num_workers)
        acting = _settings(settings, plan, num_envs, num_workers, output)
        workers = WorkerSet(acting, num_workers, worker_class=worker_class)
        try:
            # Rewards are recorded as they are, so that there is nothing to scale them by.
            snapshots = {name: replace(each, return_state=None) for name, each in algorithm.snapshots().items()}
            round_index = evaluations.count + 1 if plan.as_evaluation else 0
            episodes = workers.start_episodes(snapshots, duration, round_index, explore)()
        finally:
            workers.stop()
        indices = range(1, num_workers + 1) if num_workers else (0,)
        # In the order of the workers: the ids of their episodes are random.
        dataset = Dataset.concat([Dataset.from_path(f"{directory}/*_worker-{index}_*") for index in indices])
    mean = float(np.mean([each.episode_return for each in episodes])) if episodes else None
    metadata = {**dataset.metadata, "behaviour": {**facts["behaviour"], "mean_return": mean}}
    return replace(dataset, metadata=metadata, source="the recorded steps", notices=[]), episodes


def _num_envs(settings: RolloutSettings, plan: ActingPlan, duration: Duration, num_workers: int) -> int:
    """Number of environments of a worker: not more than of an evaluation's."""
    parts = max(num_workers, 1)
    if plan.as_evaluation:
        return len(environments_of(settings, duration.split(parts)[0], 0))
    at_once, share = settings.num_envs_of_episodes or settings.num_envs, duration.amount // parts
    if plan.num_steps is None:
        return min(at_once, share)
    # Each environment makes enough steps that few are of episodes that are cut at the end.
    return min(at_once, max(1, share // _STEPS_OF_ENVIRONMENT))


def _facts(algorithm: Actor, settings: RolloutSettings, plan: ActingPlan) -> Mapping[str, Any]:
    env = settings.env
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


def _settings(settings: RolloutSettings, plan: ActingPlan, num_envs, num_workers, output) -> RolloutSettings:
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
        fragment_length=_STEPS_AT_ONCE,
        seed=plan.seed,
        complete_episodes=plan.as_evaluation or plan.num_steps is None,
        clip_rewards=None,
        time_limit_ends_episode=False,
        callbacks=DefaultCallbacks,
        config=None,
        sequences=False,
        acting_device=None,
        spans_directory=None,
        make_recorder=output,
    )
