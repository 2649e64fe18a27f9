"""Users' losses that extend or replace an algorithm's loss: the settings auxiliary_losses and custom_loss."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rllib.losses.loss import Loss, extremes_of
from rllib.losses.user.mirror import MirrorLoss
from rllib.models.dense.network_spec import NetworkSpec
from rllib.sample_batch import OBS
from rllib.schedules import Schedule, schedule_problem

KEYS = ("loss", "mirror", "weight", "columns", "stats")


@dataclass(frozen=True)
class AuxiliaryLoss:
    """A function that adds to the loss, with the columns that it reads and the statistics that it reports.

    Attributes:
        name: prefix of its statistics, NAME_loss and NAME_STAT, and of its weight in the loss's settings, NAME_weight.
        function: (minibatch, outputs, model) -> a scalar tensor, or that and a dict of scalar tensors. `minibatch` maps
            the names of columns to tensors [B, ...]; its "obs" is the network's input. `model` is its module.
        schedule: schedule of its weight over environment steps.
        columns: names of the columns that it reads, in addition to the columns of the algorithm's loss.
        stats: names of the scalars in its dict; see `Loss.stats` for what min and max in them mean.
    """

    name: str
    function: Callable
    schedule: Schedule
    columns: tuple[str, ...] = ()
    stats: tuple[str, ...] = ()

    @property
    def weight(self) -> str:
        """Name of its weight among the settings of the loss."""
        return f"{self.name}_weight"

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics."""
        return f"{self.name}_loss", *(f"{self.name}_{stat}" for stat in self.stats)

    def of_policy(self, spec: NetworkSpec) -> "AuxiliaryLoss":
        """The same for a policy with this description.

        Raises:
            ValueError: if it does not fit the policy.
        """
        if not isinstance(self.function, MirrorLoss):
            return self
        try:
            return replace(self, function=self.function.of_policy(spec))
        except ValueError as error:
            raise ValueError(f"auxiliary_losses[{self.name!r}]: the mirror {error}.") from None

    def computed(self, minibatch: Mapping, outputs: "ModelOutputs", model) -> tuple:
        """The loss, a scalar, and its statistics.

        Raises:
            ValueError: if the function returned something else.
        """
        found = self.function(minibatch, outputs, model)
        loss, stats = found if isinstance(found, tuple) else (found, {})
        if not _is_scalar(loss) or set(stats) != set(self.stats) or not all(map(_is_scalar, stats.values())):
            names = f" and a dict of scalar tensors with the keys {list(self.stats)}" if self.stats else ""
            raise ValueError(
                f"auxiliary_losses[{self.name!r}] must return a scalar tensor{names}, but returned {found!r:.200}. "
                "Take means over the rows, and name its statistics: {'loss': ..., 'stats': [...]}."
            )
        return loss, (loss.detach(), *(stats[name].detach() for name in self.stats))


class ModelOutputs:
    """Outputs of the network for a minibatch of B rows.

    Args:
        distribution, dist_inputs: as below.
        values: [B]; [0] without a value head.

    Attributes:
        distribution: the action distributions: log_prob(actions), entropy(), kl_from(dist_inputs), [B] each.
        dist_inputs: [B, K].
        has_values: whether there are values.
    """

    def __init__(self, distribution: Any, dist_inputs: Any, values: Any):
        self.distribution, self.dist_inputs, self._values = distribution, dist_inputs, values
        self.has_values = len(values) > 0

    @property
    def values(self) -> Any:
        """Values [B] of the observations.

        Raises:
            ValueError: for a network without a value head, such as one of action values.
        """
        if not self.has_values:
            raise ValueError(
                "outputs.values: this policy's network has no value function, so a loss cannot read it. "
                "outputs.dist_inputs has what the network computes: of DQN the action values."
            )
        return self._values


class LossColumns(dict):
    """The minibatch as users' functions get it; a missing column is refused with the way."""

    def __missing__(self, column: str):
        raise KeyError(
            f"the minibatch has {', '.join(self)}, but no {column!r}. Name what the loss reads as well: "
            f"auxiliary_losses={{NAME: {{'loss': function, 'columns': [{column!r}]}}}}, or function.columns = "
            f"({column!r},) of a custom_loss."
        )


class WithAuxiliary(Loss):
    """A Loss in torch: an algorithm's loss, changed by a user's function, plus weighted auxiliary losses.

    Args:
        loss: the algorithm's loss of the policy's outputs.
        parts: the auxiliary losses.
        custom: (loss, minibatch, outputs, model) -> the scalar tensor to minimise instead of the loss; None keeps
            it. Its attribute `columns`, if it has one, names columns that it reads in addition to those of the loss,
            and `setting` is its name in messages.
        opened: module of the policy -> the module that functions get as `model`, and a function from stored or encoded
            rows to that module's inputs (NetworkSpec.opened).
    """

    numpy = None

    def __init__(self, loss: Loss, parts: Sequence[AuxiliaryLoss], custom: Callable | None, opened: Callable):
        self._loss, self._parts, self._custom, self._opened = loss, tuple(parts), custom, opened
        self._custom_name = getattr(custom, "setting", "custom_loss")
        more = [*(name for part in parts for name in part.columns), *columns_of(custom)]
        self.columns = tuple(dict.fromkeys([*loss.columns, *more]))
        self.stats = (*loss.stats, *(name for part in parts for name in part.statistics))
        self.row_stats = loss.row_stats
        self.takes_across = loss.takes_across
        self.identity_error = loss.identity_error
        self._model = self._read = None

    @property
    def extremes(self) -> list[tuple[int, str]]:
        # Without the prefix: the name of a loss (max_margin) does not say what its statistics are.
        own = extremes_of([stat for part in self._parts for stat in ("loss", *part.stats)])
        return [*self._loss.extremes, *((len(self._loss.stats) + index, kind) for index, kind in own)]

    def pop_logged(self) -> list:
        """Values that the user's function has logged since the last time; [] where it logs none."""
        pop = getattr(self._custom, "pop_logged", None)
        return [] if pop is None else pop()

    def bind(self, module) -> "WithAuxiliary":
        """The loss for the outputs of this module, which users' functions can call."""
        bound = WithAuxiliary(self._loss.bind(module), self._parts, self._custom, self._opened)
        model, bound._read = self._opened(module)
        bound._model = BuiltInNetwork(model) if hasattr(model, "leaves") else model
        return bound

    def torch(self, distribution, outputs: tuple, minibatch: Mapping, **settings) -> tuple:
        weights = [settings.pop(part.weight) for part in self._parts]
        loss, statistics, *of_rows = self._loss.torch(distribution, outputs, minibatch, **settings)
        statistics = list(statistics)
        dist_inputs, values = outputs
        given = ModelOutputs(distribution.torch_at(dist_inputs), dist_inputs, values)
        rows = LossColumns({**minibatch, OBS: self._read(minibatch[OBS])})
        if self._custom is not None:
            loss = self._custom(loss, rows, given, self._model)
            if not _is_scalar(loss):
                found = f"a tensor of shape {list(loss.shape)}" if hasattr(loss, "detach") else f"{loss!r:.200}"
                raise ValueError(
                    f"{self._custom_name} must return a scalar tensor, but returned {found}. Reduce it, as by .mean()."
                )
        for part, weight in zip(self._parts, weights):
            added, its_statistics = part.computed(rows, given, self._model)
            loss = loss + weight * added
            statistics += its_statistics
        if not loss.requires_grad:
            raise ValueError(
                f"{self._custom_name} must depend on what the network computes, but returned a tensor without a "
                "gradient. Leave out .detach() and torch.no_grad(), or use the loss that it gets."
            )
        if "total_loss" in self.stats:
            statistics[self.stats.index("total_loss")] = loss.detach()
        return loss, tuple(statistics), *of_rows


class BuiltInNetwork:
    """A built-in network as users' functions get it: gradients flow to its `parameters`.

    Those of the torch module are views for reading, shaped as in torch.nn.Linear; it computes with other tensors in the
    same memory, the weights and biases of each layer.

    Args:
        network: the torch module; its attributes are this object's as well.
    """

    def __init__(self, network: Any):
        self._network = network

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self._network(*inputs, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._network, name)

    def parameters(self) -> Iterator:
        """The tensors that it computes with; together they have each parameter once."""
        return iter(self._network.leaves)


def columns_of(custom_loss: Callable | None) -> tuple[str, ...]:
    """Columns that a custom_loss reads in addition to those of the algorithm's loss, by its attribute `columns`."""
    return getattr(custom_loss, "columns", ())


def refuse_taken_names(parts: Sequence[AuxiliaryLoss], taken: Iterable[str]) -> None:
    """Refuses auxiliary losses with a statistic, or a weight, of a name that another number has.

    Args:
        parts: the auxiliary losses.
        taken: names of the algorithm's statistics.

    Raises:
        ValueError: naming the loss and the statistic.
    """
    owners = dict.fromkeys(taken, "the algorithm")
    for part in parts:
        for name in (*part.statistics, part.weight):
            if name in owners:
                raise ValueError(
                    f"auxiliary_losses[{part.name!r}] would report {name!r}, which is a statistic of {owners[name]}. "
                    "Give the loss, or its statistic, another name."
                )
            owners[name] = f"auxiliary_losses[{part.name!r}]"


def auxiliary_losses(setting: Mapping[str, Any]) -> tuple[AuxiliaryLoss, ...]:
    """Auxiliary losses from the setting: name -> {"loss": function, "weight": 1.0, "columns": [], "stats": []}.

    In place of the function stands {"mirror": {...}} for the loss of mirror.py.

    Raises:
        ValueError: for anything else; the message begins with the setting's name.
    """
    return tuple(_auxiliary_loss(name, given) for name, given in setting.items())


def _auxiliary_loss(name: str, given) -> AuxiliaryLoss:
    where = f"auxiliary_losses[{name!r}]"
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{where}: its name becomes part of names of statistics, so it must be one like 'prediction'")
    given = {"loss": given} if callable(given) else given
    if isinstance(given, Mapping) and "mirror" in given and "loss" not in given:
        try:
            given = {**given, "loss": MirrorLoss.from_setting(given["mirror"])}
        except ValueError as error:
            raise ValueError(f"{where}: its mirror {error}.") from None
    elif isinstance(given, Mapping) and "mirror" in given:
        raise ValueError(f"{where} has both a loss and a mirror, which is a loss itself; leave out one of them")
    if not isinstance(given, Mapping) or not callable(given.get("loss")) or set(given) - set(KEYS):
        raise ValueError(
            f"{where} must be a function (minibatch, outputs, model) -> scalar tensor, or a dict of it, "
            f"{{'loss': function, 'weight': 1.0, 'columns': [], 'stats': []}} ('mirror' in place of 'loss': "
            f"docs/guide/networks.md), but got {given!r:.200}"
        )
    weight = given.get("weight", 1.0)
    if problem := schedule_problem(weight):
        raise ValueError(f"{where}: its weight={weight!r:.80} {problem}")
    for key in ("columns", "stats"):
        names = given.get(key, ())
        if not isinstance(names, list | tuple) or not all(isinstance(each, str) for each in names):
            raise ValueError(f"{where}: its {key} must be a list of names, but got {names!r:.80}")
    return AuxiliaryLoss(
        name,
        given["loss"],
        Schedule(weight, f"{where}: its weight"),
        tuple(given.get("columns", ())),
        tuple(given.get("stats", ())),
    )


def _is_scalar(value) -> bool:
    return getattr(value, "ndim", None) == 0 and hasattr(value, "detach")
