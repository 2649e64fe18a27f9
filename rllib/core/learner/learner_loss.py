"""A TorchLearner as the loss of a policy: the setting custom_loss of losses/user/auxiliary.py, as an object."""

from collections.abc import Mapping
from typing import Any

from rllib.core.columns import Columns
from rllib.core.learner.torch_learner import TorchLearner
from rllib.core.metrics.metrics_logger import Call


class LearnerLoss:
    """Computes the loss of a learner's class; each process makes its own learner at the first call.

    Args:
        learner_class: derived from TorchLearner.
        config: settings of the policy.
        module_id: id of the policy.

    Attributes:
        columns: columns that it reads in addition to those of the algorithm's loss.
        setting: its name in messages.
    """

    setting = "compute_loss_for_module of learner_class"

    def __init__(self, learner_class: type[TorchLearner], config: Any, module_id: str):
        self._class, self._config, self._module_id = learner_class, config, module_id
        self.columns = tuple(learner_class.columns)
        self._learner: TorchLearner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_learner": None}

    def __call__(self, loss: Any, minibatch: Mapping[str, Any], outputs: Any, model: Any) -> Any:
        """The loss to minimise; arguments as of the setting custom_loss."""
        learner, module_id = self._learner, self._module_id
        if learner is None:
            learner = self._learner = self._class(config=self._config, module={})
            learner.module = {module_id: model if hasattr(model, "compute_values") else ModuleView(model)}
            learner.build()
        learner.algorithm_loss = loss
        view = learner.module[module_id]
        if isinstance(view, ModuleView):
            view.outputs = outputs
        forward = {Columns.ACTION_DIST_INPUTS: outputs.dist_inputs}
        if outputs.has_values:
            forward[Columns.VF_PREDS] = outputs.values
        return learner.compute_loss_for_module(
            module_id=module_id, config=self._config, batch=LossBatch(minibatch), fwd_out=forward
        )

    def pop_logged(self) -> list[Call]:
        """Values that the learner has logged since the last time."""
        return [] if self._learner is None else self._learner.metrics.pop_calls()


class LossBatch(dict):
    """The minibatch of a loss; a missing column is refused with the way."""

    def __missing__(self, column: str):
        raise KeyError(
            f"the batch of compute_loss_for_module has {', '.join(self)}, but no {column!r}. Name what the loss reads "
            f"as well in the class, columns = ({column!r},): a train batch has the columns that its algorithm computes."
        )


class ModuleView:
    """A network that is no RLModule, with the methods of one that losses call.

    Args:
        network: a torch module; its attributes are this object's as well.

    Attributes:
        outputs: of the present minibatch.
    """

    def __init__(self, network: Any):
        self._network, self.outputs = network, None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._network, name)

    def compute_values(self, batch: Mapping[str, Any], embeddings: Any = None) -> Any:
        """Values [B] of the present minibatch, with gradients."""
        return self.outputs.values

    def unwrapped(self) -> Any:
        """The torch module."""
        return self._network
