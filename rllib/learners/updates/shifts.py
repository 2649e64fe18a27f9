"""Random shifts of the images in an update (DrQ-v2: Yarats et al., arXiv:2107.09645, section 3.1).

In every update the images of observations and of next observations are shifted by a few whole pixels, each by its own
random number; pixels that come in repeat the edge. Actor and critics see the same images. A shift of at most p pixels
is equivalent to a random crop of the image after padding it by p pixels.
"""

import dataclasses

from rllib.losses.loss import LossOverModules
from rllib.models.observations.torso import Torso
from rllib.sample_batch import NEXT_OBS, OBS

# Columns of shifts, integers [B, images, 2], by the column of observations whose images they move.
SHIFTS = {OBS: "image_shifts", NEXT_OBS: "next_image_shifts"}


def with_shifts(loss: LossOverModules, torso: Torso) -> LossOverModules:
    """The loss over the shifted images, in torch alone; it reads the columns SHIFTS besides.

    Args:
        loss: the loss.
        torso: says where in a stored row the images are.
    """
    read = [name for name in SHIFTS if name == OBS or name in loss.columns]

    def compute(distribution, modules, minibatch, **settings):
        from rllib.models.observations.in_torch import shifted

        images = {name: shifted(torso, minibatch[name], minibatch[SHIFTS[name]]) for name in read}
        return loss.torch(distribution, modules, {**minibatch, **images}, **settings)

    columns = (*loss.columns, *(SHIFTS[name] for name in read))
    return dataclasses.replace(loss, columns=columns, torch=compute, numpy=None)
