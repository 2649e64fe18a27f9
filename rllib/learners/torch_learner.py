"""The update in torch, on the CPU or one GPU: autograd, one flat parameter, one synchronisation per update."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from rllib.learners.numpy_learner import check_identity, raise_not_finite
from rllib.losses.loss import Loss
from rllib.models.torch_distributions import TorchDistribution
from rllib.models.torch_network import TorchNetwork
from rllib.policy import Policy

# Names of torch.optim.Adam's memory -> names in a learner's state, which the numpy optimizer shares.
ADAM_STATE = {"exp_avg": "adam.m", "exp_avg_sq": "adam.v", "step": "adam.step"}


class TorchBackend:
    """Trains a flat tensor: on the CPU the policy's own memory, on a GPU a copy that goes back after each update.

    Args:
        policy: whose weights are trained.
        loss: what is minimised.
        device: "cpu", "cuda" or "cuda:1".
        optimizer: "adam" or "sgd".
        adam_epsilon: Adam's epsilon.
        grad_clip, grad_clip_by: as for optimizers.clip_gradient.

    Raises:
        ValueError: if the device does not exist.
    """

    def __init__(
        self,
        policy: Policy,
        loss: Loss,
        device: str,
        optimizer: str,
        adam_epsilon: float,
        grad_clip: float | None,
        grad_clip_by: str,
    ):
        self.policy = policy
        self.loss = loss
        self.device = _device(device)
        shared = torch.from_numpy(policy.weights)
        self._on_gpu = self.device.type == "cuda"
        flat = shared.to(self.device) if self._on_gpu else shared
        self.network = TorchNetwork(policy.layout, policy.spec.activation, flat)
        self._distribution = TorchDistribution(policy.distribution)
        self._clip = grad_clip, grad_clip_by
        self._gradient_parts = [parameter.grad for parameter in self.network.parameters()]
        self._optimizer = _make_optimizer(optimizer, self.network.flat, adam_epsilon)

    # ------------------------------------------------------------------ state

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Copies of the optimizer's tensors, under the names of the numpy optimizer."""
        memory = self._optimizer.state[self.network.flat]
        arrays = {ours: memory[theirs].cpu().numpy() for theirs, ours in ADAM_STATE.items() if theirs in memory}
        if "adam.step" in arrays:
            arrays["adam.step"] = arrays["adam.step"].astype(np.int64)
        return arrays

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Copies arrays of the same names and shapes over the optimizer's tensors."""
        memory = self._optimizer.state[self.network.flat]
        for theirs, ours in ADAM_STATE.items():
            if theirs in memory:
                memory[theirs].copy_(torch.as_tensor(np.asarray(state[ours])))

    # ------------------------------------------------------------------ the update

    def train(self, columns: Mapping, inputs: np.ndarray, orders, minibatch_size: int, lr: float, settings: Mapping):
        """Walks over the batch once for each order; arguments and result as for NumpyBackend.train."""
        if self._on_gpu:
            with torch.no_grad():
                self.network.flat.copy_(torch.from_numpy(self.policy.weights))
        _set_lr(self._optimizer, lr)
        sources = {name: self._to_device(column) for name, column in columns.items()}
        sources["inputs"] = self._to_device(inputs)
        steps, row_statistics, first_error = [], [], None
        for order in self._orders_on_device(orders):
            epoch = sources if order is None else _shuffled(sources, order)
            for start in range(0, len(inputs), minibatch_size):
                minibatch = {name: column[start : start + minibatch_size] for name, column in epoch.items()}
                outputs = self.network(minibatch["inputs"])
                if not steps:
                    first_error = self._first_error(outputs, minibatch)
                numbers, of_rows = self._step(outputs, minibatch, settings)
                steps.append(numbers)
                row_statistics.append(of_rows)
        statistics = self._finish(steps, first_error, {**columns, "obs": inputs})
        return statistics, [tuple(column.cpu().numpy() for column in of_rows) for of_rows in row_statistics]

    def _first_error(self, outputs: tuple, minibatch: Mapping[str, Tensor]) -> Tensor | None:
        """The identity error; on the CPU it is checked at once, on a GPU with the statistics at the end."""
        with torch.no_grad():
            error = self.loss.identity_error(self._distribution, outputs, minibatch)
        if error is not None and not self._on_gpu:
            check_identity(float(error))
        return error

    def _step(self, outputs: tuple, minibatch: Mapping[str, Tensor], settings: Mapping) -> tuple[Tensor, tuple]:
        flat = self.network.flat
        loss, statistics, *row_statistics = self.loss.torch(self._distribution, outputs, minibatch, **settings)
        norm = torch.linalg.vector_norm(self.network.backward(loss))
        if not self._on_gpu and not torch.isfinite(norm):
            columns = {name: column.numpy() for name, column in minibatch.items()}
            raise_not_finite(self.policy, flat.grad.numpy(), columns)
        self._clip_gradient(flat.grad, norm)
        self._optimizer.step()
        return torch.cat((statistics, norm[None])), row_statistics[0] if row_statistics else ()

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

    def _finish(self, steps: list[Tensor], first_error: Tensor | None, columns: Mapping) -> np.ndarray:
        statistics = torch.stack(steps)
        if not self._on_gpu:
            return statistics.double().numpy()
        # The only place that waits for the device: weights, statistics and the identity error in one transfer.
        error = torch.zeros((), device=self.device) if first_error is None else first_error
        packed = torch.cat((self.network.flat.detach(), statistics.reshape(-1), error[None])).cpu().numpy()
        size = self.network.layout.size
        check_identity(float(packed[-1]))
        rows = packed[size:-1].reshape(statistics.shape).astype(np.float64)
        if not np.isfinite(rows[:, -1]).all():
            raise_not_finite(self.policy, self.network.flat.grad.cpu().numpy(), columns)
        np.copyto(self.policy.weights, packed[:size])
        return rows

    def _orders_on_device(self, orders) -> Iterable[Tensor | None]:
        """The permutations of all epochs in one transfer, so that no epoch waits for its own."""
        orders = list(orders)
        return orders if orders[0] is None else self._to_device(np.stack(orders))

    def _to_device(self, column: np.ndarray) -> Tensor:
        # Batches may lie in read-only shared memory, which torch takes only as a copy.
        return torch.from_numpy(np.require(column, requirements=("C", "W"))).to(self.device)


def _shuffled(sources: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    return {name: column.index_select(0, order) for name, column in sources.items()}


def _scale_to(vector: Tensor, norm: Tensor, limit: float) -> None:
    # Without asking the device whether the norm exceeds the limit.
    vector.mul_((limit / (norm + 1e-6)).clamp(max=1.0))


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


def _make_optimizer(name: str, flat: Tensor, adam_epsilon: float) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD([flat], lr=0.0, foreach=False)
    optimizer = torch.optim.Adam([flat], lr=0.0, eps=adam_epsilon, fused=True)
    # A step of learning rate zero makes the memory exist, so that states have the same names from the start.
    optimizer.step()
    for array in optimizer.state[flat].values():
        array.zero_()
    return optimizer


def _set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
