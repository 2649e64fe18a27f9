"""R2D2: deep Q-learning with a memory, from replayed sequences (Kapturowski et al., ICLR 2019).

The replay keeps sequences of an episode's steps (evaluation/postprocess/sequences.py). An update unrolls the network
over them; the memory begins with zeros, or with the state that the worker had there (`zero_init_states=False`), and may
be brought up to date by the steps before, `replay_burn_in` of them, without a gradient. Priorities, if the replay
uses them, are 0.9 times the largest TD error of a sequence plus 0.1 times their mean. The network's values are of
returns rescaled by h (`use_h_function`).

Departures from the paper:
- Sequences follow one another, they do not overlap (the paper's do by half); their burn-in is the end of the one
  before, so that every step is learned from, those at an episode's beginning, too.
- Returns of n steps end with their sequence: the last steps of it are bootstrapped after fewer.
- New sequences have the largest priority so far; workers compute none.

Q-learning, replay, target network and all parts but noise in the weights are DQN's. C51 needs
`use_h_function=False`, since its atoms have their place on the scale of returns.
"""

from typing import Annotated, Any, ClassVar, Self

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.base.settings.exploration import EPSILON_ALIASES
from rllib.algorithms.base.space_rules import NewPolicy, of_network
from rllib.algorithms.dqn import DQN, DQNConfig
from rllib.algorithms.families.q_learning import QTrainee
from rllib.algorithms.families.sequence_replay import (
    SequenceReplayConfig,
    sequence_errors,
    stored_states,
)
from rllib.config.conflicts import Mistake, conflict
from rllib.config.sections import Keys, Merged, OfPolicy, above, section
from rllib.evaluation.postprocess.sequences import BOOTSTRAP_AT, BURN_IN
from rllib.losses.td import q_targets
from rllib.replay.replay_settings import R2D2ReplaySettings
from rllib.sample_batch import SampleBatch


class R2D2Config(SequenceReplayConfig, DQNConfig):
    """Settings of R2D2; the defaults are RLlib's. The model needs a memory: model={"use_lstm": True}.

    train_batch_size counts steps: an update draws as many sequences as have that number, if all are max_seq_len long.
    """

    learns_from_data: ClassVar[bool] = False
    without_data: ClassVar[str] = "learns from sequences with states of its memory, which recorded steps lack"
    needs_memory: ClassVar[bool] = True
    own_aliases: ClassVar[dict] = {
        **EPSILON_ALIASES,
        "burn_in": ("replay_buffer_config", lambda steps: {"replay_burn_in": steps}),  # of earlier RLlib
    }

    @section
    def rollouts(self, *, num_rollout_workers=2, batch_mode="complete_episodes") -> Self:
        """Rollout workers and their fragments; "auto" takes the model's max_seq_len."""

    @section
    def training(
        self,
        *,
        lr=1e-4,
        gamma=0.997,
        adam_epsilon=1e-3,
        train_batch_size=1000,
        target_network_update_freq=1000,
        training_intensity=150,
        replay_buffer_config: Annotated[
            dict,
            "type, capacity (in sequences), replay_burn_in (steps), prioritized_replay_alpha, _beta, _eps, storage",
            Merged,
            Keys(R2D2ReplaySettings),
        ] = R2D2ReplaySettings.defaults(),
        use_h_function: Annotated[bool, "learn the values of rescaled returns", OfPolicy] = True,
        h_function_epsilon: Annotated[
            float, "the linear part of h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x", above(0, finite=True), OfPolicy
        ] = 1e-3,
    ) -> Self: ...

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Steps per fragment in each of a worker's environments; "auto" is the length of a sequence."""
        return self.steps_per_row if self.rollout_fragment_length == "auto" else self.rollout_fragment_length

    refuses: ClassVar[dict[str, str]] = {
        "munchausen_alpha": "it is for single rows, as DQN's, and sequences of a memory are fitted to the values of "
        "the best actions"
    }
    conflicts = (
        conflict(
            "use_h_function",
            "num_atoms",
            when=lambda config: config.use_h_function and config.num_atoms > 1,
            why="the first rescales values, the second learns distributions of returns between v_min and v_max",
            remedies=[{"use_h_function": False}, {"num_atoms": 1}],
        ),
        conflict(
            "use_h_function",
            "num_quantiles",
            when=lambda config: config.use_h_function and config.num_quantiles > 1,
            why="the first rescales values, the second learns quantiles of returns",
            remedies=[{"use_h_function": False}, {"num_quantiles": 1}],
        ),
    )

    @of_network("model")
    def _check_memory_there(self, policy: NewPolicy):
        """`model` has a memory."""
        if policy.spec.state_size:
            return None
        changes = {"use_lstm": True, **({"custom_model": None} if self.model.get("custom_model") else {})}
        return Mistake(
            f"{self.algorithm_name} learns from sequences, so its policy needs a memory.",
            ("model",),
            ({"model": changes},),
            "Use .training(model={'use_lstm': True}), 'use_gru', 'use_attention', or a custom model with a memory; or "
            "DQN.",
        )


class R2D2Trainee(QTrainee):
    """A policy that learns by R2D2."""

    def learn_from(self, batch: SampleBatch, *, lr: float) -> dict[str, Any]:
        """Makes one update on sampled sequences. Returns its statistics, with a td_error for each sequence."""
        steps = self.learned_steps(batch)
        stats = self.learn_on_batch(steps, lr=lr, shuffle=False)
        stats["td_error"] = sequence_errors(stats["td_error"], steps[sb.SEQ_LENS])
        return stats

    def learned_steps(self, batch: SampleBatch) -> SampleBatch:
        """The steps behind the burn-in of sampled sequences, one sequence after the other, with their targets.

        Nothing is padded, and the present weights compute the states in the burn-in: a learner's gradient
        ends there.
        """
        config, learned = self.config, self.policy
        observations, burn_in, seq_lens = batch[sb.OBS], batch[BURN_IN], batch[sb.SEQ_LENS]
        stored = stored_states(batch, learned.state_size)
        place, ends = np.arange(observations.shape[1]), (burn_in + seq_lens)[:, None]
        # Behind the learned steps, the observation that followed the last.
        is_seen = (place >= burn_in[:, None]) & (place <= ends)
        is_learned = is_seen[:, :-1] & (place[:-1] < ends)
        seen, states, outputs = observations[is_seen], [], []
        for policy in (learned, self.target):
            state = policy.state_after(observations, burn_in, stored)
            states.append(state)
            outputs.append(policy.dist_inputs(seen, seq_lens + 1, state))
        # Of each learned step, the row of `seen` that it is bootstrapped from.
        first = np.cumsum(seq_lens + 1) - (seq_lens + 1) - burn_in
        later = (first[:, None] + batch[BOOTSTRAP_AT])[is_learned]
        choosing, judged = (learned.distribution.at(part[later]) for part in outputs)
        if not config.double_q:
            choosing = judged
        name, targets = q_targets(
            learned.distribution,
            judged,
            choosing.q_values(),
            batch[sb.REWARDS][is_learned],
            batch[sb.DISCOUNTS][is_learned],
            config.h_function_epsilon if config.use_h_function else None,
        )
        columns = {
            sb.OBS: observations[:, :-1][is_learned],
            sb.ACTIONS: batch[sb.ACTIONS][is_learned],
            name: targets,
            sb.WEIGHTS: np.repeat(batch[sb.WEIGHTS], seq_lens),
            sb.SEQ_LENS: seq_lens,
            sb.STATE_IN: states[0],
        }
        return SampleBatch(columns, policy_version=batch.policy_version)


class R2D2(DQN):
    """Recurrent replay distributed DQN."""

    config_class = R2D2Config
    trainee_class = R2D2Trainee
