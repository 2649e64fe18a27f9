"""Base of actor-critic methods with a replay: SAC, TD3, DDPG and their relatives.

The policy is the actor. In addition the learner trains a module "critics": several networks that judge an action in an
observation, computed together. Critics, and for deterministic actors the actor too, have target copies. An update draws
rows from the replay, moves the critics, then the actor by the new critics, then the target copies. An algorithm defines
`critic_loss` and `actor_loss`.

Where observations have images, actor and critics read them by the same convolutions, which the critics' loss alone
trains (SAC+AE, arXiv:1910.01741; DrQ, arXiv:2004.13649), or each by convolutions of their own (`share_encoder`). Target
copies of critics, and of an actor, have copies of the convolutions.

Either of actor and critics may be a network of the user's (`custom_model` in `policy_model_config` and in
`q_model_config`, docs/guide/networks.md). A custom actor reads observations as they are stored, and built-in critics
with it encode them themselves; a custom critic with a built-in actor gets them decoded
(models/user/user_critics.py).

With `use_lstm` or `use_gru` the actor and each critic have a cell of their own, as in Ni et al. (arXiv:2110.05038), and
the replay holds R2D2's sequences. The losses are those of single steps (learners/updates/sequences.py).

Random numbers that losses need are columns of the batch, drawn here from the run's own generator: a run gives the same
bits on every device that computes the same, and resumes from a checkpoint exactly.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rllib.algorithms.families.actor_critic_settings import OffPolicyActorCriticConfig
from rllib.algorithms.families.critic_networks import INITIALIZER, critics_of, encoded_first
from rllib.algorithms.families.off_policy import OffPolicy, OffPolicyTrainee
from rllib.algorithms.families.sequence_replay import sequence_errors, steps_of_sequences
from rllib.evaluation import seeding
from rllib.learners.learner import Learner
from rllib.learners.updates.objective import POLICY
from rllib.learners.updates.observed import ObservedMoments
from rllib.learners.updates.sequences import over_sequences
from rllib.learners.updates.shifts import SHIFTS, with_shifts
from rllib.learners.updates.target_copy import TargetCopy
from rllib.losses.loss import LossOverModules
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.memory.critics import MemoryCritics
from rllib.models.modules import FullyConnected, ResidualNetworks
from rllib.sample_batch import LOSS_MASK, OBS, SEQ_LENS, SampleBatch

if TYPE_CHECKING:
    from rllib.models.user.user_critics import UserCritics

CRITICS = "critics"
# Names of objectives that are not those of their modules.
_OBJECTIVES = {POLICY: "actor"}


class ActorCriticTrainee(OffPolicyTrainee):
    """An actor that learns with its critics.

    Attributes:
        critic_updates: updates so far; those of the actor are one in `policy_delay` of them.
        resets_until: the run's clock up to which no reset by `param_resets` is due any more.
        observed: statistics that networks normalise by; None of networks that do not.
    """

    # Modules that have target networks.
    copied_modules: ClassVar[tuple[str, ...]] = (CRITICS,)

    def __init__(self, algorithm: "OffPolicyActorCritic", policy_id: str):
        super().__init__(algorithm, policy_id)
        # Of a policy that begins to learn later in a run, resets of earlier steps are none.
        self.critic_updates, self.resets_until = 0, self.timesteps
        observed = ObservedMoments(self.learner.vector, self.learner.targets.values())
        self.observed = observed if observed else None
        if self.observed is not None:
            self.saved["observed.safetensors"] = self.observed.moments

    # ------------------------------------------------------------------ modules and losses

    @abstractmethod
    def critic_loss(self) -> LossOverModules:
        """The critics' loss, over "policy", "critics" and "target_critics"; with a row statistic td_error."""

    @abstractmethod
    def actor_loss(self) -> LossOverModules:
        """The actor's loss, over "policy" and "critics"."""

    def losses(self) -> dict[str, LossOverModules]:
        """Module -> its loss, in the order in which an update minimises them."""
        return {CRITICS: self.critic_loss(), POLICY: self.actor_loss()}

    def critic_module(self) -> "FullyConnected | ResidualNetworks | MemoryCritics | UserCritics":
        """Describes the networks of the critics, which read an observation and an action."""
        return critics_of(self.config, self.policy, ("observation", "action"))

    def critics(self) -> dict[str, Any]:
        """Critic and value modules, by name (models/modules.py)."""
        return {CRITICS: self.critic_module()}

    def copied(self) -> tuple[str, ...]:
        """Modules that have target networks."""
        return self.copied_modules

    def make_learner(self) -> Learner:
        config, losses, torso = self.config, self.losses(), self.policy.spec.torso
        if config.replays_sequences:
            losses = {module: over_sequences(loss, module) for module, loss in losses.items()}
        if config.image_shift:
            losses = {module: with_shifts(loss, torso) for module, loss in losses.items()}
        return super().make_learner(
            [self.objective(loss, (module,), _OBJECTIVES.get(module, module)) for module, loss in losses.items()],
            modules={name: encoded_first(config, self.policy, module) for name, module in self.critics().items()},
            targets=[TargetCopy(name, config.tau, max(config.target_network_update_freq, 1)) for name in self.copied()],
            rng=self.initial_weights(),
        )

    # ------------------------------------------------------------------ updates

    def store(self, rows: SampleBatch) -> None:
        super().store(rows)
        if self.observed is not None and len(rows):
            self.observed.add(rows[OBS])

    def learn(self, steps: int, now: int) -> None:
        self._reset_if_due()
        super().learn(steps, now)

    def learning_rates(self, at: int | None = None) -> dict[str, float]:
        rates = self.scheduled("lr", "actor_lr", "critic_lr", at=at)
        return {name: rates["lr"] if rates[name] is None else rates[name] for name in ("actor_lr", "critic_lr")}

    def learn_from(self, batch: SampleBatch, **rates: float) -> dict[str, Any]:
        self.critic_updates += 1
        state_size, sequences = self.policy.state_size, batch
        if state_size:
            batch = steps_of_sequences(sequences, state_size)
        self.add_noise(batch, len(batch[OBS]))
        self._add_shifts(batch, len(batch[OBS]))
        settings = {CRITICS: self.critic_settings(), "actor": self.actor_settings() if self.moves_actor else None}
        lr = {name.removesuffix("_lr"): rate for name, rate in rates.items()}
        # Critics of all kinds have one learning rate.
        lr = dict.fromkeys(self.learner.vector.modules, lr.pop("critic")) | lr
        stats = self.learn_on_batch(batch, lr=lr, shuffle=False, **settings)
        if state_size:
            stats["td_error"] = sequence_errors(stats["td_error"][batch[LOSS_MASK]], sequences[SEQ_LENS])
        if self.moves_targets:
            now = self.timesteps if self.config.target_network_update_freq else self.num_updates
            if self.learner.update_targets(now):
                self.algorithm.metrics.counters["num_target_updates"] += 1
        return {**self.stats, **stats, **{f"cur_{name}": lr for name, lr in rates.items()}}

    def update_target(self) -> None:
        """Does nothing: target networks have followed each update in `learn_from`."""

    def add_noise(self, batch: SampleBatch, rows: int) -> None:
        """Adds the random numbers that the losses read, as columns."""

    def _add_shifts(self, batch: SampleBatch, rows: int) -> None:
        """Adds the shifts of images, as columns, where there are any."""
        most, torso = self.config.image_shift, self.policy.spec.torso
        for name in SHIFTS.values() if most else ():
            batch[name] = self.rng.integers(-most, most, (rows, len(torso.images), 2), np.int16, endpoint=True)

    def critic_settings(self) -> dict[str, Any]:
        """Settings of the critics' loss for the next update."""
        return {}

    def actor_settings(self) -> dict[str, Any]:
        """Settings of the actor's loss for the next update."""
        return {}

    @property
    def moves_actor(self) -> bool:
        """Whether the actor learns in the update that is under way, or was just made."""
        return self.critic_updates % self.config.policy_delay == 0

    @property
    def moves_targets(self) -> bool:
        """Whether the target networks follow the update that was just made."""
        return True

    def normal_noise(self, rows: int) -> np.ndarray:
        """Standard normal numbers [rows, action size], float32."""
        return self.rng.standard_normal((rows, self.policy.distribution.size), np.float32)

    def _reset_if_due(self) -> None:
        """Gives all networks new weights if a step of `param_resets` has passed since the last time."""
        before, self.resets_until = self.resets_until, self.timesteps
        passed = [step for step in self.algorithm.config.param_resets if step <= self.timesteps]
        if not passed or passed[-1] <= before:
            return
        key = self.algorithm.seed, seeding.INITIAL_WEIGHTS
        self.learner.start_over(*(seeding.generator(*key, part, self.number, len(passed)) for part in (0, 1)))
        if self.observed is not None:
            self.observed.write()

    # ------------------------------------------------------------------ checkpoints

    def numbers(self) -> dict[str, Any]:
        return {**super().numbers(), "critic_updates": self.critic_updates, "resets_until": self.resets_until}

    def set_numbers(self, numbers: Mapping[str, Any]) -> None:
        super().set_numbers(numbers)
        self.critic_updates = numbers.get("critic_updates", self.critic_updates)
        # Steps, not a number of resets: the setting may differ from that of the saved run. Earlier checkpoints, and
        # policies that did not learn, have none; resets up to the checkpoint are not due then.
        self.resets_until = numbers.get("resets_until", self.timesteps)


class OffPolicyActorCritic(OffPolicy):
    """Base of the algorithms with an actor and critics."""

    trainee_class: ClassVar[type[ActorCriticTrainee]] = ActorCriticTrainee
    initializer = INITIALIZER
    images_skip_layers = False
    _has_value = False
    reported_stats: ClassVar[tuple[str, ...]] = (
        *("critic_loss", "actor_loss", "mean_q", "min_q", "max_q"),
        *("cur_actor_lr", "cur_critic_lr"),
    )

    def make_policy_spec(self, observation_space, action_space, config: OffPolicyActorCriticConfig) -> NetworkSpec:
        return self.actor_spec(observation_space, action_space, config)

    @abstractmethod
    def actor_spec(self, observation_space, action_space, config: OffPolicyActorCriticConfig) -> NetworkSpec:
        """The actor's network and the form of its actions."""

    def plain_spec(self, observation_space, action_space, config: OffPolicyActorCriticConfig, **model) -> NetworkSpec:
        """The actor's network as the settings describe it, without a value.

        Args:
            observation_space, action_space: spaces of the environment.
            config: settings of the policy.
            model: settings that the algorithm decides.
        """
        spec = self._described_network(observation_space, action_space, config, **model)
        return spec.without_value()
