"""Networks of residual blocks in torch, on views of a flat vector; one product computes a layer of all copies."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from rllib.models.arithmetic.layer_norm import EPSILON as NORM_EPSILON
from rllib.models.dense.in_torch import flat_rows, with_gradient
from rllib.models.residual.layout import (
    BATCH_EPSILON,
    EPSILON,
    FLASH_SAC,
    LEAST_LENGTH,
    MOMENTUM,
    RMS_EPSILON,
    SHIFT,
    ResidualLayout,
    project,
)


class ResidualModule(nn.Module):
    """Residual blocks and heads on a flat tensor, like FlatModule. `flat` and `leaves` are of what is trained.

    Args:
        layout: where the parameters lie.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
    """

    def __init__(self, layout: ResidualLayout, flat: Tensor):
        super().__init__()
        self.layout = layout
        # Statistics are hidden from autograd, which would take their changes for changes of the weights next to them.
        trained, (_, self._mean, self._variance) = layout.split(flat.detach())[0], layout.split(flat.data)
        self._running = {
            name: (mean[:, None], variance[:, None])
            for (name, mean), variance in zip(
                layout.of_norms(self._mean).items(), layout.of_norms(self._variance).values(), strict=True
            )
        }
        self.flat = with_gradient(trained)
        self._parts = layout.trained.blocks(self.flat.detach())
        self.leaves = [part.requires_grad_() for part in self._parts.values()]
        self._gradients = list(layout.trained.blocks(self.flat.grad).values())
        gradients = layout.trained.named_parameters(self.flat.grad)
        for name, view in layout.trained.named_parameters(self.flat.detach()).items():
            parameter = nn.Parameter(view)
            parameter.grad = gradients[name]
            self.register_parameter(name.replace(".", "_"), parameter)

    def results(self, inputs: Tensor, by_batch: bool = False) -> list[Tensor]:
        """Results [copies, B, outputs] of each head.

        Args:
            inputs: [B, num_inputs], the observation first.
            by_batch: normalisations by batches are by these rows, which move the running statistics, instead of by
                these.
        """
        if self.layout.residual.is_by_batch:
            return self._batch_normalized(inputs, by_batch)
        count = self.layout.num_observed
        observed = (inputs[:, :count] - self._mean) * (self._variance + EPSILON).rsqrt()
        x = observed if inputs.shape[1] == count else torch.cat([observed, inputs[:, count:]], dim=1)
        of_network = self._spherical if self.layout.residual.is_spherical else self._normalized
        return of_network(x)

    def _normalized(self, x: Tensor) -> list[Tensor]:
        """SimBa's network."""
        x = self._affine("embed", x)
        for index in range(self.layout.residual.num_blocks):
            block = f"block_{index}"
            hidden = torch.relu(self._affine(f"{block}.up", self._norm(f"{block}.norm", x)))
            x = x + self._affine(f"{block}.down", hidden)
        x = self._norm("norm", x)
        return [self._affine(f"head_{index}", x) for index in range(len(self.layout.heads))]

    def _spherical(self, x: Tensor) -> list[Tensor]:
        """SimbaV2's network."""
        x = _of_length_1(torch.cat([x, x.new_full((x.shape[0], 1), SHIFT)], dim=1))
        x = _of_length_1(self._scaled("embed", self._product("embed", x)))
        for index in range(self.layout.residual.num_blocks):
            block = f"block_{index}"
            hidden = torch.relu(self._scaled(f"{block}.up", self._product(f"{block}.up", x)))
            # A block whose units are all off would have no direction.
            following = _of_length_1(self._product(f"{block}.down", hidden + LEAST_LENGTH))
            x = _of_length_1(x + self._scaled(f"{block}.rate", following - x))
        found = []
        for index in range(len(self.layout.heads)):
            hidden = self._scaled(f"head_{index}_hidden", self._product(f"head_{index}_hidden", x))
            found.append(self._affine(f"head_{index}", hidden))
        return found

    def _batch_normalized(self, x: Tensor, by_batch: bool) -> list[Tensor]:
        """XQC's network, and FlashSAC's."""
        residual = self.layout.residual

        def norm(name: str, x: Tensor) -> Tensor:
            return self._norm_of_batch(name, x, by_batch)

        x = norm("embed_norm", x[None])
        if residual.name == FLASH_SAC:
            x = self._product("embed", x)
            for index in range(residual.num_blocks):
                block = f"block_{index}"
                hidden = torch.relu(norm(f"{block}.up_norm", self._product(f"{block}.up", x)))
                x = x + torch.relu(norm(f"{block}.down_norm", self._product(f"{block}.down", hidden)))
            size = (x.square().mean(-1, keepdim=True) + RMS_EPSILON).rsqrt()
            x = x * size * self._parts["norm.weight"][:, None]
        else:
            for index in range(residual.num_blocks):
                x = torch.relu(norm(f"layer_{index}_norm", self._product(f"layer_{index}", x)))
        return [self._affine(f"head_{index}", x) for index in range(len(self.layout.heads))]

    def _norm_of_batch(self, name: str, x: Tensor, by_batch: bool) -> Tensor:
        """Batch normalisation of x, [copies or 1, B, features]."""
        running_mean, running_variance = self._running[name]
        mean, variance = running_mean, running_variance
        x = x.type_as(mean)  # statistics are of full precision under autocast as well
        if by_batch:
            variance, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
            with torch.no_grad():
                running_mean.lerp_(mean.expand_as(running_mean), MOMENTUM)
                running_variance.lerp_(variance.expand_as(running_variance), MOMENTUM)
        epsilon = BATCH_EPSILON[self.layout.residual.name]
        scale, shift = (self._parts[f"{name}.{part}"][:, None] for part in ("weight", "bias"))
        return torch.addcmul(shift, x - mean, scale * (variance + epsilon).rsqrt())

    def _product(self, name: str, x: Tensor) -> Tensor:
        return x @ self._parts[f"{name}.weight"]

    def _affine(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self._parts[f"{name}.weight"], self._parts[f"{name}.bias"][:, None]
        return x @ weight + bias if x.dim() == 2 else torch.baddbmm(bias, x, weight)

    def _scaled(self, name: str, x: Tensor) -> Tensor:
        scale = self._parts[f"{name}.scale"][:, None]
        return x * (self.layout.trained.scale_factor(f"{name}.scale") * scale)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        normal = functional.layer_norm(x, x.shape[-1:], eps=NORM_EPSILON)
        return torch.addcmul(self._parts[f"{name}.bias"][:, None], normal, self._parts[f"{name}.weight"][:, None])

    def receive(self, gradients: Sequence[Tensor]) -> None:
        """Writes the gradients of `leaves` into `flat.grad`, overwriting it."""
        torch._foreach_copy_(self._gradients, gradients)

    def project(self) -> None:
        """Brings weights back to their lengths where the network asks for it; learners call it after each step."""
        if self.layout.residual.has_projection:
            project(self.layout.trained.projected(self._parts))


class ResidualPolicy(ResidualModule):
    """The network of a policy, without a value."""

    def forward(self, inputs: Tensor, by_batch: bool = False) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] of encoded observations [B, num_inputs + 1], and no values [0]."""
        dist_inputs = torch.cat([results[0] for results in self.results(inputs[:, :-1], by_batch)], dim=1)
        return dist_inputs, dist_inputs.new_empty(0)


class ResidualCritics(ResidualModule):
    """Networks that read several tensors side by side (models/modules.py: ResidualNetworks).

    Args:
        layout, flat: as for ResidualModule.
        stacked: whether the results of several networks are stacked.
        single: results, of one output, have no axis of outputs.
    """

    def __init__(self, layout: ResidualLayout, flat: Tensor, stacked: bool, single: bool):
        super().__init__(layout, flat)
        self._stacked, self._single = stacked, single

    def forward(self, observations: Tensor, *others: Tensor, by_batch: bool = False) -> Tensor:
        """Results [B, outputs], or [B] of a single one, stacked for several networks.

        Args:
            observations: encoded, [B, num_observed + 1].
            others: [B, ...] each.
            by_batch: as for `results`.
        """
        read = [observations[:, :-1], *map(flat_rows, others)]
        (results,) = self.results(torch.cat(read, dim=1) if others else read[0], by_batch)
        outputs = results if self._stacked else results[0]
        return outputs[..., 0] if self._single else outputs


def _of_length_1(x: Tensor) -> Tensor:
    return functional.normalize(x, dim=-1, eps=LEAST_LENGTH)
