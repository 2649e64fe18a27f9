"""Whether a network of the user's keeps its contract (own_model.py): it is called with made-up observations."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rllib.models.observations.structure import sampled_rows

ROWS = 2


class Probe:
    """Calls a module with made-up observations and checks what comes back.

    Args:
        spec: the description of the policy whose network it is (OwnModelSpec).
    """

    def __init__(self, spec):
        self.spec, self.num_outputs = spec, spec.distribution.num_inputs
        self.called = spec.called_by_rows()
        self.module = self.called.module
        rows = sampled_rows(spec.observation_space, ROWS, spec.observation_filter != "NoFilter")
        self.rows = torch.from_numpy(rows)

    def run(self) -> None:
        """Raises a ValueError that says what is wrong, what was expected, and what to do."""
        self.check_parameters()
        before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        outputs = self.outputs(self.rows)
        for name, buffer in self.module.named_buffers():
            if not torch.equal(buffer, before[name]):
                raise self.problem(
                    f"forward() changes its buffer {name!r}, but workers and learner share parameters alone, so their "
                    "networks would differ. Use LayerNorm or GroupNorm in the place of BatchNorm, and a memory for "
                    "what a network remembers of an episode."
                )
        if not are_close(outputs, self.outputs(self.rows)):
            dropout = [name for name, part in self.module.named_modules() if "Dropout" in type(part).__name__]
            cause = f" It has {', '.join(dropout)}." if dropout else ""
            raise self.problem(
                "forward() gives other results for the same observations in each call, so the learner would see other "
                f"probabilities than those that acted.{cause} Leave out what is random; the action distribution "
                "explores."
            )
        if not are_close([output[:1] for output in outputs], self.outputs(self.rows[:1])):
            raise self.problem(
                "forward() gives another result for an observation alone than for the same one in a batch: it mixes "
                "rows. Keep the batch axis first in every operation, as in reshape(len(x), -1) and softmax(-1)."
            )

    def check_parameters(self) -> None:
        parameters = dict(self.module.named_parameters())
        for name, parameter in parameters.items():
            if nn.parameter.is_lazy(parameter):
                raise self.problem(f"its parameter {name!r} has no shape yet. Make its layer with the sizes it has.")
            if parameter.dtype != torch.float32:
                raise self.problem(f"its parameter {name!r} is {parameter.dtype}, but all have to be torch.float32.")
        if not any(parameter.requires_grad for parameter in parameters.values()):
            raise self.problem("it has no parameters to train. Make layers in its constructor, as attributes.")

    def outputs(self, rows: Tensor) -> list[Tensor]:
        """What the module returns for the rows, after all checks of its form."""
        count, shapes = len(rows), self.spec.state_shapes
        state = [torch.zeros(count, *shape) for shape in shapes] if shapes else None
        try:
            with torch.no_grad():
                returned = self.called.outputs(rows, state)
        except Exception as error:
            error.add_note(
                f"raised by forward() of the custom model {self.spec.network_name}, which was tried with {count} "
                f"made-up observations of {self.spec.observation_space}: {form_of(self.called.structure.of_rows(rows))}"
            )
            raise
        names = ["dist_inputs", "values", "state"] if shapes else ["dist_inputs", "values"]
        if not self.spec.critic and not shapes:
            returned, names = (returned[:1] if isinstance(returned, tuple) else (returned,)), names[:1]
        if not isinstance(returned, tuple) or len(returned) != len(names):
            raise self.problem(f"forward() must return ({', '.join(names)}), but returned {form_of(returned)}.")
        self.check_tensor("dist_inputs", returned[0], (count, self.num_outputs), "num_outputs numbers for each row")
        if self.spec.critic:
            self.check_tensor("values", returned[1], (count,), "one number for each row")
        if not shapes:
            return list(returned)
        state = returned[2]
        if not isinstance(state, list | tuple) or len(state) != len(shapes):
            raise self.problem(
                f"the state that forward() returns must be a list of {len(shapes)} tensors like that of "
                f"initial_state(), but is {form_of(state)}."
            )
        for index, (part, shape) in enumerate(zip(state, shapes)):
            self.check_tensor(f"state[{index}]", part, (count, *shape), "initial_state()'s shape for each row")
        return [returned[0], *state]

    def check_tensor(self, name: str, tensor, shape: tuple[int, ...], meaning: str) -> None:
        if not isinstance(tensor, Tensor) or tensor.dtype != torch.float32 or tensor.shape != shape:
            hint = ""
            if isinstance(tensor, Tensor) and tensor.shape == (*shape, 1):
                hint = f" Return {name}.squeeze(-1)."
            elif isinstance(tensor, Tensor) and tensor.shape == shape:
                hint = f" Return {name}.float()."
            raise self.problem(
                f"{name} must be float32{list(shape)} for {shape[0]} observations, {meaning}, but forward() returned "
                f"{form_of(tensor)}.{hint}"
            )
        if not tensor.isfinite().all():
            raise self.problem(
                f"{name} of made-up observations has numbers that are not finite, such as "
                f"{tensor[~tensor.isfinite()][0].item()}. Where an action must not be taken, use "
                "torch.finfo(torch.float32).min instead of -inf."
            )

    def problem(self, what: str) -> ValueError:
        return ValueError(f"the custom model {self.spec.network_name} cannot be used: {what}")


def are_close(some: list[Tensor], others: list[Tensor]) -> bool:
    """Whether the outputs differ by rounding alone."""
    return all(torch.allclose(one, other, rtol=1e-3, atol=1e-4) for one, other in zip(some, others, strict=True))


def form_of(value) -> str:
    """Types and shapes of what a module got or returned: "(float32[2, 4], float32[2])"."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {form_of(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        inner = ", ".join(map(form_of, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return f"{value!r:.60}"
