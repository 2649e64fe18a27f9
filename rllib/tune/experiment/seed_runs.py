"""Parts of an experiment whose trials are runs of `rllib train` that differ in their seed alone."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import runtime
from rllib.runs.entries import lookup
from rllib.runs.saving import is_save_due
from rllib.tune.experiment.spec import CheckpointConfig
from rllib.tune.experiment.trial import Trial, TrialCheckpoint
from rllib.tune.trainables.resolve import Resolved
from rllib.tune.trainables.resources import Resources
from rllib.tune.trainables.trainable import AlgorithmTrainable

_RETURN = "episode_reward_mean"


@dataclass
class RunCheckpoints(CheckpointConfig):
    """Trials are saved as `rllib train` saves a run: without a frequency at growing intervals, keeping the newest.

    Attributes:
        checkpoint_at_end: the last state is always saved.
        keep_best: a trial is saved whenever its return is the best so far, and that checkpoint is kept next to the
            others. From the first evaluation on, the returns of evaluations alone count.
    """

    checkpoint_at_end: bool = True
    keep_best: bool = False

    def is_due(self, result: Mapping[str, Any], checkpoints: Sequence[TrialCheckpoint]) -> bool:
        if self.checkpoint_frequency:
            is_due = super().is_due(result, checkpoints)
        else:
            saved_s = checkpoints[-1].metrics.get("time_total_s", 0.0) if checkpoints else None
            is_due = is_save_due(result["time_total_s"], saved_s)
        return is_due or (self.keep_best and self._is_best(result, checkpoints))

    @staticmethod
    def _is_best(result: Mapping[str, Any], checkpoints: Sequence[TrialCheckpoint]) -> bool:
        lowest = (False, -math.inf)
        best = max((_height(checkpoint.metrics.get) for checkpoint in checkpoints), default=lowest)
        return _height(partial(lookup, result)) > max(best, lowest)

    def superfluous(self, checkpoints: Sequence[TrialCheckpoint]) -> list[TrialCheckpoint]:
        every = self.checkpoint_frequency
        kept = list(checkpoints[-1:])
        if self.keep_best and checkpoints:
            kept.append(max(checkpoints, key=lambda checkpoint: _height(checkpoint.metrics.get)))
        if every and self.num_to_keep:
            kept += checkpoints[-self.num_to_keep :]
        elif every:
            kept += [each for each in checkpoints if not self.keep_best or each.iteration % every == 0]
        return [each for each in checkpoints if each not in kept]


def _height(number: Callable[[str], float | None]) -> tuple[bool, float]:
    """What makes a checkpoint better than another: any return of an evaluation is better than training's."""
    evaluated = number(f"evaluation/{_RETURN}")
    value = number(_RETURN) if evaluated is None else evaluated
    return evaluated is not None, -math.inf if value is None or math.isnan(value) else value


class SeedTrainable(AlgorithmTrainable):
    """Runs one seed of several, which share the machine; made by `of_seeds`.

    Attributes:
        goal: `Algorithm.goal`, as of a single run.
        number: number of seeds.
    """

    goal: Mapping[str, float]
    number: int

    def setup(self, config: dict[str, Any]) -> None:
        super().setup(config)
        self.algorithm.goal = dict(self.goal)

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> dict[str, Any]:
        """The algorithm's request, and this seed's part of the cores that would be idle, which updates can use."""
        request, there = super().default_resource_request(config), runtime.cluster_resources()
        need = Resources.of(request).total()
        cores = there.get("CPU", 1)
        fit = [cls.number, *(there.get(name, 0) // need[name] for name in ("CPU", "GPU") if need.get(name))]
        idle = int(cores // max(1, min(fit)) - need["CPU"])
        return {**request, "cpu": request["cpu"] + max(0, idle)}


def of_seeds(trainable: Resolved, number: int, goal: Mapping[str, float]) -> Resolved:
    """An algorithm for an experiment that trains a number of seeds; see SeedTrainable."""
    own = {"number": number, "goal": goal}
    return replace(trainable, cls=type(trainable.name, (SeedTrainable, trainable.cls), own))


class SeedDirectories:
    """Names the directory of each trial by its seed: seed_3."""

    def __call__(self, trial: Trial) -> str:
        return f"seed_{trial.config['seed']}"
