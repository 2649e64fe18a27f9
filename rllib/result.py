"""Results by all names of their keys: stored ones (Ray 2.6's), "a/b" paths, and the names of later versions.

`env_runners/...`, `learners/...` and the `sampler_results/...` copies are not stored, but computed on access.
`stored_names` maps them to stored keys, for all readers of results, of their numbers and of their files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rllib.did_you_mean import did_you_mean
from rllib.progress import result_table
from rllib.sample_batch import DEFAULT_POLICY

# Later versions' name of the only agent of an environment, and of all policies together.
_AGENT, ALL_POLICIES = "default_agent", "__all_modules__"
# Ray 2.10+ name -> ours, under `env_runners`.
_ENV_RUNNERS = {
    "episode_return_mean": "episode_reward_mean",
    "episode_return_min": "episode_reward_min",
    "episode_return_max": "episode_reward_max",
    "episode_len_mean": "episode_len_mean",
    "episode_len_min": "episode_len_min",
    "episode_len_max": "episode_len_max",
    "num_episodes": "episodes_this_iter",
    "num_episodes_lifetime": "episodes_total",
    "num_env_steps_sampled": "num_env_steps_sampled_this_iter",
    "num_env_steps_sampled_lifetime": "num_env_steps_sampled",
}
_ENV_RUNNERS |= {
    f"{kind}/{one}": old
    for kind_of, one in (("agent", _AGENT), ("module", DEFAULT_POLICY))
    for kind, old in (
        (f"{kind_of}_episode_returns_mean", "episode_reward_mean"),
        (f"num_{kind_of}_steps_sampled", "num_env_steps_sampled_this_iter"),
        (f"num_{kind_of}_steps_sampled_lifetime", "num_env_steps_sampled"),
    )
}
# The same by agent or policy id, where several agents act
_OF_SEVERAL = {
    "agent_episode_returns_mean": "agent_reward_mean",
    "agent_steps": "agent_len_mean",
    "module_episode_returns_mean": "policy_reward_mean",
    "num_agent_steps_sampled": "agent_steps_sampled_this_iter",
    "num_agent_steps_sampled_lifetime": "agent_steps_sampled",
    "num_module_steps_sampled": "policy_steps_sampled_this_iter",
    "num_module_steps_sampled_lifetime": "policy_steps_sampled",
}
# Ray 2.10+ name -> ours, under `learners/<policy>`; unlisted statistics keep their names.
_LEARNERS = {
    "mean_kl_loss": "kl",
    "curr_kl_coeff": "cur_kl_coeff",
    "curr_entropy_coeff": "entropy_coeff",
    "default_optimizer_learning_rate": "cur_lr",
    "gradients_default_optimizer_global_norm": "grad_gnorm",
    "policy_loss": "actor_loss",
    "gradients_policy_global_norm": "actor_grad_gnorm",
    "gradients_qf_global_norm": "critics_grad_gnorm",
    "entropy": "policy_entropy",
    "td_error_mean": "mean_td_error",
    "qf_mean": "mean_q",
    "qf_min": "min_q",
    "qf_max": "max_q",
}
# Ray 2.10+ name -> ours, under `learners/<policy>`, of counts in addition to the statistics
_LEARNER_COUNTS = {
    "num_module_steps_trained": "num_agent_steps_trained",
    "num_module_steps_trained_lifetime": "num_agent_steps_trained_lifetime",
}
# Ray 2.10+ name -> ours, under `learners/__all_modules__`; with one policy, its statistics are there as well.
_ALL_LEARNERS = {
    "num_module_steps_trained": "num_agent_steps_trained_this_iter",
    "num_module_steps_trained_lifetime": "num_agent_steps_trained",
    "num_env_steps_trained": "num_env_steps_trained_this_iter",
    "num_env_steps_trained_lifetime": "num_env_steps_trained",
}
# Ray 2.10+ name -> ours, at the top.
_TOP = {"num_env_steps_sampled_lifetime": "num_env_steps_sampled"}
_SAMPLER_RESULTS = (
    "episode_reward_mean", "episode_reward_max", "episode_reward_min", "episode_len_mean", "episodes_this_iter",
    "policy_reward_mean", "policy_reward_min", "policy_reward_max", "hist_stats", "custom_metrics", "sampler_perf",
    "num_faulty_episodes",
)  # fmt: skip
# Top-level keys of results; "evaluation" only after an iteration with one. Callbacks may add more.
RESULT_KEYS = frozenset((
    "episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean", "episode_len_min",
    "episode_len_max", "policy_reward_mean", "policy_reward_min", "policy_reward_max", "hist_stats", "custom_metrics",
    "episode_media", "episodes_this_iter", "episodes_total", "longest_running_episode", "num_faulty_episodes",
    "timesteps_total", "timesteps_this_iter", "agent_timesteps_total", "num_steps_trained_this_iter",
    "timesteps_since_restore", "num_env_steps_sampled", "num_env_steps_sampled_this_iter",
    "num_env_steps_sampled_throughput_per_sec", "num_env_steps_trained", "num_env_steps_trained_this_iter",
    "num_env_steps_trained_throughput_per_sec", "num_agent_steps_sampled", "num_agent_steps_sampled_this_iter",
    "num_agent_steps_sampled_throughput_per_sec", "num_agent_steps_trained", "num_agent_steps_trained_this_iter",
    "num_agent_steps_trained_throughput_per_sec", "counters", "num_training_step_calls_per_iteration", "info", "timers",
    "sampler_perf", "training_iteration", "iterations_since_restore", "time_this_iter_s", "time_total_s",
    "time_since_restore", "timestamp", "date", "pid", "hostname", "node_ip", "done", "num_healthy_workers",
    "num_remote_worker_restarts", "num_in_flight_async_reqs", "fault_tolerance", "perf", "config", "evaluation",
))  # fmt: skip
# Further ones of runs with several agents
AGENT_RESULT_KEYS = frozenset(_OF_SEVERAL.values()) - RESULT_KEYS
# The entry of runs whose environments drive their own loops
EXTERNAL = "external"
# The entry of runs with env_task_fn
ENV_TASK = "env_task"
# The entry of runs whose disturbances adapt
DISTURBANCES = "disturbances"
# The entry with numbers that a vector environment of tensors logs
ENV_LOG = "env_log"
# Entries of runs with a cost_column
COST_RESULT_KEYS = frozenset(("episode_cost_mean", "episode_cost_min", "episode_cost_max"))
# The entry with values that hooks have logged in workers, and sections of later versions that show them
LOGGED, ENV_RUNNERS, LEARNERS = "logged", "env_runners", "learners"
_SECTIONS = ("env_runners", "sampler_results", "learners")
# Further top-level keys, which a result computes on access.
LATER_RESULT_KEYS = frozenset((*_SECTIONS, *_TOP))
_KNOWN = frozenset((EXTERNAL, ENV_TASK, DISTURBANCES, ENV_LOG, LOGGED)).union(
    RESULT_KEYS, COST_RESULT_KEYS, AGENT_RESULT_KEYS, LATER_RESULT_KEYS
)


# Stored keys with numbers that are never negative: counts, lengths and times.
_FROM_ZERO = frozenset(
    key
    for key in RESULT_KEYS | AGENT_RESULT_KEYS
    if re.match("num_|time_|episodes_|episode_len|.*(timesteps_|iteration|steps_sampled|len_mean|episode$)", key)
)


def counts_from_zero(name: str) -> bool:
    """Whether the number under this result key, by any of its names, is a count, length or time: never negative."""
    names = (each.removeprefix("evaluation/") for each in stored_names(name) or [name])
    return any(each.partition("/")[0] in _FROM_ZERO for each in names)


def stored_names(name: str) -> list[str]:
    """The "a/b" paths at which a number of another name may be stored; [] for a stored name."""
    if name.startswith("evaluation/"):
        return [f"evaluation/{stored}" for stored in stored_names(name.removeprefix("evaluation/"))]
    section, _, rest = name.partition("/")
    if section == "env_runners":
        kind, _, one = rest.partition("/")
        of_several = [f"{_OF_SEVERAL[kind]}/{one}"] if one and kind in _OF_SEVERAL else []
        return [*of_several, _ENV_RUNNERS.get(rest, f"{LOGGED}/{name}")]
    if section == "sampler_results" and rest:
        return [rest] if rest.partition("/")[0] in _SAMPLER_RESULTS else [f"{LOGGED}/{name}"]
    if section == "learners" and "/" in rest:
        policy, _, statistic = rest.partition("/")
        if policy == ALL_POLICIES and statistic in _ALL_LEARNERS:
            return [_ALL_LEARNERS[statistic]]
        learner = f"info/learner/{DEFAULT_POLICY if policy == ALL_POLICIES else policy}"
        if statistic in _LEARNER_COUNTS:
            return [f"{learner}/{_LEARNER_COUNTS[statistic]}"]
        of_learner = [f"{learner}/learner_stats/{each}" for each in (_LEARNERS.get(statistic), statistic) if each]
        return [*of_learner, f"{LOGGED}/{name}"]
    if section == LEARNERS and rest:
        return [f"{LOGGED}/{name}"]
    return [_TOP[name]] if name in _TOP else []


def check_result_key(key: str, what: str, short_names: Sequence[str] = ()) -> None:
    """Refuses a key that no result of an algorithm has, unless callbacks add it.

    Args:
        key: result key, or an "a/b" path, of which only the first part is checked.
        what: name of the setting.
        short_names: further names that the setting takes.

    Raises:
        ValueError: with the nearest key.
    """
    root, known = str(key).partition("/")[0], sorted(_KNOWN)
    if root not in known:
        hint = did_you_mean(root, [*short_names, *known])
        use = "".join(f"{name}, " for name in short_names) + ("or " if short_names else "")
        raise ValueError(f"{what}: no result has {key!r}.{hint} Use {use}any key of the results.")


class ByAllNames(dict[str, Any]):
    """A dict by "a/b" path that also answers to the names of later versions."""

    def __missing__(self, key):
        for stored in stored_names(key) if isinstance(key, str) else ():
            if dict.__contains__(self, stored):
                return self[stored]
        raise KeyError(key)

    def get(self, key, default=None):
        """The value under any of its names, or the default."""
        try:
            return self[key]
        except (KeyError, TypeError):
            return default

    def __contains__(self, key):
        missing = object()
        return self.get(key, missing) is not missing


class Result(ByAllNames):
    """Return value of `train()`: a dict that also takes "a/b" paths and the names of later Ray versions as keys."""

    _path: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """Table of the most important numbers, for notebooks."""
        return f"{result_table(self)}<div>{len(self)} keys; <code>print(result)</code> shows all</div>"

    def __missing__(self, key):
        if key in _SECTIONS and (section := self._section(key)) is not None:
            return section
        if key in _TOP:
            return self[_TOP[key]]
        if isinstance(key, str) and "/" in key:
            value = self
            for part in key.split("/"):
                if not isinstance(value, Mapping):
                    raise KeyError(key)
                value = value[part]
            return value
        raise _absent(key, self._path, self)

    def list_parts(self, path: tuple[str, ...] = ()) -> None:
        """Makes the errors of its dicts list what there is, since later versions have other names for it.

        Args:
            path: names of this result in another one, from the outermost on.
        """
        self._path = path
        for name, value in self.items():
            inner = (*path, name)
            if name == "evaluation" and isinstance(value, Result) and not path:
                value.list_parts(inner)
            elif type(value) is dict or (type(value) is _Part and value._path != inner):
                self[name] = _Part(inner, value)

    def _section(self, name: str) -> dict | None:
        """A section of results of later versions; None if this result has nothing of it."""
        if name == ENV_RUNNERS:
            values = self._env_runners()
        elif name == LEARNERS:
            values = self._learners() if dict.__contains__(self, "info") else {}
        else:
            values = {each: self[each] for each in _SAMPLER_RESULTS if dict.__contains__(self, each)}
        if name != LEARNERS:  # whose entries are dicts, in which both stand
            values |= self._kept(name)
        return _Section(self, (name,), values) if values or (name == LEARNERS and "info" in self) else None

    def _kept(self, section: str) -> dict[str, Any]:
        """What hooks have logged in a section of results of later versions, or have written into it."""
        return self[LOGGED].get(section, {}) if dict.__contains__(self, LOGGED) else {}

    def _keep(self, path: tuple[str, ...], value: Any) -> None:
        """Keeps a value that was written into a section, which is computed again on each access."""
        inner = self.setdefault(LOGGED, {})
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value

    def _env_runners(self) -> dict:
        found: dict[str, Any] = {}
        for new, old in _ENV_RUNNERS.items():
            if dict.__contains__(self, old):
                kind, _, one = new.partition("/")
                found.setdefault(kind, {})[one] = self[old]
        if not AGENT_RESULT_KEYS.isdisjoint(self.keys()):
            for kind, old in _OF_SEVERAL.items():
                found.pop(kind, None)
                if dict.__contains__(self, old):
                    found[kind] = {"": dict(self[old])}
        return {kind: values.get("", values) for kind, values in found.items()}

    def _learners(self) -> dict:
        learners = {}
        info = self["info"]
        for policy, of_policy in (info.get("learner", {}) if isinstance(info, Mapping) else {}).items():
            stats = of_policy.get("learner_stats") if isinstance(of_policy, Mapping) else None
            if not isinstance(stats, Mapping):
                continue  # a trainable's own
            later = {new: stats[old] for new, old in _LEARNERS.items() if old in stats}
            later |= {new: of_policy[old] for new, old in _LEARNER_COUNTS.items() if old in of_policy}
            learners[policy] = stats | later
        if learners:
            counts = {new: self[old] for new, old in _ALL_LEARNERS.items() if dict.__contains__(self, old)}
            only = next(iter(learners.values())) if len(learners) == 1 else {}
            learners[ALL_POLICIES] = only | counts
        for policy, logged in self._kept(LEARNERS).items():
            own = learners.get(policy, {})
            learners[policy] = {**own, **logged} if isinstance(logged, Mapping) else logged
        return learners

    def by_all_names(self) -> Iterator[tuple[str, Any]]:
        """Its items, and the sections and keys that are computed on access."""
        for key, value in self.items():
            yield key, dict(value.by_all_names()) if key == "evaluation" and isinstance(value, Result) else value
        yield from ((key, self[key]) for key in sorted(LATER_RESULT_KEYS) if not dict.__contains__(self, key)
                    and key in self)  # fmt: skip


class _Part(dict[str, Any]):
    """A dict within a result; the error for a missing key lists those that there are.

    Args:
        path: names of the dict in the result, from the outermost on.
        values: its values.
    """

    def __init__(self, path: tuple[str, ...], values: Mapping[str, Any]):
        parts = {key: _Part((*path, key), value) for key, value in values.items() if type(value) in (dict, _Part)}
        super().__init__({**values, **parts})
        self._path = path

    def __missing__(self, key):
        raise _absent(key, self._path, self)

    def __reduce__(self):  # pickled and copied as a plain dict
        return dict, (dict(self),)


def _absent(key: Any, path: tuple[str, ...], there: Mapping[str, Any]) -> KeyError:
    """The error for a key that is not in a result, or not in a dict within it."""
    where = "".join(f"[{name!r}]" for name in path)
    return KeyError(f"{key!r} is not in result{where}. There are {', '.join(map(str, there)) or 'none'}.")


class _Section(_Part):
    """A section of results of later versions, which a result computes on access; it keeps what is written into it.

    Args:
        result: the result.
        path: names of the section, and of the dict within it.
        values: its values.
    """

    def __init__(self, result: Result, path: tuple[str, ...], values: Mapping[str, Any]):
        dict.__init__(self, values)
        self._result, self._within, self._path = result, path, (*result._path, *path)

    def __getitem__(self, key):
        value = super().__getitem__(key)
        if isinstance(value, dict) and self._within[0] == LEARNERS:
            return _Section(self._result, (*self._within, key), value)
        return value

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self._result._keep((*self._within, key), value)

    def update(self, *others, **values):
        for key, value in dict(*others, **values).items():
            self[key] = value

    def setdefault(self, key, default=None):
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self, other):
        self.update(other)
        return self


def as_result(result: Mapping[str, Any]) -> Result:
    """A result of any trainable, or of a file, as a Result."""
    if isinstance(result, Result):
        return result
    evaluation = result.get("evaluation")
    if isinstance(evaluation, Mapping) and not isinstance(evaluation, Result):
        return Result({**result, "evaluation": Result(evaluation)})
    return Result(result)
