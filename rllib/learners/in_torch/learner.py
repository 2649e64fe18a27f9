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
from rllib.learners.in_torch.descent import Descent
from rllib.learners.in_torch.epoch import Epoch, epoch_of, sent_orders
from rllib.learners.in_torch.recorded_steps import CudaGraphs, RecordedSteps
from rllib.learners.in_torch.transfers import InPlace, PinnedTransfers
from rllib.learners.updates.adaptive_rate import AdaptiveRate
from rllib.learners.updates.backend import Backend
from rllib.learners.updates.collective import Collective
from rllib.learners.updates.in_numpy import check_identity, raise_not_finite
from rllib.learners.updates.objective import POLICY, ModuleVector, Objective
from rllib.learners.updates.target_copy import TargetCopy
from rllib.learners.updates.torch_options import DEFAULTS, TorchOptions
from rllib.models.arithmetic.cuda import memory_of, why_no_cuda
from rllib.models.dense.encoded_in_torch import DetachedTorsoNetwork
from rllib.models.tensors import encoded
from rllib.sample_batch import LOSS_MASK, OBS, SEQ_LENS

# Words in torch's errors about operands on several devices; they differ between kinds of operations.
_OTHER_DEVICE = re.compile(r"same device|expected device|device type tensor|and weight type \(|different from other t")


def as_a_whole(method: Callable) -> Callable:
    """Undoes a failed update on a GPU, and adds advice if the memory or a tensor's device is the reason."""

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


class TorchBackend(Backend):
    """Trains modules on a flat tensor: on the CPU the vector's own memory, on a GPU a copy, fetched after updates.

    Args:
        vector: the modules.
        objectives: minimised one after the other on each minibatch.
        targets: copies of modules; losses over modules find them as "target_MODULE".
        device: "cpu", "cuda" or "cuda:1".
        options: autocast, precision of products, CUDA graphs.

    Attributes:
        collective: connects the learners that share each minibatch; None: this is the only one.
        num_done: number of steps of the last `train`, over all objectives; infinity if `stop_above` has ended it.
        policy_module: the policy's network, on `device`; workers in this process that act there use it as well.

    Raises:
        ValueError: if the device does not exist.
    """

    takes_tensors = True

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
        """Makes the modules and optimizers, whose weights and gradients lie on the device."""
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
        self._descents = [Descent(each, modules, vector, self._on_gpu, options.rounds) for each in objectives]
        if self._on_gpu and options.cuda_graphs:
            self.record_steps(CudaGraphs(self.device))

    def _module(self, name: str, flat: Tensor, acting):
        """The module on these weights; the policy's shares the noise of the network `acting`."""
        if name != POLICY:
            return self._vector.modules[name].torch(self._vector.layouts[name], flat)
        policy = self._vector.policy
        if self._vector.shares_torso:
            return DetachedTorsoNetwork(policy.layout, policy.spec.activations, flat)
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
        """On a GPU: restores the optimizers from before a failed update; the vector still has those weights."""
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
        lrs: Sequence[float | AdaptiveRate],
        settings: Sequence[Mapping],
        meanwhile: Callable[[], None] | None = None,
        stop_above: tuple[int, float] | None = None,
        refresh: Callable[[], Mapping[str, np.ndarray]] | None = None,
        resumes: bool = False,
    ) -> list[tuple[np.ndarray, list[tuple]]]:
        """Walks over the batch once for each order; arguments and result as for NumpyBackend.train.

        On a GPU `meanwhile` is called while the device computes, and `stop_above` is compared with the last minibatch
        of each epoch.
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
                    np.copyto(self._vector.flat, self._transfers.fetch(self._flat))
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
                        is_to_stop = stop_above is not None and descent is self._descents[0] and not self._on_gpu
                        if is_to_stop and descent.exceeds(*stop_above):
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
        """Computes the gradient of the whole batch without a step; as NumpyBackend.compute_gradient."""
        self.fetch_weights()
        (descent,) = self._descents
        descent.begin(0.0)
        batch = self._batch(columns, inputs)
        descent.compute(batch, slice(0, len(inputs)), microbatch_size, settings, self.collective)
        gradient = descent.gradients[0].numpy() if not self._on_gpu else np.empty_like(self._vector.flat)
        ((statistics,),) = self._finish([descent], {**columns, OBS: inputs}, descent.gradients[0], gradient)
        return gradient, statistics

    def apply_gradient(self, gradient: np.ndarray, lr: float) -> float:
        """Clips a copy of a flat gradient and takes a step against it; as NumpyBackend.apply_gradient."""
        self.fetch_weights()
        (descent,) = self._descents
        descent.begin(lr)
        descent.gradients[0].copy_(self._transfers.take(gradient))
        norm = torch.linalg.vector_norm(descent.gradients[0])
        if not torch.isfinite(norm):
            raise_not_finite(self._vector, gradient, {})
        descent.step(norm)
        if self._on_gpu:
            np.copyto(self._vector.flat, self._transfers.fetch(self._flat))
        return float(norm)

    def get_progress(self) -> list[tuple]:
        """Progress of an unfinished `train`; as NumpyBackend.get_progress. It copies the weights into the vector."""
        if self._on_gpu:
            np.copyto(self._vector.flat, self._transfers.fetch(self._flat))
        steps = [[step.cpu().numpy() for step in descent.steps] for descent in self._descents]
        return [self.num_done, *zip(steps, [descent.rows_in_numpy() for descent in self._descents])]

    def set_progress(self, progress: list[tuple]) -> None:
        """Restores progress of `get_progress`; `train(..., resumes=True)` continues from there."""
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
            self._transfers.overwrite(self._mirrored)

    def _batch(self, columns: Mapping, inputs: np.ndarray) -> Epoch:
        *tensors, observations = self._transfers.take_all([*columns.values(), inputs])
        seq_lens, mask = columns.get(SEQ_LENS), columns.get(LOSS_MASK)
        return epoch_of({**dict(zip(columns, tensors)), OBS: observations}, seq_lens, mask)

    def _finish(
        self, descents: Sequence[Descent], columns: Mapping, result: Tensor, out: np.ndarray
    ) -> list[np.ndarray]:
        """On a GPU: waits for it, copies `result` into `out`, and makes the checks that were postponed.

        Returns:
            float64 [steps, statistics + 1] of each objective.
        """
        steps = [torch.stack(descent.steps) for descent in descents]
        if not self._on_gpu:
            return [statistics.double().numpy() for statistics in steps]
        errors = [descent.identity_error for descent in descents if descent.identity_error is not None]
        tensors = [result, *steps, *errors]
        # All in one transfer.
        packed = self._transfers.fetch(torch.cat([tensor.reshape(-1) for tensor in tensors]))
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

    def new_rows(self, shape: tuple[int, ...], dtype) -> np.ndarray:
        """Uninitialised memory that is sent as it lies: page-locked on a GPU. It may change after the next `train`."""
        return self._transfers.new_rows(shape, dtype)

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """On a GPU: begins to send arrays that `train` will get, while the device computes."""
        self._transfers.stage(arrays)


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
    """Makes a module compute under torch.autocast; its results remain float32."""
    forward = module.forward

    def in_less_precision(*inputs, **named):
        with torch.autocast(device_type, dtype):
            results = forward(*inputs, **named)
        return results.float() if isinstance(results, Tensor) else tuple(result.float() for result in results)

    module.forward = in_less_precision
