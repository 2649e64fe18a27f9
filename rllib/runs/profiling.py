"""Profile of a training run: a timeline of its processes, shares of the time, and its bottleneck."""

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rllib import spans
from rllib.spans import IDLE, WAIT, Lane, read_lanes
from rllib.storage.local_path import local_path

DRIVER = "driver"
ITERATION = "iteration"
# Prefix of the names of processes that sample.
_SAMPLERS = "rollout worker"
_LEARNERS = "learner"
# Name of a timer of the driver -> name of the phase in a profile.
_PHASES = {"learn": "updates", "replay": "replay", "aggregate": "aggregation", "evaluation": "evaluation"}
# Name of a span within a fragment -> name of the work in a profile.
_WORK = {"act": "actions", "step": "environments", "play": "episodes", "gradient": "gradients"}
_TRANSFERS = ("join", "take in", "send weights")
_WORKERS_OTHER, _TRANSFER, _OTHER = "rest of the workers' time", "transfer", "rest"
# Category of a trace's event, by which viewers can filter; other spans have "other".
_CATEGORIES = {
    "act": "acting", "step": "stepping", "play": "stepping", "learn": "update", "update": "update",
    "gradient": "update", IDLE: "idle", **dict.fromkeys(_TRANSFERS, "transfer"), "make rows": "transfer",
    "to device": "transfer", WAIT: "idle",
}  # fmt: skip


class Recording:
    """A directory in which this process and others record their spans, until `stop`."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="rllib-profile-")
        spans.start(self.directory, DRIVER)

    def lanes(self) -> list[Lane]:
        """Spans that all processes have written so far, a lane each."""
        spans.flush()
        return read_lanes(self.directory)

    def stop(self) -> None:
        """Ends the recording and deletes the directory."""
        spans.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class Profile:
    """Use of time by the processes of a training run, up to now.

    Args:
        lanes: one a process; one of them is the driver's.
        settings: settings of the algorithm, by name.
        num_cores: cores of the machine.

    Attributes:
        lanes: as given.
        seconds: duration of all iterations.
        shares: use of the time -> share of `seconds`, largest first. The time in which the driver waits for rollout
            workers is divided by their work.
    """

    def __init__(self, lanes: Iterable[Lane], settings: Mapping[str, Any], num_cores: int):
        self.lanes = list(lanes)
        self._settings, self._num_cores = settings, num_cores
        self._driver = next(lane for lane in self.lanes if lane.name == DRIVER).seconds
        self.seconds = self._driver.get(ITERATION, 0.0)
        self.shares = dict(sorted(self._shares().items(), key=lambda item: -item[1])) if self.seconds else {}

    # ------------------------------------------------------------------ shares

    def _shares(self) -> dict[str, float]:
        driver = {path.removeprefix(f"{ITERATION}/"): seconds for path, seconds in self._driver.items()}
        parts: Counter[str] = Counter()
        for phase, name in _PHASES.items():
            parts[name] += driver.get(phase, 0.0)
        whole = driver.get("sample", 0.0)
        inside = {path.removeprefix("sample/"): driver[path] for path in driver if path.startswith("sample/")}
        for path, seconds in inside.items():
            if path in _WORK:  # this process is the worker
                parts[_WORK[path]] += seconds
            elif path in _TRANSFERS:
                parts[_TRANSFER] += seconds
        waited = max(0.0, whole - sum(seconds for path, seconds in inside.items() if "/" not in path))
        for name, share in self._of_workers().items():
            parts[name] += share * waited
        # "take in" and "send weights" also stand outside of the sampling phase.
        parts[_TRANSFER] += sum(driver.get(name, 0.0) for name in _TRANSFERS)
        parts[_OTHER] = max(0.0, self.seconds - parts.total())
        return {name: seconds / self.seconds for name, seconds in parts.items() if seconds}

    def _of_workers(self) -> dict[str, float]:
        """Shares of the busy time of rollout workers by the name of their work."""
        parts, busy = Counter(), 0.0
        for lane in self._samplers():
            for path, seconds in lane.seconds.items():
                top, _, below = path.partition("/")
                if not below and top != IDLE:
                    busy += seconds
                if (kind := _WORK.get(below or top)) is not None:
                    parts[kind] += seconds
        if not busy:
            return {_WORKERS_OTHER: 1.0}
        parts[_WORKERS_OTHER] = max(0.0, busy - parts.total())
        return {name: seconds / busy for name, seconds in parts.items()}

    def _samplers(self) -> list[Lane]:
        return [lane for lane in self.lanes if lane.name.startswith(_SAMPLERS)]

    @property
    def workers_idle(self) -> float | None:
        """Share of the time in which a rollout worker waits for a request; None without remote workers."""
        return _share_of(self._samplers(), lambda path: path == IDLE)

    @property
    def learners_idle(self) -> float:
        """Share of the time in which no update is computed: of the learners' processes, between updates and while they
        wait for one another; without such processes, of the driver's.
        """
        lanes = [lane for lane in self.lanes if lane.name.startswith(_LEARNERS)]
        found = _share_of(lanes, lambda path: path == IDLE or path.endswith(WAIT))
        return 1.0 - self.shares.get("updates", 0.0) if found is None else found

    # ------------------------------------------------------------------ what limits the run

    @property
    def bottleneck(self) -> str:
        """Sentences on the largest share of the time, and the setting that would change it."""
        if not self.shares:
            return "No iteration has ended yet."
        name, share = next(iter(self.shares.items()))
        idle = "" if name == "updates" else f"; the learner is idle {self.learners_idle:.0%} of it"
        return f"{share:.0%} of the time goes into {_DESCRIPTIONS[name]}{idle}. {_ADVICE[name](self)}"

    def _advise_on_environments(self) -> str:
        workers = self._settings["num_rollout_workers"]
        if workers < self._num_cores:
            return (
                f"More processes can step them side by side: .rollouts(num_rollout_workers={self._num_cores}) instead "
                f"of {workers}."
            )
        return (
            f"Each of the {self._num_cores} cores has a rollout worker already. An environment that is implemented for "
            'many copies at once is faster: .rollouts(gym_env_vectorize_mode="vector_entry_point"); so is a machine '
            "with more cores."
        )

    def _advise_on_actions(self) -> str:
        envs = self._settings["num_envs_per_worker"]
        if envs < _MANY_ENVS:
            return (
                f"One pass through the network can act for more environments: .rollouts(num_envs_per_worker={2 * envs})"
                f" instead of {envs}."
            )
        return self._advise_on_environments()

    def _advise_on_updates(self) -> str:
        idle, waiting = self.workers_idle, ""
        if idle is not None:
            waiting = f"The rollout workers wait {idle:.0%} of their time. "
        learners, gpus = self._settings["num_learners"], self._settings["num_gpus"]
        if learners:
            waiting += f"The learners wait {self.learners_idle:.0%} of theirs. "
        if longer := longer_steps(self._settings):
            return f"{waiting}{longer}"
        if max(learners, 1) < self._num_cores and not gpus:
            return (
                f"{waiting}Several processes can compute them: .learners(num_learners={max(learners, 1) + 1}), or a "
                "GPU: .resources(num_gpus=1)."
            )
        return f"{waiting}A smaller network or fewer gradient steps per sample would make them shorter."

    def _advise_on_evaluation(self) -> str:
        return (
            "It need not hold up training: .evaluation(evaluation_num_workers=1, evaluation_parallel_to_training=True),"
            f" or a larger evaluation_interval than {self._settings['evaluation_interval']}."
        )

    def _advise_on_messages(self) -> str:
        return "Longer fragments need fewer messages: .rollouts(rollout_fragment_length=...)."

    # ------------------------------------------------------------------ output files

    def __str__(self) -> str:
        lines = [f"{self.seconds:.1f} s of training, {len(self.lanes)} processes"]
        lines += [f"{share:>6.1%}  {name}" for name, share in self.shares.items() if share >= 0.001]
        if (idle := self.workers_idle) is not None:
            lines.append(f"rollout workers idle: {idle:.1%}")
        if self._settings["num_learners"]:
            lines.append(f"learners idle: {self.learners_idle:.1%}")
        return "\n".join([*lines, self.bottleneck])

    def save(self, path: str | os.PathLike) -> None:
        """Writes the timeline as a Chrome trace, for ui.perfetto.dev or chrome://tracing."""
        local_path(path).write_text(json.dumps({"traceEvents": list(self._events()), "displayTimeUnit": "ms"}))

    def _events(self) -> Iterable[dict]:
        # Processes of one machine share a clock; several machines share only the time of day.
        epochs = {lane.host: lane.epoch for lane in reversed(self.lanes)}
        shifts = {host: epoch - epochs[self.lanes[0].host] for host, epoch in epochs.items()}
        first = min((shifts[lane.host] + begin for lane in self.lanes for _, begin, _ in lane.spans), default=0.0)
        for number, lane in enumerate(self.lanes):
            name = f"{lane.name} (process {lane.pid} of {lane.host})"
            yield {"name": "process_name", "ph": "M", "pid": number, "tid": 0, "args": {"name": name}}
            yield {"name": "process_sort_index", "ph": "M", "pid": number, "tid": 0, "args": {"sort_index": number}}
            shift = shifts[lane.host] - first
            for path, begin, end in lane.spans:
                kind = path.rpartition("/")[2]
                event = {"name": kind, "cat": _CATEGORIES.get(kind, "other"), "ph": "X", "pid": number, "tid": 0}
                yield event | {"ts": (begin + shift) * 1e6, "dur": (end - begin) * 1e6}


def longer_steps(settings: Mapping[str, Any]) -> str | None:
    """A sentence on fewer and larger gradient steps; None where steps are large, or take the whole batch.

    Args:
        settings: settings of the algorithm, by name.
    """
    size = settings.get("sgd_minibatch_size")
    if size is None or size >= min(_WORTH_SHARING, settings.get("train_batch_size", _WORTH_SHARING)):
        return None
    return (
        "Fewer and larger gradient steps take less time, but learn in another way: "
        f".training(sgd_minibatch_size={2 * _WORTH_SHARING}) instead of {size}, or a smaller num_sgd_iter."
    )


def _share_of(lanes: list[Lane], counts: Callable[[str], bool]) -> float | None:
    """Share of the processes' time in spans whose path `counts`; None without processes."""
    lasted = sum(lane.lasted for lane in lanes)
    if not lasted:
        return None
    return sum(seconds for lane in lanes for path, seconds in lane.seconds.items() if counts(path)) / lasted


# Least number of rows in a minibatch with which several learners are faster than one (learners.md).
_WORTH_SHARING = 256
# Number of environments with which an array operation takes longer than its call.
_MANY_ENVS = 64
_DESCRIPTIONS = {
    "updates": "updates of the weights",
    "replay": "waiting for samples of the replay's processes",
    "aggregation": "waiting for train batches that aggregation workers join",
    "evaluation": "evaluation",
    "actions": "computing actions",
    "environments": "steps of the environments",
    "episodes": "episodes of the perturbed policies",
    "gradients": "the gradients that rollout workers compute",
    _WORKERS_OTHER: "work of the rollout workers other than acting and stepping",
    _TRANSFER: "taking in and joining what rollout workers send",
    _OTHER: "none of the phases: results, callbacks and waiting",
}
_ADVICE: dict[str, Callable[[Profile], str]] = {
    "updates": Profile._advise_on_updates,
    "replay": lambda _: "More of them: .training(num_replay_buffer_shards=...), or smaller train batches.",
    "aggregation": lambda _: "More of them: .training(num_aggregation_workers=...).",
    "evaluation": Profile._advise_on_evaluation,
    "actions": Profile._advise_on_actions,
    "environments": Profile._advise_on_environments,
    "episodes": Profile._advise_on_environments,
    "gradients": Profile._advise_on_environments,
    _WORKERS_OTHER: Profile._advise_on_messages,
    _TRANSFER: Profile._advise_on_messages,
    _OTHER: lambda _: "Look at your callbacks, and at min_time_s_per_iteration.",
}
