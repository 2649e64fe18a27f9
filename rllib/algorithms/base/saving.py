"""Saves and restores an algorithm: files of policies, learners, counters and random streams."""

import contextlib
import importlib
import itertools
import logging
import os
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import gymnasium
import numpy as np

from rllib.acting.inference import ActingSettings, under_plain_names
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.curriculum import Curriculum
from rllib.algorithms.base.evaluations import Evaluations
from rllib.algorithms.base.feature import Feature
from rllib.algorithms.base.from_checkpoint import (
    as_saved,
    keep_changes,
    loaded_changes,
    names_changed_policies,
    read_state,
    saved_class,
    saved_config,
    saved_config_class,
    take_policies,
    unfit_by,
    values_in,
)
from rllib.algorithms.base.randomization import Randomization
from rllib.algorithms.base.sources import Source
from rllib.algorithms.base.trainee import Trainee
from rllib.algorithms.base.wiring import environment_name
from rllib.errors import GpuMemoryError, LearnersLostError
from rllib.evaluation.callbacks import restore_states, states_of
from rllib.metrics import Metrics
from rllib.models.architectures import description_of, spec_without_code
from rllib.models.dense.network_spec import NetworkSpec
from rllib.notices import shown
from rllib.policies import own_settings_of
from rllib.policy import Policy
from rllib.remote.download import local_checkpoint
from rllib.remote.mirror import upload_checkpoint
from rllib.remote.url import is_url, place_of
from rllib.sample_batch import DEFAULT_POLICY
from rllib.storage.checkpoint import CheckpointPath, checkpoint_at, naming_damage, write_checkpoint
from rllib.storage.local_path import local_path
from rllib.storage.ray_parts import FOLDERS, networks_of

if TYPE_CHECKING:
    from rllib.algorithms.base.agents import Agents

logger = logging.getLogger(__name__)

# Settings that determine the environment.
_OF_ANOTHER_WORLD = ("env", "env_config", "observation_space", "action_space")
# Settings of other sections that change a policy's observations or actions.
_BETWEEN_WORLD_AND_POLICY = (
    *("env_to_module_connector", "module_to_env_connector", "preprocessor_pref"),
    *("agent_id_in_observation", "centralized_critic"),
)

# Field of a network's description -> another setting that it may result from.
_FOLLOWS_FROM = {"observation_filter": "normalize_observations"}


@under_plain_names
class Saving:
    """The methods of an algorithm that write checkpoints and continue from them."""

    config_class: ClassVar[type[AlgorithmConfig]]
    config: AlgorithmConfig
    seed: int
    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    policies: dict[str, Policy]
    trainees: dict[str, Trainee]
    features: dict[str, Feature]
    workers: Source
    metrics: Metrics
    _evaluations: Evaluations
    _acting_rng: np.random.Generator
    _acting_settings: ActingSettings
    directory: Path
    # The checkpoint that was saved or restored last.
    _newest_checkpoint: Path | None = None
    _restores: int
    _first_timestep: int
    _stopped: bool
    _curricula: Mapping[str, Curriculum | Randomization]

    @abstractmethod
    def _network(self, policy_id: str = DEFAULT_POLICY) -> Policy:
        """The present policy of this id, which has a network."""

    @abstractmethod
    def _explored_by(self, policy_id: str = DEFAULT_POLICY) -> dict[str, Any]:
        """Current keyword arguments of the action distribution's `noise`."""

    @abstractmethod
    def _refill_recorded(self) -> None:
        """Recomputes the recorded rows, after the policies' filters have changed."""

    @abstractmethod
    def stop(self) -> None:
        """Ends the workers and all other processes of the run."""

    def save(self, checkpoint_dir: str | Path | None = None) -> CheckpointPath:
        """Writes a checkpoint directory, JSON and safetensors, with everything needed to act or to continue exactly.

        Args:
            checkpoint_dir: the directory to write; an existing checkpoint there is replaced in one step. By default
                checkpoint_ITERATION in log_dir, or in results/ALGORITHM_DATE with the date at which this algorithm was
                built.

        Returns:
            path of the directory, which programs of Ray 2.7 and later read as save().checkpoint.path.

        Raises:
            ValueError: for a URL, which `save_to_path` accepts.
        """
        if checkpoint_dir is None:
            checkpoint_dir = self.directory / f"checkpoint_{self.metrics.iteration:06d}"
        place = place_of(checkpoint_dir)
        if is_url(place):
            raise ValueError(f"save() writes to this machine; save_to_path({shown(place)!r}) writes to remote storage")
        self._newest_checkpoint = CheckpointPath(write_checkpoint(place, self.get_state()))
        return self._newest_checkpoint

    def save_to_path(self, path: str | Path | None = None) -> str:
        """`save`, by the name of Ray 2.10 and later; returns the path as a string, as in Ray.

        Args:
            path: as for `save`, or a URL such as s3://BUCKET/NAME, which is written when this returns.

        Raises:
            StorageError: if remote storage cannot be written.
        """
        place = None if path is None else place_of(path)
        if place is None or not is_url(place):
            return str(self.save(place))
        with tempfile.TemporaryDirectory(prefix="rllib-") as directory:
            upload_checkpoint(write_checkpoint(Path(directory, "checkpoint"), self.get_state()), place)
        return place

    # The method's name in trainables of Tune.
    save_checkpoint = save_to_path

    @contextlib.contextmanager
    def _naming_the_checkpoint(self) -> Iterator[None]:
        """Adds a note with the newest checkpoint to an error after which the run can continue from it."""
        try:
            yield
        except (GpuMemoryError, LearnersLostError) as error:
            if self._newest_checkpoint is not None and self._newest_checkpoint.exists():
                error.add_note(f"The newest checkpoint of this run is {self._newest_checkpoint}.")
            raise

    def export_policy_model(
        self, export_dir: str | Path, policy_id: str = DEFAULT_POLICY, onnx: int | None = None
    ) -> Path:
        """Writes the policy alone, for Policy.from_checkpoint: policy.json describes network and spaces, and
        weights.safetensors is the state for Policy.set_state.

        Args:
            export_dir: the directory.
            policy_id: id of the policy.
            onnx: any number (in Ray, the version of the operators) writes an ONNX graph, model.onnx, into the directory
                instead (docs/deploy/deployment.md). The version of its operators is in the file.

        Returns:
            the directory.
        """
        if onnx:
            # Serving is a layer above the algorithms, so it is imported by name; and it loads torch.
            importlib.import_module("rllib.serving.export").export_policy(
                self, local_path(export_dir) / "model.onnx", "onnx", policy_id=policy_id
            )
            return local_path(export_dir)
        return write_checkpoint(export_dir, self._policy_files(policy_id, self._network(policy_id)))

    def export_policy_checkpoint(self, export_dir: str | Path, policy_id: str = DEFAULT_POLICY) -> Path:
        """`export_policy_model`, by RLlib's name for the form that Policy.from_checkpoint reads."""
        return self.export_policy_model(export_dir, policy_id)

    def restore(self, checkpoint_path: str | Path) -> None:
        """Continues from a checkpoint of the same algorithm, spaces and network.

        Raises:
            ValueError: if the checkpoint is not complete, or not of this algorithm, spaces and network.
        """
        checkpoint_path = checkpoint_at(local_checkpoint(checkpoint_path))
        state = read_state(checkpoint_path)
        name = state["algorithm.json"]["algorithm"]
        if name != type(self).__name__:
            raise ValueError(
                f"the checkpoint {checkpoint_path} is of {name}, but this algorithm is {type(self).__name__}; use "
                f"Algorithm.from_checkpoint, or build a {name}Config"
            )
        with naming_damage(checkpoint_path):
            self.set_state(state)
        self._newest_checkpoint = Path(checkpoint_path)

    load_checkpoint = restore  # the name of trainables of Tune

    def restore_from_path(self, path: str | Path, component: str | None = None) -> None:
        """`restore`, by the name of Ray 2.10 and later; with a component, restores weights alone.

        Args:
            path: path of a checkpoint, or with `component` also of this part of it: CHECKPOINT/COMPONENT.
            component: "learner_group/learner/rl_module", or with "/POLICY" appended one policy: restores only its
                weights from the checkpoint, which may be of another algorithm. None: restores everything.

        Raises:
            ValueError: as `restore`; for another component; if the weights do not fit the networks.
        """
        if component is None:
            return self.restore(path)
        part = networks_of(component)
        if part is None:
            raise ValueError(
                f"restore_from_path(component={component!r}): the parts that can be taken alone are "
                f"{' and '.join(f'{folder}[/POLICY]' for folder in FOLDERS)}. Leave component out to continue the run."
            )
        given = local_path(path)
        is_part = given.parts[-len(Path(component).parts) :] == Path(component).parts
        checkpoint = networks_of(given).checkpoint if is_part else given
        policies = Policy.from_checkpoint(checkpoint)
        wanted = list(policies) if part.policy_id is None else [part.policy_id]
        if missing := [
            policy_id for policy_id in wanted if policy_id not in policies or policy_id not in self.policies
        ]:
            raise ValueError(
                f"restore_from_path(component={component!r}): {', '.join(map(repr, missing))} must be a policy of the "
                f"checkpoint, which has {', '.join(policies)}, and of this algorithm, which has "
                f"{', '.join(self.policies)}"
            )
        self.set_weights({policy_id: policies[policy_id].get_weights() for policy_id in wanted})

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint_path: str | os.PathLike,
        overrides: Mapping[str, Any] | AlgorithmConfig | None = None,
        *,
        config: Mapping[str, Any] | AlgorithmConfig | None = None,
        policy_ids: Collection[str] | None = None,
        policy_mapping_fn: Callable[..., str] | Mapping[str, str] | str | None = None,
        policies_to_train: Collection[str] | Callable[..., bool] | None = None,
        load_user_code: bool = False,
    ) -> Self:
        """Builds the algorithm of a checkpoint and continues from there; it needs only the directory.

        Without `load_user_code` a checkpoint runs no code except this library and the class of its environment, which
        is imported. An environment's name that was given to `register_env` must be registered.

        Args:
            checkpoint_path: the path that `save` returned, or the directory or URL of a run or trial, whose newest
                checkpoint is used.
            overrides: settings to change, such as {"num_rollout_workers": 0} to only act or evaluate; of a config
                object, the settings that were given to it, including values that equal the defaults.
            config: the same by another name; given both, `overrides` are applied after `config`.
            policy_ids: with several policies, ids of the policies to restore with their settings; None: all. The
                mapping must name no others.
            policy_mapping_fn, policies_to_train: settings of `.multi_agent` instead of the saved ones, for the policies
                that the saved run had at its end. A policy that starts learning gets a new optimizer.
            load_user_code: whether to import the functions and further classes that the settings name, and to unpickle
                those without a name. That runs code: only for checkpoints whose origin you trust.

        Raises:
            CheckpointError: (a ValueError) if the checkpoint is missing, cut off, not of an algorithm, of an algorithm
                that is not of this class, has code of yours that is not loaded, or, unless this program has written
                it, names a path outside of its run to write to, an address or a program.
            TypeError: if `overrides` or `config` is no dict, or names what is no setting.
        """
        changes = [_changes_in("config", config), _changes_in("overrides", overrides)]
        checkpoint_path = checkpoint_at(local_checkpoint(checkpoint_path))
        state = read_state(checkpoint_path, load_user_code)
        with naming_damage(checkpoint_path):
            algorithm_class = saved_class(state, checkpoint_path, base=cls)
            config_class = saved_config_class(state, algorithm_class)
        given = {"policy_mapping_fn": policy_mapping_fn, "policies_to_train": policies_to_train}
        changes.append({name: value for name, value in given.items() if value is not None})
        named = values_in(config_class(), changes)
        with naming_damage(checkpoint_path):
            if policy_ids is not None or names_changed_policies(state, {*named, *itertools.chain(*changes)}):
                take_policies(state, checkpoint_path, policy_ids, named)
            keep_changes(state, checkpoint_path, named)
        algorithm = algorithm_class(saved_config(state, checkpoint_path, config_class, changes, load_user_code))
        try:
            with naming_damage(checkpoint_path):
                algorithm.set_state(state)
        except BaseException:
            algorithm.stop()
            raise
        algorithm._newest_checkpoint = Path(checkpoint_path)
        return algorithm

    def get_state(self) -> dict[str, Any]:
        """The files of a checkpoint: name -> dict of plain values, or of arrays."""
        files = {
            "algorithm.json": {
                "algorithm": type(self).__name__,
                "class": type(self),
                **({} if type(self.config) is self.config_class else {"config_class": type(self.config)}),
                "seed": self.seed,
                "metrics": self.metrics.get_state(),
                "state": self.numbers(),
                "evaluations": self._evaluations.count,
                "restores": self._restores,
                "first_timestep": self._first_timestep,
                "callbacks": states_of(self.callbacks),
                # Changes of the agents' policies since the run began.
                "agents": self._policy_changes.changes_of(self.agents) if self.agents else {},
            },
            "config.json": self.config.to_dict(),
            "rng.json": {
                "learner": {each: trainee.rng.bit_generator.state for each, trainee in self.trainees.items()},
                "inference": self._acting_rng.bit_generator.state,
                # The random streams of stopped workers are lost; a run that continues from here draws new actions.
                "workers": [] if self._stopped else self.workers.get_state(),
            },
        }
        for policy_id, policy in self.policies.items():
            own = self._policy_files(policy_id, policy)
            files |= {f"policies/{policy_id}/{name}": content for name, content in own.items()}
        for trainee in self.trainees.values():
            place = f"policies/{trainee.policy_id}"
            files |= {f"{place}/{name}": arrays for name, arrays in trainee.get_state().items()}
        for curriculum in self._curricula.values():
            files |= curriculum.get_state()
        return files

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the state of `get_state`, or networks alone by RLlib's components; spaces and network must be equal.

        Environments cannot be saved: they start new episodes, with seeds that the run has not used.

        Raises:
            ValueError: if the network, the policies, the optimizer or the rows of a replay do not fit. The algorithm
                does not change then, except that policies are changed if the refused one was not in training here.
        """
        if "algorithm.json" not in state:
            self._set_networks(state)
            return
        algorithm, rng = state["algorithm.json"], state["rng.json"]
        agents = None if self.agents is None else self._restored_agents(state)
        self._refuse_state(state, agents)
        if agents is not None:
            learned = list(self.trainees.values())
            self._change_policies(state, agents)
            for trainee in self.trainees.values():
                if trainee not in learned:  # `_refuse_state` could not check it, as it did not exist
                    self._refuse_trainee(trainee, state)
        of_data = self._filter_states()
        for policy_id, policy in self.policies.items():
            policy.set_state(state[f"policies/{policy_id}/weights.safetensors"])
        # The checkpoint's statistics of observations may come from another data set.
        if any(
            not np.array_equal(numbers, now[name])
            for before, now in zip(of_data, self._filter_states())
            for name, numbers in before.items()
        ):
            self._refill_recorded()
        self.metrics.set_state(algorithm["metrics"])
        # Policies of the checkpoint that this run does not have.
        known = self.policies if self.agents is None else self.agents.settings.spaces
        for policy_id in self.metrics.policies.keys() - known.keys():
            self.metrics.forget(policy_id)
        for trainee in self.trainees.values():
            trainee.set_numbers(_numbers_of(trainee, algorithm["state"]))
            trainee.set_state(_files_of(trainee, state))
            _begin_again(trainee, trainee.config, _saved_settings_of(trainee.policy_id, state))
        for name in self.features.keys() & algorithm["state"].keys():  # the saved run may be without these features
            self.features[name].set_state(algorithm["state"][name])
            _begin_again(self.features[name], self.config, state["config.json"])
        self.set_algorithm_state(algorithm["state"])
        self._ahead = None
        self._first_timestep = algorithm.get("first_timestep", 0)  # missing in older checkpoints
        self._evaluations.count = algorithm["evaluations"]
        self._restores = algorithm["restores"] + 1
        self._set_learner_rngs(rng["learner"])
        self._acting_rng.bit_generator.state = rng["inference"]
        for curriculum in self._curricula.values():
            curriculum.set_state(state)  # before the workers, whose episodes start again
        self.workers.set_state(rng["workers"], self._restores)
        self._note_exploration()
        if (saved := algorithm.get("callbacks")) is not None:  # missing in older checkpoints
            restore_states(self.callbacks, saved)
        self.callbacks.on_checkpoint_loaded(algorithm=self)

    def _filter_states(self) -> list[dict[str, np.ndarray]]:
        """Filter statistics of each policy, by which recorded rows are normalised; [] if rows are not normalised."""
        if not self.config.normalizes_by_data:
            return []
        return [policy.filter.get_state() for policy in self.policies.values()]

    def _restored_agents(self, state: Mapping[str, Any]) -> "Agents":
        """The agents with the changes that the saved run made since it began."""
        saved = state["algorithm.json"]["agents"]
        changes = loaded_changes(saved)
        return self._policy_changes.restored(self.agents, self.config, changes, saved.keys() - changes.keys())

    def _refuse_state(self, state: Mapping[str, Any], agents: "Agents | None") -> None:
        """Refuses a state that does not fit, before anything is changed.

        Args:
            agents: the agents after the restore.

        Raises:
            ValueError: see `set_state`.
        """
        policies, stay = self.policies.keys(), set(self.policies)
        if agents is not None:
            policies, numbers = agents.spaces.keys(), self.agents.settings.numbers
            stay = {each for each in stay if numbers.get(each, -1) == agents.settings.numbers.get(each)}
        for policy_id in policies:
            if f"policies/{policy_id}/policy.json" not in state:
                known = sorted({name.split("/")[1] for name in state if name.startswith("policies/")})
                raise ValueError(f"the checkpoint has no policy {policy_id!r}; it has {', '.join(known)}")
            if policy_id in stay:
                self._refuse_network(policy_id, state)
        for trainee in self.trainees.values():
            if trainee.policy_id in stay & policies:
                self._refuse_trainee(trainee, state)

    def _refuse_trainee(self, trainee: Trainee, state: Mapping[str, Any]) -> None:
        """Refuses a state that a policy in training cannot restore; with own settings, as a mistake in these."""
        policy_id, files = trainee.policy_id, _files_of(trainee, state)
        has_own = policy_id in self.policy_overrides()
        with self._naming_settings_of(policy_id) if has_own else contextlib.nullcontext():
            trainee.refuse_state(files, _saved_settings_of(policy_id, state))

    def _refuse_network(self, policy_id: str, state: Mapping[str, Any]) -> None:
        """Refuses a policy with another network; the error names the saved settings that determine the network."""
        config, saved = self.config_of(policy_id), state["config.json"]
        # The error names the setting that the user gave, not a field that results from it.
        given = {
            field: Differing(name, saved[name], config[name])
            for field, name in _FOLLOWS_FROM.items()
            if not as_saved(config, saved, [field]) and as_saved(config, saved, [name])
        }
        try:
            check_policy(state[f"policies/{policy_id}/policy.json"], self.policies[policy_id].spec, given)
        except ValueError as error:
            fields = [name for name in NetworkSpec.__dataclass_fields__ if name in config.settings]
            fields += [each.name for each in given.values()]
            observed = [name for name in config.sections["environment"].names if name not in _OF_ANOTHER_WORLD]
            groups = fields, (*observed, *_BETWEEN_WORLD_AND_POLICY), ["model"], config.sections["training"].names
            if unfit := unfit_by(str(error), config, saved, *groups):
                raise unfit from error
            raise

    def _change_policies(self, state: dict[str, Any], agents: "Agents") -> None:
        """Adds, removes and maps policies as the saved run did; `agents`: the agents after that."""
        before, numbers = self.agents.settings, agents.settings.numbers
        for policy_id, number in before.numbers.items():
            if numbers.get(policy_id) != number:
                self._leave(policy_id)
        for policy_id in agents.spaces:
            if policy_id not in self.policies:
                self._enter(policy_id, agents, _saved_network(state, policy_id), None)
        for policy_id in agents.spaces:  # in the saved run's order
            self.policies[policy_id] = self.policies.pop(policy_id)
        if agents.settings != before:
            self._go_on_with(agents)
        self.agents = agents

    def _set_learner_rngs(self, saved: dict[str, Any]) -> None:
        if "bit_generator" in saved:  # an older format, with one generator for all policies
            saved = {next(iter(self.policies)): saved}
        for trainee in self.trainees.values():
            if trainee.policy_id in saved:
                trainee.rng.bit_generator.state = saved[trainee.policy_id]

    def numbers(self) -> dict[str, Any]:
        """JSON-able state: name -> {policy id: value} of policies in training, state of features, `algorithm_state`."""
        return _joined(self._numbers_of_parts(), self.algorithm_state())

    def _numbers_of_parts(self) -> dict[str, Any]:
        """`numbers` without `algorithm_state`."""
        by_name: dict[str, Any] = {}
        for trainee in self.trainees.values():
            for name, value in trainee.numbers().items():
                by_name.setdefault(name, {})[trainee.policy_id] = value
        return _joined(by_name, {name: feature.get_state() for name, feature in self.features.items()})

    def algorithm_state(self) -> dict[str, Any]:
        """JSON-able state of the algorithm itself, for checkpoints; `Trainee.numbers` is the state of one policy."""
        return {}

    def set_algorithm_state(self, state: dict[str, Any]) -> None:
        """Restores the state that `algorithm_state` returned."""

    def _policy_files(self, policy_id: str, policy: Policy) -> dict[str, Any]:
        """The files of a policy, and of everything that acting needs in addition to it."""
        # A policy that was put into `policies` directly has the spaces of the environment.
        observed, acted = policy.observation_space, policy.action_space
        description = {
            **description_of(policy.spec),
            "observation_space": self.observation_space if observed is None else observed,
            "action_space": self.action_space if acted is None else acted,
            **self._acting_settings.to_json(),
            "exploration": {name: float(number) for name, number in self._explored_by(policy_id).items()},
            "trained": {
                "algorithm": type(self).__name__,
                "env": environment_name(self.config),
                "num_updates": self.metrics.num_updates(policy_id),
                "num_env_steps_sampled": self.metrics.counters["num_env_steps_sampled"],
            },
        }
        return {"policy.json": description, "weights.safetensors": policy.get_state()}


def _changes_in(argument: str, given: Mapping[str, Any] | AlgorithmConfig | None) -> Mapping[str, Any]:
    """The settings in an argument of `from_checkpoint`; raises TypeError for what holds none."""
    if isinstance(given, AlgorithmConfig):
        return given.given()
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(
            f"from_checkpoint: {argument} must be a dict of settings, such as {{'num_rollout_workers': 0}}, "
            f"but got {given!r:.80}. Ids of policies have an argument with a name: policy_ids=['NAME']."
        )
    return given or {}


def _files_of(trainee: Trainee, state: Mapping[str, Any]) -> dict[str, Any]:
    """Name in the policy's folder of a checkpoint -> content, for a trainee's files."""
    place = f"policies/{trainee.policy_id}/"
    return {name.removeprefix(place): of for name, of in state.items() if name.startswith(place)}


def _saved_settings_of(policy_id: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a policy in the run that was saved: the run's, with the policy's own."""
    saved, added = state["config.json"], state["algorithm.json"]["agents"].get("policies", {})
    given = saved.get("policies")
    spec = {**(given if isinstance(given, Mapping) else {}), **added}.get(policy_id)
    return {**saved, **own_settings_of(spec)}


def _begin_again(part: Trainee | Feature, config: AlgorithmConfig, saved: Mapping[str, Any]) -> None:
    """Resets adapted numbers of a restored part to this run's initial values, where the saved run had others."""
    if changed := as_saved(config, saved, part.first_values):
        part.begin_again(changed)


def _saved_network(state: Mapping[str, Any], policy_id: str) -> Policy | None:
    """A policy from a checkpoint's files; None if the files do not have it."""
    if (place := f"policies/{policy_id}") + "/policy.json" not in state:
        return None
    return Policy.from_files(state[f"{place}/policy.json"], state[f"{place}/weights.safetensors"], place)


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Joins two dicts; raises an error if they have a name in common."""
    if doubled := one.keys() & other.keys():
        raise ValueError(
            f"{sorted(doubled)[0]!r} names two of these: a number of trainees, a feature, and an entry of "
            "algorithm_state. Checkpoints have them by name: give one of them another name"
        )
    return one | other


def _numbers_of(trainee: Trainee, state: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> number of one policy in training, from a saved state."""
    own = trainee.policy_id
    return {name: each[own] for name, each in state.items() if isinstance(each, dict) and own in each}


def numbers_in(stats: Mapping[str, Any]) -> dict[str, float]:
    """The statistics that are single numbers, as `Trainee.numbers` may hold them."""
    return {name: float(value) for name, value in stats.items() if isinstance(value, int | float | np.number)}


class Differing(NamedTuple):
    """A setting whose value differs in a checkpoint."""

    name: str
    there: Any
    here: Any


def check_policy(saved: Mapping[str, Any], spec: NetworkSpec, given: Mapping[str, Differing] = {}) -> None:
    """Compares the "spec" of a policy.json with a policy's spec.

    Args:
        saved: content of the policy.json.
        spec: spec of the policy.
        given: field of a description -> the setting that it results from, which the error names instead.

    Raises:
        ValueError: if they differ.
    """
    theirs, own = spec_without_code(saved).to_json(), spec.to_json()
    differing = [
        given.get(name, Differing(name, theirs.get(name), own[name])) for name in own if own[name] != theirs.get(name)
    ]
    if differing:
        raise ValueError(
            f"the checkpoint's policy differs from this one in {', '.join(each.name for each in differing)}: "
            f"{[each.there for each in differing]} there, {[each.here for each in differing]} here. "
            "A checkpoint continues with its own network, in environments with the same spaces: leave out the settings "
            "that change them (env, model, ...)."
        )
