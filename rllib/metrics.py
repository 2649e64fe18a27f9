"""Counts, times and episode statistics of a run, and the result dict of an iteration (names of Ray 2.6)."""

import functools
import logging
import math
import operator
import os
import socket
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from rllib.env.episodes import Episode
from rllib.env.traffic import RunTraffic
from rllib.result import ENV_LOG, ENV_RUNNERS, EXTERNAL, LEARNERS, LOGGED, Result
from rllib.sample_batch import DEFAULT_POLICY
from rllib.spans import span

if TYPE_CHECKING:
    from rllib.core.metrics.metrics_logger import MetricsLogger

logger = logging.getLogger(__name__)

# Agent ids in a result; those of agents that are made during a run have no bound.
MOST_AGENTS = 100
# Represents all further agents.
_OTHERS = "..."
# Fields of an Episode with one entry for each (agent id, policy id).
_BY_AGENT = ("agent_returns", "agent_lengths")
# A first episode of this many steps is worth a warning, as most environments end theirs earlier.
ENDLESS = 2000

_REFRESH_S = 1.0  # reading /proc costs a good part of a millisecond; short iterations share one reading


class _Timer:
    """Context that adds the seconds of a block to a phase."""

    # A class, since contextlib's generators cost more than a short training step can bear.
    __slots__ = ("_phase", "_seconds", "_span", "_started")

    def __init__(self, seconds: dict[str, float], phase: str):
        self._seconds, self._phase, self._span = seconds, phase, span(phase)

    def __enter__(self) -> None:
        self._started = time.perf_counter()
        self._span.__enter__()

    def __exit__(self, *exc_info) -> None:
        self._span.__exit__(*exc_info)
        self._seconds[self._phase] += time.perf_counter() - self._started


class Metrics:
    """Counters, times and episodes of a run; `result()` closes an iteration.

    Args:
        smoothing_episodes: number of most recent episodes in the reward and length statistics.
        counts_agent_steps: whether the run is measured in steps of agents instead of steps of environments
            (`count_steps_by`): its clock, `timesteps_total`, and the minima of an iteration.

    Attributes:
        keeps_episodes: whether all episodes of an iteration are kept, not only the most recent ones.
        episodes_this_iteration: these episodes, in the order in which workers have reported them; empty unless they
            are kept.
        offers: in this iteration, how many batches of single policies were learned from (True), and how many
            `policies_to_train` has said no to (False); where several agents act.
    """

    def __init__(self, smoothing_episodes: int = 100, counts_agent_steps: bool = False):
        self._counts_agent_steps = counts_agent_steps
        self.counters: Counter[str] = Counter()
        # Policy id -> its num_updates, num_grad_updates, num_steps_trained and, with several agents, num_steps_sampled.
        self.policies: defaultdict[str, Counter[str]] = defaultdict(Counter)
        # The same of all policies that were removed, and whose ids others may have.
        self.removed: Counter[str] = Counter()
        # Agent -> its steps so far, of MOST_AGENTS and all others; empty where there is one agent.
        self.agents: Counter[str] = Counter()
        self.episodes: deque[Episode] = deque(maxlen=smoothing_episodes)
        self._untrained: deque[Episode] = deque(maxlen=smoothing_episodes)  # of external environments
        self._rows_too_old: int | None = None  # dropped so far, of clients that act themselves
        self._traffic = RunTraffic()
        self._logger: MetricsLogger | None = None
        self.keeps_episodes = False
        self.episodes_total = 0
        self._has_warned = False
        self.iteration = 0
        self.time_total_s = 0.0
        self._iterations_since_restore = 0
        self._time_since_restore = 0.0
        self._steps_at_restore = 0
        self._hostname = socket.gethostname()
        self.start_iteration()

    def start_iteration(self) -> None:
        """Resets the `..._this_iter` counts and the iteration's clock."""
        self._started = time.perf_counter()
        self.training_steps = 0
        self._before = self.counters.copy()
        self._policies_before = {policy_id: each.copy() for policy_id, each in self.policies.items()}
        self._removed_before = self.removed.copy()
        self._agents_before = self.agents.copy()
        # Policy id -> environment steps that it was trained on in this iteration.
        self._env_steps_trained: Counter[str] = Counter()
        self._seconds: dict[str, float] = defaultdict(float)
        self._sampler_seconds: dict[str, float] = defaultdict(float)
        self.offers: Counter[bool] = Counter()
        self.episodes_this_iteration: list[Episode] = []
        self._episodes_before = self.episodes_total
        self._longest_running = 0
        self._num_faulty = 0
        self._env_log: defaultdict[str, list[float]] = defaultdict(list)
        self._traffic.start_iteration()

    def timer(self, phase: str) -> _Timer:
        """A context that adds the block's seconds to a phase of this iteration."""
        return _Timer(self._seconds, phase)

    @property
    def logger(self) -> "MetricsLogger":
        """Values that the user's hooks and losses log; those of workers below "env_runners"."""
        if self._logger is None:
            from rllib.core.metrics.metrics_logger import MetricsLogger

            self._logger = MetricsLogger()
        return self._logger

    def log_value(self, key: Any, value: Any, **how: Any) -> None:
        """`MetricsLogger.log_value` in this process."""
        self.logger.log_value(key, value, **how)

    def log_time(self, key: Any, **how: Any) -> AbstractContextManager[None]:
        """`MetricsLogger.log_time` in this process."""
        return self.logger.log_time(key, **how)

    def peek(self, key: Any, *default: Any) -> Any:
        """`MetricsLogger.peek`, of values that were logged."""
        return self.logger.peek(key, *default)

    def add_sample(self, report, removed: Collection[str] = ()) -> None:
        """Adds a worker's SampleReport.

        Args:
            report: the worker's.
            removed: ids of policies in it that are no longer in the run.
        """
        if report.logged is not None:
            self.logger.repeat(report.logged, ENV_RUNNERS)
        self.episodes.extend(report.episodes[-self.episodes.maxlen :])  # no others are kept
        if self.keeps_episodes:
            self.episodes_this_iteration += report.episodes
        self.episodes_total += len(report.episodes)
        self._num_faulty += report.num_faulty_episodes
        for name, value in report.env_log.items():
            self._env_log[name].append(value)
        self._untrained.extend(report.untrained_episodes)
        if report.rows_too_old is not None:
            self._rows_too_old = (self._rows_too_old or 0) + report.rows_too_old
        if report.traffic is not None:
            versions = {policy_id: self.num_updates(policy_id) for policy_id in report.traffic.policy_versions}
            self._traffic.add(report.traffic, versions)
        self.counters["num_env_steps_sampled"] += report.env_steps
        if report.rounds_late is not None:
            self.counters["num_late_fragments"] += report.rounds_late > 0
        for policy_id, steps in report.agent_steps.items():
            counted = self.removed if policy_id in removed else self.policies[policy_id]
            counted["num_steps_sampled"] += steps
            self.counters["num_agent_steps_sampled"] += steps
        for agent, steps in report.agent_steps_by_agent.items():
            name = str(agent)
            self.agents[name if name in self.agents or len(self.agents) < MOST_AGENTS else _OTHERS] += steps
        self._longest_running = max(self._longest_running, report.longest_running)
        self._sampler_seconds["env_wait"] += report.env_time_s
        self._sampler_seconds["inference"] += report.inference_time_s

    def put_in_turn(self, episodes: Sequence[Sequence[Episode]]) -> None:
        """Puts the newest episodes in the order in which workers that sample alongside may have ended them.

        One after the other, the newest ones of a round of many would be those of the last workers alone.

        Args:
            episodes: those of each worker's fragment, which `add_sample` has added, in the order of their ends.
        """
        count = min(sum(map(len, episodes)), self.episodes.maxlen)
        if len(episodes) < 2 or not count:
            return
        ends = [(number / len(own), episode) for own in episodes for number, episode in enumerate(own, 1)]
        ends.sort(key=operator.itemgetter(0))
        for _ in range(count):
            self.episodes.pop()
        self.episodes.extend(episode for _, episode in ends[-count:])

    def add_update(
        self, policy_id: str, env_steps: int = 0, gradient_steps: int = 1, agent_steps: int | None = None
    ) -> None:
        """Counts one update of a policy.

        Args:
            policy_id: id of the policy.
            env_steps: steps of the environments that it was made from.
            gradient_steps: number of its gradient steps.
            agent_steps: steps of the policy's agents that it was made from; as many, if not given.
        """
        for counters in (self.counters, self.policies[policy_id]):
            counters["num_updates"] += 1
            counters["num_grad_updates"] += gradient_steps
        self.add_trained(policy_id, env_steps, agent_steps)

    def add_trained(self, policy_id: str, env_steps: int, agent_steps: int | None = None) -> None:
        """Counts steps that a policy was trained on; the same step of an environment counts once for all policies."""
        self.policies[policy_id]["num_steps_trained"] += env_steps if agent_steps is None else agent_steps
        self._env_steps_trained[policy_id] += env_steps
        most = max(self._env_steps_trained.values())
        self.counters["num_env_steps_trained"] = self._before["num_env_steps_trained"] + most

    def forget(self, policy_id: str) -> None:
        """Counts a policy among those that were removed; another one with its id begins at 0."""
        for counts, removed in ((self.policies, self.removed), (self._policies_before, self._removed_before)):
            removed.update(counts.pop(policy_id, {}))

    def num_updates(self, policy_id: str) -> int:
        """Number of updates of a policy so far: the version of its weights."""
        return self.policies[policy_id]["num_updates"] if policy_id in self.policies else 0

    @property
    def timesteps(self) -> int:
        """Steps sampled so far, of environments or of agents, as the run counts them."""
        return self._agent_steps("sampled")[0] if self._counts_agent_steps else self.counters["num_env_steps_sampled"]

    def sampled_this_iteration(self) -> int:
        """Steps sampled since the iteration began, counted as `timesteps` are."""
        return (self._agent_steps if self._counts_agent_steps else self._env_steps)("sampled")[1]

    def trained_this_iteration(self) -> int:
        """Steps trained on since the iteration began, counted as `timesteps` are."""
        return (self._agent_steps if self._counts_agent_steps else self._env_steps)("trained")[1]

    def acted_this_iteration(self) -> tuple[list[str], int]:
        """Ids of the policies whose agents have made steps since the iteration began, and episodes that have ended."""
        acted = [policy_id for policy_id in self.policies if self._steps_of(policy_id, "num_steps_sampled")[1]]
        return acted, self.episodes_total - self._episodes_before

    def _env_steps(self, verb: str) -> tuple[int, int]:
        """Steps of environments that were sampled or trained on: so far, and since the iteration began."""
        total = self.counters[f"num_env_steps_{verb}"]
        return total, total - self._before[f"num_env_steps_{verb}"]

    def _agent_steps(self, verb: str) -> tuple[int, int]:
        """The same of agents' steps. Where there is one agent, they are those of its environment."""
        if not self.agents:
            return self._env_steps(verb)
        name = f"num_steps_{verb}"
        of_policies = [self._steps_of(policy_id, name) for policy_id in self.policies]
        of_policies.append((self.removed[name], self.removed[name] - self._removed_before[name]))
        return sum(total for total, _ in of_policies), sum(now for _, now in of_policies)

    def _steps_of(self, policy_id: str, name: str) -> tuple[int, int]:
        """A counter of a policy: so far, and since the iteration began."""
        total = self.policies[policy_id][name]
        return total, total - self._policies_before.get(policy_id, {}).get(name, 0)

    def settled_return(self) -> float:
        """Mean return of the newest episodes; NaN until there are as many as results are means over."""
        if len(self.episodes) < self.episodes.maxlen:
            return math.nan
        return sum(episode.episode_return for episode in self.episodes) / len(self.episodes)

    def elapsed_s(self) -> float:
        """Seconds since the iteration began."""
        return time.perf_counter() - self._started

    # ------------------------------------------------------------------ results

    def result(self, learner_stats: Mapping[str, dict[str, float]]) -> Result:
        """Closes the iteration that began with `start_iteration`, and returns its result.

        Args:
            learner_stats: policy id -> statistics of its learner.
        """
        elapsed = self.elapsed_s()
        self.iteration += 1
        self._iterations_since_restore += 1
        self.time_total_s += elapsed
        self._time_since_restore += elapsed
        result = Result(episode_statistics(self.episodes))
        if not self.episodes_total and self._longest_running >= ENDLESS and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "no episode has ended yet, and one has had %d steps: returns are nan until one ends. An environment "
                "without an end needs a time limit: .environment(env_wrappers=[{'TimeLimit': {'max_episode_steps': "
                "1000}}])",
                self._longest_running,
            )
        result.update(
            episodes_this_iter=self.episodes_total - self._episodes_before,
            episodes_total=self.episodes_total,
            longest_running_episode=self._longest_running,
            num_faulty_episodes=self._num_faulty,
        )
        if self._env_log:
            result[ENV_LOG] = {name: sum(values) / len(values) for name, values in self._env_log.items()}
        if external := self._traffic.statistics(elapsed):
            if self._untrained:
                returns = [episode.episode_return for episode in self._untrained]
                external["untrained_episode_reward_mean"] = sum(returns) / len(returns)
            if self._rows_too_old is not None:
                external["rows_too_old"] = self._rows_too_old
            result[EXTERNAL] = external
        result.update(self._steps(elapsed))
        steps = dict(self.counters)
        if self.agents:
            steps["num_agent_steps_trained"] = result["num_agent_steps_trained"]
        result["counters"] = steps
        result["num_training_step_calls_per_iteration"] = self.training_steps
        result["info"] = {
            **steps,
            "learner": {
                policy_id: {
                    "learner_stats": stats,
                    "num_agent_steps_trained": float(self._steps_of(policy_id, "num_steps_trained")[1]),
                    "num_agent_steps_trained_lifetime": self.policies[policy_id]["num_steps_trained"],
                    "num_grad_updates_lifetime": self.policies[policy_id]["num_grad_updates"],
                    **_lag_in_gradient_steps(stats),
                }
                for policy_id, stats in learner_stats.items()
            },
        }
        result.update(self._times(elapsed))
        if self._logger is not None:
            self._add_logged(result)
        result.list_parts()
        return result

    def _add_logged(self, result: Result) -> None:
        """Adds values that were logged in workers and learners; a learner's are among its statistics."""
        of_learners, learners = self._logger.reduce(LEARNERS), result["info"]["learner"]
        for policy_id in of_learners.keys() & learners.keys():
            learners[policy_id]["learner_stats"] |= of_learners.pop(policy_id)
        logged = {ENV_RUNNERS: self._logger.reduce(ENV_RUNNERS), LEARNERS: of_learners}
        if any(logged.values()):
            result[LOGGED] = {section: values for section, values in logged.items() if values}

    def add_logged_here(self, result: dict) -> None:
        """Adds values that were logged in this process to a result, in addition to its own entries."""
        if self._logger is None:
            return
        for name, value in self._logger.reduce(but=(ENV_RUNNERS, LEARNERS)).items():
            if isinstance(value, dict) and isinstance(result.get(name), dict):
                result[name] = {**value, **result[name]}
            elif name in result:
                logger.warning("metrics_logger: results have %r of their own; use another name", name)
            else:
                result[name] = value

    def _steps(self, elapsed: float) -> dict:
        steps: dict[str, Any] = {
            "timesteps_total": self.timesteps,
            "timesteps_this_iter": self.sampled_this_iteration(),
            "agent_timesteps_total": self._agent_steps("sampled")[0],
            "num_steps_trained_this_iter": self.trained_this_iteration(),
            "timesteps_since_restore": self.timesteps - self._steps_at_restore,
        }
        for unit, count in (("env", self._env_steps), ("agent", self._agent_steps)):
            for verb in ("sampled", "trained"):
                name = f"num_{unit}_steps_{verb}"
                steps[name], now = count(verb)
                steps[f"{name}_this_iter"] = now
                steps[f"{name}_throughput_per_sec"] = now / elapsed if elapsed else 0.0
        if not self.agents:  # there is one, without a name
            return steps
        by_policy = {policy_id: self._steps_of(policy_id, "num_steps_sampled") for policy_id in self.policies}
        return steps | {
            "agent_steps_sampled": dict(self.agents),
            "agent_steps_sampled_this_iter": {
                agent: total - self._agents_before[agent] for agent, total in self.agents.items()
            },
            "policy_steps_sampled": {policy_id: total for policy_id, (total, _) in by_policy.items()},
            "policy_steps_sampled_this_iter": {policy_id: now for policy_id, (_, now) in by_policy.items()},
        }

    def _times(self, elapsed: float) -> dict:
        sampled, trained = self.sampled_this_iteration(), self.trained_this_iteration()
        timers = {f"{phase}_time_ms": seconds * 1e3 for phase, seconds in self._seconds.items()}
        timers["training_iteration_time_ms"] = elapsed * 1e3
        for phase, steps in (("sample", sampled), ("learn", trained)):
            if self._seconds.get(phase):
                timers[f"{phase}_throughput"] = steps / self._seconds[phase]
        now = datetime.now()
        return {
            "timers": timers,
            "sampler_perf": {
                f"mean_{part}_ms": seconds * 1e3 / max(sampled, 1) for part, seconds in self._sampler_seconds.items()
            },
            "training_iteration": self.iteration,
            "iterations_since_restore": self._iterations_since_restore,
            "time_this_iter_s": elapsed,
            "time_total_s": self.time_total_s,
            "time_since_restore": self._time_since_restore,
            "timestamp": int(now.timestamp()),
            "date": now.strftime("%Y-%m-%d_%H-%M-%S"),
            "pid": os.getpid(),
            "hostname": self._hostname,
            "node_ip": "127.0.0.1",
            "done": False,
        }

    # ------------------------------------------------------------------ checkpoints

    def get_state(self) -> dict:
        """The state for a checkpoint, JSON-able."""
        return {
            "counters": dict(self.counters),
            "policies": {policy_id: dict(counters) for policy_id, counters in self.policies.items()},
            **({"removed": dict(self.removed)} if self.removed else {}),
            "agents": dict(self.agents),
            # Media can be any object, so it is left out.
            "episodes": [_episode_to_json(episode) for episode in self.episodes],
            "episodes_total": self.episodes_total,
            "iteration": self.iteration,
            "time_total_s": self.time_total_s,
            **({} if self._logger is None else {LOGGED: self._logger.get_state()}),
        }

    def set_state(self, state: dict) -> None:
        """Restores the state that `get_state` returned."""
        self.counters = counters = Counter(state["counters"])
        # Earlier checkpoints have the counters of their only policy alone.
        only = {name: counters[name] for name in ("num_updates", "num_grad_updates")}
        saved = state.get("policies", {DEFAULT_POLICY: only | {"num_steps_trained": counters["num_env_steps_trained"]}})
        self.policies = defaultdict(Counter, {policy_id: Counter(each) for policy_id, each in saved.items()})
        self.removed = Counter(state.get("removed", {}))
        self.agents = Counter(state.get("agents", {}))
        self.episodes.clear()
        self.episodes.extend(map(_episode_from_json, state["episodes"]))
        self.episodes_total = state["episodes_total"]
        self.iteration = state["iteration"]
        self.time_total_s = state["time_total_s"]
        if LOGGED in state:
            self.logger.set_state(state[LOGGED])
        self._iterations_since_restore = 0
        self._time_since_restore = 0.0
        self._steps_at_restore = self.timesteps
        self.start_iteration()


def _episode_to_json(episode: Episode) -> dict[str, Any]:
    """The episode as JSON, without media; dicts by agent and policy become lists [agent, policy, value]."""
    fields = {name: value for name, value in vars(episode).items() if name not in ("media", "logged")}
    for name in _BY_AGENT:
        fields[name] = [[*key, value] for key, value in fields[name].items()]
    return fields


def _episode_from_json(fields: Mapping[str, Any]) -> Episode:
    by_agent = {name: {(agent, policy): value for agent, policy, value in fields.get(name, ())} for name in _BY_AGENT}
    return Episode(**{**fields, **by_agent})


def _lag_in_gradient_steps(learner_stats: dict[str, float]) -> dict[str, float]:
    """The age of the weights that sampled, under Ray's name; by default an update counts as one gradient step."""
    name = "diff_num_grad_updates_vs_sampler_policy"
    lag = learner_stats.get(name, learner_stats.get("policy_lag_updates"))
    return {} if lag is None else {name: lag}


def episode_statistics(episodes: Iterable[Episode]) -> dict:
    """Statistics of finished episodes; NaN where there is none yet."""
    returns = [episode.episode_return for episode in episodes]
    lengths = [episode.length for episode in episodes]
    costs = [episode.episode_cost for episode in episodes if episode.episode_cost is not None]
    mean, low, high = _spread(returns)
    len_mean, len_low, len_high = _spread(lengths)
    histograms = _by_name(episode.hist_data for episode in episodes)
    of_policies, of_agents = _agent_statistics(episodes)
    if returns and not of_policies:  # one agent
        of_policies = {DEFAULT_POLICY: returns}
    spreads = {policy_id: _spread(values) for policy_id, values in of_policies.items()}
    return {
        "episode_reward_mean": mean,
        "episode_reward_min": low,
        "episode_reward_max": high,
        "episode_len_mean": len_mean,
        "episode_len_min": len_low,
        "episode_len_max": len_high,
        **{
            f"policy_reward_{part}": {policy_id: spread[index] for policy_id, spread in spreads.items()}
            for index, part in enumerate(("mean", "min", "max"))
        },
        **of_agents,
        **(dict(zip(("episode_cost_mean", "episode_cost_min", "episode_cost_max"), _spread(costs))) if costs else {}),
        "hist_stats": {
            **{name: list(chain.from_iterable(parts)) for name, parts in histograms.items()},
            **{f"policy_{policy_id}_reward": values for policy_id, values in of_policies.items() if of_agents},
            "episode_reward": returns,
            "episode_lengths": lengths,
            **({"episode_cost": costs} if costs else {}),
        },
        "custom_metrics": _custom_metrics(episodes),
        "episode_media": _by_name(episode.media for episode in episodes),
    }


def _agent_statistics(episodes: Iterable[Episode]) -> tuple[dict[str, list[float]], dict[str, dict[str, float]]]:
    """Returns by policy id, one for each agent of an episode as in Ray, and means by the agents' names.

    Both are empty for episodes of one agent.
    """
    by_policy, returns, lengths = defaultdict(list), defaultdict(list), defaultdict(list)
    for episode in episodes:
        for (agent_id, policy_id), value in episode.agent_returns.items():
            by_policy[policy_id].append(value)
            # An episode of a checkpoint may have another id of the same name: JSON has no tuples.
            returns[str(agent_id)].append(value)
            lengths[str(agent_id)].append(episode.agent_lengths.get((agent_id, policy_id), 0))
    if not returns:
        return {}, {}
    return dict(by_policy), {"agent_reward_mean": _agent_means(returns), "agent_len_mean": _agent_means(lengths)}


def _agent_means(values: Mapping[str, list[float]]) -> dict[str, float]:
    """Mean of each agent's values; beyond MOST_AGENTS, under "...", that of the values of all others."""
    agents = list(values)
    means = {name: _spread(values[name])[0] for name in agents[:MOST_AGENTS]}
    if rest := list(chain.from_iterable(values[name] for name in agents[MOST_AGENTS:])):
        _warn_once_of_agents()
        means[_OTHERS] = _spread(rest)[0]
    return means


@functools.cache
def _warn_once_of_agents() -> None:
    logger.warning(
        "there are more than %d agent ids: results have the first ones, and the mean of the others under '...'",
        MOST_AGENTS,
    )


def _custom_metrics(episodes: Iterable[Episode]) -> dict[str, float]:
    """name_mean, name_min and name_max of each name in the episodes' custom_metrics."""
    spreads = {}
    for name, given in _by_name(episode.custom_metrics for episode in episodes).items():
        numbers = [number for value in given for number in (value if isinstance(value, list) else [value])]
        for part, number in zip(("mean", "min", "max"), _spread([x for x in numbers if not math.isnan(x)])):
            spreads[f"{name}_{part}"] = number
    return spreads


def _by_name(dicts: Iterable[Mapping[str, Any]]) -> dict[str, list]:
    """Name -> values under it in the dicts, in their order."""
    listed = defaultdict(list)
    for each in dicts:
        for name, value in each.items():
            listed[name].append(value)
    return dict(listed)


def _spread(values: list) -> tuple[float, float, float]:
    if not values:
        return math.nan, math.nan, math.nan
    return sum(values) / len(values), min(values), max(values)


def gpu_usage() -> dict[str, float]:
    """Use of the GPUs that this process computes on, by Ray's names: shares from 0 to 1 of time and of memory.

    Names end with the GPU's number: vram_util_percent0, and gpu_util_percent0 if the package nvidia-ml-py is installed.
    CUDA_VISIBLE_DEVICES gives the machine's numbers, since each learner sees its GPU as the first.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    usage, visible = {}, dict(enumerate(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))
    for gpu in range(torch.cuda.device_count()):
        name = visible[gpu] if visible.get(gpu, "").isdigit() else gpu
        if not torch.cuda.memory_reserved(gpu):
            continue  # asking for more would take memory on it
        free, total = torch.cuda.mem_get_info(gpu)
        usage[f"vram_util_percent{name}"] = 1 - free / total
        with suppress(ModuleNotFoundError, RuntimeError):
            usage[f"gpu_util_percent{name}"] = torch.cuda.utilization(gpu) / 100
    return usage


class SystemUsage:
    """Use of the machine's CPUs and memory, memory of this process and use of its GPUs: `perf` in results."""

    def __init__(self):
        import psutil  # here, so that the library's import does without

        self._psutil, self._process = psutil, psutil.Process()
        self._read_at = -_REFRESH_S
        self._last: dict[str, float] = {}
        psutil.cpu_percent()  # the first call only sets the point that the next one counts from

    def read(self) -> dict[str, float]:
        """cpu_util_percent, ram_util_percent, rss_mb of this process and `gpu_usage`, at most a second old."""
        now = time.monotonic()
        if now - self._read_at >= _REFRESH_S:
            self._read_at = now
            self._last = {
                "cpu_util_percent": self._psutil.cpu_percent(),
                "ram_util_percent": self._psutil.virtual_memory().percent,
                "rss_mb": self._process.memory_info().rss / 2**20,
                **gpu_usage(),
            }
        return dict(self._last)
