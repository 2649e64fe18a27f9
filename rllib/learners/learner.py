"""Learners: train the weights of modules on batches, and return statistics."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rllib.config.conflicts import Unfit
from rllib.errors import NotFiniteError
from rllib.learners.updates.adaptive_rate import AdaptiveRate
from rllib.learners.updates.backend import Backend
from rllib.learners.updates.core_choice import FreeCores
from rllib.learners.updates.descent import Update
from rllib.learners.updates.in_numpy import NumpyBackend
from rllib.learners.updates.objective import POLICY, ModuleVector, Objective
from rllib.learners.updates.target_copy import TargetCopy
from rllib.learners.updates.torch_options import DEFAULTS, TorchOptions
from rllib.losses.loss import Loss
from rllib.policy import Policy
from rllib.sample_batch import INDICES, NEXT_OBS, OBS, PER_SEQUENCE, SEQ_LENS, SampleBatch, rows_of_sequences

KINDS = ("auto", "numpy", "torch")
# Number of rows that the error of a gradient that is not finite names.
NUM_ROWS_NAMED = 3


class Learner:
    """Minimises objectives over batches, by epochs of shuffled minibatches. Made by `make_learner`.

    Attributes:
        policy: the policy whose weights are trained, in place.
        vector: the policy's network and further modules.
        objectives: minimised one after the other on each minibatch.
        targets: name of a module -> the target copy of its weights.
        backend: computes the updates: here, or as a LearnerGroup, which has the same methods, in other processes.
    """

    def __init__(
        self,
        vector: ModuleVector,
        objectives: Sequence[Objective],
        targets: Sequence[TargetCopy],
        backend: Backend,
    ):
        self.policy = vector.policy
        self.vector = vector
        self.objectives = tuple(objectives)
        self.targets = {target.module: target for target in targets}
        self.backend = backend
        read = [name for each in objectives for name in each.loss.columns]
        self._columns = tuple(dict.fromkeys([*read, *(PER_SEQUENCE if self.policy.state_size else ())]))
        self._inputs = np.empty((0, 0), np.float32)
        # The staged batch: its observations, and their encoding.
        self._staged: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def device(self) -> str:
        """Device of the updates in this process, by torch's name; "cpu" if other processes compute them."""
        return str(self.backend.device)

    @property
    def core_choice(self) -> FreeCores | None:
        """Choice of the number of cores for updates in this process; None if the number is fixed."""
        return self.backend.core_choice

    @property
    def weights(self) -> np.ndarray:
        """The flat vector of all modules, the memory itself; without further modules the policy's weights."""
        return self.vector.flat

    def pop_logged(self) -> list:
        """Returns the values that the user's loss has logged since the last call (core/learner), in any process."""
        elsewhere, self.backend.logged = self.backend.logged, []
        here = [call for each in self.objectives for call in each.loss.pop_logged()]
        return [*elsewhere, *here]

    def update(
        self,
        batch: SampleBatch,
        *,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        microbatch_size: int | None = None,
        rng: np.random.Generator,
        lr: float | AdaptiveRate | Mapping[str, float],
        shuffle: bool = True,
        meanwhile: Callable[[], None] | None = None,
        stop_above: tuple[str, float] | None = None,
        refresh: Callable[[], Mapping[str, np.ndarray]] | None = None,
        **settings,
    ) -> dict:
        """Trains on a batch.

        Args:
            batch: has obs and the columns that the loss reads, as arrays or tensors. Tensors on the CPU, or on the
                device of a torch learner in this process, are used without a copy.
            num_epochs: number of times that each row is used.
            minibatch_size: rows of a gradient step; the last step of an epoch takes the remainder. None: all rows. With
                a memory, a step takes the fewest whole sequences that together have that number of rows.
            microbatch_size: rows that a gradient is computed from at a time: the same result to rounding in less
                memory (the explained variance, which is no mean over rows, is averaged). None: all.
            rng: shuffles the rows (with a memory, the sequences), once an epoch; numpy and torch learners draw the same
                numbers. Batches of tensors are shuffled on their device, with a seed drawn from `rng`.
            lr: learning rate, of all objectives or by their names; an AdaptiveRate follows the KL of the minibatches of
                the single objective.
            shuffle: False keeps the order of the batch.
            meanwhile: called once after all steps were launched, before the learner waits for their end: a GPU computes
                them in that time. The weights on the host are still the old ones.
            stop_above: name of a statistic of the first objective's loss, and a limit: the first minibatch that exceeds
                it ends the update, without a step of any objective. (On a GPU, which is not waited for in between, the
                first epoch whose last minibatch exceeds it is the last.)
            refresh: called before each epoch but the first, after the weights have changed: returns columns that
                replace the batch's, in its order.
            settings: settings of the loss; with several objectives, a mapping for each under its name, or None to leave
                the objective out of this update.

        Returns:
            statistics of the loss, means over the minibatches (of min_q the least, of max_q the largest); its row
            statistics, arrays in the order of the batch, of the last epoch; grad_gnorm, the mean of the gradient's
            length before clipping (NAME_grad_gnorm where there are several objectives); num_minibatches, up to the one
            at which `stop_above` has ended the update; of an AdaptiveRate, lr, the rate after the update.

        Raises:
            ValueError: if columns are missing, the batch is empty, or a number is out of range.
            LearnerError: if the batch was not sampled by these weights, or gradients are not finite.
        """
        batch = self._as_taken(batch)
        rows = self._checked(
            batch, num_epochs=num_epochs, minibatch_size=minibatch_size, microbatch_size=microbatch_size
        )
        columns, inputs = self._read(batch)
        # With a memory, sequences are shuffled instead of rows.
        seq_lens = columns.get(SEQ_LENS)
        count = rows if seq_lens is None else len(seq_lens)
        if shuffle and not isinstance(inputs, np.ndarray):
            orders = self.backend.permutations(rng, num_epochs, count)
        else:
            orders = [rng.permutation(count) if shuffle else None for _ in range(num_epochs)]
        lrs = [lr[each.name] if isinstance(lr, Mapping) else lr for each in self.objectives]
        given = [settings] if len(self.objectives) == 1 else self._by_objective(settings)
        if isinstance(lr, AdaptiveRate):
            lrs = [lr := lr.reading(self.objectives[0].loss.stats)]
        size = min(minibatch_size or rows, rows)
        stop = stop_above and (self.objectives[0].loss.stats.index(stop_above[0]), stop_above[1])
        update = Update(columns, inputs, orders, size, microbatch_size or rows, lrs, given, stop)
        try:
            found = self.backend.train(update, meanwhile, refresh)
        except NotFiniteError as error:
            _name_rows(error, batch, columns, inputs)
            raise
        result = {"num_minibatches": len(found[0][0]) if found else 0}
        if isinstance(lr, AdaptiveRate):
            result["lr"] = lr.after(found[0][0])
        last_order = orders[-1]
        if seq_lens is not None and last_order is not None:
            last_order = rows_of_sequences(seq_lens, last_order)
        ran = [objective for objective, its_settings in zip(self.objectives, given) if its_settings is not None]
        for objective, (statistics, row_statistics) in zip(ran, found, strict=True):
            of_update = statistics.mean(0)
            for index, kind in objective.loss.extremes:
                of_update[index] = getattr(statistics[:, index], kind)()
            self._refuse_nan(objective, of_update, batch, columns, inputs)
            result |= self._named(objective, of_update)
            result |= _in_order(objective.row_stats, row_statistics, last_order)
        return result

    def compute_gradient(
        self, batch: SampleBatch, *, microbatch_size: int | None = None, **settings
    ) -> tuple[np.ndarray, dict[str, float]]:
        """The loss's gradient at the policy's weights, which do not change. Arguments as for `update`.

        Returns:
            flat float32 gradient [size], unclipped; statistics.

        Raises:
            as `update`; ValueError, too, where there are several objectives or modules.
        """
        batch = self._as_taken(batch)
        rows = self._checked(batch, microbatch_size=microbatch_size)
        self._check_one_gradient()
        columns, inputs = self._read(batch)
        update = Update(columns, inputs, [None], rows, microbatch_size or rows, [0.0], [settings])
        try:
            gradient, statistics = self.backend.compute_gradient(update)
        except NotFiniteError as error:
            _name_rows(error, batch, columns, inputs)
            raise
        self._refuse_nan(self.objectives[0], statistics, batch, columns, inputs)
        return gradient.copy(), self._named(self.objectives[0], statistics)

    def apply_gradient(self, gradient: np.ndarray, *, lr: float) -> float:
        """Clips a gradient, which may come from another process, and lets the optimizer step against it.

        `apply_gradient(compute_gradient(batch)[0])` is `update(batch)` with one minibatch.

        Returns:
            the gradient's length before clipping.

        Raises:
            ValueError: if the gradient's size is not that of the weights, or there are several objectives or modules.
            LearnerError: if the gradient is not finite.
        """
        self._check_one_gradient()
        if gradient.shape != self.weights.shape:
            raise ValueError(
                f"the policy has {self.weights.size} weights, but the gradient's shape is {gradient.shape}"
            )
        return self.backend.apply_gradient(gradient, lr)

    def _refuse_nan(
        self, objective: Objective, statistics: np.ndarray, batch: SampleBatch, columns: Mapping, inputs
    ) -> None:
        """Raises a NotFiniteError for a loss that is NaN though its gradient is finite."""
        bad = [
            name for name, value in zip(objective.loss.stats, statistics) if name.endswith("loss") and math.isnan(value)
        ]
        if not bad:
            return
        error = NotFiniteError(
            f"{' and '.join(bad)} of the objective {objective.name!r} is NaN, while the gradient is finite: a part of "
            "the loss that no weight moves is NaN, such as the mean of an empty tensor. Where the loss is yours, look "
            "at what it adds."
        )
        _name_rows(error, batch, columns, inputs)
        raise error

    def _check_one_gradient(self) -> None:
        if len(self.objectives) > 1 or self.vector.modules:
            raise ValueError(
                "only a learner with one objective, which moves the policy, has a single gradient, but this one has "
                f"{', '.join(each.name for each in self.objectives)} for {', '.join(self.vector.slices)}; use update()"
            )

    def _named(self, objective: Objective, statistics: np.ndarray) -> dict[str, float]:
        norm = "grad_gnorm" if len(self.objectives) == 1 else f"{objective.name}_grad_gnorm"
        return dict(zip((*objective.loss.stats, norm), statistics.tolist(), strict=True))

    def _by_objective(self, settings: Mapping) -> list[Mapping | None]:
        names = [each.name for each in self.objectives]
        if unknown := settings.keys() - set(names):
            raise ValueError(f"there are no objectives {sorted(unknown)}; there are {', '.join(names)}")
        return [settings.get(name, {}) for name in names]

    def _as_taken(self, batch: SampleBatch) -> SampleBatch:
        """The batch, with arrays instead of tensors if the backend takes no tensors; on a CPU they share memory."""
        if self.backend.takes_tensors or set(map(type, batch.values())) == {np.ndarray}:
            return batch
        columns = {name: _in_numpy(column) for name, column in batch.items()}
        return SampleBatch(columns, policy_version=batch.policy_version, num_steps=batch.num_steps)

    def _read(self, batch: SampleBatch) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The columns that the losses read, and the encoded observations."""
        columns = {name: batch[name] for name in self._columns}
        if NEXT_OBS in columns:
            columns[NEXT_OBS] = self._encoded_anew(batch[NEXT_OBS])
        return columns, self._encoded(batch[OBS])

    def _checked(
        self,
        batch: SampleBatch,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        microbatch_size: int | None = None,
    ) -> int:
        missing = [name for name in (OBS, *self._columns) if name not in batch]
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

    def new_rows(self, shape: tuple[int, ...], dtype) -> np.ndarray:
        """Uninitialised memory that `update` sends to its device without a copy: page-locked if that is a GPU."""
        return self.backend.new_rows(shape, dtype)

    def stage(self, batch: SampleBatch) -> None:
        """Begins to send a batch to the learner's device; one that is not used by `update` only costs memory.

        On a GPU the transfer overlaps with the computations. On a CPU nothing is sent. Columns that are added
        afterwards are sent by `update`.
        """
        observations = batch[OBS]
        inputs = self._encoded_anew(observations)
        self._staged = observations, inputs
        self.backend.stage([inputs, *(batch[name] for name in self._columns if name in batch)])

    def _encoded(self, observations: np.ndarray) -> np.ndarray:
        if not isinstance(observations, np.ndarray):
            return self.backend.encode(observations)
        staged, self._staged = self._staged, None
        if staged is not None and staged[0] is observations:
            return staged[1]
        rows = len(observations)
        if len(self._inputs) < rows:
            self._inputs = self.policy.new_inputs(rows)
        return self.policy.encode(observations, self._inputs[:rows])

    def _encoded_anew(self, observations: np.ndarray) -> np.ndarray:
        """The encoded observations, in new memory."""
        if not isinstance(observations, np.ndarray):
            return self.backend.encode(observations)
        return self.policy.encode(observations, self.policy.new_inputs(len(observations)))

    def update_targets(self, now: int) -> bool:
        """Updates the target networks that are due. Algorithms call this method after an update.

        Args:
            now: the clock that the copies' `every` counts in (updates, environment steps).

        Returns:
            whether any target network was updated.
        """
        with self.backend.on_cores():
            return any([target.follow(now) for target in self.targets.values()])

    def start_over(self, policy_rng: np.random.Generator, rng: np.random.Generator) -> None:
        """Draws all weights again, copies them to target networks, and resets the memory of the optimizers.

        Args:
            policy_rng: draws the weights of the policy.
            rng: draws the weights of further modules.
        """
        self.vector.initialize(policy_rng, rng)
        for target in self.targets.values():
            target.start_over()
        self.backend.load_states(
            [{name: np.zeros_like(array) for name, array in its.items()} for its in self.backend.template]
        )

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies of optimizers, target copies and weights of further modules, by name, without the policy's weights.

        The names are the same for numpy and torch.
        """
        return self._state(self.backend.states)

    def _state(self, of_optimizers: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        state = {}
        for prefix, arrays in zip(self._prefixes(), of_optimizers):
            state |= {prefix + name: np.array(array) for name, array in arrays.items()}
        for module, target in self.targets.items():
            state |= {f"target_{module}.{name}": array for name, array in target.get_state().items()}
        return state | {f"{module}.weights": self.vector[module].copy() for module in self.vector.modules}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a state that `get_state` returned, also of a learner of the other kind (numpy or torch).

        Raises:
            ValueError: as `refuse_state`.
        """
        self.refuse_state(state)
        optimizers = zip(self._prefixes(), self.backend.template)
        self.backend.load_states([{name: state[prefix + name] for name in its} for prefix, its in optimizers])
        for module in self.vector.modules:
            self.vector[module][:] = state[f"{module}.weights"]
        for module, target in self.targets.items():
            target.set_state({name: state[f"target_{module}.{name}"] for name in ("weights", "moved_at")})

    def refuse_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Refuses a state that `set_state` cannot restore.

        Raises:
            ValueError: if the state belongs to another optimizer or network.
        """
        own = self._state(self.backend.template)
        if {name: np.shape(array) for name, array in own.items()} != {n: np.shape(a) for n, a in state.items()}:
            raise ValueError(
                f"the learner's state has {_shapes(own)}, but the given one {_shapes(state)}; "
                "it must come from the same optimizer and model settings"
            )

    def _prefixes(self) -> list[str]:
        """Prefix of each objective's optimizer in the names of the state."""
        return [""] if len(self.objectives) == 1 else [f"{each.name}." for each in self.objectives]


def _name_rows(error: NotFiniteError, batch: SampleBatch, columns: Mapping, inputs) -> None:
    """Adds the batch to the error, and suspicious rows to its message."""
    error.batch = {name: _in_numpy(column) for name, column in batch.items()}
    read = {name: _in_numpy(column) for name, column in {**columns, OBS: inputs}.items()}
    read = {name: each.reshape(len(each), -1) for name, each in read.items() if name not in PER_SEQUENCE}
    error.args = (f"{error} {_rows_to_look_at(read, error.batch.get(INDICES))}",)


def _rows_to_look_at(columns: Mapping[str, np.ndarray], indices: np.ndarray | None) -> str:
    """Describes rows [B, ...] with NaN or infinity, or else the largest numbers; `indices`: rows of the replay."""
    largest = np.stack([np.abs(column).max(1).astype(np.float64) for column in columns.values()])  # NaN stays NaN
    is_bad = ~np.isfinite(largest)
    if is_bad.any():
        what, rows = "Rows with NaN or infinity", np.flatnonzero(is_bad.any(0))
    else:
        what, rows = "Rows with the largest numbers", np.argsort(-largest.max(0), kind="stable")
        is_bad = largest == largest.max(0)
    described = []
    for row in rows[:NUM_ROWS_NAMED]:
        place = f"{row}" if indices is None else f"{row} ({INDICES} {indices[row]})"
        of = [f"{name} {size:.3g}" for name, bad, size in zip(columns, is_bad[:, row], largest[:, row]) if bad]
        described.append(f"{place}: {', '.join(of)}")
    more = f"; {len(rows):,} in all" if what.endswith("infinity") and len(rows) > NUM_ROWS_NAMED else ""
    return f"{what}, of {largest.shape[1]:,}: {'; '.join(described)}{more}."


def _in_numpy(column):
    return column if isinstance(column, np.ndarray) else column.numpy(force=True)


def _in_order(names: tuple[str, ...], minibatches: list[tuple], order: np.ndarray | None) -> dict[str, np.ndarray]:
    """Name -> row statistics of an epoch, in the order of the batch."""
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
    objectives: Loss | Objective | Sequence[Objective],
    *,
    modules: Mapping = {},
    targets: Sequence[TargetCopy] = (),
    kind: str = "auto",
    device: str = "cpu",
    rng: np.random.Generator | None = None,
    cores: int | FreeCores | None = None,
    torch_options: TorchOptions = DEFAULTS,
    make_group: Callable | None = None,
) -> Learner:
    """Chooses and builds a learner.

    Args:
        policy: the policy to train, in place.
        objectives: minimised one after the other on each minibatch; a loss alone is an objective of the policy with
            the default optimizer.
        modules: name -> description of a further module to train (models/modules.py).
        targets: copies of modules that follow them.
        kind: "numpy" (closed form, CPU), "torch" (autograd, CPU or CUDA), "auto" (numpy if network and loss have closed
            forms).
        device: "cpu", "cuda" or "cuda:1".
        rng: draws the weights of `modules`.
        cores: number of cores for updates. Closed forms use at most these, and fewer for small updates; torch gets them
            for the whole process. None: one core for closed forms; torch keeps its own number. FreeCores choose the
            number for closed forms, update by update.
        torch_options: options of a torch learner.
        make_group: makes the processes that learn instead of this one. It is called with the learner's vector, its
            target copies, and a function of keyword arguments `policy`, `targets` and `rng` that makes their learners.

    Raises:
        ValueError: for an unknown choice or module, or one that is not available (the numpy learner on a GPU, CUDA on a
            machine without it).
    """
    objectives = [objectives] if not isinstance(objectives, Sequence) else objectives
    objectives = [each if isinstance(each, Objective) else Objective(each) for each in objectives]
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, but got {kind!r}")
    vector = ModuleVector(policy, modules, rng)
    named = {name for each in objectives for name in each.moves} | {target.module for target in targets}
    unknown = named - vector.slices.keys()
    if unknown:
        raise ValueError(f"there are no modules {sorted(unknown)}; there are {', '.join(vector.slices)}")
    over_steps = [each for each in objectives if each.is_over_modules and SEQ_LENS not in each.loss.columns]
    if policy.state_size and over_steps:
        raise ValueError(
            "a LossOverModules calls the policy with observations alone, so it cannot train a policy with a memory. "
            "Use a Loss, which gets the outputs of whole sequences, or over_sequences(loss)."
        )
    for target in targets:
        target.attach(vector[target.module], policy.spec if target.module == POLICY else None)
    whole = all(each.has_closed_form and len(each.moves) == 1 for each in objectives) and (
        all(getattr(module, "closed_form", False) for module in modules.values())
    )
    has_gradient = policy.network.closed_form and policy.distribution.closed_form
    closed_form = device == "cpu" and whole and has_gradient
    if kind == "numpy" and not closed_form:
        what = f"device={device!r}"
        if not has_gradient:
            what = "a network with convolutions" if policy.spec.torso else "a network or a distribution without one"
        what = what if whole else "a module or a loss without a closed form"
        raise Unfit(
            f"learner='numpy' computes gradients in closed form on the CPU, not those of {what}.",
            "Use learner='torch' or 'auto'.",
            {"learner": "auto"},
            {"learner": "torch"},
        )
    in_torch = kind == "torch" or not closed_form
    if torch_options.autocast is not None and not in_torch:
        raise Unfit(
            f"torch_autocast={torch_options.autocast!r} does not reach this learner, which computes in numpy.",
            'Use .training(learner="torch"), or leave it out.',
            {"learner": "torch"},
            {"torch_autocast": None},
        )
    if make_group is not None:
        kind = "torch" if in_torch else "numpy"
        how = {"kind": kind, "device": device, "cores": cores, "torch_options": torch_options}
        make = functools.partial(make_learner, objectives=objectives, modules=modules, **how)
        return Learner(vector, objectives, targets, make_group(vector, targets, make))
    if in_torch:
        from rllib.learners.in_torch.learner import TorchBackend

        backend = TorchBackend(vector, objectives, targets, device, torch_options)
        if isinstance(cores, int):
            backend.use_threads(cores)
        return Learner(vector, objectives, targets, backend)
    return Learner(vector, objectives, targets, NumpyBackend(vector, objectives, targets, cores or 1))
