"""QMIX (Rashid et al., arXiv:1803.11485) and VDN (Sunehag et al., arXiv:1706.05296): values of groups of agents.

A group (`env.with_agent_groups(...)`) is one policy. Its members share a network that gives each one's action values
from its own observation, so they act by themselves. What is learned is the value of all their actions together, which a
`mixer` makes of the members' values: "qmix" a network that is monotonic in each of them and computed from the state,
"vdn" their sum. None fits each member's value to the group's reward: independent Q-learning with shared weights.

Where members observe a Dict, the part "state" of the first one is the state (all are shown the same), "action_mask" the
legal actions, and their network reads the rest. Without a state QMIX mixes by the observations of all members.

Departures: the network has no memory (the papers' has a GRU), so observations have to hold what matters of the past. A
row is one step of the group: the replay may have priorities, and `n_step` works. Q_tot is fitted to the sum of the
members' rewards, where RLlib fits it to each of them, and so to their mean. The network reads which member it computes
for (`obs_agent_id`), as in the papers' experiments; RLlib leaves that to the observation.

Losses are in losses/mixing.py, networks in models/groups/, replay and updates in families/off_policy.py.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from gymnasium import spaces

from rllib.algorithms.base.settings.exploration import EPSILON_ALIASES, OF_JOINT_VALUES
from rllib.algorithms.families.off_policy import OffPolicy, OffPolicyConfig, OffPolicyTrainee
from rllib.config.config_object import relation
from rllib.config.conflicts import Mistake
from rllib.config.sections import Merged, OfPolicy, at_least, only_with, section
from rllib.env.multi_agent.multi_agent_env import ENV_STATE
from rllib.learners.learner import Learner
from rllib.learners.updates.objective import POLICY
from rllib.learners.updates.target_copy import TargetCopy
from rllib.losses.loss import LossOverModules
from rllib.losses.mixing import MIXER, mixing_loss
from rllib.models.catalog.groups import group_spec, member_spaces, read_by_member
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.groups.mixer import MonotonicMixer
from rllib.models.model_settings import MODEL_DEFAULTS, OF_MEMORIES
from rllib.replay.replay_settings import ReplaySettings
from rllib.sample_batch import SampleBatch


class QMixConfig(OffPolicyConfig):
    """Settings of QMIX; the defaults are RLlib's, except those in default_differences.py."""

    learns_from_data: ClassVar[bool] = False
    without_data: ClassVar[str] = "learns from steps of groups, which recorded data does not have"
    exploration_kinds: ClassVar[tuple[str, ...]] = OF_JOINT_VALUES
    default_exploration: ClassVar[dict] = {
        "type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.01, "epsilon_timesteps": 40_000,
    }  # fmt: skip
    own_aliases: ClassVar[dict] = EPSILON_ALIASES

    @section
    def rollouts(self, *, rollout_fragment_length=4) -> Self: ...

    @section
    def training(
        self,
        *,
        lr=5e-4,
        grad_clip=10.0,
        opt_type="rmsprop",
        train_batch_size=32,
        model: Annotated[dict, "network of a member: fcnet_hiddens, fcnet_activation, ...", Merged] = {  # noqa: B006
            "fcnet_hiddens": [64, 64],
            "fcnet_activation": "relu",
        },
        mixer: Annotated[
            Literal["qmix", "vdn", None],
            'what makes one value of the members\': "qmix" a monotonic network, "vdn" their sum; None: each is learned '
            "on its own",
            OfPolicy,
        ] = "qmix",
        mixing_embed_dim: Annotated[
            int,
            "hidden units of QMIX's mixing network",
            at_least(1),
            only_with("has_mixing_network", otherwise="no network mixes the values"),
            OfPolicy,
        ] = 32,
        double_q: Annotated[
            bool, "the online network chooses the next actions, the target network judges them", OfPolicy
        ] = True,
        obs_agent_id: Annotated[
            bool, "the members' network reads which member it computes for, one-hot", OfPolicy
        ] = True,
        replay_buffer_config=ReplaySettings.defaults(type="ReplayBuffer"),
    ) -> Self: ...

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self: ...

    @section
    def reporting(self, *, min_time_s_per_iteration=1) -> Self: ...

    @property
    def has_mixing_network(self) -> bool:
        """Whether a network mixes the values of the members."""
        return self.mixer == "qmix"

    @relation("model")
    def _check_network(self):
        """`model` has no memory, and is what a group's agents can share."""
        given = {**MODEL_DEFAULTS, **self.model}
        for name in ("use_lstm", "use_gru", "use_attention"):
            if given[name]:
                return Mistake(
                    f"model={{{name!r}: {given[name]!r}}} is not available here: a group's replay holds single steps, "
                    "not sequences.",
                    ("model",),
                    (self.with_defaults(*OF_MEMORIES),),
                    "Leave it out, and let observations hold what matters of the last steps.",
                )
        for name in ("custom_model", "custom_action_dist", "squash_actions", "free_log_std", "use_sde"):
            if given[name] != MODEL_DEFAULTS[name]:
                return Mistake(
                    f"model={{{name!r}: {given[name]!r}}} is not available for the network of a group.",
                    ("model",),
                    (self.with_defaults(name),),
                    "Leave it out.",
                )
        return None


class VDNConfig(QMixConfig):
    """Settings of VDN: those of QMIX, with the sum as mixer."""

    @section
    def training(self, *, mixer="vdn") -> Self: ...


class QMixTrainee(OffPolicyTrainee):
    """A policy of a group that learns the values of its members' actions, and how they are mixed."""

    def make_loss(self) -> LossOverModules:
        return mixing_loss(self.config.mixer, self.config.double_q)

    def make_learner(self) -> Learner:
        config, mixer = self.config, self.mixer()
        trained = (POLICY, *mixer)
        return super().make_learner(
            self.objective(self.whole_loss(), trained),
            modules=mixer,
            targets=[TargetCopy(name, config.tau, config.target_network_update_freq) for name in trained],
            rng=self.initial_weights(),
        )

    def mixer(self) -> dict[str, MonotonicMixer]:
        """The mixer, if it has weights."""
        spec = self.policy.spec
        if self.config.mixer != "qmix":
            return {}
        state = spec.architecture.members.mixed_by(spec.encoder.num_choices if spec.is_masked else 0)
        return {MIXER: MonotonicMixer(spec.architecture.members.count, state, self.config.mixing_embed_dim)}

    def learn_from(self, batch: SampleBatch, *, lr: float) -> dict[str, Any]:
        return self.learn_on_batch(batch, lr=lr, shuffle=False)


class QMix(OffPolicy):
    """Values of groups, mixed of those of their members."""

    config_class = QMixConfig
    trainee_class = QMixTrainee
    initializer = "uniform"
    reported_stats = ("mean_q", "min_q", "max_q", "cur_lr", "mean_td_error")

    def make_policy_spec(self, observation_space, action_space, config: QMixConfig) -> NetworkSpec:
        members, mask_key = member_spaces(observation_space, action_space), config.action_mask_key
        read = read_by_member(members.observation, mask_key, ENV_STATE)
        alone = super().make_policy_spec(read, spaces.Discrete(members.num_actions), config)
        keys = {"mask_key": mask_key, "state_key": ENV_STATE}
        return group_spec(alone, members, config.acting_model, ids=config.obs_agent_id, **keys)


class VDN(QMix):
    """QMIX with the defaults of VDNConfig."""

    config_class = VDNConfig
