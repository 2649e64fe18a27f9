"""Acting by tensors on any device: observations to network inputs, and actions drawn from distributions.

The same as `Encoder.encode` and `Distribution.sample` do with arrays. Nothing here waits for the device.
"""

import functools

import torch
from torch import Tensor

from rllib.models.distributions import TINY, Categorical, DiagGaussian, MultiCategorical
from rllib.models.encoders import BoxEncoder, Encoder, FlatEncoder, MaskedEncoder, OneHotEncoder
from rllib.models.masks import parts_of_mask

# ---------------------------------------------------------------------- observations


def encoded(encoder: Encoder, observations: Tensor, out: Tensor | None = None) -> Tensor:
    """What the network reads of stored observations, on their device.

    Args:
        encoder: of the policy.
        observations: [B, *shape].
        out: float32 [B, size + 1], written instead of new memory; its last column is 1 already.

    Returns:
        float32 [B, size + 1], closing with ones; the observations themselves where the encoder leaves them as stored.
    """
    if encoder.as_stored:
        return observations
    if out is None:
        out = observations.new_ones((len(observations), encoder.size + 1), dtype=torch.float32)
    _encode(encoder, observations, out[:, :-1])
    return out


@functools.singledispatch
def _encode(encoder, observations: Tensor, out: Tensor) -> None:
    """Writes into out [B, size]."""
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
    first, others = encoder.num_choices, (observations[:, : encoder.start], observations[:, encoder.stop :])
    out[:, :first].copy_(encoder.mask(observations))
    _encode(encoder.inner, torch.cat(others, 1), out[:, first:])


def without_choice(mask: Tensor, distribution) -> Tensor:
    """Whether some part of the action has no legal choice, bool [B], by masks [B, num_choices]."""
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
        distribution: of the actions.
        generator: source of randomness.
        shape: leading dimensions, such as (T, N).
    """
    drawn = torch.empty(*shape, distribution.num_noise, device=generator.device)
    if isinstance(distribution, DiagGaussian):
        return drawn.normal_(generator=generator)
    # Standard Gumbel numbers: -log of standard exponential ones.
    return drawn.exponential_(generator=generator).clamp_(min=float(TINY)).log_().neg_()


def sample(distribution, inputs: Tensor, drawn: Tensor, out: Tensor) -> None:
    """Writes actions.

    Args:
        distribution: of the actions.
        inputs: float32 [B, num_inputs], what the network computed.
        drawn: [B, num_noise] of what `noise` drew.
        out: [B, *action_shape], int64 or float32.
    """
    if isinstance(distribution, DiagGaussian):
        size = distribution.size
        flat = torch.addcmul(inputs[:, :size], inputs[:, size:].exp(), drawn)
        out.copy_(flat.reshape(out.shape))
        return
    # Gumbel-max: the argmax of logits + noise needs no softmax.
    scores = inputs + drawn
    if isinstance(distribution, Categorical):
        torch.argmax(scores, -1, out=out)
        return
    parts = out.view(len(out), len(distribution.sizes))
    for index, part in enumerate(distribution.slices()):
        parts[:, index] = scores[:, part].argmax(-1)
