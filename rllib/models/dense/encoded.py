"""Layouts of fully connected layers that read the features of one torso, also where another module reads it too."""

from rllib.models.dense.layout import LayersLayout, Layout
from rllib.models.observations.torso import Torso


class TorsoLayout(Layout):
    """Layout of the convolutions of one tower, in the order in which a network of one tower has them."""

    def __init__(self, torso: Torso):
        super().__init__(torso.block_shapes(1))
        self.torso = torso

    def named_parameters(self, flat) -> dict:
        """Parameter name -> view of `flat`, in the shapes of torch.nn.Conv2d: "image_0_conv_0.weight", ..."""
        return self.torso.named_parameters(self.blocks(flat), 0)


class EncodedLayout(Layout):
    """Layout of layers and heads, then of the convolutions whose features all of them read.

    The convolutions come last, so that a policy, whose own come first, may have them in the same memory.

    Args:
        layers: the layers, of one network or several; without a torso.
        torso: the convolutions.
    """

    def __init__(self, layers: LayersLayout, torso: Torso):
        self.layers, self.encoder = layers, TorsoLayout(torso)
        super().__init__({"layers": (layers.size,), "encoder": (self.encoder.size,)})

    def parts(self, flat) -> tuple:
        """The views of `flat` [size] of the layers and of the convolutions."""
        return flat[self.slices["layers"]], flat[self.slices["encoder"]]

    def named_parameters(self, flat) -> dict:
        """Parameter name -> view of `flat`: of the layers as in LayersLayout, and "encoder.image_0_conv_0.weight"."""
        layers, encoder = self.parts(flat)
        of_encoder = self.encoder.named_parameters(encoder)
        return self.layers.named_parameters(layers) | {f"encoder.{name}": view for name, view in of_encoder.items()}
