"""Earlier names of modules: paths of RLlib and of earlier releases, and their present ones.

`import rllib.env.memory_tasks` gives the module `rllib.env.tasks.memory`, the same object under both names. Checkpoints
and tuned examples that name a module by an earlier path are read through this table as well.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys

MOVED = {
    "rllib.algorithms.actor_critic": "rllib.algorithms.families.on_policy",
    "rllib.algorithms.algorithm": "rllib.algorithms.base.algorithm",
    "rllib.algorithms.algorithm_config": "rllib.algorithms.base.config",
    "rllib.algorithms.aliases": "rllib.compat.names.aliases",
    "rllib.algorithms.apex_ddpg": "rllib.algorithms.apex",
    "rllib.algorithms.apex_dqn": "rllib.algorithms.apex",
    "rllib.algorithms.base.exploration_config": "rllib.algorithms.base.settings.exploration",
    "rllib.algorithms.callbacks": "rllib.evaluation.callbacks",
    "rllib.algorithms.departures": "rllib.cli.default_differences",
    "rllib.algorithms.distributed_replay": "rllib.algorithms.families.distributed_replay",
    "rllib.algorithms.evolution": "rllib.algorithms.families.evolution",
    "rllib.algorithms.exploration_config": "rllib.algorithms.base.settings.exploration",
    "rllib.algorithms.league.pairing": "rllib.algorithms.league.matchmaking",
    "rllib.algorithms.off_policy": "rllib.algorithms.families.off_policy",
    "rllib.algorithms.off_policy_actor_critic": "rllib.algorithms.families.off_policy_actor_critic",
    "rllib.algorithms.q_learning": "rllib.algorithms.families.q_learning",
    "rllib.algorithms.rainbow": "rllib.algorithms.dqn",
    "rllib.algorithms.registry": "rllib.algorithms.base.registry",
    "rllib.algorithms.sections": "rllib.config.sections",
    "rllib.algorithms.tqc": "rllib.algorithms.sac",
    "rllib.checkpoint": "rllib.storage.checkpoint",
    "rllib.encoding": "rllib.storage.encoding",
    "rllib.losses.auxiliary": "rllib.losses.user.auxiliary",
    "rllib.env.apis": "rllib.env.factories.settable_tasks",
    "rllib.env.apis.task_settable_env": "rllib.env.factories.settable_tasks",
    "rllib.env.atari": "rllib.env.factories.atari",
    "rllib.env.external.policy_server_input": "rllib.env.policy_server.policy_server_input",
    "rllib.env.external_env": "rllib.env.external",
    "rllib.env.external_multi_agent_env": "rllib.env.external",
    "rllib.env.masked_tasks": "rllib.env.tasks.masked",
    "rllib.env.memory_tasks": "rllib.env.tasks.memory",
    "rllib.env.minigrid": "rllib.env.tasks.minigrid_tasks",
    "rllib.env.multi_agent_env": "rllib.env.multi_agent",
    "rllib.env.policy_client": "rllib.client",
    "rllib.env.policy_server_input": "rllib.env.policy_server.policy_server_input",
    "rllib.env.registry": "rllib.env.factories.registry",
    "rllib.env.sparse_tasks": "rllib.env.tasks.sparse",
    "rllib.env.tasks.adapted": "rllib.env.tasks",
    "rllib.env.tasks.adapted.pistonball": "rllib.env.tasks.pistonball",
    "rllib.env.tasks.with_costs": "rllib.env.tasks",
    "rllib.env.tasks.with_costs.tolled_road": "rllib.env.tasks.tolled_road",
    "rllib.env.tensor_adapters": "rllib.env.tensors.adapters",
    "rllib.env.torch_cartpole": "rllib.env.tasks.torch_cartpole",
    "rllib.env.torch_pendulum": "rllib.env.tasks.torch_pendulum",
    "rllib.env.torch_vector_env": "rllib.env.tasks.torch_vector_env",
    "rllib.env.vectorized": "rllib.env.factories.vectorized",
    "rllib.env.wrappers": "rllib.env.factories.wrapped",
    "rllib.env.wrappers.group_agents_wrapper": "rllib.env.multi_agent.multi_agent_env",
    "rllib.env.wrappers.open_spiel": "rllib.env.multi_agent.openspiel",
    "rllib.env.wrappers.pettingzoo_env": "rllib.env.multi_agent.pettingzoo_envs",
    "rllib.env.wrappers.unity3d_env": "rllib.env.engines.unity",
    "rllib.evaluation.advantages": "rllib.evaluation.postprocess.advantages",
    "rllib.evaluation.exploration": "rllib.exploration.explorers",
    "rllib.evaluation.postprocessing": "rllib.evaluation.postprocess.of_episodes",
    "rllib.learners.learner_group": "rllib.learners.group.learner_group",
    "rllib.learners.objective": "rllib.learners.updates.objective",
    "rllib.learners.optimizers": "rllib.learners.updates.optimizers",
    "rllib.models.custom": "rllib.models.user.module",
    "rllib.models.registry": "rllib.models.distributions.names",
    "rllib.models.model_catalog": "rllib.models.catalog.model_catalog",
    "rllib.models.model_v2_spec": "rllib.models.user.model_v2",
    "rllib.models.own_model": "rllib.models.user.user_model",
    "rllib.models.user.own_model": "rllib.models.user.user_model",
    "rllib.models.recurrent": "rllib.models.user.module",
    "rllib.models.torch_distribution": "rllib.models.distributions.user",
    "rllib.models.torch_model_v2": "rllib.models.user.model_v2",
    "rllib.offline.estimators": "rllib.evaluation.estimators",
    "rllib.offline.input_reader": "rllib.offline.readers",
    "rllib.offline.io_context": "rllib.config.io_context",
    "rllib.offline.json_reader": "rllib.offline.readers",
    "rllib.profile": "rllib.runs.profiling",
    "rllib.tune.analysis": "rllib.tune.reporting.analysis",
    "rllib.tune.callback": "rllib.tune.experiment.callbacks",
    "rllib.tune.domains": "rllib.tune.search.domains",
    "rllib.tune.logger": "rllib.tune.experiment.loggers",
    "rllib.tune.logger_callbacks": "rllib.tune.experiment.loggers",
    "rllib.tune.progress_reporter": "rllib.tune.reporting.reporters",
    "rllib.tune.registry": "rllib.tune",
    "rllib.tune.result_grid": "rllib.tune.reporting.analysis",
    "rllib.tune.run_experiment": "rllib.tune.running.tuner",
    "rllib.tune.sample": "rllib.tune.search.domains",
    "rllib.tune.search.bayesopt": "rllib.tune.search.optuna_search",
    "rllib.tune.search.concurrency_limiter": "rllib.tune.search.wrappers",
    "rllib.tune.search.limiter": "rllib.tune.search.wrappers",
    "rllib.tune.search.optuna": "rllib.tune.search.optuna_search",
    "rllib.tune.search.repeater": "rllib.tune.search.wrappers",
    "rllib.tune.search.searcher": "rllib.tune.search.base",
    "rllib.tune.searchers": "rllib.tune.search",
    "rllib.tune.session": "rllib.tune.trainables.session",
    "rllib.tune.stopper": "rllib.tune.experiment.stoppers",
    "rllib.tune.stoppers": "rllib.tune.experiment.stoppers",
    "rllib.tune.suggest": "rllib.tune.search",
    "rllib.tune.syncer": "rllib.tune.experiment.spec",
    "rllib.tune.trainable": "rllib.tune.trainables.trainable",
    "rllib.tune.trial": "rllib.tune.experiment.trial",
    "rllib.tune.tuner": "rllib.tune.running.tuner",
}


def present_name(module: str) -> str:
    """Present name of a module; other names are returned unchanged."""
    known = module
    while known and known not in MOVED:
        known = known.rpartition(".")[0]
    return MOVED[known] + module[len(known) :] if known else module


class _EarlierNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a module under its earlier name, as the same object."""

    def find_spec(self, fullname, path=None, target=None):
        return importlib.machinery.ModuleSpec(fullname, self) if present_name(fullname) != fullname else None

    def create_module(self, spec):
        module = importlib.import_module(present_name(spec.name))
        spec.loader_state = module.__spec__
        if not hasattr(module, "__path__") and any(earlier.startswith(f"{spec.name}.") for earlier in MOVED):
            module.__path__ = []  # it was a package, whose modules have gone elsewhere
        return module

    def exec_module(self, module):
        module.__spec__ = module.__spec__.loader_state  # the import system has set the earlier name's spec


def install() -> None:
    """Makes the earlier names importable. Called once, by `rllib`."""
    # Before others, which would take a folder that an earlier release has left behind for a package.
    sys.meta_path.insert(0, _EarlierNames())
