"""A policy: a network, the distribution of its actions and its observation filter, on one flat parameter vector."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib.compat.names import absent
from rllib.did_you_mean import explains
from rllib.env.spaces.observations import are_finite
from rllib.losses.returns import gae
from rllib.models.acting_buffers import ActingBuffers
from rllib.models.architectures import described_spec, description_of
from rllib.models.arithmetic.buffers import BuffersByRows
from rllib.models.arithmetic.cuda import why_no_cuda
from rllib.models.arithmetic.kernels import FEW_INPUTS, use_one_blas_thread
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.q_values import QBatch
from rllib.models.observations.masks import choice_problem
from rllib.sample_batch import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    NEXT_OBS,
    OBS,
    REWARDS,
    STATE_IN,
    TERMINATEDS,
    TRUNCATEDS,
    VALUE_TARGETS,
    VF_PREDS,
    Column,
    SampleBatch,
)
from rllib.storage.checkpoint import (
    MANIFEST,
    CheckpointError,
    naming_damage,
    read_checkpoint,
    read_manifest,
    write_checkpoint,
)
from rllib.storage.local_path import local_path

FILTER_PREFIX = "filter."
WEIGHTS = "weights"
# Rows per forward pass of `values` and `dist_inputs`, few enough for the activations to stay in the processor's cache.
CHUNK = 512

# Arguments of RLlib's compute_actions that have no effect.
_OF_RLLIB = frozenset(
    {
        *("prev_action_batch", "prev_reward_batch", "info_batch", "episodes", "timestep"),
        *("prev_action", "prev_reward", "info", "episode", "input_dict"),
    }
)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a policy at one moment, as it is sent to the processes that act.

    Args:
        weights: float32 [weights]. `Policy.snapshot` gives the policy's own memory, which the next update changes;
            `runtime.put` and sending copy it.
        version: number of updates applied to the weights.
        filter_state: merged statistics of the observation filter; None without a filter.
        timesteps: environment steps sampled so far in the run; exploration schedules depend on it.
        return_state: merged statistics of the discounted returns that rewards are scaled by; None without scaling.
        modules: weights of modules that are trained in addition to the policy, by name, if workers compute with them.
    """

    weights: np.ndarray
    version: int = 0
    filter_state: Mapping[str, np.ndarray] | None = None
    timesteps: int = 0
    return_state: Mapping[str, np.ndarray] | None = None
    modules: Mapping[str, np.ndarray] | None = None


# Policy id -> its snapshot: what one message to a worker carries.
Snapshots = Mapping[str, Snapshot]


@explains(absent.POLICY, instead_of_setting=absent.SETTING)
class Policy:
    """Chooses actions and estimates the values of observations.

    Observations are as batches store them: as the environment gives them if `filters_observations` is false, else
    float32 and already filtered (`policy.filter(raw, out=..., update=True)` when they are collected). A filtered
    observation is never filtered again, so old rows keep their meaning while the filter learns.

    Args:
        spec: description of the network, the distribution and the filter (models/dense/network_spec.py).
        weights: flat float32 vector that becomes the policy's own memory, without a copy.
        rng: draws initial weights if none are given. Without either, all weights are zero until `set_weights`.

    Attributes:
        filters_observations: whether observations have to pass `filter` before they are stored or acted upon.
        action_shape, action_dtype: shape and dtype of one action; int64, or float32 for continuous ones.
        num_dist_inputs: number of parameters of one action's distribution.
        state_size: length of the memory's state vector; 0 for a policy without a memory.
        is_noisy: whether some layers have noise in their weights, or quantiles have levels that are drawn.
        is_masked: whether observations hold a mask of legal actions.
        exploration: keyword arguments of the distribution's `noise`, such as epsilon; they may change at any time. In a
            policy that was loaded, those of the run when the checkpoint was written.
        explore: whether actions are sampled unless a call says otherwise, where there is no `config` that says it.
        modules: `modules` of the last snapshot.
        observation_space, action_space: spaces of the environment; None if they are not known.
        config: the algorithm's; None for a policy that was loaded alone, and in workers without callbacks.

    Raises:
        ValueError: for weights of another size.
    """

    def __init__(self, spec: NetworkSpec, weights: np.ndarray | None = None, rng: np.random.Generator | None = None):
        use_one_blas_thread()
        self.spec = spec
        self.distribution = spec.distribution
        self.layout = spec.layout()
        self.filter = spec.make_filter()
        self.filters_observations = self.filter.filters
        self.action_shape, self.action_dtype = spec.distribution.action_shape, spec.distribution.action_dtype
        self.num_dist_inputs, self.state_size = spec.distribution.num_inputs, spec.state_size
        self.is_noisy, self.is_masked = spec.has_noise, spec.is_masked
        if weights is None:
            weights = np.zeros(self.layout.size, np.float32)
            if rng is not None:
                spec.initialize(self.layout, weights, rng)
        self._weights = weights
        self.network = spec.masked_network(self.layout, weights)
        self._on_device = None
        self._inputs = BuffersByRows(self.acting_inputs)
        self._among: ActingBuffers | None = None
        self.exploration: Mapping[str, float] = {}
        self.explore = True
        self.modules: Mapping[str, np.ndarray] | None = None
        self.observation_space: spaces.Space | None = None
        self.action_space: spaces.Space | None = None
        self.config: Mapping[str, Any] | None = None

    @classmethod
    def from_checkpoint(
        cls, checkpoint_path: str | os.PathLike, *, load_user_code: bool = False
    ) -> Any:  # callers know which of both it is; a union would be an error at each use
        """Loads the policies of an algorithm's checkpoint by id, or one policy.

        One policy is what `export_policy_model` wrote, or the directory `policies/<id>` of an algorithm's checkpoint.
        They take observations as batches store them, give actions in their own units, and explore as the run did when
        the checkpoint was written.

        Args:
            checkpoint_path: the directory.
            load_user_code: import or unpickle a NetworkSpec of your own and its parts. That runs code: only for
                checkpoints whose origin you trust.

        Raises:
            CheckpointError: (a ValueError) if it is missing, cut off, holds no policy, or holds code of yours that is
                not loaded.
        """
        path = local_path(checkpoint_path)
        if path.parent.name == "policies" and not (path / MANIFEST).exists():
            policies = cls.from_checkpoint(path.parents[1], load_user_code=load_user_code)
            if isinstance(policies, dict) and path.name in policies:
                return policies[path.name]
        is_one = "policy.json" in read_manifest(checkpoint_path)["files"]
        files = read_checkpoint(checkpoint_path, load_user_code=load_user_code, only="" if is_one else "policies/")
        policies = {}
        for name, description in files.items():
            if name.endswith("policy.json"):
                directory = name.removesuffix("policy.json")
                with naming_damage(checkpoint_path):
                    state = files[directory + "weights.safetensors"]
                policies[directory] = cls.from_files(description, state, checkpoint_path)
        if not policies:
            raise CheckpointError(f"{os.fspath(checkpoint_path)} is a checkpoint, but not one of a policy")
        return policies[""] if is_one else {directory.split("/")[1]: policy for directory, policy in policies.items()}

    @classmethod
    def from_files(
        cls, description: Mapping[str, Any], state: Mapping[str, np.ndarray], path: str | os.PathLike
    ) -> "Policy":
        """Builds the policy from the contents of a checkpoint's policy.json and weights.safetensors.

        Raises:
            CheckpointError: if it needs user code that was not loaded, or the files do not belong together; it names
                the path.
        """
        with naming_damage(path):
            spec, size = described_spec(description, path), state[WEIGHTS].size
            # A few characters may describe a network of any size, so its size is checked before it is made.
            if getattr(spec.memory, "num_units", 0) > size or spec.layout().size != size:
                raise CheckpointError(
                    f"the checkpoint {os.fspath(path)} is damaged: the policy's {size} weights are not of its network"
                )
            policy = cls(spec)
            policy.set_state(state)
        # Checkpoints of earlier versions do not have them.
        policy.observation_space, policy.action_space = map(description.get, ("observation_space", "action_space"))
        policy.exploration, policy.explore = description.get("exploration", {}), description.get("explore", True)
        return policy

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns stored per step: action, distribution and log-probability if there is one, a memory's state."""
        columns = (Column(ACTIONS, self.action_shape, str(self.action_dtype)),)
        if self.distribution.has_log_prob:
            columns += Column(ACTION_DIST_INPUTS, (self.num_dist_inputs,)), Column(ACTION_LOGP)
        if self.state_size:
            columns += (Column(STATE_IN, (self.state_size,), before_action=True),)
        return columns

    # ------------------------------------------------------------------ weights and state

    @property
    def weights(self) -> np.ndarray:
        """The flat float32 vector itself: network and learner work on this memory."""
        return self._weights

    def get_weights(self) -> dict[str, np.ndarray]:
        """Copies of the parameters by name, shaped as in torch.nn.Linear."""
        return {name: parameter.copy() for name, parameter in self.parameters().items()}

    def set_weights(self, weights: np.ndarray | Mapping[str, np.ndarray]) -> None:
        """Copies weights into the policy's memory.

        Args:
            weights: a flat vector, or all parameters by name, as `get_weights` gives them.

        Raises:
            ValueError: if it has another length, or other parameters, or numbers that are not finite.
            TypeError: for anything else.
        """
        if isinstance(weights, Mapping):
            weights = self._flat(weights)
        if not hasattr(weights, "shape"):
            raise TypeError(f"weights={weights!r:.80} must be a dict as get_weights() returns it, or a flat array")
        with np.errstate(over="ignore"):
            given = np.asarray(weights, np.float32)
        if not np.isfinite(given).all():
            raise ValueError(
                f"{np.sum(~np.isfinite(given))} of {given.size} weights are not finite: a network with them computes "
                "nothing else. Take weights of an earlier checkpoint."
            )
        self.take_weights(given)

    def take_weights(self, weights: np.ndarray) -> None:
        """`set_weights` of a flat vector, whatever its numbers are."""
        if weights.shape != self._weights.shape:
            raise ValueError(
                f"the policy has {self._weights.size} weights, but an array of shape {weights.shape} was given; "
                "they must come from a policy with the same spaces and model settings"
            )
        np.copyto(self._weights, weights)
        if self._on_device is not None:
            self._on_device.load(weights)

    def _flat(self, parameters: Mapping[str, np.ndarray]) -> np.ndarray:
        """Joins parameters by name into one vector."""
        flat = self._weights.copy()
        own = self.layout.named_parameters(flat)
        given = {name: np.shape(array) for name, array in parameters.items()}
        if given != {name: array.shape for name, array in own.items()}:
            expected = ", ".join(f"{name}{list(array.shape)}" for name, array in own.items())
            raise ValueError(
                f"weights by name must match get_weights(), {expected}, but {given} were given; they must come "
                "from a policy with the same spaces and model settings"
            )
        for name, array in own.items():
            np.copyto(array, parameters[name])
        return flat

    def snapshot(self, version: int = 0, timesteps: int = 0) -> Snapshot:
        """Snapshot of the present weights, which are not copied, and of the filter's statistics; arguments as there."""
        filter_state = self.filter.get_state() if self.filters_observations else None
        return Snapshot(self._weights, version, filter_state, timesteps)

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Copies a snapshot's weights and filter statistics.

        Raises:
            ValueError: if it is of another network or filter.
        """
        self.take_weights(snapshot.weights)
        self.modules = snapshot.modules
        if snapshot.filter_state is not None:
            self.filter.set_state(snapshot.filter_state)

    def move_into(self, memory: np.ndarray) -> None:
        """Copies the weights into `memory`, float32 [weights], which becomes the policy's own memory."""
        np.copyto(memory, self._weights)
        self._weights = memory
        self.network = self.spec.masked_network(self.layout, memory)

    def act_on(self, device: str) -> bool:
        """Moves the network to a torch device, with a copy of the weights that `set_weights` renews.

        Args:
            device: such as "cuda".

        Returns:
            whether it moved: networks with a memory, or with noise in their weights or features, stay on the CPU.

        Raises:
            ValueError: if torch has no such device.
            GpuMemoryError: if the network does not fit there.
        """
        import torch

        from rllib.models.acting_in_torch import network_on

        if torch.device(device).type == "cuda" and (reason := why_no_cuda()) is not None:
            raise ValueError(f"num_gpus_per_worker is set, but {reason}. Use .resources(num_gpus_per_worker=0).")
        if self.state_size or self.is_noisy or self.spec.architecture.state_dependent_noise:
            return False
        self._on_device = network_on(device, self.spec, self.layout, self._weights, self.network.gives_values)
        self.network = self.spec.with_mask(self._on_device)
        return True

    def get_state(self) -> dict[str, np.ndarray]:
        """The flat weights and the filter's statistics, by name."""
        filter_state = {FILTER_PREFIX + name: array for name, array in self.filter.get_state().items()}
        return {WEIGHTS: self._weights.copy(), **filter_state}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores the state that `get_state` returned.

        Raises:
            ValueError: if it belongs to another network or filter.
        """
        filter_state = {
            name.removeprefix(FILTER_PREFIX): array for name, array in state.items() if name.startswith(FILTER_PREFIX)
        }
        if WEIGHTS not in state or bool(filter_state) != self.filters_observations:
            raise ValueError(
                f"this policy with observation_filter={self.spec.observation_filter!r} cannot take over a state "
                f"that holds {sorted(state)}"
            )
        self.take_weights(state[WEIGHTS])
        self.filter.set_state(filter_state)

    def parameters(self) -> dict[str, np.ndarray]:
        """Parameter name -> view of the weights, shaped as in torch.nn.Linear."""
        return self.layout.named_parameters(self._weights)

    @property
    def model(self):
        """The network as a torch module: computes (dist_inputs, values) from the results of `encode`.

        Its parameters are the policy's own memory, so they follow every update.
        """
        import torch

        return self.spec.masked_torch(self.layout, torch.from_numpy(self._weights), self.network)

    @property
    def _explores(self) -> bool:
        """Whether actions are sampled unless a call says otherwise."""
        return self.explore if self.config is None else self.config["explore"]

    def is_recurrent(self) -> bool:
        """Whether the policy has a memory."""
        return self.state_size > 0

    def num_state_tensors(self) -> int:
        """Number of arrays in a state of the memory; 0 without one."""
        return len(self.spec.state_shapes)

    @property
    def dist_class(self) -> type:
        """Class of the distribution of actions."""
        return type(self.distribution)

    def apply(self, function: Callable, *args, **kwargs) -> Any:
        """function(policy, *args, **kwargs)."""
        return function(self, *args, **kwargs)

    def export_checkpoint(self, export_dir: str | os.PathLike) -> Path:
        """Writes this policy as `from_checkpoint` reads it; returns the directory.

        `Algorithm.export_policy_model` writes also how an environment's observations and actions are converted, which
        `load_policy` needs.
        """
        description = {
            **description_of(self.spec),
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "exploration": {name: float(number) for name, number in self.exploration.items()},
            "explore": self._explores,
        }
        return write_checkpoint(export_dir, {"policy.json": description, "weights.safetensors": self.get_state()})

    # RLlib's name.
    export_model = export_checkpoint

    # ------------------------------------------------------------------ noise in the weights

    def resample(self, rng: np.random.Generator) -> None:
        """Draws new noise for the noisy layers; does nothing without them."""
        if self.is_noisy:
            self.network.resample(rng)

    @property
    def layer_noise(self) -> np.ndarray | None:
        """The noise in the weights of the noisy layers, float32, not copied; None without such layers."""
        return self.network.noise if self.is_noisy else None

    def silence(self) -> None:
        """Sets the noise in the weights to zero until the next `resample`."""
        if self.is_noisy:
            self.network.silence()

    # ------------------------------------------------------------------ acting

    def noise(self, rng: np.random.Generator, *shape: int, **exploration) -> np.ndarray:
        """Noise for sampling actions, float32 [*shape, ...]; zeros instead give the most probable actions.

        Args:
            rng: source of randomness.
            shape: leading dimensions, such as (T, N).
            exploration: keyword arguments of the distribution's `noise`; by default `self.exploration`.
        """
        return self.distribution.noise(rng, *shape, **(exploration or self.exploration))

    @property
    def gives_values(self) -> bool:
        """Whether `act` can write the values of the observations without a separate pass through the network.

        True if the value head shares layers with the policy, and for action values without noise in the weights.
        """
        return self.network.gives_values or (self.distribution.gives_values and not self.is_noisy)

    def act(
        self,
        observations: np.ndarray,
        noise: np.ndarray,
        dist_inputs: np.ndarray,
        actions: np.ndarray,
        values: np.ndarray | None = None,
        state: np.ndarray | None = None,
        next_state: np.ndarray | None = None,
    ) -> None:
        """Chooses one action per row: the hot path of sampling. Results are written in place.

        Args:
            observations: [N, *shape] as stored.
            noise: [N, ...], a slice of a result of `noise`.
            dist_inputs: float32 [N, num_dist_inputs], written.
            actions: [N, *action_shape] of action_dtype, written.
            values: float32 [N], contiguous, written; allowed only if `gives_values`.
            state: float32 [N, state_size], `next_state` of the step before; zeros where an episode begins. Required for
                policies with a memory.
            next_state: the same shape, written.
        """
        among = self._among
        if among is None:
            inputs = self.encode(observations)
        else:
            wanted = dist_inputs, actions, values
            inputs, noise, dist_inputs, actions, values = among.of_all(observations, noise, values is not None)
        if state is not None:
            if among is not None:
                wanted_state, (state, next_state) = next_state, among.states_of_all(state)
            dist_inputs[:] = self.network.step(inputs, state, next_state, values)
            if among is not None:
                wanted_state[:] = next_state[among.rows]
        elif values is not None and self.distribution.gives_values:
            dist_inputs[:] = self.network.forward_policy(inputs)
            self.distribution.best(dist_inputs, out=values)
        else:
            dist_inputs[:] = self.network.forward_policy(inputs, values)
        self.distribution.sample(dist_inputs, noise, actions)
        if among is not None:
            among.copy_to(*wanted)

    def acting_features(self, rows: int) -> np.ndarray:
        """Inputs [N, width] of the policy's head in the last `act`, which had this number of rows (only gSDE)."""
        among = self._among
        if among is None:
            return self.network.acting_features(rows).T
        return self.network.acting_features(len(among.actions))[:, among.rows].T

    def act_among(self, total: int, rows: slice) -> None:
        """Pads the inference batches of `act` to `total` rows; the rows of this process are at `rows`.

        Rounding in matrix products depends on the number of rows and, in some kernels, on a row's position. Processes
        that divide the rows among them get the same bits only if each computes the full shape, with its rows in place.
        Batches are computed as they are if `rows` are all rows, or a row costs too much (`NetworkSpec.acts_unpadded`).
        """
        is_part = rows.stop - rows.start < total and not self.spec.acts_unpadded
        self._among = ActingBuffers(self, total, rows) if is_part else None

    def compute_actions(
        self,
        observations: Sequence | np.ndarray | None = None,
        state_batches: Sequence[np.ndarray] | None = None,
        *,
        explore: bool | None = None,
        rng: np.random.Generator | None = None,
        filtered: bool = False,
        obs_batch: Sequence | np.ndarray | None = None,
        **of_rllib,
    ) -> tuple[np.ndarray, list[np.ndarray], dict[str, np.ndarray]]:
        """Computes actions outside of training, in the form of RLlib: (actions, state_outs, fetches).

        Args:
            observations: [N, *shape], as the environment gives them unless `filtered`.
            state_batches: for policies with a memory, a list of arrays [N, *shape]: the state_outs of the step before,
                or `get_initial_state()` stacked N times at the beginning of episodes.
            explore: sample, as the exploration of the run does (`exploration`); False takes the most probable actions.
                By default the config's `explore`.
            rng: draws the samples; by default a fresh one.
            filtered: whether the observations have passed the filter already.
            obs_batch: RLlib's name of observations.
            of_rllib: RLlib's further arguments (info_batch, episodes, timestep, ...), which have no effect.

        Returns:
            actions [N, *action_shape]; arrays [N, *shape] of the memory's next state, [] without a memory; a dict with
            action_dist_inputs, and with action_logp and vf_preds if the policy has them.

        Raises:
            ValueError: as for `choose`, and for a state of another form.
        """
        if unknown := of_rllib.keys() - _OF_RLLIB:
            raise TypeError(f"compute_actions() got an unexpected keyword argument {min(unknown)!r}")
        observations = obs_batch if observations is None else observations
        if observations is None:
            raise TypeError("compute_actions() needs observations")
        if explore is None:
            explore = self._explores
        state = None if state_batches is None or not len(state_batches) else self.joined_state(state_batches)
        fetches: dict[str, np.ndarray] = {}
        actions = self.choose(observations, explore, rng, filtered=filtered, state=state, fetches=fetches)
        return actions, self.state_parts(state), fetches

    def compute_single_action(
        self, observation=None, state: Sequence[np.ndarray] | None = None, *, obs=None, **how
    ) -> tuple[Any, list[np.ndarray], dict[str, Any]]:
        """`compute_actions` of one observation and its state: (action, state_out, fetches), without the dimension N."""
        observation = obs if observation is None else observation
        if observation is None:
            raise TypeError("compute_single_action() needs an observation")
        states = [np.asarray(part)[None] for part in state or ()]
        actions, states, fetches = self.compute_actions(np.asarray(observation)[None], states, **how)
        return actions[0], [part[0] for part in states], {name: rows[0] for name, rows in fetches.items()}

    def compute_actions_from_input_dict(
        self, input_dict: Mapping[str, Any], explore: bool | None = None, **how
    ) -> tuple[np.ndarray, list[np.ndarray], dict[str, np.ndarray]]:
        """`compute_actions` of a batch: its column obs, and state_in_0, state_in_1, ... for the states of a memory."""
        states = [input_dict[f"state_in_{index}"] for index in range(self.num_state_tensors())]
        known = {name: how[name] for name in ("rng", "filtered") if name in how}
        return self.compute_actions(input_dict[OBS], states, explore=explore, **known)

    def compute_log_likelihoods(self, actions: Sequence | np.ndarray, obs_batch: Sequence | np.ndarray) -> np.ndarray:
        """Log-probabilities [N] of actions [N, *action_shape] for observations [N, *shape] as batches store them.

        Of squashed actions they are densities in [-1, 1]; actions are those before tanh, as batches store them.

        Raises:
            ValueError: for a policy with a memory, whose states they depend on, or one that draws no actions; for
                another number of actions than observations.
        """
        distribution = self.distribution
        density_of = distribution.log_prob_of
        if self.state_size or not (distribution.has_log_prob or density_of):
            of_values = "gives one action for each observation" if distribution.size else "chooses by values"
            why = "has a memory, on whose states they depend" if self.state_size else of_values
            raise ValueError(f"log-probabilities cannot be computed from observations alone: this policy {why}")
        observations, actions = np.asarray(obs_batch), np.asarray(actions, self.action_dtype)
        if len(actions) != len(observations):
            raise ValueError(
                f"{len(actions)} actions and {len(observations)} observations were given; give one for each"
            )
        return (density_of or self.log_prob)(self.dist_inputs(observations), actions)

    def choose(
        self,
        observations: Sequence | np.ndarray,
        explore: bool = True,
        rng: np.random.Generator | None = None,
        *,
        filtered: bool = False,
        state: np.ndarray | None = None,
        fetches: dict[str, np.ndarray] | None = None,
    ) -> np.ndarray:
        """The actions of `compute_actions` alone, with the memory's state in one array.

        Args:
            observations, explore, rng, filtered: as for `compute_actions`.
            state: for policies with a memory, float32 [N, state_size], overwritten with the state for the next step;
                zeros where an episode begins.
            fetches: a dict that receives the fetches of `compute_actions`.

        Raises:
            ValueError: if the observations have another shape than the policy's or numbers that are not finite in
                float32, a state is missing, or a mask leaves no legal action.
        """
        if self.state_size and state is None:
            raise ValueError(
                "this policy has a memory: give the state before each of the N observations, arrays of N rows each. It "
                "begins as get_initial_state(), stacked N times; later steps take the state that the last call returned"
            )
        observations = np.asarray(observations)
        expected = self.spec.encoder.shape
        if observations.shape[1:] != expected:
            raise ValueError(
                f"observations must be a batch of shape [N, {', '.join(map(str, expected))}], but got "
                f"{list(observations.shape)}; one observation alone is observation[None]"
            )
        if not filtered:
            self._check_finite(observations)
            self.check_masks(observations, lambda row: f"observation {row} of {len(observations)} has no legal action")
            observations = self.filter(observations)
        rng = np.random.default_rng() if rng is None else rng
        if explore:
            self.resample(rng)
        else:
            self.silence()
        before = None if state is None else state.copy()
        if state is None:
            dist_inputs = self.network.forward_policy(self.encode(observations)).copy()
        else:
            dist_inputs = self.network.step(self.encode(observations), before, state).copy()
        if explore:
            actions = self.distribution.sample(dist_inputs, self.noise(rng, len(observations)))
        else:
            actions = self.distribution.mode(dist_inputs)
        if fetches is not None:
            fetches[ACTION_DIST_INPUTS] = dist_inputs
            if self.distribution.has_log_prob:
                fetches[ACTION_LOGP] = self.log_prob(dist_inputs, actions)
            if self.spec.critic:
                fetches[VF_PREDS] = self.values(observations, before)
        return actions

    def state_parts(self, state: np.ndarray | None) -> list[np.ndarray]:
        """Views [N, *shape] of states [N, state_size], in the order of `get_initial_state`; none without a memory."""
        shapes = self.spec.state_shapes
        if not shapes:
            return []
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        return [part.reshape(len(state), *shape) for part, shape in zip(np.split(state, ends, axis=1), shapes)]

    def with_value_state(self, parts: Sequence) -> Sequence:
        """A state in which the value's own cell was left out, with zeros for it; any other as it is.

        Programs for RLlib, where policy and value read one cell, begin an episode with zeros for that alone.
        """
        has_own = self.spec.memory is not None and not self.spec.vf_share_layers
        if has_own and 2 * len(parts) == len(self.spec.state_shapes):
            return [*parts, *map(np.zeros_like, parts)]
        return parts

    def joined_state(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """States [N, state_size] from arrays [N, *shape], in the order of `get_initial_state`.

        Raises:
            ValueError: for arrays of other shapes.
        """
        shapes, parts = self.spec.state_shapes, self.with_value_state(parts)
        if [np.shape(part)[1:] for part in parts] != list(shapes):
            expected = ", ".join(f"[N, {', '.join(map(str, shape))}]" for shape in shapes)
            raise ValueError(
                f"the state must be a list of {len(shapes)} arrays ({expected}), but got arrays of shapes "
                f"{[np.shape(part) for part in parts]}"
            )
        return np.concatenate([np.reshape(part, (len(part), -1)) for part in parts], axis=1, dtype=np.float32)

    def _check_finite(self, observations: np.ndarray) -> None:
        """Raises a ValueError for observations [B, *shape] that are NaN or infinite, or beyond float32's numbers."""
        stored = observations
        if observations.dtype.kind == "f" and observations.dtype != np.float32:
            with np.errstate(over="ignore"):
                stored = observations.astype(np.float32)
        if not are_finite(stored):
            row = int(np.argmin(np.isfinite(stored).reshape(len(stored), -1).all(1)))
            raise ValueError(
                f"no action can be computed: observation {row} of {len(stored)} is not finite in float32: "
                f"{observations[row]!s:.200}. Replace NaN and infinity before the policy gets it."
            )

    def check_masks(
        self, observations: np.ndarray, where: Callable[[int], str], acting: np.ndarray | None = None
    ) -> None:
        """Raises an error for stored observations [B, *shape] whose mask leaves no legal action.

        Args:
            observations: that are acted upon.
            where: function of the row that returns the beginning of the message, "... has no legal action".
            acting: bool [B], rows that are acted upon; None: all.

        Raises:
            ValueError: with the first of them.
        """
        if self.is_masked:
            masks = self.spec.encoder.mask(observations)
            if problem := choice_problem(masks, self.distribution, where, acting):
                raise ValueError(problem)

    def acted_without_choice(self) -> list[int]:
        """Indices of the rows of the last `act` whose masks left no legal action."""
        without = self.network.masks.without_choice
        if without is None:
            return []
        return np.flatnonzero(without if self._among is None else without[self._among.rows]).tolist()

    def get_initial_state(self) -> list[np.ndarray]:
        """The memory's state before an episode, arrays of zeros; without a memory the list is empty."""
        return [np.zeros(shape, np.float32) for shape in self.spec.state_shapes]

    # ------------------------------------------------------------------ whole fragments

    def postprocess_trajectory(self, batch: SampleBatch, *, gamma: float, lambda_: float = 1.0) -> SampleBatch:
        """Adds vf_preds, advantages and value_targets to one part of an episode, and returns it.

        Advantages are GAE's, like the ones that workers add to their fragments.

        Args:
            batch: the rows in the order of their steps: obs as stored, rewards, terminateds. Unless the last row is
                terminated, the value of its new_obs represents the rest of the episode.
            gamma: discount per step.
            lambda_: GAE's lambda; 1 gives discounted returns minus the value.

        Raises:
            ValueError: for rows of several episodes, a missing column, or a policy without a value or with a memory.
        """
        if not self.spec.critic or self.state_size:
            what = "has a memory, on whose states the values depend" if self.spec.critic else "has no value head"
            raise ValueError(f"advantages cannot be computed from a batch alone: this policy {what}")
        terminated = batch[TERMINATEDS]
        goes_on = not terminated[-1]
        ended = terminated | batch[TRUNCATEDS] if TRUNCATEDS in batch else terminated
        if ended[:-1].any():
            raise ValueError(
                f"the rows must be a part of one episode, but one ends in row {int(ended.argmax())} of {batch.count}. "
                "Call it for each of batch.split_by_episode()."
            )
        if goes_on and NEXT_OBS not in batch:
            raise ValueError(
                f"the last row is not terminated, so its {NEXT_OBS!r} is needed, but the batch has {sorted(batch)}"
            )
        values = self.values(batch[OBS])
        last = self.values(batch[NEXT_OBS][-1:]) if goes_on else np.zeros(1, np.float32)
        rewards, terminated = np.asarray(batch[REWARDS], np.float32), np.asarray(terminated)
        columns = rewards, values, np.concatenate([values[1:], last]), terminated, np.zeros_like(terminated)
        advantages, targets = gae(*(column[:, None] for column in columns), gamma, lambda_)
        batch.update({VF_PREDS: values, ADVANTAGES: advantages[:, 0], VALUE_TARGETS: targets[:, 0]})
        return batch

    def encode(self, observations: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The network's input: float32 [N, input_width] with a column of ones, or the observations themselves.

        By default in a buffer that the next call with the same number of rows overwrites.
        """
        if self.spec.encoder.as_stored:
            return observations
        if out is None:
            out = self._inputs[len(observations)]
        self.spec.encoder.encode(observations, out)
        return out

    def new_inputs(self, rows: int) -> np.ndarray:
        """New memory for encoded observations, float32 [rows, input_width]; empty if nothing is encoded."""
        return np.ones((rows, self.spec.input_width), np.float32)

    def acting_inputs(self, rows: int) -> np.ndarray:
        """As `new_inputs`, for acting: few inputs lie feature by feature, which a first layer reads faster."""
        width = self.spec.input_width
        return np.ones((width, rows), np.float32).T if width <= FEW_INPUTS else self.new_inputs(rows)

    def log_prob(self, dist_inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Log-probability [B] of actions [B, *action_shape] under distributions [B, num_dist_inputs]."""
        # Copied feature by feature: reductions over a row's few numbers take several times as long.
        return self.distribution.at(np.ascontiguousarray(dist_inputs.T).T).log_prob(actions)

    def dist_inputs(
        self, observations: np.ndarray, seq_lens: np.ndarray | None = None, state: np.ndarray | None = None
    ) -> np.ndarray:
        """Parameters of the action distributions, [B, num_dist_inputs], for observations [B, *shape] as stored.

        With a memory, the observations stand in sequences of lengths [S], from the states [S, state_size].
        """
        if state is not None:
            return _kept(self.network.forward(self.encode(observations), seq_lens, state)[0])
        dist_inputs = np.empty((len(observations), self.num_dist_inputs), np.float32)
        for start in range(0, len(observations), CHUNK):
            rows = observations[start : start + CHUNK]
            dist_inputs[start : start + CHUNK] = self.network.forward_policy(self.encode(rows))
        return dist_inputs

    def state_after(self, observations: np.ndarray, num_steps: np.ndarray, state: np.ndarray) -> np.ndarray:
        """The memory's states [S, state_size] after the first steps of S sequences.

        Args:
            observations: [S, T, *shape] as stored.
            num_steps: int [S], number of steps of each sequence that count.
            state: [S, state_size] before them.
        """
        state, following = state.copy(), np.empty_like(state)
        for t in range(int(num_steps.max(initial=0))):
            self.network.step(self.encode(np.ascontiguousarray(observations[:, t])), state, following)
            goes_on = num_steps > t
            state[goes_on] = following[goes_on]
        return state

    def action_values(self, observations: np.ndarray) -> QBatch:
        """Action values of observations [B, *shape] as stored."""
        return self.distribution.at(_kept(self.network.forward(self.encode(observations))[0]))

    def values(self, observations: np.ndarray, state: np.ndarray | None = None) -> np.ndarray:
        """Values [B] of observations [B, *shape] as stored; with a memory, in states [B, state_size]."""
        values = np.empty(len(observations), np.float32)
        if state is not None:
            self.network.step(self.encode(observations), state, np.empty_like(state), values)
            return values
        for start in range(0, len(observations), CHUNK):
            rows = observations[start : start + CHUNK]
            values[start : start + CHUNK] = self.network.forward_value(self.encode(rows))
        return values


def _kept(outputs: np.ndarray) -> np.ndarray:
    """A copy in the same memory order: the next pass with this number of rows overwrites the network's buffers."""
    return outputs.copy("K")
