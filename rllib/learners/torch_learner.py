"""The update in torch, on the CPU or one GPU: autograd, one flat parameter, one synchronisation per update."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from rllib.learners.numpy_learner import check_identity, parts_of, raise_not_finite
from rllib.learners.optimizers import OptimizerSettings
from rllib.learners.transfers import InPlace, PinnedTransfers
from rllib.losses.loss import Loss
from rllib.models.noisy_network import NoisyLayout
from rllib.models.torch_distributions import TorchDistribution
from rllib.models.torch_network import TorchNetwork
from rllib.models.torch_noisy_network import NoisyTorchNetwork
from rllib.policy import Policy

# Names of the optimizers' memory in torch -> names in a learner's state, which the numpy optimizers share.
MEMORY = {
    "adam": {"exp_avg": "adam.m", "exp_avg_sq": "adam.v", "step": "adam.step"},
    "radam": {"exp_avg": "radam.m", "exp_avg_sq": "radam.v", "step": "radam.step"},
    "rmsprop": {"square_avg": "rmsprop.v", "momentum_buffer": "rmsprop.momentum"},
    "sgd": {},
}


class TorchBackend:
    """Trains a flat tensor: on the CPU the policy's own memory, on a GPU a copy that goes back after each update.

    Args:
        policy: whose weights are trained.
        loss: what is minimised.
        device: "cpu", "cuda" or "cuda:1".
        optimizer: which one steps the flat vector.
        grad_clip, grad_clip_by: as for optimizers.clip_gradient.

    Raises:
        ValueError: if the device does not exist.
    """

    def __init__(
        self,
        policy: Policy,
        loss: Loss,
        device: str,
        optimizer: OptimizerSettings,
        grad_clip: float | None,
        grad_clip_by: str,
    ):
        self.policy = policy
        self.loss = loss
        self.device = _device(device)
        shared = torch.from_numpy(policy.weights)
        self._on_gpu = self.device.type == "cuda"
        self._transfers = PinnedTransfers(self.device) if self._on_gpu else InPlace()
        flat = shared.to(self.device) if self._on_gpu else shared
        self.network = _make_network(policy, flat)
        self._distribution = TorchDistribution(policy.distribution)
        self._clip = grad_clip, grad_clip_by
        self._gradient_parts = [parameter.grad for parameter in self.network.parameters()]
        self._optimizer = _make_optimizer(optimizer, self.network.flat)
        memory = self._optimizer.state[self.network.flat]
        self._memory = {ours: memory[theirs] for theirs, ours in MEMORY[optimizer.name].items() if theirs in memory}

    # ------------------------------------------------------------------ state

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Copies of the optimizer's tensors, under the names of the numpy optimizer."""
        arrays = {name: tensor.cpu().numpy() for name, tensor in self._memory.items()}
        # torch counts in floats.
        return {name: array.astype(np.int64) if name.endswith(".step") else array for name, array in arrays.items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Copies arrays of the same names and shapes over the optimizer's tensors."""
        for name, tensor in self._memory.items():
            tensor.copy_(torch.as_tensor(np.asarray(state[name])))

    # ------------------------------------------------------------------ the update

    def train(
        self,
        columns: Mapping,
        inputs: np.ndarray,
        orders,
        minibatch_size: int,
        microbatch_size: int,
        lr: float,
        settings: Mapping,
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[np.ndarray, list[tuple]]:
        """Walks over the batch once for each order; arguments and result as for NumpyBackend.train.

        On a GPU `meanwhile` is called while it works.
        """
        self._fetch_weights()
        _set_lr(self._optimizer, lr)
        sources = self._sources(columns, inputs)
        steps, first_error = [], None
        for order in self._orders_on_device(orders):
            epoch = sources if order is None else _shuffled(sources, order)
            row_statistics = []
            for rows in parts_of(0, len(inputs), minibatch_size):
                row, error, of_rows = self._gradient(epoch, rows, microbatch_size, settings, not steps)
                first_error = error if not steps else first_error
                self._step(row[-1])
                steps.append(row)
                row_statistics += of_rows
        if meanwhile is not None:
            meanwhile()
        statistics = self._finish(self.network.flat.detach(), steps, first_error, {**columns, "obs": inputs})
        return statistics, [tuple(column.cpu().numpy() for column in of_rows) for of_rows in row_statistics]

    def compute_gradient(
        self, columns: Mapping, inputs: np.ndarray, microbatch_size: int, settings: Mapping
    ) -> tuple[np.ndarray, np.ndarray]:
        """The gradient of the whole batch, and nothing is changed; as NumpyBackend.compute_gradient."""
        self._fetch_weights()
        rows = slice(0, len(inputs))
        row, error, _ = self._gradient(self._sources(columns, inputs), rows, microbatch_size, settings, True)
        gradient = self.network.flat.grad
        if not self._on_gpu:
            return gradient.numpy(), row.double().numpy()
        flat, rows_ = self._from_device(gradient, row[None], error)
        self._check_finite(rows_, {**columns, "obs": inputs})
        return flat, rows_[0]

    def apply_gradient(self, gradient: np.ndarray, lr: float) -> float:
        """Clips a flat gradient, which is left as it is, and steps against it; as NumpyBackend.apply_gradient."""
        self._fetch_weights()
        _set_lr(self._optimizer, lr)
        flat = self.network.flat
        flat.grad.copy_(self._to_device(gradient))
        norm = torch.linalg.vector_norm(flat.grad)
        if not torch.isfinite(norm):
            raise_not_finite(self.policy, gradient, {})
        self._step(norm)
        if self._on_gpu:
            np.copyto(self.policy.weights, flat.detach().cpu().numpy())
        return float(norm)

    def _fetch_weights(self) -> None:
        if self._on_gpu:
            with torch.no_grad():
                self.network.flat.copy_(torch.from_numpy(self.policy.weights))

    def _sources(self, columns: Mapping, inputs: np.ndarray) -> dict[str, Tensor]:
        sources = {name: self._to_device(column) for name, column in columns.items()}
        return sources | {"inputs": self._to_device(inputs)}

    def _gradient(self, epoch: Mapping[str, Tensor], rows: slice, microbatch_size: int, settings: Mapping, first: bool):
        """Leaves the rows' gradient in flat.grad.

        Returns:
            the loss's statistics and the gradient's norm; the identity error of the first rows; a tuple of the loss's
            row statistics for each microbatch.
        """
        gradient = self.network.flat.grad
        parts = parts_of(rows.start, rows.stop, microbatch_size)
        error, statistics, *row_statistics = self._gradient_of(epoch, parts[0], settings, first)
        if len(parts) > 1:
            # Means over parts of different sizes become the mean over all of the rows.
            share = (parts[0].stop - parts[0].start) / (rows.stop - rows.start)
            total, statistics = gradient * share, statistics * share
            for part in parts[1:]:
                share = (part.stop - part.start) / (rows.stop - rows.start)
                _, more, *of_rows = self._gradient_of(epoch, part, settings, False)
                statistics += share * more
                total += gradient * share
                row_statistics += of_rows
            gradient.copy_(total)
        norm = torch.linalg.vector_norm(gradient)
        if not self._on_gpu and not torch.isfinite(norm):
            columns = {name: column[rows].numpy() for name, column in epoch.items()}
            raise_not_finite(self.policy, gradient.numpy(), columns)
        return torch.cat((statistics, norm[None])), error, row_statistics

    def _gradient_of(self, epoch: Mapping[str, Tensor], rows: slice, settings: Mapping, first: bool):
        minibatch = {name: column[rows] for name, column in epoch.items()}
        outputs = self.network(minibatch["inputs"])
        error = self._first_error(outputs, minibatch) if first else None
        loss, statistics, *row_statistics = self.loss.torch(self._distribution, outputs, minibatch, **settings)
        self.network.backward(loss)
        return error, torch.stack(statistics).detach(), *row_statistics

    def _first_error(self, outputs: tuple, minibatch: Mapping[str, Tensor]) -> Tensor | None:
        """The identity error; on the CPU it is checked at once, on a GPU with the statistics at the end."""
        with torch.no_grad():
            error = self.loss.identity_error(self._distribution, outputs, minibatch)
        if error is not None and not self._on_gpu:
            check_identity(float(error))
        return error

    def _step(self, norm: Tensor) -> None:
        self._clip_gradient(self.network.flat.grad, norm)
        self._optimizer.step()

    @torch.no_grad()
    def _clip_gradient(self, gradient: Tensor, norm: Tensor) -> None:
        limit, by = self._clip
        if limit is None:
            return
        if by == "value":
            gradient.clamp_(-limit, limit)
        elif by == "norm":
            for part in self._gradient_parts:
                _scale_to(part, torch.linalg.vector_norm(part), limit)
        else:
            _scale_to(gradient, norm, limit)

    def _finish(self, flat: Tensor, steps: list[Tensor], first_error: Tensor | None, columns: Mapping) -> np.ndarray:
        statistics = torch.stack(steps)
        if not self._on_gpu:
            return statistics.double().numpy()
        weights, rows = self._from_device(flat, statistics, first_error)
        self._check_finite(rows, columns)
        np.copyto(self.policy.weights, weights)
        return rows

    def _from_device(self, flat: Tensor, statistics: Tensor, error: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
        """A flat vector, the rows of statistics and the identity error in one transfer, which waits for the device."""
        error = torch.zeros((), device=self.device) if error is None else error
        packed = torch.cat((flat, statistics.reshape(-1), error[None])).cpu().numpy()
        size = self.network.layout.size
        check_identity(float(packed[-1]))
        return packed[:size], packed[size:-1].reshape(statistics.shape).astype(np.float64)

    def _check_finite(self, rows: np.ndarray, columns: Mapping) -> None:
        if not np.isfinite(rows[:, -1]).all():
            raise_not_finite(self.policy, self.network.flat.grad.cpu().numpy(), columns)

    def _orders_on_device(self, orders) -> Iterable[Tensor | None]:
        """The permutations of all epochs in one transfer, so that no epoch waits for its own."""
        orders = list(orders)
        return orders if orders[0] is None else self._to_device(np.stack(orders))

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """On a GPU: begins to send arrays that `train` will be given, beside what the device computes."""
        self._transfers.stage(arrays)

    def _to_device(self, column: np.ndarray) -> Tensor:
        return self._transfers.take(column)


def _shuffled(sources: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    return {name: column.index_select(0, order) for name, column in sources.items()}


def _scale_to(vector: Tensor, norm: Tensor, limit: float) -> None:
    # Without asking the device whether the norm exceeds the limit.
    vector.mul_((limit / (norm + 1e-6)).clamp(max=1.0))


def _make_network(policy: Policy, flat: Tensor) -> TorchNetwork | NoisyTorchNetwork:
    """The module of a policy's parameters, on a flat tensor of them."""
    if isinstance(policy.layout, NoisyLayout):
        return NoisyTorchNetwork(policy.layout, policy.spec.activations, flat, policy.network)
    return TorchNetwork(policy.layout, policy.spec.activations, flat)


def _device(name: str) -> torch.device:
    device = torch.device(name)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"the torch learner runs on 'cpu' or 'cuda', but device={name!r} was given")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device={name!r} was asked for, but torch {torch.__version__} finds no CUDA device here. "
            "Use .resources(num_gpus=0), or install a CUDA build of torch on a machine with a GPU."
        )
    return device


def _make_optimizer(settings: OptimizerSettings, flat: Tensor) -> torch.optim.Optimizer:
    if settings.name == "sgd":
        return torch.optim.SGD([flat], lr=0.0, foreach=False)
    if settings.name == "rmsprop":
        optimizer = torch.optim.RMSprop(
            [flat],
            lr=0.0,
            alpha=settings.decay,
            eps=settings.rmsprop_epsilon,
            momentum=settings.momentum,
            foreach=False,
        )
    elif settings.name == "radam":
        optimizer = torch.optim.RAdam([flat], lr=0.0, eps=settings.adam_epsilon, foreach=False)
    else:
        optimizer = torch.optim.Adam([flat], lr=0.0, eps=settings.adam_epsilon, fused=True)
    # A step of learning rate zero makes the memory exist, so that states have the same names from the start.
    optimizer.step()
    for array in optimizer.state[flat].values():
        array.zero_()
    return optimizer


def _set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
