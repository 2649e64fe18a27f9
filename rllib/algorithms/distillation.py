"""Distillation: a policy learns what a teacher would do in the observations that the policy itself comes to.

Policy distillation (Rusu et al., arXiv:1511.06295) on the student's own states, which is DAgger (Ross, Gordon and
Bagnell, arXiv:1011.0686) where the teacher may be any function. The teacher may read parts of observations that the
student does not get, and the student may have a memory: teacher-student training as in rsl_rl.

DAgger is Distillation with `aggregate`: all labelled steps stay in a store, of which updates draw uniformly; else each
batch is learned from and dropped, as in rsl_rl. Departure from the paper: the mixture of teacher and student is drawn
for each step and environment (`beta`), and updates continue from the weights of the last ones.

No value is fitted, and rewards are not learned from: they are reported.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from gymnasium import spaces

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.from_checkpoint import STORE_FILE
from rllib.algorithms.base.trainee import Trainee
from rllib.algorithms.families.taught import TaughtConfig
from rllib.config.conflicts import conflict
from rllib.config.sections import Keys, Merged, OfPolicy, at_least, only_with, section
from rllib.env.spaces.observations import observation_column
from rllib.losses.distillation import NO_LOSS
from rllib.models.dense.network_spec import NetworkSpec
from rllib.replay.aggregated_rows import AggregatedRows
from rllib.replay.replay_settings import AggregatedRowsSettings
from rllib.sample_batch import OBS, Column, SampleBatch

# Nothing trains the deviation of continuous actions: it is what the student varies its actions by in training.
_DEVIATION = {"free_log_std": True, "log_std_init": -1.0}
# Keys of `model` with which the deviation is another one.
_OTHER_DEVIATIONS = ("use_sde", "network", "custom_model", "custom_action_dist")
_STORE = AggregatedRowsSettings.defaults()


class DistillationConfig(TaughtConfig):
    """Settings of Distillation."""

    on_policy = True
    needs_teacher: ClassVar[bool] = True
    needs_probabilities: ClassVar[bool] = False
    unused: ClassVar[Mapping[str, str]] = {"gamma": "rewards are not learned from"}

    @section
    def rollouts(self, *, rollout_fragment_length="auto") -> Self: ...

    @section
    def training(
        self,
        *,
        teacher_coeff=1.0,
        lr=1e-3,
        grad_clip=1.0,
        train_batch_size=4096,
        sgd_minibatch_size: Annotated[int, "rows per gradient step", at_least(1), OfPolicy] = 512,
        num_sgd_iter: Annotated[int, "epochs over each train batch", at_least(1), OfPolicy] = 1,
        aggregate: Annotated[
            bool, "keep all labelled steps, and draw the rows of updates from them; False: learn from the newest batch"
        ] = False,
        replay_buffer_config: Annotated[
            dict, "the store: capacity, storage", Merged, Keys(AggregatedRowsSettings), only_with("aggregate")
        ] = _STORE,
        store_buffer_in_checkpoints: Annotated[bool, "checkpoints hold the store", only_with("aggregate")] = False,
    ) -> Self: ...

    conflicts = (
        conflict(
            "aggregate",
            "num_learners",
            why="the store is next to a learner in this process, but num_learners are in others",
            remedies=[{"num_learners": 0}, {"aggregate": False}],
        ),
    )


class DAggerConfig(DistillationConfig):
    """Settings of DAgger."""

    @section
    def training(self, *, aggregate=True) -> Self: ...


class DistillationTrainee(Trainee):
    """A policy that learns from its teacher alone.

    Attributes:
        store: all labelled steps so far; None: they are dropped.
    """

    store: AggregatedRows | None = None

    def prepare(self) -> None:
        super().prepare()
        config = self.algorithm.config
        if not config.aggregate:
            return
        policy, settings = self.policy, AggregatedRowsSettings(config.replay_buffer_config)
        stored = observation_column(policy.observation_space)
        observed = Column(OBS, stored.shape, "float32" if policy.filters_observations else str(stored.dtype))
        made = self.algorithm.postprocess_of(self.policy_id).columns
        others = *policy.columns, *self.teacher.settings.columns(policy), *made, *config.get_info_columns()
        read = self.whole_loss().columns
        architecture = policy.spec.architecture
        self.store = AggregatedRows(
            [observed, *(column for column in others if column.name in read)],
            settings.capacity,
            settings.storage,
            max_seq_len=architecture.max_seq_len if policy.state_size else None,
            state_size=policy.state_size,
        )
        if config.store_buffer_in_checkpoints:
            self.saved[STORE_FILE] = self.store

    def update(self, batch: SampleBatch, now: int) -> dict[str, Any]:
        """Makes the epochs of minibatches on a train batch. Returns statistics.

        Args:
            batch: fragments of the newest policy, with the teacher's labels.
            now: environment steps at which the learning rate is read: those sampled before the batch.
        """
        config, num_epochs = self.config, self.config.num_sgd_iter
        if self.store is not None:
            self.store.add(batch)
            batch, num_epochs = self.store.draw(batch, num_epochs, self.rng), 1
        return self.learn_on_batch(
            batch,
            num_epochs=num_epochs,
            minibatch_size=config.sgd_minibatch_size,
            **self.scheduled("lr", at=now),
        )


class Distillation(Algorithm):
    """A student learns a teacher's actions in its own observations."""

    config_class = DistillationConfig
    trainee_class: ClassVar[type[DistillationTrainee]] = DistillationTrainee
    trains_several = True
    loss = NO_LOSS
    reported_stats = ("total_loss", "distillation_loss", "teacher_agreement", "cur_lr", "teacher_coeff", "beta")

    def make_policy_spec(self, observation_space, action_space, config: DistillationConfig) -> NetworkSpec:
        is_numbers = isinstance(action_space, spaces.Box) and action_space.dtype.kind == "f"
        given = config.acting_model
        has_own = any(given.get(key) for key in _OTHER_DEVIATIONS)
        takes_default = is_numbers and not has_own
        deviation = {key: value for key, value in _DEVIATION.items() if takes_default and key not in given}
        return self._described_network(observation_space, action_space, config, **deviation).without_value()

    def training_step(self) -> dict[str, dict[str, float]]:
        now, batches = self.timesteps, self.train_batches()
        return {trainee.policy_id: trainee.update(batch, now) for trainee, batch in batches}


class DAgger(Distillation):
    """Distillation from all labelled steps so far."""

    config_class = DAggerConfig
