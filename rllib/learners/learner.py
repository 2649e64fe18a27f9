"""Learners: whole batches in, better weights and statistics out."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import numpy as np

from rllib.learners.numpy_learner import NumpyBackend
from rllib.learners.optimizers import NAMES, OptimizerSettings
from rllib.learners.target_copy import TargetCopy
from rllib.losses.loss import Loss
from rllib.policy import Policy
from rllib.sample_batch import OBS, SampleBatch

KINDS = ("auto", "numpy", "torch")
CLIP_MODES = ("global_norm", "norm", "value")


class Backend(Protocol):
    """What numpy_learner and torch_learner implement; see NumpyBackend for the arguments."""

    policy: Policy
    loss: Loss

    @property
    def state(self) -> Mapping[str, np.ndarray]: ...

    def load_state(self, state: Mapping[str, np.ndarray]) -> None: ...

    def train(
        self, columns, inputs, orders, minibatch_size, microbatch_size, lr, settings, meanwhile=None
    ) -> tuple[np.ndarray, list[tuple]]: ...

    def stage(self, arrays) -> None: ...

    def compute_gradient(self, columns, inputs, microbatch_size, settings) -> tuple[np.ndarray, np.ndarray]: ...

    def apply_gradient(self, gradient, lr) -> float: ...


class Learner:
    """Minimises a loss over batches, by epochs of shuffled minibatches. Made by `make_learner`.

    Attributes:
        policy: whose weights are trained, in place.
        targets: name of a module -> the copy of its weights.
    """

    def __init__(self, backend: Backend, targets: Iterable[TargetCopy] = ()):
        self.policy = backend.policy
        self.targets = {target.module: target for target in targets}
        for target in self.targets.values():
            target.attach(self.policy.weights)
        self._backend = backend
        self._loss = backend.loss
        self._row_stats = getattr(backend.loss, "row_stats", ())
        self._inputs = np.empty((0, 0), np.float32)
        # The batch that was staged: its observations, and what the network reads of them.
        self._staged: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def weights(self) -> np.ndarray:
        """The policy's flat vector: the memory itself."""
        return self.policy.weights

    def update(
        self,
        batch: SampleBatch,
        *,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        microbatch_size: int | None = None,
        rng: np.random.Generator,
        lr: float,
        shuffle: bool = True,
        meanwhile: Callable[[], None] | None = None,
        **settings,
    ) -> dict:
        """Trains on a batch.

        Args:
            batch: columns obs and those that the loss reads.
            num_epochs: how often each row is used.
            minibatch_size: rows of a gradient step; the last step of an epoch takes the remainder. None: all rows.
            microbatch_size: rows that a gradient is computed from at a time: the same result to rounding in less
                memory (statistics that are no means, like the explained variance, are those of the parts). None: all.
            rng: shuffles the rows, once an epoch; numpy and torch learners draw the same numbers.
            lr: learning rate.
            shuffle: False keeps the order of the batch.
            meanwhile: called once when all steps have been asked for, before their end is waited for: on a GPU they are
                computed in that time. The weights here are still those of before.
            settings: of the loss.

        Returns:
            statistics of the loss, means over the minibatches; its row statistics, arrays in the order of the batch,
            of the last epoch; grad_gnorm, the mean of the gradient's length before clipping; num_minibatches.

        Raises:
            ValueError: if columns are missing, the batch is empty, or a number is out of range.
            LearnerError: if the batch was not sampled by these weights, or gradients are not finite.
        """
        rows = self._checked(
            batch, num_epochs=num_epochs, minibatch_size=minibatch_size, microbatch_size=microbatch_size
        )
        columns = {name: batch[name] for name in self._loss.columns}
        inputs = self._encoded(batch[OBS])
        orders = _orders(rng if shuffle else None, rows, num_epochs)
        statistics, row_statistics = self._backend.train(
            columns, inputs, orders, min(minibatch_size or rows, rows), microbatch_size or rows, lr, settings, meanwhile
        )
        result = self._named(statistics.mean(0)) | {"num_minibatches": len(statistics)}
        return result | _in_order(self._row_stats, row_statistics, orders[-1])

    def compute_gradient(
        self, batch: SampleBatch, *, microbatch_size: int | None = None, **settings
    ) -> tuple[np.ndarray, dict[str, float]]:
        """The loss's gradient at the policy's weights, which stay as they are. Arguments as for `update`.

        Returns:
            flat float32 gradient [size], unclipped; statistics.

        Raises:
            as `update`.
        """
        rows = self._checked(batch, microbatch_size=microbatch_size)
        columns = {name: batch[name] for name in self._loss.columns}
        inputs = self._encoded(batch[OBS])
        gradient, statistics = self._backend.compute_gradient(columns, inputs, microbatch_size or rows, settings)
        return gradient.copy(), self._named(statistics)

    def apply_gradient(self, gradient: np.ndarray, *, lr: float) -> float:
        """Clips a gradient and lets the optimizer step against it, wherever it was computed.

        `apply_gradient(compute_gradient(batch)[0])` is `update(batch)` with one minibatch.

        Returns:
            the gradient's length before clipping.

        Raises:
            ValueError: if it has not the size of the weights.
            LearnerError: if it is not finite.
        """
        if gradient.shape != self.weights.shape:
            raise ValueError(
                f"the policy has {self.weights.size} weights, but the gradient's shape is {gradient.shape}"
            )
        return self._backend.apply_gradient(gradient, lr)

    def _named(self, statistics: np.ndarray) -> dict[str, float]:
        return dict(zip((*self._loss.stats, "grad_gnorm"), statistics.tolist(), strict=True))

    def _checked(
        self,
        batch: SampleBatch,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        microbatch_size: int | None = None,
    ) -> int:
        missing = [name for name in (OBS, *self._loss.columns) if name not in batch]
        if missing:
            raise ValueError(f"the batch lacks the columns {missing}; it has {sorted(batch)}")
        if not batch.count:
            raise ValueError("a batch without rows cannot be learned from")
        if min(num_epochs, minibatch_size or 1, microbatch_size or 1) < 1 or 0 in (minibatch_size, microbatch_size):
            raise ValueError(
                f"num_epochs={num_epochs}, minibatch_size={minibatch_size} and microbatch_size={microbatch_size} must "
                "all be at least 1 (None takes the whole batch)"
            )
        return batch.count

    def stage(self, batch: SampleBatch) -> None:
        """Begins to send a batch to where `update` will learn from it; one that does not come back costs memory alone.

        On a GPU the transfer goes on beside what is being computed. On a CPU there is nothing to send. Columns that are
        added afterwards are sent by `update`.
        """
        observations = batch[OBS]
        inputs = self.policy.encode(observations, self.policy.new_inputs(len(observations)))
        self._staged = observations, inputs
        self._backend.stage([inputs, *(batch[name] for name in self._loss.columns if name in batch)])

    def _encoded(self, observations: np.ndarray) -> np.ndarray:
        staged, self._staged = self._staged, None
        if staged is not None and staged[0] is observations:
            return staged[1]
        rows = len(observations)
        if len(self._inputs) < rows:
            self._inputs = self.policy.new_inputs(rows)
        return self.policy.encode(observations, self._inputs[:rows])

    def update_targets(self, now: int) -> bool:
        """Moves those target copies that are due; algorithms call it after an update.

        Args:
            now: the clock that the copies' `every` counts in (updates, environment steps).

        Returns:
            whether any moved.
        """
        return any([target.follow(now) for target in self.targets.values()])

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies of the optimizer's arrays and of the targets by name; the same names for numpy and torch."""
        state = {name: np.array(array) for name, array in self._backend.state.items()}
        for module, target in self.targets.items():
            state |= {f"target_{module}.{name}": array for name, array in target.get_state().items()}
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `get_state` gave, also that of a learner of the other kind.

        Raises:
            ValueError: if it belongs to another optimizer or network.
        """
        own = self.get_state()
        if {name: np.shape(array) for name, array in own.items()} != {n: np.shape(a) for n, a in state.items()}:
            raise ValueError(
                f"the learner's state has {_shapes(own)}, but the given one {_shapes(state)}; "
                "it must come from the same optimizer and model settings"
            )
        self._backend.load_state(state)
        for module, target in self.targets.items():
            target.set_state({name: state[f"target_{module}.{name}"] for name in ("weights", "moved_at")})


def _orders(rng: np.random.Generator | None, rows: int, num_epochs: int) -> list[np.ndarray | None]:
    return [None if rng is None else rng.permutation(rows) for _ in range(num_epochs)]


def _in_order(names: tuple[str, ...], minibatches: list[tuple], order: np.ndarray | None) -> dict[str, np.ndarray]:
    """Name -> numbers of an epoch's rows, put back into the order of the batch."""
    found = {}
    for name, parts in zip(names, zip(*minibatches)):
        column = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if order is not None:
            shuffled, column = column, np.empty_like(column)
            column[order] = shuffled
        found[name] = column
    return found


def _shapes(state: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"{name}{list(np.shape(array))}" for name, array in state.items()) or "nothing"


def make_learner(
    policy: Policy,
    loss: Loss,
    *,
    kind: str = "auto",
    device: str = "cpu",
    optimizer: str = "adam",
    adam_epsilon: float = 1e-8,
    decay: float = 0.99,
    momentum: float = 0.0,
    rmsprop_epsilon: float = 1e-5,
    grad_clip: float | None = None,
    grad_clip_by: str = "global_norm",
    targets: Iterable[TargetCopy] = (),
) -> Learner:
    """Chooses and builds a learner.

    Args:
        policy: whose weights are trained, in place.
        loss: what is minimised (losses/loss.py).
        kind: "numpy" (closed form, CPU), "torch" (autograd, CPU or CUDA), "auto" (numpy wherever it can).
        device: "cpu", "cuda" or "cuda:1".
        optimizer: "adam", "radam", "rmsprop" or "sgd".
        adam_epsilon: Adam's and RAdam's epsilon.
        decay, momentum, rmsprop_epsilon: RMSprop's; see OptimizerSettings.
        grad_clip: limit, None clips nothing.
        grad_clip_by: "global_norm", "norm" (each parameter on its own) or "value".
        targets: copies of the policy's weights that follow them.

    Raises:
        ValueError: for an unknown choice, or one that cannot be had (the numpy learner on a GPU, CUDA where
            there is none).
    """
    for name, value, known in (
        ("kind", kind, KINDS),
        ("grad_clip_by", grad_clip_by, CLIP_MODES),
        ("optimizer", optimizer, NAMES),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {known}, but got {value!r}")
    if grad_clip is not None and not grad_clip > 0:
        raise ValueError(f"grad_clip must be positive, or None for no clipping, but got {grad_clip!r}")
    closed_form = device == "cpu" and getattr(policy.network, "closed_form", False)
    if kind == "numpy" and not closed_form:
        what = "a network with convolutions" if policy.spec.torso else f"device={device!r}"
        raise ValueError(
            f"learner='numpy' trains fully connected networks on the CPU; for {what} use learner='torch' or 'auto'"
        )
    steps = OptimizerSettings(optimizer, adam_epsilon, decay, momentum, rmsprop_epsilon)
    if kind == "torch" or not closed_form:
        from rllib.learners.torch_learner import TorchBackend

        return Learner(TorchBackend(policy, loss, device, steps, grad_clip, grad_clip_by), targets)
    return Learner(NumpyBackend(policy, loss, steps, grad_clip, grad_clip_by), targets)
