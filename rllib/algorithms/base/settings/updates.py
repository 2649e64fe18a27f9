"""The settings of updates and of what computes them: the sections framework, training, resources and learners."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from rllib.compat.methods.ray_rllib.settings import learner_class_problem
from rllib.config.config_object import ConfigObject, relation
from rllib.config.conflicts import DEFAULT, Mistake, Remedy, conflict, needs
from rllib.config.sections import Keys, Merged, NotYet, OfPolicy, above, at_least, between, only_with, section
from rllib.losses.user.auxiliary import auxiliary_losses
from rllib.models.arithmetic.cuda import why_no_cuda
from rllib.models.model_settings import MODEL_DEFAULTS, ModelSettings
from rllib.notices import log_once
from rllib.schedules import Schedule

# Default of settings that are dicts; every config gets a copy.
_EMPTY: dict = {}
# Ray's name of train_batch_size, which is of each learner there.
_OF_EACH = "train_batch_size_per_learner"


class UpdatesConfig(ConfigObject):
    """The sections framework, training, resources and learners."""

    # Settings that describe networks; the others say what differs from the first.
    network_settings_names: ClassVar[tuple[str, ...]] = ("model",)

    @section
    def framework(
        self,
        framework: Annotated[str, 'library of networks that numpy does not cover; "torch" is the only one'] = "torch",
        *,
        torch_autocast: Annotated[
            Literal["bfloat16"] | None,
            "type in which networks compute in updates (torch.autocast); None: float32",
            OfPolicy,
        ] = None,
        torch_matmul_precision: Annotated[
            Literal["highest", "high", "medium"],
            'of float32 products in updates: "high" lets a GPU use TF32 (torch.set_float32_matmul_precision)',
        ] = "highest",
        torch_cuda_graphs: Annotated[
            bool, "on a GPU, record the steps of updates as CUDA graphs where that is measured to be faster", OfPolicy
        ] = True,
    ) -> Self:
        """Library of networks. Those with closed forms learn in numpy on a CPU: see .training(learner=...)."""

    @section
    def training(
        self,
        *,
        gamma: Annotated[float, "discount of a reward per step", between(0, 1), OfPolicy] = 0.99,
        lr: Annotated[
            float | list, "learning rate, or a schedule of it over sampled steps", at_least(0), OfPolicy
        ] = 0.001,
        lr_schedule: Annotated[
            list | None, "schedule [[timestep, lr], ...] that goes before lr", at_least(0), OfPolicy
        ] = None,
        grad_clip: Annotated[float | None, "bound of the gradient; None: unbounded", above(0), OfPolicy] = None,
        grad_clip_by: Annotated[
            Literal["global_norm", "norm", "value"],
            "what grad_clip bounds: all gradients', each one's norm, or values",
            only_with("grad_clip"),
            OfPolicy,
        ] = "global_norm",
        opt_type: Annotated[Literal["adam", "adamw", "radam", "rmsprop", "sgd"], "optimizer", OfPolicy] = "adam",
        weight_decay: Annotated[
            float | None,
            "how strongly weights are drawn to 0, as in torch; None: 0.01 of adamw, else 0",
            at_least(0),
            OfPolicy,
        ] = None,
        adam_epsilon: Annotated[float, "added to the denominator of Adam and RAdam", above(0), OfPolicy] = 1e-8,
        decay: Annotated[
            float,
            "decay of RMSprop's mean of squared gradients",
            between(0, 1),
            only_with("uses_rmsprop", otherwise="opt_type is not 'rmsprop'"),
            OfPolicy,
        ] = 0.99,
        momentum: Annotated[
            float,
            "momentum of RMSprop",
            between(0, 1),
            only_with("uses_rmsprop", otherwise="opt_type is not 'rmsprop'"),
            OfPolicy,
        ] = 0.0,
        rmsprop_epsilon: Annotated[
            float,
            "added to the root of RMSprop's mean",
            above(0),
            only_with("uses_rmsprop", otherwise="opt_type is not 'rmsprop'"),
            OfPolicy,
        ] = 1e-5,
        train_batch_size: Annotated[int, "environment steps per update", at_least(1)] = 32,
        model: Annotated[
            dict,
            "network: fcnet_hiddens, fcnet_activation, vf_share_layers, ...",
            Keys(ModelSettings),
            Merged,
            OfPolicy,
        ] = _EMPTY,
        auxiliary_losses: Annotated[
            dict,
            "what is added to the loss: name -> {loss: function, weight, columns, stats} (docs/guide/networks.md)",
            Merged,
        ] = _EMPTY,
        custom_loss: Annotated[
            Any,
            "function (loss, minibatch, outputs, model) -> the loss to minimise instead; None: the algorithm's",
            OfPolicy,
        ] = None,
        learner_class: Annotated[
            Any, "class derived from rllib.core.TorchLearner, whose compute_loss_for_module is minimised; None: none"
        ] = None,
        learner_config_dict: Annotated[
            dict, "values of your own for learner_class", Merged, only_with("learner_class")
        ] = _EMPTY,
        learner: Annotated[
            Literal["auto", "numpy", "torch"],
            "what computes the updates; auto: numpy for plain networks on a CPU",
            OfPolicy,
        ] = "auto",
    ) -> Self:
        """The updates: learning rate, optimizer, batch, network."""

    @section
    def resources(
        self,
        *,
        num_gpus: Annotated[
            float,
            "GPUs of each learner: 0, or 1 (a part is shared with others); four: num_learners=4 and num_gpus=1",
            between(0, 1),
        ] = 0,
        num_cpus_per_worker: Annotated[
            float,
            "CPUs that each rollout worker claims",
            at_least(0),
            only_with("num_rollout_workers", "evaluation_num_workers"),
        ] = 1,
        num_gpus_per_worker: Annotated[
            float, "GPUs that each rollout worker claims, and on which its network acts", at_least(0)
        ] = 0,
        custom_resources_per_worker: Annotated[
            dict,
            "other resources that each rollout worker claims",
            only_with("num_rollout_workers", "evaluation_num_workers"),
        ] = _EMPTY,
        num_cpus_for_local_worker: Annotated[
            float,
            "CPUs that this process claims",
            NotYet("Leave it at 1; num_cpus_per_learner asks for more cores for updates."),
        ] = 1,
    ) -> Self:
        """CPUs, GPUs and other resources of the processes."""

    @section
    def learners(
        self,
        *,
        num_learners: Annotated[
            int, "processes that compute the updates, each a part of every minibatch; 0: this one does", at_least(0)
        ] = 0,
        num_cpus_per_learner: Annotated[
            int | Literal["auto", "measured"],
            'cores for updates, which each of them claims; with num_learners=0, those of this process. "auto": for '
            "what numpy learns, those that are idle during updates, in learner processes one; these share out the "
            'cores for torch, and this process leaves torch\'s threads; "measured": for what numpy learns here, one '
            "or the free ones, whichever is faster. What numpy learns has the same bits on any number",
            at_least(0),
        ] = "auto",
        learner_collective: Annotated[
            Literal["auto", "shared_memory", "gloo", "nccl"],
            "how their gradients are summed; auto: nccl between GPUs, shared memory on one machine, else gloo",
            only_with("num_learners"),
        ] = "auto",
    ) -> Self:
        """Processes and devices that compute the updates."""

    conflicts = (
        conflict(
            "num_gpus",
            ("learner", "numpy"),
            why="numpy computes on the CPU",
            remedies=[{"learner": "torch"}, {"num_gpus": 0}],
        ),
        needs(
            "num_gpus_per_worker",
            "num_rollout_workers",
            "evaluation_num_workers",
            why="this process acts on the CPU",
            remedies=[{"num_rollout_workers": 1}, {"num_gpus_per_worker": 0}],
        ),
        conflict(
            ("num_cpus_per_learner", "measured"),
            "num_learners",
            why="cores of this process are measured, and others learn",
            remedies=[{"num_learners": 0}, {"num_cpus_per_learner": "auto"}],
        ),
        needs(
            ("learner_collective", "nccl"),
            "num_gpus",
            why="it sums on the GPUs of the learners",
            remedies=[{"num_gpus": 1}, {"learner_collective": "auto"}],
        ),
        conflict(
            ("learner_collective", "shared_memory"),
            "num_gpus",
            why="it sums on CPUs",
            remedies=[{"learner_collective": "auto"}, {"num_gpus": 0}],
        ),
        conflict(
            "learner_class",
            "custom_loss",
            why="both replace the loss",
            remedies=[{"custom_loss": None}, {"learner_class": None}],
            note="compute_loss_for_module of a learner_class can call the function.",
        ),
    )

    @relation("framework")
    def _check_framework(self) -> Mistake | None:
        """`framework` is "torch"."""
        if self.framework_str == "torch":
            return None
        problem = (
            f"framework={self.framework_str!r} is not available: networks run on torch and numpy, and there is no "
            "TensorFlow."
        )
        return Mistake(problem, ("framework",), ({"framework": "torch"},))

    @relation("num_gpus", "learner", "num_learners")
    def _check_gpu(self) -> Mistake | None:
        """`num_gpus` needs a GPU that torch finds; that of a learner process may be elsewhere."""
        # Learner processes may run on other machines, and are refused where there is no GPU for them.
        if not self.num_gpus or self.num_learners or self.learner == "numpy":
            return None
        if (reason := why_no_cuda()) is None:
            return None
        return Mistake(f"num_gpus={self.num_gpus:g}, but {reason}.", ("num_gpus",), ({"num_gpus": 0},))

    @relation("num_learners", "train_batch_size")
    def _check_learners(self) -> Mistake | None:
        """Each of `num_learners` takes a part of every minibatch: there are at least as many rows."""
        name = "sgd_minibatch_size" if "sgd_minibatch_size" in self.settings else "train_batch_size"
        rows = self[name]
        if self.num_learners > 1 and self._given_name("train_batch_size") == _OF_EACH:
            size, count = self.train_batch_size, self.num_learners
            message = (
                f"{_OF_EACH}={size} is train_batch_size={size} here, of num_learners={count} learners together; Ray's "
                f"batch is {count} times as large. For that, use .training(train_batch_size={count * size})."
            )
            log_once(message, message, logging.WARNING)
        if self.num_learners <= rows:
            return None
        return Mistake(
            f"num_learners={self.num_learners} are more than the {rows} rows of {name}, of which each takes a part.",
            ("num_learners", name),
            ({"num_learners": max(1, rows // 64)}, {name: self.num_learners}),
        )

    @relation("auxiliary_losses", "custom_loss")
    def _check_losses(self) -> Mistake | None:
        """`custom_loss` is a function, and `auxiliary_losses` have one each."""
        if self.custom_loss is not None and not callable(self.custom_loss):
            problem = (
                f"custom_loss must be a function of (loss, minibatch, outputs, model), not {self.custom_loss!r:.80}."
            )
            return Mistake(problem, ("custom_loss",), ({"custom_loss": None},))
        try:
            auxiliary_losses(self.auxiliary_losses)
        except ValueError as error:
            return Mistake(str(error), ("auxiliary_losses",), ({"auxiliary_losses": {}},), advice=None)
        return None

    @relation("learner_class")
    def _check_learner_class(self) -> Mistake | None:
        """`learner_class` is derived from TorchLearner, and overrides what is called."""
        problem = self.learner_class is not None and learner_class_problem(self.learner_class)
        if not problem:
            return None
        return Mistake(problem, ("learner_class",), ({"learner_class": None},), advice=None)

    @property
    def uses_rmsprop(self) -> bool:
        """Whether the optimizer is RMSprop."""
        return self.opt_type == "rmsprop"

    @property
    def fits_a_value(self) -> bool:
        """Whether a value of observations is fitted in addition to the policy."""
        return self.get("use_critic", "vf_loss_coeff" in self.settings)

    def get_schedule(self, name: str) -> Schedule | None:
        """A setting over time, from `name`_schedule where that is given, else from `name`; None where that is None."""
        given = name if self.get(f"{name}_schedule") is None else f"{name}_schedule"
        value = self[given]
        return None if value is None else Schedule(value, given, self.settings[given].range_of_schedule)

    def with_defaults(self, *keys: str, of: Collection[str] = ()) -> dict[str, dict]:
        """The remedy that leaves these keys of networks' settings at what they are for any network.

        Args:
            keys: keys of `model`; those that have their defaults already are left out.
            of: settings that hold them; by default all `network_settings_names`.
        """
        found = {}
        for name in of or self.network_settings_names:
            given = {key: self[name].get(key, MODEL_DEFAULTS[key]) for key in keys}
            if changed := {key: MODEL_DEFAULTS[key] for key in keys if given[key] != MODEL_DEFAULTS[key]}:
                found[name] = changed
        return found

    def placed(self, mistake: Mistake) -> Mistake:
        """The mistake, its remedies with the settings of a network wherever this config has them."""
        return replace(mistake, remedies=tuple(map(self._placed, mistake.remedies)))

    def _placed(self, remedy: Remedy) -> Remedy:
        changes = remedy.get("model", {})
        others = {
            name: {key: value for key, value in changes.items() if key in self[name]}
            for name in self.network_settings_names[1:]
        }
        # A value that is a function is one that the user has given, such as a teacher.
        given = {name: self.settings[name].default if value is DEFAULT else value for name, value in remedy.items()}
        return given | {name: changed for name, changed in others.items() if changed}

    @property
    def acting_model(self) -> Mapping[str, Any]:
        """Settings of the network that acts."""
        return self.model
