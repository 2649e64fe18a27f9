"""Fully connected and convolutional networks in torch: views of the same flat vector as the numpy networks."""

import itertools
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from rllib.models.arithmetic.layer_norm import EPSILON
from rllib.models.dense.impala_in_torch import impala_features
from rllib.models.dense.layout import LayersLayout
from rllib.models.dense.noisy import NoisyLayout, NoisyNetwork
from rllib.models.observations.torso import Convolution, Image, Torso, as_conv2d

ACTIVATIONS = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "swish": functional.silu,
    "sigmoid": torch.sigmoid,
    "elu": functional.elu,
    "leaky_relu": functional.leaky_relu,
    "gelu": functional.gelu,
    "linear": lambda z: z,
}


def backward(loss: Tensor, modules: Collection) -> None:
    """Writes the gradient of a scalar with respect to each module's parameters into its `flat.grad`, overwriting it."""
    leaves = [leaf for module in modules for leaf in module.leaves]
    gradients = iter(torch.autograd.grad(loss, leaves, materialize_grads=True))
    with torch.no_grad():  # torch 2.6 gives zeros that require a gradient for leaves that the loss does not depend on
        for module in modules:
            module.receive(list(itertools.islice(gradients, len(module.leaves))))


class FlatModule(nn.Module):
    """A torch.nn.Module whose parameters, and their gradients, are views of two flat tensors.

    Losses are differentiated by `leaves`; `receive` puts these gradients into `flat.grad`, and optimizers step `flat`.
    The gradient of parameters that do not require one stays zero.

    Args:
        module: computes the results; its parameters become views of `flat`, in their order.
        flat: float32, as long as all parameters together, on any device; its memory is used, not copied.
    """

    def __init__(self, module: nn.Module, flat: Tensor):
        super().__init__()
        self.module = module
        self.flat = with_gradient(flat)
        parameters = list(module.parameters())
        self.leaves = [parameter for parameter in parameters if parameter.requires_grad]
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, view, gradient in zip(parameters, flat.split(sizes), self.flat.grad.split(sizes)):
            parameter.data, parameter.grad = view.view(parameter.shape), gradient.view(parameter.shape)

    def forward(self, *inputs: Tensor):
        return self.module(*inputs)

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One row of each of B sequences, of a module that has a memory and the `width` of its observations.

        Args:
            inputs: what `Policy.encode` gives, [B, ...].
            state: [B, state_size].

        Returns:
            distribution inputs [B, K], values [B] and the next states [B, state_size].
        """
        return self.module.step(first_columns(inputs, self.module.width), state)

    def receive(self, gradients: Sequence[Tensor]) -> None:
        """Writes the gradients of `leaves` into `flat.grad`, overwriting it."""
        torch._foreach_copy_([leaf.grad for leaf in self.leaves], gradients)


class Values(nn.Module):
    """Module of trainable numbers (models/modules.py: Parameter)."""

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.value = nn.Parameter(torch.empty(shape))

    def forward(self) -> Tensor:
        return self.value


class StackedLayers(nn.Module):
    """Fully connected layers and heads on a flat tensor, like FlatModule; one product computes a layer of all towers.

    `parameters()` are shaped as in torch.nn.Linear and may be read or changed; changes show in the flat vector.

    Args:
        layout: where the parameters lie.
        activations: activation function of each hidden layer, names in ACTIVATIONS.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
    """

    def __init__(self, layout: LayersLayout, activations: tuple[str, ...], flat: Tensor):
        super().__init__()
        self.layout = layout
        self._activations = [ACTIVATIONS[name] for name in activations]
        self.flat = with_gradient(flat)
        self._parts = _pieces(layout, flat)
        self.leaves = [part.requires_grad_() for part in self._parts.values()]
        self._gradients = list(_pieces(layout, self.flat.grad).values())
        # Hidden from autograd, which would take these changes for changes of the weights in the same memory.
        self._state = layout.blocks(flat.data) if layout.batch_renorm else {}
        register_parameters(self)

    def read_tail(self, start: int, flat: Tensor) -> None:
        """Reads the blocks from number `start` on from another vector of this layout; gradients stay in place."""
        slices = self.layout.slices
        for name, part in _pieces(self.layout, flat).items():
            if slices[name.partition(".")[0]].start >= start:
                self._parts[name] = part.requires_grad_()
        self.leaves = list(self._parts.values())

    def outputs(self, inputs: Tensor, by_batch: bool = False) -> Sequence[Tensor]:
        """Results [B, outputs] of each head.

        Args:
            inputs: [B, num_inputs + 1], closing with a 1 that represents the first layer's bias; with a torso, rows as
                they are stored.
            by_batch: batch renormalisation is by the statistics of these rows, which the running ones follow, instead
                of by the running ones.
        """
        if not self.layout.torso and not self.layout.hiddens and not self.layout.batch_renorm:
            read = inputs if self.layout.head_bias else inputs[:, :-1]
            heads = self.layout.head_blocks.items()
            return [out for name, sizes in heads for out in (read @ self._parts[name]).split(tuple(sizes.values()), 1)]
        return self._results(self._features(inputs, by_batch))

    def _features(self, inputs: Tensor, by_batch: bool = False) -> Tensor:
        """Inputs of the heads of each tower, [towers, B, width]."""
        layout, parts = self.layout, self._parts
        if layout.batch_renorm:
            return self._renormalized_features(inputs[:, :-1], by_batch)
        if layout.torso:
            features = torso_features(layout.torso, parts, inputs, layout.num_towers)
        else:
            z = torch.matmul(inputs, parts["hidden_0"])  # [towers, B, width]
            features = self._activations[0](self._normalized(0, z))
        for index in range(0 if layout.torso else 1, len(layout.hiddens)):
            weight, bias = parts[f"hidden_{index}.weight"], parts[f"hidden_{index}.bias"]
            features = self._activations[index](self._normalized(index, torch.baddbmm(bias, features, weight)))
        return features

    def _renormalized_features(self, inputs: Tensor, by_batch: bool) -> Tensor:
        parts, features = self._parts, inputs.expand(self.layout.num_towers, -1, -1)
        for index, activation in enumerate(self._activations):
            normal = self._renormalized(index, features, by_batch)
            weight, bias = parts[f"hidden_{index}.weight"], parts[f"hidden_{index}.bias"]
            features = activation(torch.baddbmm(bias, normal, weight))
        features = self._renormalized(len(self._activations), features, by_batch)
        if by_batch:
            self._state["passes"] += 1
        return features

    def _renormalized(self, index: int, x: Tensor, by_batch: bool) -> Tensor:
        """Batch renormalisation (batch_renorm.py) of x [towers, B, width]."""
        constants, epsilon = self.layout.batch_renorm, self.layout.batch_renorm.epsilon
        scale, shift = self._parts[f"renorm_{index}.weight"], self._parts[f"renorm_{index}.bias"]
        running_mean, running_variance = self._state[f"running_{index}"].split(1, dim=1)
        running_std = (running_variance + epsilon).sqrt()
        x = x.type_as(running_mean)  # statistics are of full precision under autocast as well
        if not by_batch:
            return torch.addcmul(shift, x - running_mean, scale / running_std)
        variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
        std = (variance + epsilon).sqrt()
        with torch.no_grad():
            is_warm = self._state["passes"] >= constants.warm_up
            r = torch.where(is_warm, (std / running_std).clamp(1 / constants.r_max, constants.r_max), 1.0)
            d = ((mean - running_mean) / running_std).clamp(-constants.d_max, constants.d_max)
            d = torch.where(is_warm, d, 0.0)
            running_mean.lerp_(mean, constants.momentum)
            running_variance.lerp_(variance, constants.momentum)
        return torch.addcmul(shift + d * scale, x - mean, r * scale / std)

    def _results(self, features: Tensor) -> list[Tensor]:
        found, parts = [], self._parts
        for (name, heads), read in zip(self.layout.head_blocks.items(), features.unbind()):
            if self.layout.head_bias:
                results = torch.addmm(parts[f"{name}.bias"], read, parts[f"{name}.weight"])
            else:
                results = read @ parts[name]
            found += results.split(tuple(heads.values()), dim=1) if len(heads) > 1 else [results]
        return found

    def receive(self, gradients: Sequence[Tensor]) -> None:
        torch._foreach_copy_(self._gradients, gradients)

    def _normalized(self, index: int, z: Tensor) -> Tensor:
        if not self.layout.layer_norm:
            return z
        normal = functional.layer_norm(z, z.shape[-1:], eps=EPSILON)
        return torch.addcmul(self._parts[f"norm_{index}.bias"], normal, self._parts[f"norm_{index}.weight"])


class TorchNetwork(StackedLayers):
    """The network of a policy, with or without a value head."""

    def forward(self, inputs: Tensor, by_batch: bool = False) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] and values [B] of what `Policy.encode` gives; values [0] without a value head."""
        dist_inputs, *values = self.outputs(inputs, by_batch)
        if self.layout.num_log_std:
            dist_inputs = torch.cat([dist_inputs, self._parts["log_std"].expand(dist_inputs.shape[0], -1)], dim=1)
        return dist_inputs, values[0].reshape(-1) if values else dist_inputs.new_empty(0)

    def with_features(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`forward` without a free log standard deviation, and the inputs [B, width] of the policy's head."""
        features = self._features(inputs)
        dist_inputs, *values = self._results(features)
        return dist_inputs, values[0].reshape(-1) if values else dist_inputs.new_empty(0), features[0]


class TorchLayers(StackedLayers):
    """Fully connected layers over several tensors side by side (models/modules.py: FullyConnected).

    Args:
        layout, activations, flat: as for StackedLayers.
        reads: what the arguments of a call are; "observation" closes with a 1 already.
        stacked: whether the results of several networks are stacked.
        single: results, of one output, have no axis of outputs.
    """

    def __init__(
        self,
        layout: LayersLayout,
        activations: tuple[str, ...],
        flat: Tensor,
        reads: tuple[str, ...],
        stacked: bool = False,
        single: bool = False,
    ):
        super().__init__(layout, activations, flat)
        self._reads, self._stacked, self._single = reads, stacked, single

    def forward(self, *read: Tensor, by_batch: bool = False) -> Tensor:
        """Results [B, outputs], or [B] of a single one, stacked for several networks; `read`: [B, ...] each."""
        # The bias is the last row of the first layer's weights, so a column of ones comes last, once.
        parts = [*map(flat_rows, read)]
        parts = [part[:, :-1] if name == "observation" else part for name, part in zip(self._reads, parts, strict=True)]
        results = self.outputs(torch.cat([*parts, parts[0].new_ones((parts[0].shape[0], 1))], dim=1), by_batch)
        outputs = torch.stack(results) if self._stacked else results[0]
        return outputs[..., 0] if self._single else outputs


def with_gradient(flat: Tensor) -> Tensor:
    """The tensor as a leaf with a gradient; zeros if it has none yet."""
    gradient = torch.zeros_like(flat) if flat.grad is None else flat.grad
    flat = flat.detach().requires_grad_()
    flat.grad = gradient
    return flat


def register_parameters(module: nn.Module) -> None:
    """Registers the parameters that `module.layout` names, as views of `module.flat`, and their gradients."""
    gradients = module.layout.named_parameters(module.flat.grad)
    for name, view in module.layout.named_parameters(module.flat.detach()).items():
        parameter = nn.Parameter(view)
        parameter.grad = gradients[name]
        module.register_parameter(name.replace(".", "_"), parameter)


def _pieces(layout: LayersLayout, flat: Tensor) -> dict[str, Tensor]:
    """Parts of the blocks that `forward` reads: weights apart from biases, and the first layer stacked.

    Without a torso the first layer's bias stays the last row of its weights, since inputs then close with a 1. Running
    statistics are left out: no gradient moves them.

    For every slice of a leaf, autograd would write a gradient as long as the whole leaf; so the slices, made once and
    outside of any graph, are the leaves.
    """
    blocks, torso = layout.blocks(flat.detach()), layout.torso
    parts = torso_pieces(torso, blocks, layout.num_towers) if torso else {}
    for name, block in blocks.items():
        if name.startswith(("image_", "running_")) or name == "passes":
            continue
        is_first = name == "hidden_0" and not layout.batch_renorm
        if is_first:
            block = block.reshape(len(block), layout.num_towers, -1).transpose(0, 1)
        is_whole = torso is None and (is_first or not (layout.hiddens or layout.batch_renorm))
        if name == "log_std" or is_whole or (name in layout.head_blocks and not layout.head_bias):
            parts[name] = block
        else:
            parts[f"{name}.weight"], parts[f"{name}.bias"] = block[..., :-1, :], block[..., -1:, :]
    return parts


class NoisyTorchNetwork(nn.Module):
    """Like TorchNetwork, for parameters mu and sigma in one flat tensor, with the noise of a policy's own network.

    Args:
        layout: where the parameters lie.
        make: builds the module that computes on a flat tensor of plain weights; it has `read_tail`.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
        noise: the network that holds the noise; it is read at every forward pass.
    """

    def __init__(self, layout: NoisyLayout, make: Callable[[Tensor], nn.Module], flat: Tensor, noise: NoisyNetwork):
        super().__init__()
        self.layout = layout
        self.flat = with_gradient(flat)
        self._noise, self._drawn = noise, torch.zeros(len(noise.weight_noise), device=flat.device)
        start, size = layout.start, layout.plain.size
        mu = self.flat.detach()[:size]
        mu.grad = self.flat.grad[:size]
        plain = make(mu)
        # As long as mu, so that blocks lie at the same places; what comes before the noisy layers is never touched.
        summed = torch.empty(size, device=flat.device)
        plain.read_tail(start, summed)
        self._mu, self._sigma, self._summed = mu[start:], self.flat.detach()[size:], summed[start:]
        self._plain = [plain]  # in a list, so that its parameters are not registered twice
        register_parameters(self)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] and values [B]."""
        self._drawn.copy_(torch.from_numpy(self._noise.weight_noise))
        torch.addcmul(self._mu, self._sigma, self._drawn, out=self._summed)
        return self._plain[0](inputs)

    @property
    def leaves(self) -> list[Tensor]:
        return self._plain[0].leaves

    def receive(self, gradients: Sequence[Tensor]) -> None:
        size, gradient = self.layout.plain.size, self.flat.grad
        self._plain[0].receive(gradients)
        torch.mul(gradient[self.layout.start : size], self._drawn, out=gradient[size:])


def flat_rows(rows: Tensor) -> Tensor:
    """The numbers [B, n] of each row of a tensor [B, ...]; of rows without axes, [B], one each."""
    return rows[:, None].flatten(1)


def first_columns(rows: Tensor, width: int) -> Tensor:
    """The first `width` numbers of each row; images [B, ...] unchanged."""
    return rows[:, :width] if rows.dim() == 2 else rows


# ---------------------------------------------------------------------- the convolutions of a torso


def torso_pieces(torso: Torso, blocks: dict[str, Tensor], towers: int) -> dict[str, Tensor]:
    """Parts of the torso's blocks that `torso_features` reads: each tower's kernels as in torch.nn.Conv2d."""
    parts = {}
    for tower in range(towers):
        for name, _ in torso.named_layers():
            parts[f"{name}.{tower}.weight"] = as_conv2d(blocks[name][tower])
            parts[f"{name}.{tower}.bias"] = blocks[f"{name}_bias"][tower]
            if torso.layer_norm:
                parts[f"{name}.{tower}.norm"] = blocks[f"{name}_norm"][tower]
            if name in torso.spectral_layers:
                parts[f"{name}.{tower}.direction"] = blocks[f"{name}_direction"][tower]
    return parts


def torso_features(torso: Torso, parts: dict[str, Tensor], rows: Tensor, towers: int) -> Tensor:
    """Features [towers, B, num_features] of stored rows [B, ...] of any numeric dtype."""
    flat = rows.reshape(rows.shape[0], -1)
    images = [_channels_last(image, flat) for image in torso.images]
    others = [flat[:, start:stop].float() * scale for start, stop, scale in torso.others]
    found = []
    for tower in range(towers):
        seen = [
            _convolved(torso, number, image, pixels, parts, tower)
            for number, (image, pixels) in enumerate(zip(torso.images, images))
        ]
        found.append(torch.cat([*seen, *others], dim=1) if others or len(seen) > 1 else seen[0])
    return torch.stack(found) if towers > 1 else found[0][None]


def _channels_last(image: Image, flat: Tensor) -> Tensor:
    """Pixels of the image, float [B, C, H, W], with the channels of a place side by side in memory."""
    pixels = flat[:, image.start : image.start + image.size].unflatten(1, image.shape)
    if len(image.shape) == 2:
        pixels = pixels[..., None]
    elif image.channels_first:
        # One plane after the other, while they are bytes: three times as fast as a transposition of floats.
        pixels = torch.stack(pixels.unbind(1), dim=-1)
    return pixels.float().permute(0, 3, 1, 2)


def _convolved(torso: Torso, number: int, image: Image, pixels: Tensor, parts: dict, tower: int) -> Tensor:
    """Features [B, num_features], in the order height, width, channels."""
    if image.impala:
        name, activation = f"image_{number}_conv_{{}}.{tower}", ACTIVATIONS[torso.activation]
        return _rows(impala_features(image, name, pixels, image.scale, parts, activation))
    x, scale = pixels, image.scale
    for index, layer in enumerate(image.layers):
        name = f"image_{number}_conv_{index}.{tower}"
        # The kernels are fewer than the pixels: they are scaled instead.
        weight = parts[f"{name}.weight"] * scale if scale != 1.0 else parts[f"{name}.weight"]
        scale = 1.0
        x = _padded_conv(layer, x, weight, parts[f"{name}.bias"])
        if torso.layer_norm:
            x = _normalized(x, parts[f"{name}.norm"])
        x = ACTIVATIONS[torso.activation](x)
    return _rows(x)


def _padded_conv(layer: Convolution, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    top, bottom, left, right = layer.pads
    padding = (top, left)
    if (top, left) != (bottom, right):
        x, padding = functional.pad(x, (left, right, top, bottom)), 0
    elif padding == (0, 0) and x.shape[2:] == weight.shape[2:]:
        # A kernel as large as the image is a product of matrices. As a convolution it takes five times as long, since
        # torch rearranges the many weights.
        return functional.linear(_rows(x), _rows(weight), bias)[:, :, None, None]
    return functional.conv2d(x, weight, bias, layer.filters.stride, padding)


def _rows(images: Tensor) -> Tensor:
    """Images [B, C, H, W] as rows in the order height, width, channels, in which both pixels and kernels are stored."""
    return images.permute(0, 2, 3, 1).flatten(1)


def _normalized(x: Tensor, norm: Tensor) -> Tensor:
    channels_last = x.permute(0, 2, 3, 1)
    normal = functional.layer_norm(channels_last, channels_last.shape[-1:], norm[0], norm[1], EPSILON)
    return normal.permute(0, 3, 1, 2)
