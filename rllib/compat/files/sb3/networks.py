"""Networks of Stable-Baselines3 by the names of their parameters, in the words of this library.

| there                                  | here                                                          |
|----------------------------------------|---------------------------------------------------------------|
| mlp_extractor.policy_net.0, 2, ...     | policy.hidden_0, 1, ...                                       |
| mlp_extractor.value_net.0, 2, ...      | value.hidden_0, 1, ...                                        |
| action_net, value_net                  | policy.head, value.head                                       |
| log_std                                | policy.log_std: free, or with gSDE of each feature and action |
| q_net.q_net.0, 2, ...                  | shared.hidden_0, ..., and the last one policy.head            |
| q_net_target                           | the target copy                                               |
| actor.latent_pi.0, 2, ...              | shared.hidden_0, 1, ...                                       |
| actor.mu and actor.log_std             | policy.head, one below the other                              |
| actor.mu.0, 2, ... (TD3, DDPG)         | shared.hidden_0, ..., and the last one policy.head            |
| critic.qf0.0, 2, ... and qf1, ...      | critics: 0.hidden_0, ..., 0.head; 1.hidden_0, ...             |
| critic_target, actor_target            | the target copies                                             |
| features_extractor.cnn.0, 2, 4, linear.0 | image_0_conv_0, 1, 2, and the first hidden layer            |

Numbers in these names are places in a torch.nn.Sequential, where activations stand between the layers.
"""

import numpy as np

from rllib.compat.files.network import ForeignNetwork, Named
from rllib.compat.files.parameters import Layer, Parameters, named, widths
from rllib.compat.files.sb3.archive import SavedModel

_ACTIVATIONS = {
    "Tanh": "tanh", "ReLU": "relu", "ELU": "elu", "LeakyReLU": "leaky_relu", "GELU": "gelu", "SiLU": "swish",
    "Sigmoid": "sigmoid", "Identity": "linear",
}  # fmt: skip
# Features extractors that are networks of this library, by the end of their path.
_EXTRACTORS = ("FlattenExtractor", "NatureCNN", "CombinedExtractor")
_KERNELS = {0: (32, 8), 2: (64, 4), 4: (64, 3)}
_OWN_NETWORK = (
    "It was trained with a network of your own: write it as a torch module, model={'custom_model': Module} "
    "(docs/guide/networks.md), and load the parameters there."
)
# Copies of one extractor, as the policy holds them by several names.
_SHARED, _OF_POLICY, _OF_VALUE = "features_extractor", "pi_features_extractor", "vf_features_extractor"


def network_of(algorithm: str, saved: SavedModel, action_kind: str) -> ForeignNetwork:
    """The network of a model.

    Args:
        algorithm: PPO, A2C, DQN, SAC, TQC, TD3 or DDPG.
        saved: the model.
        action_kind: class of the action space, such as "Box".

    Raises:
        ValueError: for networks that this library does not have; the message says which part.
    """
    _refuse_custom_parts(saved)
    parameters = Parameters(saved.parameters, str(saved.path))
    made = _READERS[algorithm](parameters, saved, action_kind)
    parameters.refuse_left(_OWN_NETWORK)
    return made


def _refuse_custom_parts(saved: SavedModel) -> None:
    kwargs = saved.policy_kwargs
    extractor = kwargs.get("features_extractor_class")
    if extractor is not None and str(extractor).rpartition(".")[2] not in _EXTRACTORS:
        raise ValueError(f"the model has a custom features extractor, {extractor}. {_OWN_NETWORK}")
    for name in ("squash_output", "use_expln"):
        if kwargs.get(name):
            raise ValueError(f"the model was trained with policy_kwargs {name}=True, which is not available here")


def _activation(saved: SavedModel, default: str) -> str:
    given = saved.policy_kwargs.get("activation_fn")
    if given is None:
        return default
    module, _, name = str(given).rpartition(".")
    if not module.startswith("torch.nn.") or name not in _ACTIVATIONS:
        raise ValueError(
            f"the model's activation, {given}, is not available here. Those that are: {', '.join(_ACTIVATIONS)}."
        )
    return _ACTIVATIONS[name]


# ---------------------------------------------------------------------- PPO and A2C


def _on_policy(parameters: Parameters, saved: SavedModel, action_kind: str) -> ForeignNetwork:
    activation = _activation(saved, "tanh")
    policy, value = parameters.layers("mlp_extractor.policy_net"), parameters.layers("mlp_extractor.value_net")
    head, of_value = parameters.layer("action_net"), parameters.layer("value_net")
    if action_kind == "MultiBinary":
        head = _with_zeros(head)
    heads = {**named("policy", (), head), **named("value", (), of_value)}
    made = _of_extractors(parameters, saved, policy, value, activation)
    model = made.settings["model"]
    if "log_std" in parameters:
        heads["policy.log_std"] = _log_std(parameters, saved, head, model)
    made.policy = {**made.policy, **heads}
    if action_kind == "Box":
        made.settings |= {"normalize_actions": False, "clip_actions": True}
    return made


def _of_extractors(
    parameters: Parameters, saved: SavedModel, policy: list[Layer], value: list[Layer], activation: str
) -> ForeignNetwork:
    """The layers below the heads, behind the convolutions of images."""
    if not _has_images(parameters, _SHARED):
        parameters.drop(_SHARED + ".", _OF_POLICY + ".", _OF_VALUE + ".")
        model = {"fcnet_hiddens": widths(policy), "fcnet_activation": activation, "vf_share_layers": False}
        model["free_log_std"] = False
        if widths(policy) != widths(value):
            model["vf_hiddens"] = widths(value)
        return ForeignNetwork({"model": model}, {**named("policy", policy), **named("value", value)})
    is_shared = saved.policy_kwargs.get("share_features_extractor", True)
    extractors = {"policy": _OF_POLICY if _has_images(parameters, _OF_POLICY) else _SHARED}
    extractors["value"] = _OF_VALUE if _has_images(parameters, _OF_VALUE) else extractors["policy"]
    once = {prefix: _images(parameters, prefix) for prefix in set(extractors.values())}
    read = {owner: once[prefix] for owner, prefix in extractors.items()}
    parameters.drop(_SHARED + ".", _OF_POLICY + ".", _OF_VALUE + ".")
    _, below = read["policy"]
    if widths(policy) != widths(value):
        raise ValueError(
            f"the model has layers of different widths behind its convolutions, {widths(policy)} for the policy and "
            f"{widths(value)} for the value, which is not available here."
        )
    model = _model_of_images(below, policy, activation)
    if is_shared and not policy:
        convolutions, _ = read["policy"]
        of_layers = {**_owned("shared", convolutions), **named("shared", [below])}
        return ForeignNetwork({"model": {**model, "vf_share_layers": True}}, of_layers)
    of_layers: dict[str, np.ndarray] = {}
    for owner, behind in (("policy", policy), ("value", value)):
        convolutions, features = read[owner]
        of_layers |= {**_owned(owner, convolutions), **named(owner, [features, *behind])}
    note = "the convolutions, which policy and value shared: each has its own copy, and they learn apart"
    return ForeignNetwork({"model": {**model, "vf_share_layers": False}}, of_layers, left_out=[note] * bool(is_shared))


def _with_zeros(head: Layer) -> Layer:
    """A head of switches, which give the logit of 1 alone, with the logit 0 of 0 before each."""
    weight = np.zeros((2 * head.width, head.weight.shape[1]), np.float32)
    bias = np.zeros(2 * head.width, np.float32)
    weight[1::2], bias[1::2] = head
    return Layer(weight, bias)


def _log_std(parameters: Parameters, saved: SavedModel, head: Layer, model: dict) -> np.ndarray:
    """Logarithms of standard deviations: numbers of their own, or with gSDE one for each feature and action."""
    if not saved.plain("use_sde"):
        model["free_log_std"] = True
        return parameters.take("log_std", 1)
    model |= {"use_sde": True, "sde_sample_freq": int(saved.plain("sde_sample_freq", -1))}
    log_std = parameters.take("log_std", 2)
    return np.broadcast_to(log_std, (len(log_std), head.width)).copy() if log_std.shape[1] == 1 else log_std


# ---------------------------------------------------------------------- images


def _has_images(parameters: Parameters, prefix: str) -> bool:
    """Whether this extractor has parameters: that of vectors has none."""
    return any(name.startswith(prefix + ".") for name in parameters)


def _images(parameters: Parameters, prefix: str) -> tuple[Named, Layer]:
    """Convolutions by their names here, and the layer behind them, of NatureCNN.

    Raises:
        ValueError: for any other network.
    """
    if any(name.startswith(f"{prefix}.extractors.") for name in parameters):
        raise ValueError(
            "the model reads images together with other observations (MultiInputPolicy): each image has its own layer "
            "behind the convolutions there, which no network here has. Models with vectors alone are taken, and those "
            "with one image."
        )
    convolutions: dict[str, np.ndarray] = {}
    for index, (place, (filters, kernel)) in enumerate(_KERNELS.items()):
        weight = parameters.take(f"{prefix}.cnn.{place}.weight", 4)
        if (weight.shape[0], *weight.shape[2:]) != (filters, kernel, kernel):
            raise ValueError(f"the model's convolutions of shape {weight.shape} are not NatureCNN's. {_OWN_NETWORK}")
        convolutions[f"image_0_conv_{index}.weight"] = weight
        convolutions[f"image_0_conv_{index}.bias"] = parameters.take(f"{prefix}.cnn.{place}.bias", 1)
    return convolutions, parameters.layer(f"{prefix}.linear.0")


def _model_of_images(below: Layer, behind: list[Layer], activation: str) -> dict:
    if behind and activation != "relu":
        raise ValueError(
            f"the model has layers with {activation} behind the features of its images, which have relu; here all of "
            "these layers have one activation. Models with net_arch=[] are taken, and those with ReLU."
        )
    hiddens = widths([below, *behind])
    return {"conv_filters": "nature", "post_fcnet_hiddens": hiddens, "post_fcnet_activation": "relu"}


def _owned(owner: str, parameters: Named) -> Named:
    return {f"{owner}.{name}": array for name, array in parameters.items()}


# ---------------------------------------------------------------------- DQN


def _q_network(parameters: Parameters, saved: SavedModel, action_kind: str) -> ForeignNetwork:
    activation = _activation(saved, "relu")
    settings = {"hiddens": [], "dueling": False, "double_q": False}
    policy, model = _action_values(parameters, "q_net", activation)
    target, _ = _action_values(parameters, "q_net_target", activation)
    return ForeignNetwork({**settings, "model": model}, policy, targets={"policy": target})


def _action_values(parameters: Parameters, prefix: str, activation: str) -> tuple[Named, dict]:
    *hiddens, head = _not_empty(parameters.layers(f"{prefix}.q_net"), f"{prefix}.q_net")
    if not _has_images(parameters, f"{prefix}.{_SHARED}"):
        model = {"fcnet_hiddens": widths(hiddens), "fcnet_activation": activation}
        return named("shared", hiddens, head, "policy"), model
    convolutions, below = _images(parameters, f"{prefix}.{_SHARED}")
    layers = named("shared", [below, *hiddens], head, "policy")
    return {**_owned("shared", convolutions), **layers}, _model_of_images(below, hiddens, activation)


def _not_empty(layers: list[Layer], name: str) -> list[Layer]:
    if not layers:
        raise ValueError(
            f"the model has no layers {name}.0, ...: it is of another algorithm, or of a policy of your own"
        )
    return layers


# ---------------------------------------------------------------------- actors and critics


def _soft_actor(parameters: Parameters, saved: SavedModel, action_kind: str) -> ForeignNetwork:
    hiddens = parameters.layers("actor.latent_pi")
    model: dict = {}
    if saved.plain("use_sde"):
        if not hiddens or saved.policy_kwargs.get("clip_mean", 2.0) != 2.0:
            raise ValueError("the model has gSDE without hidden layers, or with another clip_mean than 2.0")
        model = {"use_sde": True, "sde_sample_freq": int(saved.plain("sde_sample_freq", -1))}
        head = parameters.layer("actor.mu.0")
        policy = named("shared", hiddens, head, "policy") | {"policy.log_std": parameters.take("actor.log_std", 2)}
    else:
        mean, log_std = parameters.layer("actor.mu"), parameters.layer("actor.log_std")
        both = Layer(np.concatenate([mean.weight, log_std.weight]), np.concatenate([mean.bias, log_std.bias]))
        policy = named("shared", hiddens, both, "policy")
    made = _with_critics(parameters, saved, hiddens, policy)
    made.settings["policy_model_config"] = model
    return made


def _quantile_actor(parameters: Parameters, saved: SavedModel, action_kind: str) -> ForeignNetwork:
    made = _soft_actor(parameters, saved, action_kind)
    made.settings["n_quantiles"] = len(made.modules["critics"]["0.head.bias"])
    return made


def _deterministic_actor(parameters: Parameters, saved: SavedModel, action_kind: str) -> ForeignNetwork:
    actors = {}
    for prefix in ("actor", "actor_target"):
        *hiddens, head = _not_empty(parameters.layers(f"{prefix}.mu"), f"{prefix}.mu")
        actors[prefix] = hiddens, named("shared", hiddens, head, "policy")
    made = _with_critics(parameters, saved, *actors["actor"])
    made.targets["policy"] = actors["actor_target"][1]
    return made


def _with_critics(parameters: Parameters, saved: SavedModel, hiddens: list[Layer], policy: Named) -> ForeignNetwork:
    if any("features_extractor" in name for name in parameters):
        raise ValueError(
            "the model reads images by an extractor with a layer behind the convolutions that all critics share; here "
            "each critic has its own."
        )
    activation = _activation(saved, "relu")
    critics, widths_of_critics = _critics(parameters, "critic")
    targets, _ = _critics(parameters, "critic_target")
    count = len({name.partition(".")[0] for name in critics})
    settings = {
        "model": {"fcnet_hiddens": widths(hiddens), "fcnet_activation": activation},
        "q_model_config": {"fcnet_hiddens": widths_of_critics} if widths_of_critics != widths(hiddens) else {},
        "n_critics": count,
    }
    return ForeignNetwork(settings, policy, modules={"critics": critics}, targets={"critics": targets})


def _critics(parameters: Parameters, prefix: str) -> tuple[Named, list[int]]:
    """Parameters of all critics, and the widths of their hidden layers."""
    found: dict[str, np.ndarray] = {}
    shapes: list[int] | None = None
    number = 0
    while layers := parameters.layers(f"{prefix}.qf{number}"):
        *hiddens, head = layers
        if shapes is not None and widths(hiddens) != shapes:
            raise ValueError(f"the model's critics have different widths, {shapes} and {widths(hiddens)}")
        shapes = widths(hiddens)
        found |= named(str(number), hiddens, head)
        number += 1
    _not_empty(list(found), f"{prefix}.qf0")
    return found, shapes or []


_READERS = {
    "PPO": _on_policy,
    "A2C": _on_policy,
    "DQN": _q_network,
    "SAC": _soft_actor,
    "TQC": _quantile_actor,
    "TD3": _deterministic_actor,
    "DDPG": _deterministic_actor,
}
