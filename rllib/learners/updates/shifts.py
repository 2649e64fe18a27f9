"""Random shifts of the images in an update (DrQ-v2: Yarats et al., arXiv:2107.09645, section 3.1).

In every update the images of observations and of next observations are shifted by a few whole pixels, each by its own
random number; pixels that come in repeat the edge. Actor and critics see the same images. A shift of at most p pixels
is equivalent to a random crop of the image after padding it by p pixels.
"""

import dataclasses

from rllib.losses.loss import LossOverModules
from rllib.models.observations.torso import Torso
from rllib.sample_batch import NEXT_OBS, OBS

# Column of observations -> column of the shifts of their images, integers [B, images, 2].
SHIFTS = {OBS: "image_shifts", NEXT_OBS: "next_image_shifts"}


def with_shifts(loss: LossOverModules, torso: Torso) -> LossOverModules:
    """The loss over the shifted images, in torch only; it also reads the columns SHIFTS.

    Args:
        loss: the loss.
        torso: finds the images in a stored row.
    """
    read = [name for name in SHIFTS if name == OBS or name in loss.columns]

    def compute(distribution, modules, minibatch, **settings):
        from rllib.models.observations.in_torch import shifted

        images = {name: shifted(torso, minibatch[name], minibatch[SHIFTS[name]]) for name in read}
        return loss.torch(distribution, modules, {**minibatch, **images}, **settings)

    columns = (*loss.columns, *(SHIFTS[name] for name in read))
    return dataclasses.replace(loss, columns=columns, torch=compute, numpy=None)
