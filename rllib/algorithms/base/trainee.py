"""A policy in training: its learner, its random numbers, and all other parts of its training.

An algorithm has one trainee for each policy that learns: one is made when a policy starts learning, and dropped when it
stops; a checkpoint is a loop over trainees. Families of algorithms add the parts that their policies need: a replay
(families/off_policy.py), critics (families/off_policy_actor_critic.py), a queue of fragments (impala.py).
"""

import contextlib
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from rllib.algorithms.base import wiring
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.from_checkpoint import unfit_by
from rllib.config.conflicts import Mistake
from rllib.errors import DamagedFileError
from rllib.evaluation import seeding
from rllib.evaluation.callbacks import hears
from rllib.evaluation.hooks.arguments import code_of
from rllib.evaluation.postprocess.return_scale import ReturnScale
from rllib.learners.group.learner_group import LearnerGroup
from rllib.learners.learner import Learner, make_learner
from rllib.learners.updates.objective import POLICY, Objective
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.learners.updates.torch_options import TorchOptions
from rllib.losses.loss import Loss, LossOverModules, checked_loss
from rllib.losses.user.auxiliary import WithAuxiliary, refuse_taken_names
from rllib.policy import Policy
from rllib.result import LEARNERS
from rllib.sample_batch import WAITED, SampleBatch

if TYPE_CHECKING:
    from rllib.algorithms.base.algorithm import Algorithm
    from rllib.evaluation.teacher import TeacherSettings

LEARNER_FILE = "learner.safetensors"
TEACHER_FILE = "teacher.safetensors"
# File of a saved part -> the most important setting that the part depends on.
_SETTING_OF = {LEARNER_FILE: "opt_type", TEACHER_FILE: "teacher"}
# Setting of an update -> its name among the statistics
_REPORTED_SETTINGS = {"lr": "cur_lr", "entropy_coeff": "entropy_coeff", "kl_coeff": "cur_kl_coeff"}
# Methods that users override (docs/project/extend.md): of trainees, where programs may look for them in the algorithm.
_OVERRIDDEN = (
    *("make_loss", "make_learner", "learn_from", "add_targets", "critic_loss", "actor_loss", "add_noise"),
    *("learning_rates", "updates_due", "update_target", "make_replay"),
)
_STATS_OF_UPDATES = (*_REPORTED_SETTINGS.values(), "grad_gnorm", "num_minibatches", "lr", "policy_lag_updates")


class Saved(Protocol):
    """A part of a trainee with its own arrays in checkpoints."""

    def get_state(self) -> dict[str, np.ndarray]: ...

    def set_state(self, state: Mapping[str, np.ndarray]) -> None: ...


@runtime_checkable
class Refusing(Saved, Protocol):
    """A part whose arrays depend on settings, and which can refuse a state before anything is changed."""

    def refuse_state(self, state: Mapping[str, np.ndarray]) -> None: ...


class LossPart(Protocol):
    """A part that changes the loss of the algorithm: a teacher, the warm-up of a value (families/)."""

    def with_term(self, loss: Any) -> Loss: ...

    def loss_settings(self) -> dict[str, float]: ...

    def stats(self) -> dict[str, float]: ...


class LearnedFrom(Refusing, LossPart, Protocol):
    """A source of learning in addition to rewards; families/teacher.py has the only one."""

    settings: "TeacherSettings"


class Trainee:
    """A policy in training.

    A subclass makes its parts in `__init__`, and parts that need the columns of batches in `prepare`. Parts with arrays
    for checkpoints are entries of `saved`; single numbers are saved by `numbers` and `set_numbers`. A replay, whose
    saving is optional, is in `OffPolicyTrainee.get_state`.

    Args:
        algorithm: the run.
        policy_id: id of the policy.

    Attributes:
        policy: the policy, whose weights the learner changes in place.
        config: settings of the policy: the run's, with the policy's own.
        number: number of the policy, which no other policy of the run has had; part of the keys of random streams.
        rng: random numbers of updates: shuffles, rows of a replay, noise. Each policy has its own, so that an update
            does not depend on which other policies learn.
        teacher: teacher that the policy learns from in addition to the algorithm's loss, or alone; None: no teacher.
        loss_parts: parts that change the algorithm's loss, in this order.
        learner: minimises the loss.
        return_scale: statistics by which workers scale rewards; None if rewards are not scaled.
        saved: name of a file in the policy's part of a checkpoint -> the part with its arrays.
        stats: statistics of the newest update.
        env_steps_of_batch: number of environment steps in the next update's batch; None: its number of rows.
        is_refused: whether the user's `policies_to_train` has refused the policy's newest rows. A replay may still have
            earlier ones.
    """

    # Settings that are initial values of adapted numbers, such as the coefficient of PPO's KL penalty.
    first_values: ClassVar[tuple[str, ...]] = ()

    def __init__(self, algorithm: "Algorithm", policy_id: str):
        self.algorithm, self.policy_id = algorithm, policy_id
        self.policy: Policy = algorithm.policies[policy_id]
        self.config: AlgorithmConfig = algorithm.config_of(policy_id)
        self.number = algorithm.policy_number(policy_id)
        # A policy that learns again after a pause continues with new random numbers.
        earlier = (self.num_updates,) if self.num_updates else ()
        self.rng = seeding.generator(algorithm.seed, seeding.LEARNER, self.number, *earlier)
        self.stats: dict[str, Any] = {}
        self.env_steps_of_batch: int | None = None
        self.is_refused = False
        self._parts = contextlib.ExitStack()
        self._schedule = functools.cache(self.config.get_schedule)
        self.teacher: LearnedFrom | None = self.config.make_teacher(self)
        parts = self.teacher, self.config.make_actor_warmup(self)
        self.loss_parts: list[LossPart] = [part for part in parts if part is not None]
        self.learner = self.make_learner()
        self.saved: dict[str, Saved] = {LEARNER_FILE: self.learner}
        if self.teacher is not None:
            self.saved[TEACHER_FILE] = self.teacher
        make_return_scale = self.config.make_return_scale
        self.return_scale: ReturnScale | None = make_return_scale() if make_return_scale else None
        if self.return_scale is not None:
            self.saved["returns.safetensors"] = self.return_scale

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.policy_id!r}, {self.num_updates} updates>"

    def prepare(self) -> None:
        """Makes parts that need the columns of the workers' batches."""

    @property
    def timesteps(self) -> int:
        """The run's clock: environment steps sampled so far."""
        return self.algorithm.timesteps

    @property
    def num_updates(self) -> int:
        """Updates of this policy so far: the version of its weights."""
        return self.algorithm.metrics.num_updates(self.policy_id)

    @property
    def learning_has_started(self) -> bool:
        """Whether the policy acts; False while actions are random, until there are enough rows to learn from."""
        return True

    def modules_of_workers(self) -> dict[str, np.ndarray]:
        """Name -> weights of the modules that workers compute with in addition to the policy, as Snapshot.modules."""
        return {}

    def owns(self, part: Any) -> Any:
        """Registers a part, whose `stop` is called when the policy stops learning or the run stops. Returns it."""
        self._parts.callback(part.stop)
        return part

    def stop(self) -> None:
        """Ends the processes of the trainee's parts; a second call does nothing."""
        self._parts.close()

    # ------------------------------------------------------------------ learner and loss

    def make_loss(self) -> Loss | LossOverModules:
        """The loss that the learner minimises: the algorithm's `loss`, unless it depends on settings."""
        return self.algorithm.loss

    def whole_loss(self) -> Loss | LossOverModules:
        """`make_loss()`, changed by `loss_parts` and by the user's auxiliary_losses and custom_loss."""
        algorithm, config, spec = self.algorithm, self.config, self.policy.spec
        loss, custom = self.make_loss(), config.custom_loss or spec.architecture.custom_loss
        if loss is None:
            raise TypeError(
                f"{type(algorithm).__name__} has no loss: set `loss` in its class, override make_loss of its trainee, "
                "or derive it from an algorithm such as PPO (docs/project/extend.md). RLlib's training_step, which "
                "calls env_runner.sample(num_episodes=...) and learner_group.update(episodes=...), cannot run here."
            )
        loss = checked_loss(loss)
        if config.learner_class is not None:
            from rllib.core.learner.learner_loss import LearnerLoss

            custom = LearnerLoss(config.learner_class, config, self.policy_id)
        if algorithm.config.leaves_stragglers:  # late fragments were sampled by earlier weights
            loss = loss.by_earlier_weights()
        if algorithm.agents_may_wait and loss.by_newest_weights:
            # The rows of agents that waited at the end of a fragment are by the weights before the last update.
            if algorithm.marks_waiting(self.policy_id):
                loss = dataclasses.replace(loss, columns=(*loss.columns, WAITED), marks_waiting=True)
            else:
                loss = loss.by_earlier_weights()
        for part in self.loss_parts:
            loss = part.with_term(loss)
        if not algorithm.auxiliary_losses and custom is None:
            return loss
        if isinstance(loss, LossOverModules):
            raise config.error(
                Mistake(
                    "auxiliary_losses, custom_loss and learner_class change a loss of the policy's outputs, but that "
                    f"of {type(algorithm).__name__} is over several modules.",
                    ("auxiliary_losses", "custom_loss", "learner_class"),
                    ({"auxiliary_losses": {}, "custom_loss": None, "learner_class": None},),
                    note="Or change what its make_loss returns.",
                )
            )
        parts = [part.of_policy(spec) for part in algorithm.auxiliary_losses]
        refuse_taken_names(parts, {*loss.stats, *algorithm.reported_stats, *_STATS_OF_UPDATES})
        return WithAuxiliary(loss, parts, custom, spec.masked_opened)

    def make_learner(self, *objectives: Any, **more: Any) -> Learner:
        """Makes the learner, in this process or in several others, as the config says.

        Args:
            objectives: one argument, an Objective or a sequence of them: losses and the modules that each trains; by
                default `whole_loss()` over the policy.
            more: further modules, target copies and their generator, as for `make_learner` of learners/learner.py.
        """
        config, algorithm, make_group = self.config, self.algorithm, None
        if not objectives:
            objectives = (self.objective(self.whole_loss()),)
        if config.num_learners:
            settings = wiring.group_settings(config, algorithm.spans_directory)

            def make_group(*parts):
                return self.owns(LearnerGroup(*parts, settings))

        device = algorithm.rollout_device or ("cuda" if config.num_gpus else "cpu")
        # A recorded step would run the Python code of a learner_class, which logs values, only once.
        graphs = config.torch_cuda_graphs and config.learner_class is None
        options = TorchOptions(config.torch_autocast, config.torch_matmul_precision, graphs)
        cores = wiring.cores_per_learner(config)
        how = {"kind": config.learner, "device": device, "torch_options": options, "make_group": make_group}
        return make_learner(self.policy, *objectives, cores=cores, **how, **more)

    def objective(self, loss: Loss | LossOverModules, *modules_and_name: Any) -> Objective:
        """An objective with the optimizer and the clipping of the settings."""
        clip = {"grad_clip": self.config.grad_clip, "grad_clip_by": self.config.grad_clip_by}
        return Objective(loss, *modules_and_name, optimizer=self.optimizer_settings(), **clip)

    def optimizer_settings(self) -> OptimizerSettings:
        """The optimizer of the networks, and its constants."""
        return wiring.optimizer_settings(self.config)

    def gradient_learner(self) -> Callable[[Policy], Learner]:
        """A factory, which can be pickled, of the policy's learner in each worker, if workers compute gradients."""
        # SGD, since an optimizer without a memory needs least space.
        objective = Objective(self.whole_loss(), optimizer=OptimizerSettings("sgd"))
        return functools.partial(make_learner, objectives=objective, kind=self.config.learner)

    # ------------------------------------------------------------------ building blocks of an update

    def scheduled(self, *names: str, at: int | None = None) -> dict[str, Any]:
        """Values, numbers or None, of settings that may be schedules.

        Args:
            names: names of the settings.
            at: number of environment steps at which schedules are evaluated; None: the present number.
        """
        now = self.timesteps if at is None else at
        return {name: schedule and schedule(now) for name in names for schedule in (self._schedule(name),)}

    def learn_on_batch(self, batch: SampleBatch, **settings: Any) -> dict[str, Any]:
        """Makes one `Learner.update` on the batch, counted and timed, with its settings; returns its statistics."""
        algorithm = self.algorithm
        lag, extra_stats = self.num_updates - batch.policy_version, {}
        if hears(algorithm.callbacks, "on_learn_on_batch") and algorithm.rollout_device is None:
            batch = _in_own_arrays(batch)
        algorithm.callbacks.on_learn_on_batch(policy=self.policy, train_batch=batch, result=extra_stats)
        if algorithm.auxiliary_losses:
            weights = algorithm.auxiliary_weights()
            settings |= weights
            extra_stats |= weights
        for part in self.loss_parts:
            settings |= part.loss_settings()
            extra_stats |= part.stats()
        with algorithm.metrics.timer("learn"):
            stats = self.learner.update(batch, rng=self.rng, **settings)
        if algorithm.config.learner_class is not None:
            algorithm.metrics.logger.repeat(self.learner.pop_logged(), LEARNERS)
        # Agents share steps of their environments, so a policy may have more rows than steps, or fewer.
        agent_steps = batch.agent_steps()
        env_steps = agent_steps if self.env_steps_of_batch is None else self.env_steps_of_batch
        self.env_steps_of_batch = None
        gradient_steps = int(stats.pop("num_minibatches", 1))
        algorithm.metrics.add_update(self.policy_id, env_steps, gradient_steps, agent_steps=agent_steps)
        # With several objectives, the settings of the policy's objective.
        given = {**settings, **settings.get(POLICY, {})}
        used = {
            name: given[setting]
            for setting, name in _REPORTED_SETTINGS.items()
            if setting in given and not isinstance(given[setting], Mapping)
        }
        if "lr" in stats:  # an AdaptiveRate, which has followed the KL
            used["cur_lr"] = stats.pop("lr")
        return {**stats, **used, **extra_stats, "policy_lag_updates": float(lag)}

    # ------------------------------------------------------------------ checkpoints

    def get_state(self) -> dict[str, dict[str, np.ndarray]]:
        """Name of a file -> its arrays."""
        return {name: part.get_state() for name, part in self.saved.items()}

    def set_state(self, files: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Restores the files of `get_state`.

        Parts without files are reset: the policy did not learn in the saved run, or the part's setting is new.
        """
        for name, part in self.saved.items():
            if name in files:
                part.set_state(files[name])

    def refuse_state(self, files: Mapping[str, Mapping[str, np.ndarray]], settings: Mapping[str, Any]) -> None:
        """Refuses files that `set_state` cannot restore; nothing is changed.

        Args:
            files: as for `set_state`.
            settings: settings in the config.json of the run that wrote the files.

        Raises:
            Unfit: (a ValueError) if the files belong to other settings.
            DamagedFileError: (a ValueError) if a file has arrays that no part writes.
        """
        for name, part in self.saved.items():
            if name in files and isinstance(part, Refusing):
                try:
                    part.refuse_state(files[name])
                except DamagedFileError:  # of no settings
                    raise
                except ValueError as error:
                    first = _SETTING_OF.get(name, "exploration_config")
                    if unfit := unfit_by(
                        str(error), self.config, settings, [first], self.config.sections["training"].names
                    ):
                        raise unfit from error
                    raise

    def begin_again(self, changed: Mapping[str, Any]) -> None:
        """Called after a restore into a run with other `first_values`: resets the numbers that start from them.

        Args:
            changed: name of a setting that differs -> value in the saved run.
        """

    def numbers(self) -> dict[str, Any]:
        """Name -> JSON-able state that is no array, such as counts and adapted coefficients."""
        return {}

    def set_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Restores `numbers`; some may be missing if the policy did not learn, or an older version saved them."""


def refuse_methods_of_trainees(cls: type["Algorithm"]) -> None:
    """Raises a TypeError if a user's algorithm class overrides a method that belongs to its trainees."""
    library = [base for base in cls.__mro__ if base.__module__.startswith("rllib.")]
    members = {name: own for base in reversed(cls.__mro__) if base not in library for name, own in vars(base).items()}
    of_trainee, read = cls.trainee_class, {name: _names_read(member) for name, member in members.items()}
    for name in _OVERRIDDEN:
        if name not in members or not hasattr(of_trainee, name):
            continue
        if any(name in names for other, names in read.items() if other != name):
            continue  # the user's own method calls it
        raise TypeError(
            f"{cls.__name__}.{name} would never be called: each policy in training has this method. Define it in a "
            f"class derived from {of_trainee.__module__}.{of_trainee.__name__}, and let trainee_class of "
            f"{cls.__name__} be that class (docs/project/extend.md)."
        )


def _names_read(member: Any) -> set[str]:
    """Names of the attributes and globals that a method, or a property, reads."""
    function = inspect.unwrap(member.fget if isinstance(member, property) else member)
    waiting, names = [code_of(function)], set()
    while waiting:
        if (code := waiting.pop()) is not None:
            names.update(code.co_names)
            waiting += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return names


def _in_own_arrays(batch: SampleBatch) -> SampleBatch:
    """The batch with copies of those columns that lie read-only in shared memory, or on a GPU."""

    def own(column):
        if not isinstance(column, np.ndarray):  # a tensor, from a replay on a GPU
            return column.cpu().numpy()
        return column if column.flags.writeable else column.copy()

    return SampleBatch({name: own(column) for name, column in batch.items()}, policy_version=batch.policy_version)
