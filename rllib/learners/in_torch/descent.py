"""Gradient steps of one objective in torch: the loss's gradient, clipping, and the optimizer's step."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from rllib.learners.in_torch.epoch import Epoch
from rllib.learners.in_torch.recorded_steps import CudaGraphs, RecordedSteps
from rllib.learners.updates.adaptive_rate import AdaptiveRate
from rllib.learners.updates.collective import Collective
from rllib.learners.updates.descent import Descent
from rllib.learners.updates.in_numpy import check_identity, raise_not_finite
from rllib.learners.updates.objective import ModuleVector, Objective
from rllib.learners.updates.optimizers import TINY, TINY_EVERY, OptimizerSettings
from rllib.models.dense.in_torch import backward
from rllib.sample_batch import OBS, PER_SEQUENCE

# Names of the optimizers' memory in torch -> names in a learner's state, which the numpy optimizers share.
_ADAMS = {"exp_avg": "adam.m", "exp_avg_sq": "adam.v", "step": "adam.step"}
MEMORY = {
    "adam": _ADAMS,
    "adamw": _ADAMS,
    "radam": {"exp_avg": "radam.m", "exp_avg_sq": "radam.v", "step": "radam.step"},
    "rmsprop": {"square_avg": "rmsprop.v", "momentum_buffer": "rmsprop.momentum"},
    "sgd": {},
}


class TorchDescent(Descent):
    """Gradient steps of one objective on the modules that it trains.

    Args:
        rounds: whether the modules compute with lower precision than the policy that acts.

    Attributes:
        memory: the optimizer's tensors, under the names of the numpy optimizers.
        identity_error: identity error of the first rows since `begin`; on a GPU it is checked at the end of the update.
        recorded: takes the steps that may be recorded; None: no step may.
    """

    def __init__(self, objective: Objective, modules: Mapping, vector: ModuleVector, on_gpu: bool, rounds: bool):
        moved = [modules[name] for name in objective.moves]
        # A loss that calls the policy's network itself gets this module.
        super().__init__(objective, objective.loss.bind(moved[0]))
        self._modules, self._vector, self._on_gpu = modules, vector, on_gpu
        self._distribution = vector.policy.distribution
        # Columns that are arguments of the policy's network.
        self._reads = (OBS, *PER_SEQUENCE) if vector.policy.state_size else (OBS,)
        self._moves, self._moved = objective.moves, moved
        # Projections of modules whose weights are constrained to a surface.
        self._projections = [module.project for module in moved if hasattr(module, "project")]
        flats = [module.flat for module in moved]
        self.gradients = [flat.grad for flat in flats]
        self._gradient_parts = [parameter.grad for module in moved for parameter in module.parameters()]
        self._optimizer = _make_optimizer(objective.optimizer, flats)
        names = MEMORY[objective.optimizer.name].items()
        prefixes = [f"{name}." if len(moved) > 1 else "" for name in objective.moves]
        self.memory = {
            prefix + ours: self._optimizer.state[flat][theirs]
            for prefix, flat in zip(prefixes, flats)
            for theirs, ours in names
            if theirs in self._optimizer.state[flat]
        }
        # Adam's moments, which must not become denormal on a CPU.
        states = [] if on_gpu else [self._optimizer.state[flat] for flat in flats]
        self._moments = [state[name] for state in states for name in ("exp_avg", "exp_avg_sq") if name in state]
        self._num_steps = 0  # Adam counts in a tensor, and reading that would wait for the device
        self.identity_error: Tensor | None = None
        # For losses of the policy's outputs, the first check shows whether they have an identity error. Rounded
        # probabilities cannot be compared with the rows'.
        self._has_identity = not self._is_over_modules and not rounds
        self.recorded: RecordedSteps | None = None

    def get_state(self) -> dict[str, np.ndarray]:
        arrays = {name: tensor.cpu().numpy() for name, tensor in self.memory.items()}
        # torch counts in floats.
        return {name: array.astype(np.int64) if name.endswith(".step") else array for name, array in arrays.items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        for name, tensor in self.memory.items():
            tensor.copy_(torch.from_numpy(np.array(state[name])))
            if name.endswith(".step"):
                self._num_steps = int(state[name])

    def get_progress(self) -> tuple[list[np.ndarray], list[tuple[np.ndarray, ...]]]:
        return [step.cpu().numpy() for step in self.steps], self.rows_in_numpy()

    def set_progress(self, steps: Sequence, row_statistics: Sequence[tuple[np.ndarray, ...]]) -> None:
        device = self.gradients[0].device
        self.steps = [torch.tensor(step, device=device) for step in steps]
        self.row_statistics = [tuple(torch.tensor(column, device=device) for column in part) for part in row_statistics]

    def begin(self, lr: float | AdaptiveRate, resumes: bool = False) -> None:
        if not resumes:
            self.identity_error = None
        super().begin(lr, resumes)

    def _set_rate(self, lr: float) -> None:
        for group in self._optimizer.param_groups:
            if self.recorded is None:
                group["lr"] = lr
            else:
                group["lr"].fill_(lr)  # a recording reads it at its address

    def _adapt(self, statistics: Tensor) -> None:
        kl = statistics[self._adaptive.index]
        for group in self._optimizer.param_groups:
            if self.recorded is None:
                group["lr"] = self._adaptive.adapted(group["lr"], float(kl))
            else:
                group["lr"].copy_(self._adaptive.adapted_on_device(group["lr"], kl))

    def record_steps(self, graphs: CudaGraphs) -> RecordedSteps | None:
        """Allows recordings of steps. Only Adam can keep all its numbers, the learning rate included, in tensors."""
        if not isinstance(self._optimizer, torch.optim.Adam):
            return None
        for group in self._optimizer.param_groups:
            group["lr"] = torch.full((), float(group["lr"]), dtype=torch.float32, device=self.gradients[0].device)
            group["capturable"] = True  # else its step raises while it is recorded
        self.recorded = RecordedSteps(graphs)
        return self.recorded

    def take_step(
        self,
        epoch: Epoch,
        rows: slice,
        microbatch_size: int,
        settings: Mapping,
        collective: Collective | None,
        limit: tuple[int, float] | None = None,
    ) -> bool:
        """As Descent.take_step, by a recording if possible; on a GPU the limit is not checked, which would wait."""
        if self._may_be_recorded(rows, microbatch_size, collective):
            self._take_recorded_step(epoch, rows, settings)
            return True
        limit = None if self._on_gpu else limit
        return super().take_step(epoch, rows, microbatch_size, settings, collective, limit)

    def exceeds_after_epoch(self, index: int, limit: float) -> bool:
        """On a GPU: waits for the newest step, and compares its statistic."""
        return self._on_gpu and float(self.steps[-1][index]) > limit

    def _may_be_recorded(self, rows: slice, microbatch_size: int, collective: Collective | None) -> bool:
        """Whether the step of these rows may be recorded: in one piece, by this learner alone, without a check.

        A step on sequences depends on their lengths, which may differ between minibatches of the same shapes.
        """
        is_alone = self.recorded is not None and self.recorded.is_on and collective is None and len(self._reads) == 1
        is_whole = microbatch_size >= rows.stop - rows.start
        # The first minibatch is checked, and does not adapt the rate.
        is_like_others = bool(self.steps) or not (self._has_identity or self._adaptive is not None)
        return is_alone and is_whole and is_like_others

    def _take_recorded_step(self, epoch: Epoch, rows: slice, settings: Mapping) -> None:
        """Computes the gradient and takes the step, by a recording if there is one."""
        numbers = {name: value for name, value in settings.items() if isinstance(value, float) and math.isfinite(value)}
        others = {name: value for name, value in settings.items() if name not in numbers}
        adaptive = self._adaptive and self._adaptive.at(0.0)

        def step(minibatch: Mapping[str, Tensor], numbers: Mapping) -> Sequence[Tensor]:
            statistics, *of_rows = self._descend(minibatch, {**others, **numbers})
            if adaptive is not None:
                self._adapt(statistics)
            norm = self._norm()
            self.step(norm)
            return [torch.cat((statistics, norm[None])), *(column for part in of_rows for column in part)]

        newest, *of_rows = self.recorded.take((*others.items(), adaptive), epoch[rows], numbers, step)
        self.steps.append(newest)
        self.row_statistics += [tuple(of_rows)] if of_rows else []

    def _finish(self, epoch: Epoch, rows: slice, statistics: Tensor) -> None:
        norm = self._norm()
        if not self._on_gpu and not torch.isfinite(norm):
            columns = {name: column.numpy() for name, column in epoch[rows].items()}
            raise_not_finite(self._vector, self.whole_gradient(), columns)
        self.steps.append(torch.cat((statistics, norm[None])))

    def _zeros(self, *shape: int) -> Tensor:
        return self.gradients[0].new_zeros(shape)

    def _mean_across(self, collective: Collective, weight: float, mean: Tensor) -> Tensor:
        number = (mean * weight).reshape(1)
        collective.sum([number])
        return number[0]

    def _norm(self) -> Tensor:
        gradients = self.gradients
        return torch.linalg.vector_norm(gradients[0] if len(gradients) == 1 else torch.cat(gradients))

    def _compute_part(self, epoch: Epoch, rows: slice, settings: Mapping, is_first: bool) -> Tensor:
        statistics, *of_rows = self._descend(epoch[rows], settings, is_first and self._has_identity)
        self.row_statistics += of_rows
        return statistics

    def _descend(self, minibatch: Mapping[str, Tensor], settings: Mapping, is_to_check: bool = False) -> tuple:
        """Writes the gradient into `gradients`. Returns the loss's statistics, and row statistics if it has some."""
        given = self._modules if self._is_over_modules else self._moved[0](*(minibatch[name] for name in self._reads))
        if is_to_check:
            self._check_identity(given, minibatch)
        loss, statistics, *of_rows = self._loss.torch(self._distribution, given, minibatch, **settings)
        backward(loss, self._moved)
        return torch.stack(statistics).detach(), *(tuple(column.detach() for column in rows) for rows in of_rows)

    def _check_identity(self, outputs: tuple, minibatch: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            error = self._loss.identity_error(self._distribution.torch_at, outputs, minibatch)
        if error is not None and not self._on_gpu:
            check_identity(float(error))
        self.identity_error, self._has_identity = error, error is not None

    def rows_in_numpy(self) -> list[tuple[np.ndarray, ...]]:
        """The row statistics as arrays."""
        return [tuple(column.cpu().numpy() for column in part) for part in self.row_statistics]

    def whole_gradient(self) -> np.ndarray:
        """The gradient in the vector's size, with zeros for modules that are not trained."""
        whole = np.zeros_like(self._vector.flat)
        for name, gradient in zip(self._moves, self.gradients):
            whole[self._vector.moved[name]] = gradient.cpu().numpy()
        return whole

    @torch.no_grad()
    def step(self, norm: Tensor) -> None:
        limit, by = self._clip
        if limit is None:
            pass
        elif by == "value":
            torch._foreach_clamp_max_(self.gradients, limit)
            torch._foreach_clamp_min_(self.gradients, -limit)
        elif by == "norm":
            for part in self._gradient_parts:
                _scale_to(part, torch.linalg.vector_norm(part), limit)
        else:
            for gradient in self.gradients:
                _scale_to(gradient, norm, limit)
        self._num_steps += 1
        if self._moments and self._num_steps % TINY_EVERY == 0:
            torch._foreach_add_(self._moments, float(TINY))
        self._optimizer.step()
        for project in self._projections:
            project()


def _scale_to(vector: Tensor, norm: Tensor, limit: float) -> None:
    # Without a comparison on the host, which would wait for the device.
    vector.mul_((limit / (norm + 1e-6)).clamp(max=1.0))


def _make_optimizer(settings: OptimizerSettings, flats: list[Tensor]) -> torch.optim.Optimizer:
    decay = {"weight_decay": settings.weight_decay}
    if settings.name == "sgd":
        return torch.optim.SGD(flats, lr=0.0, foreach=False, **decay)
    if settings.name == "rmsprop":
        constants = {"alpha": settings.decay, "eps": settings.rmsprop_epsilon, "momentum": settings.momentum, **decay}
        optimizer = torch.optim.RMSprop(flats, lr=0.0, foreach=False, **constants)
    else:
        constants = {"eps": settings.adam_epsilon, "betas": (settings.adam_beta1, 0.999), **decay}
        if settings.name == "radam":
            optimizer = torch.optim.RAdam(flats, lr=0.0, foreach=False, **constants)
        else:
            kind = torch.optim.AdamW if settings.name == "adamw" else torch.optim.Adam
            optimizer = kind(flats, lr=0.0, fused=True, **constants)
    # A step of learning rate zero creates the memory, so that states have the same names from the start.
    optimizer.step()
    for flat in flats:
        for array in optimizer.state[flat].values():
            array.zero_()
    return optimizer
