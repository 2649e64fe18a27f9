"""A network of another library, translated: settings that build it here, and parameters by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rllib.algorithms.base.algorithm import Algorithm
from rllib.models.observations.torso import Torso
from rllib.sample_batch import DEFAULT_POLICY

Named = Mapping[str, np.ndarray]


@dataclass
class ForeignNetwork:
    """Settings and parameters of a trained network.

    Attributes:
        settings: settings of the algorithm's config that build the network.
        policy: name here -> parameter of the policy's network; features of images are in torch's order, channel by
            channel.
        modules: name of a further module ("critics") -> its parameters.
        targets: name of a module with a target copy ("policy", "critics") -> parameters of the copy.
        left_out: sentences about parts that are not imported.
    """

    settings: dict[str, Any]
    policy: Named
    modules: dict[str, Named] = field(default_factory=dict)
    targets: dict[str, Named] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def load_into(self, algorithm: Algorithm) -> None:
        """Copies the parameters into a built algorithm, its learner and its targets.

        Raises:
            ValueError: if the parameters do not fit, since the model was trained with other spaces.
        """
        policy, learner = algorithm.policies[DEFAULT_POLICY], algorithm.learners[DEFAULT_POLICY]
        torso = getattr(policy.spec, "torso", None)
        policy.set_weights(_ordered(self.policy, torso))
        for module, parameters in self.modules.items():
            _copy(_ordered(parameters, None), learner.vector.named_parameters(module), module)
        for module, target in learner.targets.items():
            source = learner.vector[module]
            target.weights[:] = source
            if module in self.targets:
                own = learner.vector.named_parameters(module, target.weights)
                _copy(_ordered(self.targets[module], torso if module == "policy" else None), own, f"target of {module}")


def _copy(given: Named, own: Named, what: str) -> None:
    shapes = [{name: np.shape(array) for name, array in each.items()} for each in (given, own)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the parameters of the {what} do not fit: {shapes[0]} in the model, {shapes[1]} here")
    for name, array in own.items():
        np.copyto(array, given[name])


def _ordered(parameters: Named, torso: Torso | None) -> Named:
    """The parameters with the features of an image in this library's order, pixel by pixel."""
    if torso is None:
        return parameters
    height, width, channels = torso.images[0].layers[-1].out_shape
    ordered = dict(parameters)
    for name, array in parameters.items():
        if name.endswith("hidden_0.weight"):
            if array.shape[1] != height * width * channels:
                raise ValueError(
                    f"the model's layer behind the convolutions reads {array.shape[1]} numbers, and images of this "
                    f"environment give {height * width * channels}: it was trained with images of another size"
                )
            places = array.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
            ordered[name] = places.reshape(len(array), -1)
    return ordered
