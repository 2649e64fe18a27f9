"""Features extractors, and networks that put one of the user's below layers of policy and value."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rllib.compat.names.stable_baselines3.words import name_of
from rllib.compat.programs.sb3.preprocessing import (
    channels_first,
    get_flattened_obs_dim,
    preprocess_obs,
    with_channels_first,
)
from rllib.env.vec_env.wrappers import is_image_space

# Extractors that are networks of this library.
_BUILT_IN = ("FlattenExtractor", "NatureCNN", "CombinedExtractor")


class BaseFeaturesExtractor(nn.Module):
    """Base class of extractors: a module from observations to features [B, features_dim].

    Args:
        observation_space: space of one observation.
        features_dim: number of features.
    """

    def __init__(self, observation_space: gymnasium.Space, features_dim: int = 0):
        super().__init__()
        if features_dim <= 0:
            raise ValueError(f"features_dim={features_dim!r} must be an integer >= 1")
        self._observation_space, self._features_dim = observation_space, features_dim

    @property
    def features_dim(self) -> int:
        """Number of features."""
        return self._features_dim


class FlattenExtractor(BaseFeaturesExtractor):
    """The numbers of an observation.

    Args:
        observation_space: space of one observation.
    """

    def __init__(self, observation_space: gymnasium.Space):
        super().__init__(observation_space, get_flattened_obs_dim(observation_space))
        self.flatten = nn.Flatten()

    def forward(self, observations: Tensor) -> Tensor:
        """Features [B, K] of observations [B, ...]."""
        return self.flatten(observations)


class NatureCNN(BaseFeaturesExtractor):
    """The convolutions of Mnih et al. (Nature 518, 2015), and a layer behind them.

    Args:
        observation_space: space of pictures, channels first.
        features_dim: width of the layer.
        normalized_image: pictures need not be bytes.
    """

    def __init__(self, observation_space: gymnasium.Space, features_dim: int = 512, normalized_image: bool = False):
        super().__init__(observation_space, features_dim)
        if not is_image_space(observation_space, normalized_image=normalized_image):
            raise ValueError(f"NatureCNN reads pictures, but the observation space is {observation_space}")
        self.cnn = nn.Sequential(
            nn.Conv2d(observation_space.shape[0], 32, kernel_size=8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, kernel_size=3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            width = self.cnn(torch.zeros(1, *observation_space.shape)).shape[1]
        self.linear = nn.Sequential(nn.Linear(width, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        """Features [B, features_dim] of pictures [B, channels, height, width]."""
        return self.linear(self.cnn(observations))


class CombinedExtractor(BaseFeaturesExtractor):
    """Features of each part of a Dict observation, side by side.

    Args:
        observation_space: a Dict.
        cnn_output_dim: features of each picture.
        normalized_image: pictures need not be bytes.
    """

    def __init__(self, observation_space: spaces.Dict, cnn_output_dim: int = 256, normalized_image: bool = False):
        super().__init__(observation_space, features_dim=1)
        extractors: dict[str, nn.Module] = {}
        total = 0
        for key, part in observation_space.spaces.items():
            if is_image_space(part, normalized_image=normalized_image):
                extractors[key] = NatureCNN(part, cnn_output_dim, normalized_image)
                total += cnn_output_dim
            else:
                extractors[key] = nn.Flatten()
                total += get_flattened_obs_dim(part)
        self.extractors = nn.ModuleDict(extractors)
        self._features_dim = total

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Features [B, K] of a dict of observations."""
        return torch.cat([extractor(observations[key]) for key, extractor in self.extractors.items()], dim=1)


def create_mlp(
    input_dim: int,
    output_dim: int,
    net_arch: Sequence[int],
    activation_fn: type[nn.Module] = nn.ReLU,
    squash_output: bool = False,
    with_bias: bool = True,
    pre_linear_modules: Sequence[type[nn.Module]] | None = None,
    post_linear_modules: Sequence[type[nn.Module]] | None = None,
) -> list[nn.Module]:
    """Modules of fully connected layers, for nn.Sequential.

    Args:
        input_dim: numbers that the first reads.
        output_dim: of a last layer without an activation; not positive: there is none.
        net_arch: widths of the hidden layers.
        activation_fn: behind each of them.
        squash_output: tanh at the end.
        with_bias: layers have biases.
        pre_linear_modules, post_linear_modules: made with the width, before and behind each hidden layer.
    """
    modules: list[nn.Module] = []
    before = input_dim
    for width in net_arch:
        modules += [made(before) for made in pre_linear_modules or ()]
        modules.append(nn.Linear(before, width, bias=with_bias))
        modules += [made(width) for made in post_linear_modules or ()]
        modules.append(activation_fn())
        before = width
    if output_dim > 0:
        modules += [made(before) for made in pre_linear_modules or ()]
        modules.append(nn.Linear(before, output_dim, bias=with_bias))
    return [*modules, nn.Tanh()] if squash_output else modules


class MlpExtractor(nn.Module):
    """Layers of policy and value.

    Args:
        feature_dim: numbers that they read.
        net_arch: widths, of both or {"pi": [...], "vf": [...]}.
        activation_fn: behind each layer.
        device: without effect.
    """

    def __init__(self, feature_dim: int, net_arch: Any, activation_fn: type[nn.Module], device: Any = "auto"):
        super().__init__()
        both = net_arch if isinstance(net_arch, Mapping) else {"pi": net_arch, "vf": net_arch}
        actor, critic = list(both.get("pi", ())), list(both.get("vf", ()))
        self.policy_net = nn.Sequential(*create_mlp(feature_dim, -1, actor, activation_fn))
        self.value_net = nn.Sequential(*create_mlp(feature_dim, -1, critic, activation_fn))
        self.latent_dim_pi, self.latent_dim_vf = ([feature_dim, *each][-1] for each in (actor, critic))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """What the heads of policy and value read."""
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        """What the head of the policy reads."""
        return self.policy_net(features)

    def forward_critic(self, features: Tensor) -> Tensor:
        """What the head of the value reads."""
        return self.value_net(features)


def get_actor_critic_arch(net_arch: Any) -> tuple[list[int], list[int]]:
    """Widths of actor and critics: those of a list, or of a dict of "pi" and "qf"."""
    if isinstance(net_arch, list):
        return net_arch, net_arch
    if not isinstance(net_arch, Mapping) or not {"pi", "qf"} <= net_arch.keys():
        raise ValueError(f"net_arch={net_arch!r} must be a list, or {{'pi': [...], 'qf': [...]}}")
    return net_arch["pi"], net_arch["qf"]


# ---------------------------------------------------------------------- extractors of the user's


def without_own_extractor(algorithm: str, policy: str, words: Mapping[str, Any]) -> tuple[dict[str, Any], dict | None]:
    """Divides an extractor of the user's from the words.

    Args:
        algorithm: name of Stable-Baselines3's.
        policy: its name.
        words: of a constructor.

    Returns:
        the words without it, and the setting `model` of a network that has it; None: there is none.

    Raises:
        ValueError: for an algorithm whose networks take none.
    """
    given = dict(words.get("policy_kwargs") or {})
    extractor = given.get("features_extractor_class")
    if extractor is None or (name_of(extractor) in _BUILT_IN and extractor.__module__.startswith("rllib.")):
        return dict(words), None
    if algorithm not in ("PPO", "A2C", "DQN") or "Lstm" in policy:
        raise ValueError(
            f"features_extractor_class={name_of(extractor)} can be used by PPO, A2C and DQN without a memory. Give "
            f"{algorithm} torch modules: model={{'custom_model': Module}}, q_model_config={{'custom_model': Critic}} "
            "(docs/guide/networks.md)."
        )
    is_cnn = policy == "CnnPolicy"
    usual = [] if is_cnn else [64, 64]
    config = {
        "extractor": extractor,
        "extractor_kwargs": dict(given.pop("features_extractor_kwargs", None) or {}),
        "net_arch": given.pop("net_arch", None),
        "activation_fn": given.pop("activation_fn", None) or (nn.ReLU if algorithm == "DQN" else nn.Tanh),
        "shares": bool(given.pop("share_features_extractor", True)),
        "scales_images": bool(given.pop("normalize_images", True)),
        "orthogonal": bool(given.pop("ortho_init", True)) and algorithm != "DQN",
        "has_value": algorithm != "DQN",
        "log_std_init": float(given.pop("log_std_init", 0.0)),
    }
    if config["net_arch"] is None:
        config["net_arch"] = usual
    del given["features_extractor_class"]
    return {**words, "policy_kwargs": given}, {"custom_model": ExtractorNetwork, "custom_model_config": config}


class ExtractorNetwork(nn.Module):
    """A features extractor below layers of policy and value, or of action values.

    Args:
        observation_space, action_space: spaces of the environment.
        num_outputs: numbers that describe the distribution of an action.
        extractor, extractor_kwargs: class of the extractor, and its arguments.
        net_arch, activation_fn: of the layers, as for MlpExtractor.
        shares: policy and value have one extractor.
        scales_images: pixels are scaled to 0 ... 1.
        orthogonal: initial weights are orthogonal, with Stable-Baselines3's gains.
        has_value: False: outputs are action values.
        log_std_init: of the logarithms of deviations, which are parameters.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        num_outputs: int,
        extractor: type[nn.Module],
        extractor_kwargs: Mapping[str, Any],
        net_arch: Any,
        activation_fn: type[nn.Module],
        shares: bool = True,
        scales_images: bool = True,
        orthogonal: bool = True,
        has_value: bool = True,
        log_std_init: float = 0.0,
    ):
        super().__init__()
        self._space, self._scales_images = observation_space, scales_images
        read = with_channels_first(observation_space)
        self._read = read
        self.features_extractor = extractor(read, **extractor_kwargs)
        self.vf_features_extractor = None if shares or not has_value else extractor(read, **extractor_kwargs)
        if isinstance(net_arch, Sequence) and len(net_arch) == 1 and isinstance(net_arch[0], Mapping):
            net_arch = net_arch[0]
        self.mlp_extractor = MlpExtractor(self.features_extractor.features_dim, net_arch, activation_fn)
        has_deviation = has_value and isinstance(action_space, spaces.Box)
        outputs = num_outputs // 2 if has_deviation else num_outputs
        self.action_net = nn.Linear(self.mlp_extractor.latent_dim_pi, outputs)
        self.value_net = nn.Linear(self.mlp_extractor.latent_dim_vf, 1) if has_value else None
        self.log_std = nn.Parameter(torch.full((outputs,), log_std_init)) if has_deviation else None
        if not has_value:
            self.mlp_extractor.value_net = nn.Identity()
        if orthogonal:
            self._make_orthogonal()

    def _make_orthogonal(self) -> None:
        gains = {self.features_extractor: np.sqrt(2), self.mlp_extractor: np.sqrt(2), self.action_net: 0.01}
        gains |= {self.value_net: 1.0} if self.value_net is not None else {}
        gains |= {self.vf_features_extractor: np.sqrt(2)} if self.vf_features_extractor is not None else {}
        for module, gain in gains.items():
            for layer in module.modules():
                if isinstance(layer, nn.Linear | nn.Conv2d):
                    nn.init.orthogonal_(layer.weight, gain=gain)
                    if layer.bias is not None:
                        nn.init.zeros_(layer.bias)

    def forward(self, observation: Any) -> Any:
        """Distribution inputs [B, num_outputs] and values [B]; action values [B, num_outputs] alone without them."""
        observation = preprocess_obs(channels_first(observation, self._space), self._read, self._scales_images)
        features = self.features_extractor(observation)
        means = self.action_net(self.mlp_extractor.forward_actor(features))
        if self.value_net is None:
            return means
        if self.log_std is not None:
            means = torch.cat([means, self.log_std.expand_as(means)], dim=1)
        if self.vf_features_extractor is not None:
            features = self.vf_features_extractor(observation)
        return means, self.value_net(self.mlp_extractor.forward_critic(features)).squeeze(1)
