"""The settings of evaluation: the section of this name, and the config that evaluation runs with."""

import logging
from typing import Annotated, Any, ClassVar, Literal, Self

from rllib import notices
from rllib.algorithms.base.recorded.settings import SAMPLER
from rllib.algorithms.base.settings.exploration import exploration_mistake
from rllib.config.config_object import ConfigObject, relation
from rllib.config.conflicts import DEFAULT, Mistake, conflict, needs
from rllib.config.sections import Translated, at_least, only_with, section
from rllib.offline.dataset import Dataset
from rllib.policies import overrides_of

# Default of settings that are dicts; every config gets a copy.
_EMPTY: dict = {}
_OVERRIDES = Translated(overrides_of)
# Settings of evaluation_config about recorded data; none of them changes the environments that are played in.
DATA_OF_EVALUATION = frozenset({"input_", "input_config", "input_read_schema", "actions_in_input_normalized"})


class EvaluationConfig(ConfigObject):
    """The section evaluation."""

    # Settings that evaluation_config may change.
    evaluation_overrides: ClassVar[frozenset[str]] = frozenset(
        {
            *("env", "env_config", "env_wrappers", "preprocessor_pref", "disable_env_checking", "num_envs_per_worker"),
            *("disturbances", "simulator"),
            *("normalize_actions", "clip_actions", "explore", "exploration_config", "seed", "sample_timeout_s"),
            *("num_cpus_per_worker", "num_gpus_per_worker", "custom_resources_per_worker"),
            *("recreate_failed_workers", "ignore_worker_failures", "max_num_worker_restarts"),
            *("delay_between_worker_restarts_s", "num_consecutive_worker_failures_tolerance"),
            *DATA_OF_EVALUATION,
        }
    )
    # Settings without effect that Ray's evaluation_config may hold; evaluation plays whole episodes and does not learn.
    evaluation_ignores: ClassVar[frozenset[str]] = frozenset(
        {
            *("num_rollout_workers", "rollout_fragment_length", "batch_mode", "clip_rewards", "num_gpus"),
            *("metrics_num_episodes_for_smoothing", "log_level", "log_sys_usage", "framework"),
        }
    )

    @section
    def evaluation(
        self,
        *,
        evaluation_interval: Annotated[int | None, "iterations between evaluations; None: never", at_least(1)] = None,
        evaluation_num_workers: Annotated[int, "processes that evaluate; 0: this one does", at_least(0)] = 0,
        evaluation_config: Annotated[
            dict | None, "settings that differ in evaluation; of a config, those that were set in it", _OVERRIDES
        ] = None,
        evaluation_duration: Annotated[
            int | Literal["auto"],
            'episodes or steps per evaluation; "auto": as long as the training in parallel takes',
            at_least(1),
        ] = 10,
        evaluation_duration_unit: Annotated[
            Literal["episodes", "timesteps"], "what evaluation_duration counts; episodes are always played to the end"
        ] = "episodes",
        evaluation_parallel_to_training: Annotated[
            bool, "evaluate while the iteration trains, with the weights from before it; needs evaluation_num_workers"
        ] = False,
        off_policy_estimation_methods: Annotated[
            dict, 'estimates from recorded data: name -> {"type": "is", "wis", "dm", "dr" or a class, ...}'
        ] = _EMPTY,
        ope_split_batch_by_episode: Annotated[
            bool,
            "estimate returns of episodes; False: each recorded step is a separate episode",
            only_with("off_policy_estimation_methods"),
        ] = True,
        offline_evaluation_interval: Annotated[
            int | None, "iterations between losses on held-out recorded episodes; None: never", at_least(1)
        ] = None,
        evaluation_videos: Annotated[
            int, "episodes after each evaluation that are recorded, in videos/ and in TensorBoard", at_least(0)
        ] = 0,
    ) -> Self:
        """Evaluation of the policy in separate environments."""

    conflicts = (
        conflict(
            "off_policy_estimation_methods",
            "input_",
            when=lambda config: config.off_policy_estimation_methods and not config._evaluates_on_data,
            reads=("evaluation_config",),
            why="returns are estimated from recorded data",
            remedies=[{"off_policy_estimation_methods": DEFAULT}],
            examples=[{"input_": "PATH"}, {"evaluation_config": {"input_": "PATH"}}],
        ),
        conflict(
            "input_fraction_of_best",
            "off_policy_estimation_methods",
            when=lambda config: config._estimates_from_chosen,
            reads=("evaluation_config", "input_", "offline_validation_fraction"),
            why="episodes that are chosen by their returns would be estimated too high",
            remedies=[{"offline_validation_fraction": 0.1}, {"off_policy_estimation_methods": DEFAULT}],
        ),
        conflict(
            "offline_evaluation_interval",
            when=lambda config: config._lacks_data_of_evaluation,
            reads=("evaluation_config", "offline_validation_fraction"),
            why="it needs recorded episodes that are not learned from",
            remedies=[{"offline_validation_fraction": 0.1}, {"offline_evaluation_interval": None}],
            examples=[{"evaluation_config": {"input_": "PATH"}}],
        ),
        needs(
            ("evaluation_duration", "auto"),
            "evaluation_parallel_to_training",
            why="it is as long as the parallel training",
        ),
        needs(
            "evaluation_videos",
            "evaluation_interval",
            why="episodes are recorded after evaluations",
            remedies=[{"evaluation_interval": 10}, {"evaluation_videos": 0}],
        ),
        needs(
            "evaluation_parallel_to_training",
            "evaluation_num_workers",
            why="these processes evaluate while this one trains",
            remedies=[{"evaluation_num_workers": 1}, {"evaluation_parallel_to_training": False}],
        ),
    )

    @relation("evaluation_config")
    def _check_evaluation_config(self) -> Mistake | None:
        """`evaluation_config` holds valid settings, of those that evaluation can change."""
        try:
            changed = self._resolved(self.evaluation_config or {})
        except TypeError as error:
            return self._wrong_in_evaluation(f"evaluation_config: {error}", {}, advice=None)
        refused = [name for name in changed if name not in self.evaluation_overrides | self.evaluation_ignores]
        if refused:
            return self._wrong_in_evaluation(
                f"evaluation_config can change {', '.join(sorted(self.evaluation_overrides))}, but not "
                f"{', '.join(refused)}.",
                {name: value for name, value in changed.items() if name not in refused},
                advice=f"Leave {' and '.join(refused)} out of it.",
            )
        for name, value in changed.items():
            rest = {other: changed[other] for other in changed if other != name}
            if mistake := self.settings[name].mistake(value):
                rest |= mistake.remedies[0]
                return self._wrong_in_evaluation(f"evaluation_config: {mistake.problem}", rest)
            if name in self.evaluation_ignores:
                notices.log_once(
                    f"evaluation_config {name}", f"{name} has no effect in evaluation_config", logging.WARNING
                )
            if name == "exploration_config":
                mistake = exploration_mistake(value, self.default_exploration, self.exploration_kinds)
                if mistake:
                    rest |= mistake.remedies[0]
                    return self._wrong_in_evaluation(f"evaluation_config: {mistake.problem}", rest)
                if not changed.get("explore"):
                    line = "exploration_config has no effect in evaluation_config: explore is False, the default there"
                    notices.log_once(line, line, logging.WARNING)
        return None

    @staticmethod
    def _wrong_in_evaluation(problem: str, right: dict[str, Any], advice: str | None = "") -> Mistake:
        """A mistake in evaluation_config that other settings in it end."""
        return Mistake(problem, ("evaluation_config",), ({"evaluation_config": right or None},), advice)

    def in_evaluation(self, mistake: Mistake) -> Mistake:
        """A mistake in the settings of evaluation, which evaluation_config has broken, with remedies in it."""
        changes, names = self.evaluation_changes(), self.evaluation_overrides
        remedies = [
            {"evaluation_config": {**changes, **remedy}} if remedy.keys() <= names else {"evaluation_config": None}
            for remedy in mistake.remedies
        ]
        remedies = remedies or [{"evaluation_config": None}]
        unique = [each for i, each in enumerate(remedies) if each not in remedies[:i]]
        problem = f"evaluation_config: {mistake.problem}"
        return Mistake(problem, ("evaluation_config",), tuple(unique), mistake.advice, mistake.note)

    @relation("off_policy_estimation_methods")
    def _check_estimation_methods(self) -> Mistake | None:
        """Each method of `off_policy_estimation_methods` is a type of estimator with its arguments."""
        if not self.off_policy_estimation_methods:
            return None
        from rllib.evaluation.estimators.choose import methods_problem  # most runs do without estimators

        if problem := methods_problem(self.off_policy_estimation_methods):
            problem = f"off_policy_estimation_methods: {problem.removesuffix('.')}."
            remedy = {"off_policy_estimation_methods": {}}
            return Mistake(problem, ("off_policy_estimation_methods",), (remedy,), advice=None)
        return None

    def evaluation_changes(self) -> dict[str, Any]:
        """Settings that evaluation_config changes, under canonical names."""
        changes = self._resolved(self.evaluation_config or {})
        return {name: value for name, value in changes.items() if name not in self.evaluation_ignores}

    @property
    def evaluation_data(self) -> Any:
        """Recorded data that evaluation_config names, as `input_` does; None: the run's own."""
        given = self.evaluation_changes().get("input_", SAMPLER)
        return None if isinstance(given, str) and given == SAMPLER else given

    @property
    def _evaluates_on_data(self) -> bool:
        return self.has_data or self.evaluation_data is not None

    @property
    def _reads_data(self) -> bool:
        """Whether the options of reading are those of some data: a Dataset was read before."""
        sources = self.sources() if self.evaluation_data is None else [*self.sources(), self.evaluation_data]
        return not all(isinstance(each, Dataset) for each in sources)

    @property
    def _estimates_from_chosen(self) -> bool:
        """Whether returns are estimated from the episodes of `input_fraction_of_best`."""
        is_chosen = self.input_fraction_of_best is not None and not self.offline_validation_fraction
        return bool(self.off_policy_estimation_methods) and is_chosen and self.evaluation_data is None

    @property
    def _lacks_data_of_evaluation(self) -> bool:
        """Whether losses are to be computed on recorded episodes that are not learned from, and there are none."""
        asked = self.offline_evaluation_interval and not self.offline_validation_fraction
        return bool(asked) and self.evaluation_data is None

    @property
    def explores_in_evaluation(self) -> bool:
        """Whether actions are sampled there, instead of taking the most likely ones."""
        return bool((self.evaluation_config or {}).get("explore", False))

    def get_evaluation_config_object(self) -> Self:
        """A copy with evaluation_config applied.

        Its env_config adds to that of training, unless it names another env as well. There are no disturbances but
        those that it names.
        """
        changes = self.evaluation_changes()
        config = self.copy(copy_frozen=False)
        config.disturbances = {}
        if "env" in changes:
            config.env_config = {}
        return config.update_from_dict(changes)
