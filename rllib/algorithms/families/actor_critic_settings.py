"""Settings of actor-critic methods with a replay, and the rules between them (off_policy_actor_critic.py)."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from gymnasium import spaces

from rllib.algorithms.base.space_rules import NewPolicy, of_network, of_spaces
from rllib.algorithms.families.sequence_replay import SequenceReplayConfig
from rllib.config.config_object import relation
from rllib.config.conflicts import DEFAULT, Mistake, conflict
from rllib.config.sections import Keys, Merged, OfPolicy, at_least, section
from rllib.env.spaces.actions import bounded_within
from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.models.catalog.catalog import preprocessing
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.model_settings import MEMORIES, MODEL_DEFAULTS, OF_MEMORIES, ModelSettings
from rllib.models.observations.torso import Torso
from rllib.models.residual.layout import BATCH_EPSILON
from rllib.replay.replay_settings import SequenceReplaySettings

# Settings of the actor's network and of the critics'.
_NETWORKS = ("policy_model_config", "q_model_config")
# Settings that change the loss of a policy.
_LOSSES = ("auxiliary_losses", "custom_loss", "learner_class")
_CONVOLUTIONS = ("conv_filters", "conv_activation", "impala_width", "impala_pool", "impala_spectral_norm")
_CELL = ("lstm_cell_size", "post_lstm_hiddens", "post_lstm_activation")
_CRITIC_SETTINGS = (
    *("network", "fcnet_hiddens", "fcnet_activation", "fcnet_weights_initializer", "layer_norm"),
    *(*_CONVOLUTIONS, *_CELL, "custom_model", "custom_model_config"),
)
# Settings of a memory that are the same for actor and critics, so that they are not in the settings of one of them.
_OF_BOTH = (*OF_MEMORIES, "max_seq_len")

# What to use instead of an algorithm that needs recorded data, where actions are Discrete, and where they are others.
_FOR_RECORDED_CHOICES = "IQL, AWAC, MARWIL, BC, or DQN with .training(conservative_weight=1.0), for Discrete actions"
_FOR_OTHER_RECORDED = "BC or MARWIL, for which actions may be of any space"


class OffPolicyActorCriticConfig(SequenceReplayConfig):
    """Settings of actor, critics and their targets."""

    network_settings_names: ClassVar[tuple[str, ...]] = ("model", *_NETWORKS)
    # Whether actor and critics read images, whether actions may be choices, and what to use for actions it cannot take.
    reads_images: ClassVar[bool] = False
    # In Ray's new API stack it says that actor_lr, critic_lr and alpha_lr are given.
    harmless: ClassVar[Mapping[str, tuple]] = {"lr": (None,)}
    takes_choices: ClassVar[bool] = False
    for_other_actions: ClassVar[str] = "SAC or DQN for Discrete actions, PPO for all others, integer Boxes too"
    # Why there are no residual blocks, where there are none, a clause.
    without_residual: ClassVar[str] = ""
    # Whether the losses support networks with batch normalisation.
    learns_by_batch: ClassVar[bool] = False
    # Setting of a network that cannot be the user's -> the reason, a clause.
    not_custom: ClassVar[Mapping[str, str]] = {}
    # Why the networks cannot have a memory, for the message; empty: they can.
    without_memory: ClassVar[str] = ""

    @section
    def training(
        self,
        *,
        lr=3e-4,
        actor_lr: Annotated[
            float | list | None, "the actor's, or a schedule of it; None: lr", at_least(0), OfPolicy
        ] = None,
        critic_lr: Annotated[
            float | list | None, "the critics', or a schedule of it; None: lr", at_least(0), OfPolicy
        ] = None,
        train_batch_size=256,
        model: Annotated[dict, "network of actor and critics: fcnet_hiddens, fcnet_activation, ...", Merged] = {  # noqa: B006
            "fcnet_hiddens": [256, 256],
            "fcnet_activation": "relu",
        },
        policy_model_config: Annotated[
            dict,
            "what differs from model for the actor: fcnet_hiddens, fcnet_activation, ...; or a custom_model",
            Merged,
            OfPolicy,
        ] = {},  # noqa: B006
        q_model_config: Annotated[
            dict,
            "what differs from model for the critics: fcnet_hiddens, fcnet_activation, layer_norm; or a custom_model, "
            "which reads the action as well",
            Merged,
            OfPolicy,
        ] = {},  # noqa: B006
        share_encoder: Annotated[
            bool,
            "actor and critics read images by the same convolutions, which the critics' loss alone trains; False: by "
            "separate ones",
            OfPolicy,
        ] = True,
        image_shift: Annotated[
            int,
            "pixels by which updates shift images at most, at random (DrQ-v2: 4); 0: not at all",
            at_least(0),
            OfPolicy,
        ] = 0,
        twin_q: Annotated[bool, "two critics, of which targets take the smaller value; False: one", OfPolicy] = True,
        n_critics: Annotated[int | None, "number of critics, instead of twin_q", at_least(1), OfPolicy] = None,
        policy_delay: Annotated[int, "updates of the critics for one of the actor", at_least(1), OfPolicy] = 1,
        param_resets: Annotated[
            list[int],
            "environment steps at which all networks and the memory of their optimizers are reset (Nikishin et al., "
            "arXiv:2205.07802); the replay and SAC's alpha stay",
        ] = [],  # noqa: B006
        tau=5e-3,
        target_network_update_freq: Annotated[
            int, "environment steps between moves of the target copies; 0: they move with every update", at_least(0)
        ] = 0,
        num_steps_sampled_before_learning_starts=1500,
        replay_buffer_config: Annotated[
            dict,
            "type, capacity (in steps), prioritized_replay_alpha, _beta, _eps, frame_stack_axis, storage, "
            "n_sampled_goal, goal_selection_strategy; with a memory replay_burn_in (steps)",
            Merged,
            Keys(SequenceReplaySettings),
        ] = SequenceReplaySettings.defaults(),
    ) -> Self: ...

    @section
    def reporting(self, *, min_time_s_per_iteration=1, min_sample_timesteps_per_iteration=100) -> Self: ...

    @property
    def num_critics(self) -> int:
        """Number of critics."""
        return self.n_critics or (2 if self.twin_q else 1)

    @property
    def replays_sequences(self) -> bool:
        """Whether rows of the replay are sequences: where the networks have a memory."""
        return any(self.model.get(name) for name in MEMORIES)

    @property
    def steps_per_unit(self) -> int:
        return 1

    @property
    def acting_model(self) -> Mapping[str, Any]:
        return self.network_settings("policy_model_config")

    def network_settings(self, own: str) -> dict[str, Any]:
        """`model`, changed by this setting; this setting alone where it has a network of the user's."""
        if self.is_custom(own):
            return dict(self[own])
        behind_memory = {"post_lstm_hiddens": [256]} if self.replays_sequences else {}
        return {**behind_memory, **self.model, **self[own]}

    def is_custom(self, own: str) -> bool:
        """Whether this setting has a network of the user's."""
        return self[own].get("custom_model") is not None

    @property
    def is_by_batch(self) -> bool:
        """Whether actor or critics are networks that batches normalise."""
        return any(self.network_settings(own).get("network") in BATCH_EPSILON for own in _NETWORKS)

    @property
    def shares_encoder(self) -> bool:
        """Whether actor and critics, both built in, read images by the same convolutions."""
        return self.share_encoder and not any(map(self.is_custom, _NETWORKS))

    @relation("model", *_NETWORKS)
    def _check_user_networks(self):
        """A custom_model is in `policy_model_config` or `q_model_config`, and fits to the other network."""
        if self.model.get("custom_model") is not None:
            return Mistake(
                f"model={{'custom_model': {self.model['custom_model']!r:.80}}} would be actor and critics, but critics "
                "read an action as well.",
                ("model",),
                (self.with_defaults("custom_model", of=("model",)),),
                "Use .training(policy_model_config={'custom_model': Actor}, q_model_config={'custom_model': Critic}), "
                "or one of the two (docs/guide/networks.md).",
            )
        blocks = None if self.is_custom("q_model_config") else self.network_settings("q_model_config").get("network")
        if self.is_custom("policy_model_config") and blocks is not None:
            return Mistake(
                f"q_model_config: network={blocks!r} reads what an actor of the library's encodes, but "
                "policy_model_config has a custom_model.",
                ("q_model_config", "policy_model_config", "model"),
                (self.with_defaults("network"), self.with_defaults("custom_model", of=("policy_model_config",))),
                "Leave one of the two out, or give critics of your own, too.",
            )
        refused = [own for own in self.not_custom if self.is_custom(own)]
        if refused:
            problems = (
                f"{own}: custom_model={self[own]['custom_model']!r:.80} is not available here: {self.not_custom[own]}."
                for own in refused
            )
            advice = "Use SAC, TD3 or DDPG, which take networks of your own, or leave it out."
            return Mistake(
                " ".join(problems), tuple(refused), (self.with_defaults("custom_model", of=refused),), advice
            )
        return None

    @relation("model", "q_model_config")
    def _check_critics(self):
        """`q_model_config` has settings of critics, which fit together."""
        unknown = [name for name in self.q_model_config if name not in (*_CRITIC_SETTINGS, *_OF_BOTH)]
        if unknown:
            return Mistake(
                f"q_model_config={self.q_model_config!r} may have {', '.join(_CRITIC_SETTINGS)}, not "
                f"{', '.join(map(str, unknown))}.",
                ("q_model_config",),
                ({"q_model_config": self.settings["q_model_config"].default},),
                "Use .training(q_model_config={'fcnet_hiddens': [256, 256]}).",
            )
        return self._network_problem("q_model_config")

    @relation("model", "q_model_config", "policy_model_config", "share_encoder")
    def _check_encoder(self):
        """With `share_encoder`, actor and critics have the same convolutions."""
        of_actor, of_critics = (self.network_settings(own) for own in ("policy_model_config", "q_model_config"))
        for name in _CONVOLUTIONS if self.shares_encoder else ():
            actors, critics = (settings.get(name, MODEL_DEFAULTS[name]) for settings in (of_actor, of_critics))
            if actors != critics:
                return Mistake(
                    f"share_encoder=True gives actor and critics the same convolutions, but {name} of "
                    f"policy_model_config is {actors!r} and of q_model_config {critics!r}.",
                    ("share_encoder", *_NETWORKS, "model"),
                    ({"share_encoder": False}, {"q_model_config": {name: actors}}),
                    "Set it in model, for both, or use .training(share_encoder=False).",
                )
        return None

    @relation("model", "policy_model_config", "q_model_config", "learner", "replay_buffer_config", "input_")
    def _check_memory(self):
        """Actor and critics have a memory together, which goes with the learner, the replay and the data."""
        for own in ("policy_model_config", "q_model_config"):
            if given := [name for name in _OF_BOTH if name in self[own]]:
                return Mistake(
                    f"{own}={{{given[0]!r}: {self[own][given[0]]!r}}}: actor and critics have a memory together, or "
                    "none has.",
                    (own, "model"),
                    ({own: self.settings[own].default},),
                    f"Set it in model; {own} may have {', '.join(_CELL)}.",
                )
        return self._memory_problem() if self.replays_sequences else self._sequences_without_memory()

    def _sequences_without_memory(self) -> Mistake | None:
        replay, own = self.replay_settings(), SequenceReplaySettings()
        keys = "replay_burn_in", "replay_sequence_length"
        of_sequences = [key for key in keys if replay.get(key, own[key]) != own[key]]
        plain = {"replay_buffer_config": {key: own[key] for key in of_sequences}} if of_sequences else {}
        given = [f"replay_buffer_config: {key}={replay[key]!r}" for key in of_sequences]
        if not self.zero_init_states:
            plain["zero_init_states"] = True
            given.append("zero_init_states=False")
        if not given:
            return None
        return Mistake(
            f"{' and '.join(given)} is for networks with a memory, and these have none.",
            ("replay_buffer_config", "zero_init_states", "model"),
            (plain, *(() if self.without_memory else ({"model": {"use_lstm": True}},))),
        )

    def _memory_problem(self) -> Mistake | None:
        """Settings that do not go with a memory."""
        without = self.with_defaults(*OF_MEMORIES, of=("model",))
        if self.without_memory:
            return Mistake(
                f"model: {self.algorithm_name} cannot train networks with a memory: {self.without_memory}.",
                ("model",),
                (without,),
                "Use SAC, TQC, TD3 or DDPG, which can, or leave out use_lstm, use_gru and use_attention.",
            )
        if custom := [own for own in _NETWORKS if self.is_custom(own)]:
            return Mistake(
                f"{custom[0]}: custom_model={self[custom[0]]['custom_model']!r:.80} has no memory here, but "
                f"model has {', '.join(name for name in MEMORIES if self.model.get(name))}.",
                ("model", *custom),
                (without, self.with_defaults("custom_model", of=custom)),
                "Leave one of the two out.",
            )
        if blocks := [own for own in _NETWORKS if self.network_settings(own).get("network")]:
            return Mistake(
                f"network={self.network_settings(blocks[0])['network']!r} has residual blocks without a memory.",
                ("model", *blocks),
                (self.with_defaults("network"), without),
                "Leave it out, or use networks without use_lstm and use_gru.",
            )
        if self.model.get("use_attention"):
            return Mistake(
                "model={'use_attention': True} is no memory for an actor with critics: they have a cell.",
                ("model",),
                ({"model": {"use_attention": False, "use_lstm": True}}, without),
                "Use 'use_lstm' or 'use_gru', or R2D2 or PPO, which learn with attention.",
            )
        if self.learner == "numpy":
            return Mistake(
                "learner='numpy' has no closed form of critics with a memory, whose gradient by the action goes "
                "through the layers behind their cells.",
                ("learner", "model"),
                ({"learner": "torch"}, {"learner": "auto"}, without),
            )
        if self.has_data:
            return Mistake(
                f"model: a memory learns from sequences with its states, which recorded steps lack, but input_="
                f"{self.input_!r:.80}.",
                ("model", "input_"),
                (without, {"input_": "sampler"}),
            )
        if not self.network_settings("q_model_config").get("post_lstm_hiddens"):
            return Mistake(
                "post_lstm_hiddens=[] leaves critics no layer that reads the action: it stands behind their cells.",
                ("q_model_config", "model"),
                ({"q_model_config": {"post_lstm_hiddens": [256]}},),
            )
        return None

    @relation("model", "policy_model_config")
    def _check_actor(self):
        """`policy_model_config` has settings of an actor, which fit together."""
        return self._network_problem("policy_model_config")

    def _network_problem(self, own: str) -> Mistake | None:
        if ModelSettings.mistake(self.model):
            return None  # it is reported for model itself
        if mistake := ModelSettings.mistake(self.network_settings(own), own):
            plain = {name: self.settings[name].default for name in (own, "model")}
            return dataclasses.replace(mistake, names=(own, "model"), remedies=mistake.remedies or (plain,))
        settings = ModelSettings(self.network_settings(own))
        if settings.network is not None and settings.fcnet_activation != "relu":
            return Mistake(
                f"{own}: the blocks of network={settings['network']!r} have relu, not fcnet_activation="
                f"{settings['fcnet_activation']!r}.",
                (own, "model"),
                ({own: {"fcnet_activation": "relu"}},),
            )
        for name in ("custom_action_dist", "squash_actions", "free_log_std"):
            if settings[name] != MODEL_DEFAULTS[name]:
                return Mistake(
                    f"{own}: {name}={settings[name]!r} is not available for an actor with critics.",
                    (own, "model"),
                    (self.with_defaults(name, of=("model", own)),),
                    "Leave it out.",
                )
        return None

    @relation("model", "q_model_config", "policy_model_config", "input_", "num_learners")
    def _check_residual(self):
        """Residual networks of `model` go with the data and the learners."""
        networks = [self.network_settings(own).get("network") for own in ("policy_model_config", "q_model_config")]
        network = next(filter(None, networks), None)
        if network is None:
            return None
        what = f"model={{'network': {network!r}}}"
        names, plain = ("model", *_NETWORKS), self.with_defaults("network")
        if self.without_residual:
            problem = f"{what} is for SAC, TQC, TD3 and DDPG: {self.without_residual}."
            return Mistake(problem, names, (plain,), "Leave it out.")
        if self.is_by_batch and not self.learns_by_batch:
            simba = {name: {"network": "simba"} for name in plain}
            return Mistake(
                f"{what}: {self.algorithm_name} has no losses for networks that batches normalise.",
                names,
                (simba, plain),
                "Use SAC, or simba or simbav2.",
            )
        if self.is_by_batch and networks[0] != networks[1]:
            same = next(each for each in networks if each in BATCH_EPSILON)
            return Mistake(
                f"policy_model_config: network={networks[0]!r} and q_model_config: network={networks[1]!r}: actor and "
                "critics are normalised by the same batches.",
                names,
                ({own: {"network": same} for own in _NETWORKS}, plain),
                "Set one of xqc and flashsac in model, for both.",
            )
        if self.has_data:
            return Mistake(
                f"{what} normalises observations by statistics of the steps that a run samples, but input_ has "
                "recorded ones.",
                (*names, "input_"),
                (plain,),
                "Leave it out.",
            )
        if self.num_learners > 1:
            return Mistake(
                f"{what} normalises by statistics that change between updates, and num_learners={self.num_learners} "
                "would get all weights for each.",
                (*names, "num_learners"),
                ({"num_learners": 0}, plain),
            )
        return None

    @relation("param_resets")
    def _check_resets(self):
        """`param_resets` are steps in increasing order."""
        resets = self.param_resets
        if all(type(step) is int and step > 0 for step in resets) and list(resets) == sorted(set(resets)):
            return None
        in_order = sorted({step for step in resets if type(step) is int and step > 0})
        return Mistake(
            f"param_resets={resets!r} must be environment steps in increasing order, such as [20_000, 50_000].",
            ("param_resets",),
            ({"param_resets": in_order},),
        )

    conflicts = (
        conflict(
            "param_resets",
            "input_",
            when=lambda config: config.param_resets and config.is_offline,
            why="it counts the steps that a run samples, but it learns from recorded data alone",
            remedies=[{"param_resets": []}],
        ),
        conflict(
            *_LOSSES,
            when=lambda config: any(config[name] for name in _LOSSES),
            why="the losses are over actor and critics",
            remedies=[dict.fromkeys(_LOSSES, DEFAULT)],
            advice="Leave them out, or derive from the algorithm and override critic_loss or actor_loss.",
        ),
    )

    @of_spaces()
    def _check_actions(self, policy: NewPolicy):
        """Actions are a bounded Box of floats, or choices where the algorithm takes them."""
        space, place = policy.action_space, policy.place
        if self.takes_choices and isinstance(space, spaces.Discrete):
            return None
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            kinds = "continuous actions, a Box of floats," + (" or Discrete ones," if self.takes_choices else "")
            others = self.for_other_actions
            if self.needs_data:
                others = _FOR_RECORDED_CHOICES if isinstance(space, spaces.Discrete) else _FOR_OTHER_RECORDED
            problem = f"{self.algorithm_name} is for {kinds} but {place} has {space}."
            return Mistake(problem, ("env",), advice=f"Use {others}.")
        if not space.is_bounded():
            bounded = bounded_within(space)
            wrapper = f"gymnasium.wrappers.TransformAction(env, lambda action: action, {bounded})"
            advice = f"Give it bounds, such as {wrapper}."
            if policy.run.env is None:
                advice = f"Say the bounds as the action_space (rllib train --action-space), such as {bounded}."
            return Mistake(
                f"{self.algorithm_name} squashes actions into their bounds, but {space} of {place} is not bounded on "
                "all sides.",
                ("env",),
                advice=advice,
            )
        return None

    @of_network("model", *_NETWORKS)
    def _check_user_actor(self, policy: NewPolicy):
        """An actor of the user's has no memory."""
        name = policy.spec.architecture.network_name
        if self.is_custom("policy_model_config") and policy.spec.state_shapes:
            return Mistake(
                f"the custom model {name} has a memory, but actor and critics of the user's read single steps.",
                ("policy_model_config",),
                (self.with_defaults("custom_model", of=("policy_model_config",)),),
                "Leave initial_state() out, and add what is to be remembered to the observations, or use R2D2 or PPO.",
            )
        return None

    @of_network("model", *_NETWORKS, "image_shift")
    def _check_images(self, policy: NewPolicy):
        """Actor and critics both read images by convolutions, or neither does; `image_shift` is for images."""
        spec, space, place = policy.spec, policy.observation_space, policy.place
        flat = {name: {"conv_filters": []} for name in ("model", *_NETWORKS) if "conv_filters" in self[name]}
        flat |= {"model": {"conv_filters": []}}
        if spec.memory and spec.torso is not None:
            return Mistake(
                f"{self.algorithm_name}'s critics have a memory of vectors, but {place} has images as observations: "
                f"{space}.",
                ("model",),
                (self.with_defaults(*OF_MEMORIES),),
                "Use PPO or R2D2, which remember images; leave out 'use_lstm' and 'use_gru'; or wrap the environment "
                "so that it returns vectors.",
            )
        are_built_in = not any(map(self.is_custom, _NETWORKS))
        if are_built_in and (self.critics_torso(space, spec) is None) != (spec.torso is None):
            filters = [self.network_settings(own).get("conv_filters") for own in _NETWORKS]
            return Mistake(
                "one of actor and critics reads images by convolutions, and the other has none: 'conv_filters' of "
                f"policy_model_config is {filters[0]!r} and of q_model_config {filters[1]!r}.",
                (*_NETWORKS, "model"),
                (flat,),
                "Give both some, or [] to both.",
            )
        if spec.torso is None:
            if not self.image_shift:
                return None
            return Mistake(
                f"image_shift={self.image_shift} shifts images that convolutions read, but the observations of {place} "
                f"are {space}, and this actor has no convolutions of the library's.",
                ("image_shift",),
                ({"image_shift": 0},),
                "Leave it out, or give model={'conv_filters': ...} where they are images.",
            )
        if not self.reads_images:
            return Mistake(
                f"{self.algorithm_name}'s critics read vectors, but {place} has images as observations: {space}.",
                ("model",),
                (flat,),
                "Use SAC, TQC, TD3, DDPG, PPO or IMPALA, or wrap the environment so that it returns vectors.",
            )
        if spec.is_masked:
            return Mistake(
                f"{self.algorithm_name}'s critics read images without action masks, but {space} has a mask.",
                ("action_mask_key",),
                ({"action_mask_key": None},),
                "Use PPO or DQN, or .environment(action_mask_key=None) for a key that is none.",
            )
        if spec.architecture.batch_renorm is not None:
            return Mistake(
                f"{self.algorithm_name}'s actor has batch renormalisation, which networks that act on images, such as "
                f"those of {place}, do not have.",
                ("batch_norm_actor",),
                ({"batch_norm_actor": False},),
                "Use .training(batch_norm_actor=False): the critics then normalise what their layers read behind the "
                "convolutions.",
            )
        return None

    def critics_torso(self, observation_space: spaces.Space, spec: NetworkSpec) -> Torso | None:
        """The critics' convolutions; None where they read vectors.

        Args:
            observation_space: space of the environment.
            spec: spec of the actor.
        """
        if self.shares_encoder:
            return spec.torso
        settings = ModelSettings(self.network_settings("q_model_config"))
        activation, is_filtered = ACTIVATION_NAMES[settings.conv_activation], spec.observation_filter != "NoFilter"
        return preprocessing(observation_space, settings, activation, is_filtered)[1]
