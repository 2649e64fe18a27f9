"""Base class of learners that change an algorithm's loss, as in RLlib's new API stack.

    class Regularized(TorchLearner):
        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
            weights = torch.cat([each.flatten() for each in self.get_parameters(self.module[module_id])])
            self.metrics.log_value((module_id, "mean_weight"), weights.mean(), window=1)
            return loss + config.learner_config_dict["coefficient"] * weights.square().sum()

    config.training(learner_class=Regularized, learner_config_dict={"coefficient": 1e-3})

The loss is minimised instead of the algorithm's (docs/guide/networks.md: custom_loss). An object of the class
lives in each process that learns.
"""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from rllib.core.metrics.metrics_logger import MetricsLogger
from rllib.did_you_mean import misspelt_override


class TorchLearner:
    """The loss of one policy; a subclass overrides `compute_loss_for_module`.

    Args:
        config: settings of the policy.
        module: {policy id: torch module}.
        kwargs: without effect; RLlib's constructor has more.

    Attributes:
        columns: further columns of the train batch that the loss reads.
        config, module: see the arguments.
        metrics: values that are logged under (policy id, name) are among the policy's statistics.
        algorithm_loss: loss of the algorithm for the present minibatch, a scalar tensor with its graph.
    """

    framework: ClassVar[str] = "torch"
    columns: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, config: Any = None, module: Mapping[str, Any] | None = None, **kwargs: Any):
        self.config = config
        self.module: Any = module
        self.metrics = MetricsLogger(records=True)
        self.algorithm_loss: Any = None

    def build(self) -> None:
        """Makes what the loss needs; called once, when `config` and `module` are set."""

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Any:
        """The loss to minimise for a minibatch, a scalar tensor; by default the algorithm's.

        Args:
            module_id: id of the policy.
            config: settings of the policy.
            batch: column name -> tensor [B, ...]: those of the algorithm's loss, and `columns`.
            fwd_out: `action_dist_inputs` [B, K] and `vf_preds` [B], with gradients.
        """
        return self.algorithm_loss

    def get_parameters(self, module: Any) -> list:
        """The parameters of a module."""
        return list(module.parameters())

    @property
    def device(self) -> Any:
        """The device of the parameters."""
        return next(iter(next(iter(self.module.values())).parameters())).device


_LEARNING_RATE = (
    "use .training(lr=..., opt_type=..., adam_epsilon=..., weight_decay=...); a schedule is "
    "lr=[[0, 1e-3], [100_000, 1e-4]]"
)
_GRADIENTS = "use .training(grad_clip=..., grad_clip_by=...), and add to the loss in compute_loss_for_module"
_ALGORITHM = "derive an algorithm and write its training_step and loss (docs/project/extend.md)"
_UPDATES = (
    "use on_train_result or on_learn_on_batch of your callbacks; coefficients that change over time are weights of "
    "auxiliary_losses (docs/guide/networks.md)"
)
# Methods of RLlib's Learner that nothing here calls, and what replaces each.
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("configure_optimizers_for_module", "configure_optimizers", "register_optimizer"), _LEARNING_RATE),
    **dict.fromkeys(
        ("compute_gradients", "apply_gradients", "postprocess_gradients", "postprocess_gradients_for_module"),
        _GRADIENTS,
    ),
    **dict.fromkeys(("before_gradient_based_update", "after_gradient_based_update"), _UPDATES),
    **dict.fromkeys(("compute_losses", "update", "_update"), _ALGORITHM),
    "calculate_metrics": "log values in compute_loss_for_module: self.metrics.log_value((module_id, name), value)",
    "rl_module_required_apis": "leave it out; a module is checked when the algorithm is built",
}


def learner_problem(learner_class: Any) -> str | None:
    """Sentence on the mistake in the setting learner_class; None if it is valid."""
    if not inspect.isclass(learner_class) or not issubclass(learner_class, TorchLearner):
        return (
            f"learner_class={learner_class!r:.80} must be a class derived from TorchLearner, whose "
            "compute_loss_for_module gives the loss. Use .training(learner_class=MyLearner) with "
            "`from rllib.core import TorchLearner`."
        )
    for kind in learner_class.__mro__:
        if kind is TorchLearner:
            break
        for name in vars(kind).keys() & REFUSED.keys():
            return (
                f"learner_class={learner_class.__name__} overrides {name}, which nothing calls here: {REFUSED[name]}. "
                "Of a Learner compute_loss_for_module and build are used."
            )
    problem = misspelt_override(learner_class, TorchLearner, ("compute_loss_for_module", "build"))
    return problem and f"learner_class={problem}"
