"""The update in torch, on the CPU or one GPU: autograd, one flat vector, one synchronisation per update."""

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from rllib.errors import GpuMemoryError, LearnerError
from rllib.learners.in_torch.descent import TorchDescent
from rllib.learners.in_torch.epoch import Epoch, epoch_of, sent_orders
from rllib.learners.in_torch.recorded_steps import CudaGraphs, RecordedSteps
from rllib.learners.in_torch.transfers import InPlace, PinnedTransfers
from rllib.learners.updates.descent import LocalBackend, Update
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
    def guarded(self, update: Update, *others, **more):
        try:
            return method(self, update, *others, **more)
        except LearnerError:
            self.take_back()
            raise
        except torch.OutOfMemoryError as error:
            self.take_back()
            inputs = update.inputs
            batch = sum(column.nbytes for column in update.columns.values()) + inputs.nbytes
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


class TorchBackend(LocalBackend):
    """Trains modules on a flat tensor: on the CPU the vector's own memory, on a GPU a copy, fetched after updates.

    Args:
        vector: the modules.
        objectives: minimised one after the other on each minibatch.
        targets: copies of modules; losses over modules find them as "target_MODULE".
        device: "cpu", "cuda" or "cuda:1".
        options: autocast, precision of products, CUDA graphs.

    Attributes:
        policy_module: the policy's network, on `device`; workers of this process that act on this device use it, too.

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
        super().__init__()
        self.device = _device(device)
        torch.set_float32_matmul_precision(options.matmul_precision)
        self._vector = vector
        self._on_gpu = self.device.type == "cuda"
        self._transfers = PinnedTransfers(self.device) if self._on_gpu else InPlace()
        sizes = f"{len(vector.flat)} weights, their gradients and the optimizer's memory"
        advice = "Use a smaller network, or .resources(num_gpus=0) to learn on the CPU."
        with memory_of(self.device, lambda: sizes, advice):
            self._make_modules(objectives, targets, options)
        self._read: Mapping = {}  # columns of the newest batch
        # On a GPU: the optimizers' tensors that the running update changes, each with a copy from before the update.
        self._kept: list[tuple[Tensor, Tensor]] = []

    def _make_modules(
        self, objectives: Sequence[Objective], targets: Iterable[TargetCopy], options: TorchOptions
    ) -> None:
        """Makes the modules and optimizers, whose weights and gradients lie on the device."""
        vector = self._vector
        # The weights in the vector and the weights on the device; on the CPU these are the same memory.
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
        self._descents = [TorchDescent(each, modules, vector, self._on_gpu, options.rounds) for each in objectives]
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

    def use_threads(self, count: int) -> None:
        """Sets the threads of torch's operations in this process."""
        torch.set_num_threads(count)

    def take_back(self) -> None:
        """On a GPU: restores the optimizers as before a failed update; the vector still has the weights before it."""
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
        update: Update,
        meanwhile: Callable[[], None] | None = None,
        refresh: Callable[[], Mapping[str, np.ndarray]] | None = None,
        resumes: bool = False,
    ) -> list[tuple[np.ndarray, list[tuple]]]:
        """Takes the steps of an update; as NumpyBackend.train. On a GPU `meanwhile` is called while it computes."""
        if not resumes:
            self.fetch_weights()
        if self._on_gpu:
            active = self._active(update)
            self._kept = [(tensor, tensor.clone()) for descent, *_ in active for tensor in descent.memory.values()]
        descents = self._walk(update, refresh, resumes)
        if meanwhile is not None:
            meanwhile()
        statistics = self._finish(descents, self._flat, self._vector.flat)
        self._kept = []
        return [(rows, descent.rows_in_numpy()) for rows, descent in zip(statistics, descents)]

    def _epochs(self, update: Update, refresh: Callable[[], Mapping[str, np.ndarray]] | None = None) -> Iterator[Epoch]:
        columns = update.columns
        batch = self._batch(columns, update.inputs)
        for number, order in enumerate(sent_orders(update.orders, columns.get(SEQ_LENS), self._transfers.take)):
            if refresh is not None and number:
                self._fetch(self._flat, self._vector.flat)
                columns = {**columns, **refresh()}
                batch = self._batch(columns, update.inputs)
            yield batch.reordered(order)

    @as_a_whole
    def compute_gradient(self, update: Update) -> tuple[np.ndarray, np.ndarray]:
        """Computes the gradient of the whole batch without a step; as NumpyBackend.compute_gradient."""
        self.fetch_weights()
        ((descent, lr, settings),) = self._active(update)
        (epoch,) = self._epochs(update)
        descent.begin(lr)
        descent.compute(epoch, slice(0, len(update.inputs)), update.microbatch_size, settings, self.collective)
        gradient = descent.gradients[0].numpy() if not self._on_gpu else np.empty_like(self._vector.flat)
        ((statistics,),) = self._finish([descent], descent.gradients[0], gradient)
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
        self._fetch(self._flat, self._vector.flat)
        return float(norm)

    def get_progress(self) -> list:
        """Progress of an unfinished `train`; as LocalBackend.get_progress. It copies the weights into the vector."""
        self._fetch(self._flat, self._vector.flat)
        return super().get_progress()

    def set_progress(self, progress: list) -> None:
        """Restores progress of `get_progress`; `train(..., resumes=True)` continues from there."""
        self.fetch_weights()
        super().set_progress(progress)

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

    def _fetch(self, tensor: Tensor, out: np.ndarray) -> None:
        """On a GPU: waits for the device, and copies a tensor."""
        if self._on_gpu:
            np.copyto(out, self._transfers.fetch(tensor))

    def _batch(self, columns: Mapping, inputs: np.ndarray) -> Epoch:
        self._read = {**columns, OBS: inputs}
        *tensors, observations = self._transfers.take_all([*columns.values(), inputs])
        seq_lens, mask = columns.get(SEQ_LENS), columns.get(LOSS_MASK)
        return epoch_of({**dict(zip(columns, tensors)), OBS: observations}, seq_lens, mask)

    def _finish(self, descents: Sequence[TorchDescent], result: Tensor, out: np.ndarray) -> list[np.ndarray]:
        """On a GPU: waits for the device, copies `result` into `out`, and makes the checks that were postponed.

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
                columns = {name: torch.as_tensor(column).cpu().numpy() for name, column in self._read.items()}
                raise_not_finite(self._vector, descent.whole_gradient(), columns)
        np.copyto(out, weights)
        return rows

    def new_rows(self, shape: tuple[int, ...], dtype) -> np.ndarray:
        """Uninitialised memory that is sent without a copy: page-locked for a GPU. It may change after `train`."""
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
