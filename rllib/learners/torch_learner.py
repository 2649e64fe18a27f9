"""The update in torch, on the CPU or one GPU: autograd, one flat vector, one synchronisation per update."""

import contextlib
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from rllib.errors import GpuMemoryError, LearnerError
from rllib.learners.collective import Collective
from rllib.learners.numpy_learner import check_identity, raise_not_finite
from rllib.learners.objective import POLICY, ModuleVector, Objective
from rllib.learners.optimizers import TINY, TINY_EVERY, OptimizerSettings
from rllib.learners.recorded_steps import CudaGraphs, RecordedSteps
from rllib.learners.target_copy import TargetCopy
from rllib.learners.torch_epoch import Epoch, epoch_of, sent_orders
from rllib.learners.torch_options import DEFAULTS, TorchOptions
from rllib.learners.transfers import InPlace, PinnedTransfers
from rllib.models.cuda import memory_of, why_no_cuda
from rllib.models.torch_acting import encoded
from rllib.models.torch_network import backward
from rllib.sample_batch import LOSS_MASK, OBS, PER_SEQUENCE, SEQ_LENS

# Names of the optimizers' memory in torch -> names in a learner's state, which the numpy optimizers share.
MEMORY = {
    "adam": {"exp_avg": "adam.m", "exp_avg_sq": "adam.v", "step": "adam.step"},
    "radam": {"exp_avg": "radam.m", "exp_avg_sq": "radam.v", "step": "radam.step"},
    "rmsprop": {"square_avg": "rmsprop.v", "momentum_buffer": "rmsprop.momentum"},
    "sgd": {},
}


# What torch says of operands on several devices; each kind of operation has other words.
_OTHER_DEVICE = re.compile(r"same device|expected device|device type tensor|and weight type \(|different from other t")


def as_a_whole(method: Callable) -> Callable:
    """Takes a failed update back on a GPU, and says what to do where the memory or a tensor's device is the reason."""

    @functools.wraps(method)
    def guarded(self, columns: Mapping, inputs: np.ndarray, *others, **more):
        try:
            return method(self, columns, inputs, *others, **more)
        except LearnerError:
            self.take_back()
            raise
        except torch.OutOfMemoryError as error:
            self.take_back()
            batch = sum(column.nbytes for column in columns.values()) + inputs.nbytes
            raise GpuMemoryError(
                f"an update does not fit into the memory of {self.device}: a batch of {len(inputs)} rows "
                f"({batch / 2**20:.0f} MiB) and {len(self._vector.flat)} weights. Halve sgd_minibatch_size or, for "
                "algorithms without it, train_batch_size; "
                '.framework(torch_autocast="bfloat16") halves what networks keep. Weights and checkpoints are those of '
                "the update before."
            ) from error
        except (RuntimeError, TypeError) as error:
            with contextlib.suppress(RuntimeError):  # a device that has failed keeps nothing, and the error says so
                self.take_back()
            if _OTHER_DEVICE.search(str(error)) is None:
                raise
            raise LearnerError(
                f"an update on {self.device} has met a tensor on another device: {error}. A network or a loss of your "
                "own has to make its tensors where those are that it is given: torch.zeros(n, device=outputs.device) "
                "or outputs.new_zeros(n), and constants of a module by self.register_buffer(name, tensor)."
            ) from error

    return guarded


class TorchBackend:
    """Trains modules on a flat tensor: on the CPU the vector's own memory, on a GPU a copy, fetched after updates.

    Args:
        vector: the modules.
        objectives: what is minimised, one after the other on each minibatch.
        targets: copies of modules; losses over modules find them as "target_MODULE".
        device: "cpu", "cuda" or "cuda:1".
        options: how it computes.

    Attributes:
        collective: of several learners that share each minibatch, of which this is one; None: there are no others.
        num_done: steps of the newest `train`, counted over all objectives; infinity when `stop_above` has ended it.
        policy_module: the policy's network, on `device`; workers in this process that act there use it as well.

    Raises:
        ValueError: if the device does not exist.
    """

    def __init__(
        self,
        vector: ModuleVector,
        objectives: Sequence[Objective],
        targets: Iterable[TargetCopy],
        device: str,
        options: TorchOptions = DEFAULTS,
    ):
        self.device = _device(device)
        torch.set_float32_matmul_precision(options.matmul_precision)
        self._vector = vector
        self._on_gpu = self.device.type == "cuda"
        self._transfers = PinnedTransfers(self.device) if self._on_gpu else InPlace()
        sizes = f"{len(vector.flat)} weights, their gradients and the optimizer's memory"
        advice = "Use a smaller network, or .resources(num_gpus=0) to learn on the CPU."
        with memory_of(self.device, lambda: sizes, advice):
            self._make_modules(objectives, targets, options)
        self.collective: Collective | None = None
        self.num_done = 0.0
        # On a GPU: the optimizers' tensors that the running update changes, each with a copy from before it.
        self._kept: list[tuple[Tensor, Tensor]] = []

    def _make_modules(
        self, objectives: Sequence[Objective], targets: Iterable[TargetCopy], options: TorchOptions
    ) -> None:
        """What lies on the device: weights, gradients, optimizers."""
        vector = self._vector
        # Weights that change outside, and those on the device; on the CPU these are the same memory.
        targets = targets if any(each.is_over_modules for each in objectives) else []
        shared = [torch.from_numpy(array) for array in (vector.flat, *(target.weights for target in targets))]
        self._mirrored = [(host, host.to(self.device)) for host in shared]
        self._flat = self._mirrored[0][1]
        network = vector.policy.network
        modules = {name: self._module(name, self._flat[part], network) for name, part in vector.slices.items()}
        self.policy_module = modules[POLICY]
        for target, (_, weights) in zip(targets, self._mirrored[1:]):
            acting = None if target.policy is None else target.policy.network
            modules[f"target_{target.module}"] = self._module(target.module, weights, acting)
        if options.autocast is not None:
            for module in modules.values():
                compute_in(module, getattr(torch, options.autocast), self.device.type)
        self._descents = [_Descent(each, modules, vector, self._on_gpu) for each in objectives]
        if self._on_gpu and options.cuda_graphs:
            self.record_steps(CudaGraphs(self.device))

    def _module(self, name: str, flat: Tensor, acting):
        """The module on these weights; the policy's shares the noise of the network `acting`."""
        if name != POLICY:
            return self._vector.modules[name].torch(self._vector.layouts[name], flat)
        policy = self._vector.policy
        return policy.spec.masked_torch(policy.layout, flat, acting)

    # ------------------------------------------------------------------ state

    @property
    def states(self) -> list[dict[str, np.ndarray]]:
        """Copies of the tensors of each objective's optimizer, under the names of the numpy optimizers."""
        return [descent.get_state() for descent in self._descents]

    template = states  # arrays of the same names and shapes

    def use_threads(self, count: int) -> None:
        """Sets the threads of torch's operations in this process."""
        torch.set_num_threads(count)

    def load_states(self, states: Iterable[Mapping[str, np.ndarray]]) -> None:
        """Copies arrays of the same names and shapes over the optimizers' tensors."""
        for descent, state in zip(self._descents, states, strict=True):
            descent.set_state(state)

    def take_back(self) -> None:
        """On a GPU: brings the optimizers back to before a failed update, as the weights in the vector still are."""
        for tensor, copy in self._kept:
            tensor.copy_(copy)
        self._kept = []

    def record_steps(self, graphs: CudaGraphs) -> list[RecordedSteps | None]:
        """Lets the steps of each objective be recorded by `graphs`; None for one whose optimizer cannot be."""
        return [descent.record_steps(graphs) for descent in self._descents]

    # ------------------------------------------------------------------ the update

    @as_a_whole
    def train(
        self,
        columns: Mapping,
        inputs: np.ndarray,
        orders,
        minibatch_size: int,
        microbatch_size: int,
        lrs: Sequence[float],
        settings: Sequence[Mapping],
        meanwhile: Callable[[], None] | None = None,
        stop_above: tuple[int, float] | None = None,
        refresh: Callable[[], Mapping[str, np.ndarray]] | None = None,
        resumes: bool = False,
    ) -> list[tuple[np.ndarray, list[tuple]]]:
        """Walks over the batch once for each order; arguments and result as for NumpyBackend.train.

        On a GPU `meanwhile` is called while it works, and `stop_above` is looked at after each epoch, whose last
        minibatch has to exceed it.
        """
        if not resumes:
            self.fetch_weights()
        active = [
            (descent, lr, given)
            for descent, lr, given in zip(self._descents, lrs, settings, strict=True)
            if given is not None
        ]
        if not resumes:
            self.num_done = 0
        for descent, lr, _ in active:
            descent.begin(lr, resumes)
        if self._on_gpu:
            self._kept = [(tensor, tensor.clone()) for descent, *_ in active for tensor in descent.memory.values()]
        num_walked, collective = 0, self.collective
        batch = self._batch(columns, inputs)
        for number, order in enumerate(sent_orders(orders, columns.get(SEQ_LENS), self._transfers.take)):
            if refresh is not None and number:
                if self._on_gpu:
                    np.copyto(self._vector.flat, self._flat.cpu().numpy())
                columns = {**columns, **refresh()}
                batch = self._batch(columns, inputs)
            epoch = batch.reordered(order)
            if num_walked >= self.num_done:
                for descent, *_ in active:
                    descent.row_statistics = []
            for rows in epoch.cuts.parts(0, len(inputs), minibatch_size):
                for descent, _, given in active:
                    num_walked += 1
                    if num_walked <= self.num_done:
                        continue
                    if descent.is_recorded(rows, microbatch_size, collective):
                        descent.take_recorded_step(epoch, rows, given)
                    else:
                        descent.compute(epoch, rows, microbatch_size, given, collective)
                        if stop_above is not None and not self._on_gpu and descent.exceeds(*stop_above):
                            self.num_done = math.inf
                            break
                        descent.step()
                    self.num_done = num_walked
                else:
                    continue
                break
            if stop_above is not None and active[0][0].exceeds(*stop_above):
                self.num_done = math.inf
                break
        if meanwhile is not None:
            meanwhile()
        descents = [descent for descent, *_ in active]
        statistics = self._finish(descents, {**columns, OBS: inputs}, self._flat, self._vector.flat)
        self._kept = []
        return [(rows, descent.rows_in_numpy()) for rows, descent in zip(statistics, descents)]

    @as_a_whole
    def compute_gradient(
        self, columns: Mapping, inputs: np.ndarray, microbatch_size: int, settings: Mapping
    ) -> tuple[np.ndarray, np.ndarray]:
        """The gradient of the whole batch, and nothing is changed; as NumpyBackend.compute_gradient."""
        self.fetch_weights()
        (descent,) = self._descents
        descent.begin(0.0)
        batch = self._batch(columns, inputs)
        descent.compute(batch, slice(0, len(inputs)), microbatch_size, settings, self.collective)
        gradient = descent.gradients[0].numpy() if not self._on_gpu else np.empty_like(self._vector.flat)
        ((statistics,),) = self._finish([descent], {**columns, OBS: inputs}, descent.gradients[0], gradient)
        return gradient, statistics

    def apply_gradient(self, gradient: np.ndarray, lr: float) -> float:
        """Clips a flat gradient, which is left as it is, and steps against it; as NumpyBackend.apply_gradient."""
        self.fetch_weights()
        (descent,) = self._descents
        descent.begin(lr)
        descent.gradients[0].copy_(self._transfers.take(gradient))
        norm = torch.linalg.vector_norm(descent.gradients[0])
        if not torch.isfinite(norm):
            raise_not_finite(self._vector, gradient, {})
        descent.step(norm)
        if self._on_gpu:
            np.copyto(self._vector.flat, self._flat.cpu().numpy())
        return float(norm)

    def get_progress(self) -> list[tuple]:
        """How far an unfinished `train` has come; as NumpyBackend.get_progress. The weights are in the vector then."""
        if self._on_gpu:
            np.copyto(self._vector.flat, self._flat.cpu().numpy())
        steps = [[step.cpu().numpy() for step in descent.steps] for descent in self._descents]
        return [self.num_done, *zip(steps, [descent.rows_in_numpy() for descent in self._descents])]

    def set_progress(self, progress: list[tuple]) -> None:
        """Takes over what `get_progress` gave; `train(..., resumes=True)` goes on from there."""
        self.fetch_weights()
        self.num_done, *of_descents = progress
        for descent, (steps, row_statistics) in zip(self._descents, of_descents, strict=True):
            descent.steps = [torch.tensor(step, device=self.device) for step in steps]
            descent.row_statistics = [
                tuple(torch.tensor(column, device=self.device) for column in part) for part in row_statistics
            ]

    def encode(self, observations: Tensor) -> Tensor:
        """The network's input from a tensor of observations as stored, on `device`."""
        return encoded(self._vector.policy.spec.encoder, self._transfers.take(observations))

    def permutations(self, rng: np.random.Generator, num_epochs: int, count: int) -> list[Tensor]:
        """Orders of `count` rows, drawn on the device by a seed from `rng`."""
        generator = torch.Generator(self.device)
        generator.manual_seed(int(rng.integers(2**63)))
        return [torch.randperm(count, generator=generator, device=self.device) for _ in range(num_epochs)]

    def fetch_weights(self) -> None:
        """On a GPU: copies the vector's weights, which others may have changed, to the device."""
        if self._on_gpu:
            for host, device in self._mirrored:
                device.copy_(host)

    def _batch(self, columns: Mapping, inputs: np.ndarray) -> "Epoch":
        tensors = {name: self._transfers.take(column) for name, column in columns.items()}
        seq_lens, mask = columns.get(SEQ_LENS), columns.get(LOSS_MASK)
        return epoch_of({**tensors, OBS: self._transfers.take(inputs)}, seq_lens, mask)

    def _finish(
        self, descents: Sequence["_Descent"], columns: Mapping, result: Tensor, out: np.ndarray
    ) -> list[np.ndarray]:
        """On a GPU: waits for it, copies `result` into `out`, and checks what was not checked on the way.

        Returns:
            float64 [steps, statistics + 1] of each objective.
        """
        steps = [torch.stack(descent.steps) for descent in descents]
        if not self._on_gpu:
            return [statistics.double().numpy() for statistics in steps]
        errors = [descent.identity_error for descent in descents if descent.identity_error is not None]
        tensors = [result, *steps, *errors]
        # All in one transfer.
        packed = torch.cat([tensor.reshape(-1) for tensor in tensors]).cpu().numpy()
        weights, *parts = np.split(packed, np.cumsum([tensor.numel() for tensor in tensors])[:-1])
        for error in parts[len(steps) :]:
            check_identity(float(error[0]))
        rows = [part.reshape(each.shape).astype(np.float64) for part, each in zip(parts, steps)]
        for descent, each in zip(descents, rows):
            if not np.isfinite(each[:, -1]).all():
                columns = {name: torch.as_tensor(column).cpu().numpy() for name, column in columns.items()}
                raise_not_finite(self._vector, descent.whole_gradient(), columns)
        np.copyto(out, weights)
        return rows

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """On a GPU: begins to send arrays that `train` will be given, beside what the device computes."""
        self._transfers.stage(arrays)


class _Descent:
    """An objective at work: the gradient of its loss by the modules that it moves, clipped and stepped against.

    Attributes:
        gradients: flat tensors, one for each module that it moves.
        memory: the optimizer's tensors, under the names of the numpy optimizers.
        steps: the loss's statistics and the gradient's norm for each step since `begin`.
        row_statistics: the loss's row statistics, a tuple for each microbatch; the epoch empties it.
        identity_error: of the first rows since `begin`, on a GPU, where it is checked at the end.
        recorded: takes the steps that may be recorded; None where none are.
    """

    def __init__(self, objective: Objective, modules: Mapping, vector: ModuleVector, on_gpu: bool):
        moved = [modules[name] for name in objective.moves]
        # A loss that calls the policy's module in its own functions gets this one.
        bind = getattr(objective.loss, "bind", None)
        self._loss = objective.loss if bind is None else bind(moved[0])
        self._modules, self._vector, self._on_gpu = modules, vector, on_gpu
        self._distribution = vector.policy.distribution
        self._row_stats, self._takes_across = objective.row_stats, getattr(self._loss, "takes_across", False)
        # What the policy's network is called with.
        self._reads = (OBS, *PER_SEQUENCE) if vector.policy.state_size else (OBS,)
        self._clip = objective.grad_clip, objective.grad_clip_by
        self._moves, self._moved, self._over_modules = objective.moves, moved, objective.is_over_modules
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
        # Adam's, which must not become denormal; GPUs do not mind.
        states = [] if on_gpu else [self._optimizer.state[flat] for flat in flats]
        self._moments = [state[name] for state in states for name in ("exp_avg", "exp_avg_sq") if name in state]
        self._num_steps = 0  # what Adam counts in a tensor, whose number a device would be waited for
        self.steps, self.row_statistics, self.identity_error = [], [], None
        # Losses that are given outputs say at the first check whether there is an identity.
        self._has_identity = not self._over_modules
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

    def begin(self, lr: float, resumes: bool = False) -> None:
        """Before an update, or the rest of one."""
        for group in self._optimizer.param_groups:
            if self.recorded is None:
                group["lr"] = lr
            else:
                group["lr"].fill_(lr)  # a recording reads it where it lies
        if not resumes:
            self.steps, self.row_statistics, self.identity_error = [], [], None

    def record_steps(self, graphs: CudaGraphs) -> RecordedSteps | None:
        """Lets steps be recorded; only Adam keeps all that changes, its learning rate too, in tensors."""
        if not isinstance(self._optimizer, torch.optim.Adam):
            return None
        for group in self._optimizer.param_groups:
            group["lr"] = torch.tensor(group["lr"], dtype=torch.float32, device=self.gradients[0].device)
            group["capturable"] = True  # else its step raises while it is recorded
        self.recorded = RecordedSteps(graphs)
        return self.recorded

    def is_recorded(self, rows: slice, microbatch_size: int, collective: Collective | None) -> bool:
        """Whether the step of these rows may come from a recording: in one piece, by this learner alone, unchecked.

        The lengths of sequences decide what a step does, and may differ in a minibatch of the same shapes.
        """
        is_alone = self.recorded is not None and self.recorded.is_on and collective is None and len(self._reads) == 1
        return is_alone and microbatch_size >= rows.stop - rows.start and not self._is_to_check(rows)

    def _is_to_check(self, rows: slice) -> bool:
        return self._has_identity and not self.steps and rows.start == 0

    def take_recorded_step(self, epoch: "Epoch", rows: slice, settings: Mapping) -> None:
        """`compute` and `step` in one."""

        numbers = {name: value for name, value in settings.items() if isinstance(value, float) and math.isfinite(value)}
        others = {name: value for name, value in settings.items() if name not in numbers}

        def step(minibatch: Mapping[str, Tensor], numbers: Mapping) -> Sequence[Tensor]:
            statistics, *of_rows = self._descend(minibatch, {**others, **numbers})
            norm = self._norm()
            self.step(norm)
            return [torch.cat((statistics, norm[None])), *(column for part in of_rows for column in part)]

        newest, *of_rows = self.recorded.take(tuple(others.items()), epoch[rows], numbers, step)
        self.steps.append(newest)
        self.row_statistics += [tuple(of_rows)] if of_rows else []

    def compute(
        self, epoch: "Epoch", rows: slice, microbatch_size: int, settings: Mapping, collective: Collective | None
    ) -> None:
        """Leaves the gradient of the rows in `gradients`, and their statistics with the gradient's norm in `steps`.

        Arguments as for the method of this name in numpy_learner.py.
        """
        own, whole = (rows, 1.0) if collective is None else epoch.cuts.part_of(rows, collective.rank, collective.size)
        parts, num_before = epoch.cuts.parts(own.start, own.stop, microbatch_size), len(self.row_statistics)
        if collective is not None and self._takes_across and microbatch_size >= rows.stop - rows.start:
            settings = {**settings, "across": functools.partial(_mean_across, collective, whole)}
        gradients = self.gradients
        statistics = self._compute_part(epoch, parts[0], settings)
        if len(parts) > 1:
            # Means over parts of different sizes become the mean over all of the rows.
            share = epoch.cuts.share(parts[0], own)
            totals, statistics = [gradient * share for gradient in gradients], statistics * share
            for part in parts[1:]:
                share = epoch.cuts.share(part, own)
                statistics += share * self._compute_part(epoch, part, settings)
                for total, gradient in zip(totals, gradients):
                    total += gradient * share
            torch._foreach_copy_(gradients, totals)
        if collective is not None:
            torch._foreach_mul_(gradients, whole)
            statistics = statistics * whole
            found = self.row_statistics[num_before:]
            del self.row_statistics[num_before:]
            of_rows = statistics.new_zeros(len(self._row_stats), rows.stop - rows.start)
            if whole:
                for column, its_parts in zip(of_rows, zip(*found)):
                    column[own.start - rows.start : own.stop - rows.start] = torch.cat(its_parts)
            collective.sum([*gradients, statistics, of_rows] if found else [*gradients, statistics])
            self.row_statistics += [tuple(of_rows)] if found else []
        norm = self._norm()
        if not self._on_gpu and not torch.isfinite(norm):
            columns = {name: column.numpy() for name, column in epoch[rows].items()}
            raise_not_finite(self._vector, self.whole_gradient(), columns)
        self.steps.append(torch.cat((statistics, norm[None])))

    def _norm(self) -> Tensor:
        gradients = self.gradients
        return torch.linalg.vector_norm(gradients[0] if len(gradients) == 1 else torch.cat(gradients))

    def _compute_part(self, epoch: "Epoch", rows: slice, settings: Mapping) -> Tensor:
        statistics, *of_rows = self._descend(epoch[rows], settings, self._is_to_check(rows))
        self.row_statistics += of_rows
        return statistics

    def _descend(self, minibatch: Mapping[str, Tensor], settings: Mapping, is_to_check: bool = False) -> tuple:
        """Leaves the gradient in `gradients`; the loss's statistics, and its row statistics if it has some."""
        given = self._modules if self._over_modules else self._moved[0](*(minibatch[name] for name in self._reads))
        if is_to_check:
            self._check_identity(given, minibatch)
        loss, statistics, *of_rows = self._loss.torch(self._distribution, given, minibatch, **settings)
        backward(loss, self._moved)
        return torch.stack(statistics).detach(), *of_rows

    def _check_identity(self, outputs: tuple, minibatch: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            error = self._loss.identity_error(self._distribution.torch_at, outputs, minibatch)
        if error is not None and not self._on_gpu:
            check_identity(float(error))
        self.identity_error, self._has_identity = error, error is not None

    def exceeds(self, index: int, limit: float) -> bool:
        """Whether this statistic of the newest step is above the limit; on a GPU this waits for it."""
        return float(self.steps[-1][index]) > limit

    def rows_in_numpy(self) -> list[tuple[np.ndarray, ...]]:
        """The row statistics as arrays."""
        return [tuple(column.cpu().numpy() for column in part) for part in self.row_statistics]

    def whole_gradient(self) -> np.ndarray:
        """The gradient as long as the vector, zeros for modules that are not moved."""
        whole = np.zeros_like(self._vector.flat)
        for name, gradient in zip(self._moves, self.gradients):
            whole[self._vector.slices[name]] = gradient.cpu().numpy()
        return whole

    @torch.no_grad()
    def step(self, norm: Tensor | None = None) -> None:
        """Clips the gradient, whose norm is that of the newest of `steps` unless it is given, and steps against it."""
        norm = self.steps[-1][-1] if norm is None else norm
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


def _mean_across(collective: Collective, share: float, mean: Tensor) -> Tensor:
    """The mean over the learners' rows of what has this mean over the rows of this learner, its share of them."""
    number = (mean * share).reshape(1)
    collective.sum([number])
    return number[0]


def _scale_to(vector: Tensor, norm: Tensor, limit: float) -> None:
    # Without asking the device whether the norm exceeds the limit.
    vector.mul_((limit / (norm + 1e-6)).clamp(max=1.0))


def _device(name: str) -> torch.device:
    device = torch.device(name)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"the torch learner runs on 'cpu' or 'cuda', but device={name!r} was given")
    if device.type == "cuda" and (reason := why_no_cuda()) is not None:
        raise ValueError(
            f"device={name!r} was asked for, but {reason}. Use .resources(num_gpus=0) to learn on the CPU."
        )
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        raise ValueError(f"device={name!r} was asked for, but there are {count} GPUs: cuda:0 to cuda:{count - 1}")
    return device


def compute_in(module: torch.nn.Module, dtype: torch.dtype, device_type: str) -> None:
    """Lets a module compute under torch.autocast; its results are float32 as before."""
    forward = module.forward

    def in_less_precision(*inputs, **named):
        with torch.autocast(device_type, dtype):
            results = forward(*inputs, **named)
        return results.float() if isinstance(results, Tensor) else tuple(result.float() for result in results)

    module.forward = in_less_precision


def _make_optimizer(settings: OptimizerSettings, flats: list[Tensor]) -> torch.optim.Optimizer:
    if settings.name == "sgd":
        return torch.optim.SGD(flats, lr=0.0, foreach=False)
    if settings.name == "rmsprop":
        constants = {"alpha": settings.decay, "eps": settings.rmsprop_epsilon, "momentum": settings.momentum}
        optimizer = torch.optim.RMSprop(flats, lr=0.0, foreach=False, **constants)
    else:
        constants = {"eps": settings.adam_epsilon, "betas": (settings.adam_beta1, 0.999)}
        if settings.name == "radam":
            optimizer = torch.optim.RAdam(flats, lr=0.0, foreach=False, **constants)
        else:
            optimizer = torch.optim.Adam(flats, lr=0.0, fused=True, **constants)
    # A step of learning rate zero makes the memory exist, so that states have the same names from the start.
    optimizer.step()
    for flat in flats:
        for array in optimizer.state[flat].values():
            array.zero_()
    return optimizer
