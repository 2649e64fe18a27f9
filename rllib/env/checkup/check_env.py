"""Checks of an environment: observation, rule and remedy of each finding. `rllib check-env`, `rllib.check_env`.

Each check is a generator of findings over a `Subject`. Checks that compare episodes or measure speed are left out
where the environment cannot be made, reset or stepped at all.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping

from gymnasium.vector import VectorEnv

from rllib.env.checkup import agents, episodes, form, speed
from rllib.env.checkup.report import EnvironmentCheckError, EnvReport, Finding, Found, error_line
from rllib.env.checkup.subject import Subject, close
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv
from rllib.errors import EnvironmentPackageError

# Checks of environments that can be made and have the right form, in this order.
_CHECKS = {
    "episodes": episodes.episodes_check,
    "seeds": episodes.seeds_check,
    "instances": episodes.instances_check,
    "workers": form.workers_check,
    "memory": episodes.memory_check,
    "rendering": form.rendering_check,
    "closing": form.closing_check,
    "gymnasium": form.gymnasium_check,
    "speed": speed.speed_check,
    "together": speed.together_check,
}
# In their place, checks of environments with several agents.
_CHECKS_OF_AGENTS = {
    "seeds": agents.agent_seeds_check,
    "instances": agents.agent_instances_check,
    "workers": form.workers_check,
    "rendering": form.rendering_check,
    "closing": form.closing_check,
    "pettingzoo": agents.pettingzoo_check,
    "speed": agents.agent_speed_check,
}
_NEED_ANOTHER = {"instances", "workers", "rendering", "closing", "together", "pettingzoo"}
_SEVERITIES = ["error", "warning", "note"]


def check_env(
    env,
    env_config: Mapping | None = None,
    *,
    env_wrappers=None,
    num_envs: int = 0,
    steps: int = 2000,
    raise_errors: bool = True,
) -> EnvReport:
    """Checks an environment with random actions, and reports what was found.

    Args:
        env: whatever `.environment(env)` takes, or an environment that is already made, for which the checks that need
            a second one are left out.
        env_config: for its constructor.
        env_wrappers: as the setting of this name.
        num_envs: also run this many of them, in a loop and in a process each, and compare the speed; 0: do not.
        steps: number of steps that are taken and checked.
        raise_errors: raise if there are findings that are errors.

    Raises:
        EnvironmentCheckError: with the report, if there are errors.
        ValueError, TypeError: if `env` names no environment, or `steps` is not positive.
    """
    if steps < 1:
        raise ValueError(f"steps={steps} must be at least 1")
    report = _Checkup(Subject(env, env_config, env_wrappers, num_envs, steps)).report()
    if raise_errors and not report.passes():
        raise EnvironmentCheckError(report)
    return report


class _Checkup:
    """All checks of one environment."""

    def __init__(self, subject: Subject):
        self._subject = subject
        self._findings: dict[tuple, Finding] = {}
        self._checks: list[str] = []

    def report(self) -> EnvReport:
        """Makes all checks that can be made."""
        subject, given = self._subject, self._subject.env
        try:
            self._check(subject)
        finally:
            if subject.env is not given:
                with contextlib.suppress(Exception):
                    close(subject.env)
        findings = sorted(self._findings.values(), key=lambda finding: _SEVERITIES.index(finding.severity))
        return EnvReport(subject.name, tuple(findings), tuple(self._checks), subject.measured)

    def _check(self, subject):
        if not self._passes("construction", form.construction_check):
            return
        if isinstance(subject.env, VectorEnv):
            self._passes("vector", speed.vector_check)
        elif isinstance(subject.env, MultiAgentEnv):
            if self._passes("agents", agents.agents_check) and self._passes("steps", agents.steps_check):
                self._pass_all(_CHECKS_OF_AGENTS)
        elif self._passes("spaces", form.spaces_check) and self._passes("form", form.form_check):
            self._pass_all(_CHECKS)

    def _pass_all(self, checks: Mapping[str, Callable[[Subject], Iterator[Found]]]) -> None:
        for name, check in checks.items():
            if self._subject.factory is not None or name not in _NEED_ANOTHER:
                self._passes(name, check)

    def _passes(self, name: str, check: Callable[[Subject], Iterator[Found]]) -> bool:
        """Makes a check, and keeps the first finding of each rule. Returns whether it found no error."""
        self._checks.append(name)
        try:
            for severity, seen, rule, remedy in check(self._subject):
                self._findings.setdefault((name, rule), Finding(severity, name, seen, rule, remedy))
        except EnvironmentPackageError:
            raise  # nothing can be checked
        except (Exception, SystemExit) as error:
            rule = "No call raises as long as actions lie in the action space."
            finding = Finding("error", name, error_line(error), rule, "Correct the line that is named.")
            self._findings.setdefault((rule, finding.seen), finding)  # once, if it raises in several checks
            return False
        return not any(found.severity == "error" for found in self._findings.values() if found.check == name)
