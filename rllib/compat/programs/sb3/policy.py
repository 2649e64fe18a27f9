"""The attribute `policy` of a model, by the methods of Stable-Baselines3's policies."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rllib import load_policy
from rllib.compat.programs.sb3.tables import ON_POLICY
from rllib.models.distributions.squashed import LOG_STD
from rllib.policy import Policy
from rllib.sample_batch import ACTION_DIST_INPUTS, VF_PREDS


class ModelPolicy:
    """A model's policy: tensors in, tensors out.

    Further attributes are those of this library's policy.

    Args:
        model: the algorithm.
        policy: its only policy.
    """

    def __init__(self, model: Any, policy: Policy):
        self._model, self._policy = model, policy

    @property
    def observation_space(self) -> Any:
        """Space of the observations."""
        return self._model.observation_space

    @property
    def action_space(self) -> Any:
        """Space of the actions."""
        return self._model.action_space

    @property
    def device(self) -> torch.device:
        """Where the parameters are that act."""
        return torch.device("cpu")

    @property
    def training(self) -> bool:
        """Always False: networks have no parts that act otherwise in training."""
        return False

    def predict(self, observation, state=None, episode_start=None, deterministic: bool = False) -> tuple[Any, Any]:
        """As the model's `predict`."""
        return self._model.predict(observation, state, episode_start, deterministic)

    def obs_to_tensor(self, observation: Any) -> tuple[Any, bool]:
        """Observations as tensors [B, ...], and whether there were several."""
        rows, is_several = self._rows(observation)
        if isinstance(rows, dict):
            return {key: torch.as_tensor(np.asarray(part)) for key, part in rows.items()}, is_several
        return torch.as_tensor(rows), is_several

    def _rows(self, observation: Any) -> tuple[Any, bool]:
        if isinstance(observation, dict):
            space = next(iter(self.observation_space.spaces.values()))
            first = next(iter(observation.values()))
            is_several = np.ndim(first) > len(space.shape or ())
            return {
                key: np.asarray(v) if is_several else np.asarray(v)[None] for key, v in observation.items()
            }, is_several
        array = np.asarray(observation)
        is_several = array.ndim > len(self.observation_space.shape or ())
        return (array if is_several else array[None]), is_several

    def _computed(self, obs: Any) -> dict[str, np.ndarray]:
        """What the network computes for observations [B, ...]."""
        if isinstance(obs, dict):
            parts = {key: np.asarray(part) for key, part in obs.items()}
            count = len(next(iter(parts.values())))
            rows: Any = [{key: part[index] for key, part in parts.items()} for index in range(count)]
        else:
            rows = list(np.asarray(obs))
        return self._model.compute_actions(rows, explore=False, full_fetch=True)[2]

    def is_vectorized_observation(self, observation: Any) -> bool:
        """Whether these are several observations."""
        return self._rows(observation)[1]

    def predict_values(self, obs: Any) -> torch.Tensor:
        """Values [B, 1] of observations [B, ...].

        Raises:
            ValueError: if the policy has no value.
        """
        computed = self._computed(obs)
        if VF_PREDS not in computed:
            raise ValueError("the policy has no value: it is of an algorithm that learns action values")
        return _of_network(computed[VF_PREDS]).reshape(-1, 1)

    def get_distribution(self, obs: Any) -> "ModelDistribution":
        """The distribution of actions for observations [B, ...].

        Raises:
            AttributeError: for a policy without one in that library too: only PPO's, A2C's and TRPO's have it.
            ValueError: for actions that are squashed, whose distribution is another one.
        """
        if self._model.words_of not in ON_POLICY:
            raise AttributeError(
                f"the policy of {self._model.words_of} has no get_distribution and evaluate_actions, as in "
                "Stable-Baselines3. Use model.policy._predict(obs, deterministic) for its actions, and "
                "model.q_net(obs) for the values of DQN."
            )
        if self._model.config.model.get("squash_actions"):
            raise ValueError("the distribution of squashed actions is read by model.get_policy()")
        return ModelDistribution(self._model.action_space, self._dist_inputs(obs))

    def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
        """Actions [B, ...] for tensors of observations [B, ...], before they are clipped, or brought to the bounds.

        Those of SAC, TQC, CrossQ, TD3 and DDPG are in [-1, 1] (`unscale_action`). DQN, TD3 and DDPG have one action for
        an observation, whatever `deterministic` is.

        Args:
            observation: as `obs_to_tensor` returns them.
            deterministic: take the most likely actions instead of sampled ones.
        """
        of_network = self._model.words_of in ON_POLICY and not self.squash_output
        if of_network:
            return self.get_distribution(observation).get_actions(deterministic)
        if self._model.words_of in _SAMPLING and not deterministic and not self._model.config.model.get("use_sde"):
            mean, log_std = self._dist_inputs(observation).chunk(2, dim=1)
            return torch.tanh(mean + log_std.clamp(*LOG_STD).exp() * torch.randn_like(mean)).detach()
        if isinstance(observation, dict):
            rows = {key: np.asarray(part) for key, part in observation.items()}
        else:
            rows = np.asarray(observation)
        actions = self._model.predict(rows, deterministic=deterministic or self._model.words_of not in _SAMPLING)[0]
        return torch.as_tensor(self.scale_action(actions) if self.squash_output else actions)

    @property
    def squash_output(self) -> bool:
        """Whether actions are in [-1, 1], and brought to the bounds of the action space by `unscale_action`."""
        words_of = self._model.words_of
        squashes = words_of not in (*ON_POLICY, "ARS") and self._is_box
        return squashes or bool(self._model.config.model.get("squash_actions"))

    @property
    def _is_box(self) -> bool:
        return type(self.action_space).__name__ == "Box"

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        if not self._is_box:
            raise ValueError(f"only actions in a Box are scaled, and the action space is {self.action_space}.")
        return self.action_space.low, self.action_space.high

    def scale_action(self, action: np.ndarray) -> np.ndarray:
        """Brings actions from the bounds of the action space to [-1, 1].

        Raises:
            ValueError: if the action space is no Box.
        """
        low, high = self._bounds()
        return 2.0 * ((action - low) / (high - low)) - 1.0

    def unscale_action(self, scaled_action: np.ndarray) -> np.ndarray:
        """Brings actions from [-1, 1] to the bounds of the action space.

        Raises:
            ValueError: if the action space is no Box.
        """
        low, high = self._bounds()
        return low + 0.5 * (scaled_action + 1.0) * (high - low)

    @property
    def q_net(self) -> Any:
        """DQN's network: called with observations [B, ...] it returns the values [B, A] of all actions."""
        if self._model.words_of != "DQN":
            raise AttributeError("q_net")  # of which __getattr__ says more
        return ComputedBy("q_net", self, self._dist_inputs)

    @property
    def actor(self) -> Any:
        """The actor of SAC, TQC, CrossQ, TD3 and DDPG: called with observations [B, ...] it returns actions in [-1, 1].

        Those of the first three are sampled, unless it is called with deterministic=True.
        """
        if self._model.words_of in (*ON_POLICY, "DQN", "QRDQN", "ARS"):
            raise AttributeError("actor")
        return ComputedBy("actor", self, self._predict)

    def _dist_inputs(self, obs: Any) -> torch.Tensor:
        return _of_network(self._computed(obs)[ACTION_DIST_INPUTS])

    def evaluate_actions(self, obs: Any, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Values [B, 1], log-probabilities [B] and entropies [B]; `backward` of these raises a RuntimeError."""
        distribution = self.get_distribution(obs)
        return self.predict_values(obs), distribution.log_prob(actions), distribution.entropy()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Copies of the parameters, by this library's names."""
        return {name: torch.from_numpy(np.array(array)) for name, array in self._policy.parameters().items()}

    def parameters_to_vector(self) -> np.ndarray:
        """All parameters in one float32 array [K], in the order of `parameters`."""
        return np.concatenate([np.ravel(array) for array in self._policy.parameters().values()])

    def load_from_vector(self, vector: np.ndarray) -> None:
        """Sets the parameters from an array [K], as `parameters_to_vector` returns it.

        Raises:
            ValueError: for an array of another length.
        """
        own, vector = self._policy.parameters(), np.asarray(vector, np.float32).reshape(-1)
        ends = np.cumsum([array.size for array in own.values()])
        if len(vector) != ends[-1]:
            raise ValueError(f"vector has {len(vector)} numbers, and the policy {ends[-1]} parameters")
        parts = zip(own.items(), np.split(vector, ends[:-1]), strict=True)
        self._model.set_parameters({"policy": {name: part.reshape(array.shape) for (name, array), part in parts}})

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        """Sets the parameters that `state_dict` has given."""
        self._model.set_parameters({"policy": {name: np.asarray(array) for name, array in state_dict.items()}}, strict)

    def parameters(self) -> "ParameterList":
        """The parameters: as tensors to iterate over, and by name."""
        return ParameterList(self._policy.parameters())

    def named_parameters(self) -> Any:
        """Pairs of name and tensor."""
        return iter({name: _parameter(array) for name, array in self._policy.parameters().items()}.items())

    def set_training_mode(self, mode: bool) -> None:
        """Does nothing: networks have no parts that act otherwise in training."""

    def train(self, mode: bool = True) -> "ModelPolicy":
        """Does nothing, as `set_training_mode`."""
        return self

    def eval(self) -> "ModelPolicy":
        """Does nothing, as `set_training_mode`."""
        return self

    def to(self, device: Any) -> "ModelPolicy":
        """Does nothing: the policy acts on the CPU, and learners have their own copy."""
        return self

    def save(self, path: str) -> None:
        """Writes the policy alone (`export_policy_model`)."""
        self._model.export_policy_model(path)

    @staticmethod
    def load(path: str | os.PathLike, device: str = "auto") -> Any:
        """A policy that `save` wrote: it acts by `predict`.

        Args:
            path: path of its directory.
            device: without effect: policies act on the CPU.
        """
        return load_policy(path)

    def __call__(self, obs: Any, deterministic: bool = False) -> Any:
        """Actions [B, ...], values [B, 1] and log-probabilities [B]; of algorithms with a replay the actions alone."""
        if self._model.words_of not in ON_POLICY:
            return self._predict(obs, deterministic)
        distribution = self.get_distribution(obs)
        actions = distribution.get_actions(deterministic)
        log_prob = distribution.log_prob(actions)
        return actions.reshape(-1, *self.action_space.shape), self.predict_values(obs), log_prob

    forward = __call__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if (advice := _NETWORKS.get(name)) is not None:
            raise AttributeError(f"the policy has no {name!r} here: {advice}.")
        return getattr(self._policy, name)

    def __repr__(self) -> str:
        lines = [f"  ({name}): {list(array.shape)}" for name, array in self._policy.parameters().items()]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])


# Algorithms whose policies sample actions that are squashed.
_SAMPLING = ("SAC", "TQC", "CrossQ")
_MODULES = "use model.policy.state_dict(), or model.get_policy().model for the network"
_NETWORKS = {
    **dict.fromkeys(
        (
            *("mlp_extractor", "features_extractor", "action_net", "value_net", "q_net", "q_net_target", "actor"),
            *("critic", "critic_target", "log_std", "action_dist", "actor_target", "quantile_net"),
            *("quantile_net_target", "lstm_actor", "lstm_critic"),
        ),
        _MODULES,
    ),
    "optimizer": "learners have it: model.learner",
    **dict.fromkeys(
        (
            *("activation_fn", "net_arch", "ortho_init", "log_std_init", "share_features_extractor"),
            *("features_extractor_class", "features_extractor_kwargs", "normalize_images", "optimizer_class"),
            *("optimizer_kwargs", "use_sde", "dist_kwargs", "actor_kwargs", "critic_kwargs", "net_args", "n_critics"),
        ),
        "use model.policy_kwargs, as it was given, or model.config.model, which has all settings of the network",
    ),
    **dict.fromkeys(
        (
            *("pi_features_extractor", "vf_features_extractor", "features_dim", "latent_dim_pi", "latent_dim_vf"),
            *("make_actor", "make_critic", "make_q_net", "make_features_extractor", "extract_features"),
            *("init_weights", "reset_noise"),
        ),
        _MODULES,
    ),
}


def _parameter(array: np.ndarray) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.from_numpy(np.array(array)))


class _NoGradient(torch.autograd.Function):
    """Marks what the network has computed: it does not reach the parameters, and `backward` says so."""

    @staticmethod
    def forward(ctx, computed, mark):
        return computed.clone()

    @staticmethod
    def backward(ctx, *gradients):
        raise RuntimeError(
            "model.policy computes without a gradient here. For a loss of your own use custom_loss or auxiliary_losses "
            "(docs/guide/own_code.md), and to learn from recorded steps rllib.BC (docs/guide/offline.md)."
        )


def _of_network(computed: np.ndarray) -> torch.Tensor:
    """A tensor that asks for a gradient, as a network's output does outside of torch.no_grad()."""
    return _NoGradient.apply(torch.from_numpy(np.array(computed)), torch.ones(1, requires_grad=True))


class ParameterList(dict):
    """Parameters by name, which iterate as tensors, copies of the network's.

    Args:
        arrays: by name.
    """

    def __iter__(self):
        return iter([_parameter(array) for array in self.values()])


class ComputedBy:
    """A part of a policy that is called as a module, and is none.

    Args:
        name: name of the attribute.
        policy: whose part it is.
        function: what it computes.
    """

    def __init__(self, name: str, policy: ModelPolicy, function: Callable[..., torch.Tensor]):
        self._name, self._policy, self._function = name, policy, function

    def __call__(self, *arguments: Any, **keywords: Any) -> torch.Tensor:
        """What the part computes."""
        return self._function(*arguments, **keywords)

    forward = __call__

    def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
        """As the policy's."""
        return self._policy._predict(observation, deterministic)

    def set_training_mode(self, mode: bool) -> None:
        """Does nothing: networks have no parts that act otherwise in training."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"model.policy.{self._name} is called here, and has no {name!r}: {_MODULES}.")


class ModelDistribution:
    """A distribution of actions, as Stable-Baselines3's objects have it.

    Args:
        action_space: space of the actions.
        inputs: [B, K] of the distribution.

    Attributes:
        distribution: of torch; of several parts a list.
    """

    def __init__(self, action_space: Any, inputs: torch.Tensor):
        self._kind = type(action_space).__name__
        if self._kind == "Box":
            mean, log_std = inputs.chunk(2, dim=1)
            self.distribution: Any = torch.distributions.Normal(mean, log_std.exp())
        elif self._kind == "Discrete":
            self.distribution = torch.distributions.Categorical(logits=inputs)
        elif self._kind == "MultiDiscrete":
            parts = torch.split(inputs, np.asarray(action_space.nvec).reshape(-1).tolist(), dim=1)
            self.distribution = [torch.distributions.Categorical(logits=part) for part in parts]
        else:
            raise ValueError(f"the distribution of actions in {action_space} is read by model.get_policy()")

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Log-probabilities [B] of actions [B, ...]."""
        actions = actions.reshape(len(actions), -1)
        if self._kind == "Box":
            return self.distribution.log_prob(actions).sum(dim=1)
        if self._kind == "Discrete":
            return self.distribution.log_prob(actions.reshape(-1))
        parts = [each.log_prob(actions[:, index]) for index, each in enumerate(self.distribution)]
        return torch.stack(parts, dim=1).sum(dim=1)

    def entropy(self) -> torch.Tensor:
        """Entropies [B] (nats)."""
        if self._kind == "Box":
            return self.distribution.entropy().sum(dim=1)
        if self._kind == "Discrete":
            return self.distribution.entropy()
        return torch.stack([each.entropy() for each in self.distribution], dim=1).sum(dim=1)

    def sample(self) -> torch.Tensor:
        """Actions that are drawn."""
        if isinstance(self.distribution, list):
            return torch.stack([each.sample() for each in self.distribution], dim=1)
        return self.distribution.sample()

    def mode(self) -> torch.Tensor:
        """The most likely actions."""
        if self._kind == "Box":
            return self.distribution.mean
        if self._kind == "Discrete":
            return self.distribution.probs.argmax(dim=1)
        return torch.stack([each.probs.argmax(dim=1) for each in self.distribution], dim=1)

    def get_actions(self, deterministic: bool = False) -> torch.Tensor:
        """The most likely actions, or those that are drawn."""
        return self.mode() if deterministic else self.sample()
