"""Acting by tensors on any device: observations to network inputs, and actions drawn from distributions.

These functions do with tensors what `Encoder.encode` and `Distribution.sample` do with arrays. None of them waits for
the device.
"""

import functools

import torch
from torch import Tensor

from rllib.models.distributions.joint_q_values import JointQValues
from rllib.models.distributions.q_values import QValues
from rllib.models.distributions.standard import TINY, Categorical, Deterministic, DiagGaussian, MultiCategorical
from rllib.models.observations.encoders import BoxEncoder, Encoder, FlatEncoder, MaskedEncoder, OneHotEncoder
from rllib.models.observations.masks import parts_of_mask

# ---------------------------------------------------------------------- observations


def encoded(encoder: Encoder, observations: Tensor, out: Tensor | None = None) -> Tensor:
    """Encodes stored observations, on their device.

    Args:
        encoder: encoder of the policy.
        observations: [B, *shape].
        out: float32 [B, size + 1], written instead of new memory; its last column is 1 already.

    Returns:
        float32 [B, size + 1], closing with ones; the observations themselves where the encoder leaves them as stored.
    """
    if encoder.as_stored:
        return observations
    if out is None:
        out = observations.new_ones((observations.shape[0], encoder.size + 1), dtype=torch.float32)
    _encode(encoder, observations, out[:, :-1])
    return out


@functools.singledispatch
def _encode(encoder, observations: Tensor, out: Tensor) -> None:
    """Writes the encoded observations into out [B, size]."""
    raise TypeError(f"{type(encoder).__name__} does not encode tensors")


@_encode.register
def _(encoder: BoxEncoder, observations: Tensor, out: Tensor) -> None:
    out.copy_(observations.reshape(out.shape))
    if encoder.scale != 1.0:
        out.mul_(encoder.scale)


@_encode.register
def _(encoder: FlatEncoder, observations: Tensor, out: Tensor) -> None:
    out.copy_(observations)
    for start, stop in encoder.pixels:
        out[:, start:stop].mul_(1 / 255)


@_encode.register
def _(encoder: OneHotEncoder, observations: Tensor, out: Tensor) -> None:
    out.zero_().scatter_(1, (observations - encoder.start)[:, None], 1.0)


@_encode.register
def _(encoder: MaskedEncoder, observations: Tensor, out: Tensor) -> None:
    first = encoder.num_choices
    out[:, :first].copy_(_columns(observations, encoder.ranges))
    _encode(encoder.inner, _columns(observations, encoder.other_ranges), out[:, first:])


def decoded(encoder: Encoder, inputs: Tensor) -> Tensor:
    """The stored observations that `encoded` has made these rows of; numbers of a BoxEncoder or FlatEncoder as floats.

    Args:
        encoder: encoder of the policy.
        inputs: float32 [B, size + 1], closing with ones, or rows as they are stored where the encoder leaves them so.

    Returns:
        [B, *shape].
    """
    return inputs if encoder.as_stored else _decode(encoder, inputs[:, :-1])


@functools.singledispatch
def _decode(encoder, inputs: Tensor) -> Tensor:
    """Stored observations of encoded ones [B, size]."""
    raise TypeError(f"{type(encoder).__name__} does not decode tensors")


@_decode.register
def _(encoder: BoxEncoder, inputs: Tensor) -> Tensor:
    # What has a scale are pixels, which are whole numbers.
    numbers = inputs if encoder.scale == 1.0 else (inputs / encoder.scale).round()
    return numbers.reshape(-1, *encoder.shape)


@_decode.register
def _(encoder: FlatEncoder, inputs: Tensor) -> Tensor:
    inputs = inputs.clone()
    for start, stop in encoder.pixels:
        inputs[:, start:stop].mul_(255).round_()
    return inputs


@_decode.register
def _(encoder: OneHotEncoder, inputs: Tensor) -> Tensor:
    return inputs.argmax(1) + encoder.start


@_decode.register
def _(encoder: MaskedEncoder, inputs: Tensor) -> Tensor:
    mask, others = inputs[:, : encoder.num_choices], _decode(encoder.inner, inputs[:, encoder.num_choices :])
    places = {}
    for rows, ranges in ((mask, encoder.ranges), (others, encoder.other_ranges)):
        first = 0
        for start, stop in ranges:
            places[start] = rows[:, first : first + stop - start]
            first += stop - start
    return torch.cat([places[start] for start in sorted(places)], 1)


def _columns(rows: Tensor, ranges: tuple[tuple[int, int], ...]) -> Tensor:
    """The columns (start, stop) of rows [B, size] side by side."""
    return torch.cat([rows[:, start:stop] for start, stop in ranges], 1)


def without_choice(mask: Tensor, distribution) -> Tensor:
    """Whether masks [B, num_choices] leave some part of the action without a legal choice, bool [B]."""
    none = [(mask[:, columns] == 0).all(1) for columns, _ in parts_of_mask(distribution)]
    return torch.stack(none).any(0)


# ---------------------------------------------------------------------- actions


def draws_tensors(distribution) -> bool:
    """Whether `noise` and `sample` have a form for this distribution."""
    is_known = isinstance(distribution, Categorical | MultiCategorical | DiagGaussian)
    return is_known and distribution.has_log_prob


def noise(distribution, generator: torch.Generator, *shape: int) -> Tensor:
    """Noise for `sample`, float32 [*shape, num_noise] on the generator's device; zeros give the most probable actions.

    Args:
        distribution: distribution of the actions.
        generator: source of randomness.
        shape: leading dimensions, such as (T, N).
    """
    drawn = torch.empty(*shape, distribution.num_noise, device=generator.device)
    if isinstance(distribution, DiagGaussian):
        return drawn.normal_(generator=generator)
    # Standard Gumbel numbers: -log of standard exponential ones.
    return drawn.exponential_(generator=generator).clamp_(min=float(TINY)).log_().neg_()


def mode(distribution, inputs: Tensor) -> Tensor:
    """The most probable actions [B, *action_shape], as `mode` of the distribution gives them for arrays.

    Args:
        distribution: distribution of the actions.
        inputs: float32 [B, num_inputs], computed by the network.

    Raises:
        TypeError: for a distribution without this form.
    """
    if isinstance(distribution, Deterministic):
        return inputs.tanh().reshape(-1, *distribution.action_shape)
    if isinstance(distribution, DiagGaussian):
        return distribution.torch_moments(inputs)[0].reshape(-1, *distribution.action_shape)
    if isinstance(distribution, Categorical):
        return inputs.argmax(-1)
    if isinstance(distribution, MultiCategorical):
        chosen = [inputs[:, part].argmax(-1) for part in distribution.slices()]
        return torch.stack(chosen, 1).reshape(-1, *distribution.action_shape)
    if isinstance(distribution, QValues):
        if distribution.num_atoms == 1:
            return inputs[:, : distribution.num_actions].argmax(-1)
        return distribution.torch_at(inputs).q_values().argmax(-1)
    if isinstance(distribution, JointQValues):
        return distribution.torch_at(inputs).q_values().argmax(-1)
    raise TypeError(f"{type(distribution).__name__} has no most probable action for tensors")


def sample(distribution, inputs: Tensor, drawn: Tensor, out: Tensor) -> None:
    """Draws actions.

    Args:
        distribution: distribution of the actions.
        inputs: float32 [B, num_inputs], computed by the network.
        drawn: [B, num_noise], noise drawn by `noise`.
        out: [B, *action_shape], int64 or float32, written.
    """
    if isinstance(distribution, DiagGaussian):
        mean, log_std = distribution.torch_moments(inputs)
        flat = torch.addcmul(mean, log_std.exp(), drawn)
        out.copy_(flat.reshape(out.shape))
        return
    # Gumbel-max: the argmax of logits + noise needs no softmax.
    scores = inputs + drawn
    if isinstance(distribution, Categorical):
        torch.argmax(scores, -1, out=out)
        return
    parts = out.view(out.shape[0], len(distribution.sizes))
    for index, part in enumerate(distribution.slices()):
        parts[:, index] = scores[:, part].argmax(-1)
