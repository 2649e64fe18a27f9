"""IMPALA: workers act without waiting for the learner, V-trace corrects for it (Espeholt et al., arXiv:1802.01561).

Departures from the paper:
- The queue between actors and learner is the requests themselves: each worker has a few in flight and gets a new one
  when a fragment of its is taken in. Nothing is ever dropped, memory is bounded, and workers that are too fast for the
  learner wait instead of sampling with weights that grow older (Ray's queue drops what does not fit).
- The learner takes the fragments in the order in which they arrive, whoever made them: slow workers delay nobody.
- The loss is a mean over the steps of a train batch, not a sum (losses/impala.py), and Adam is the default optimizer.
- Weights are sent with every request, so a worker never acts with older ones than when it was asked.

With num_rollout_workers=0 this process samples and learns in turn; V-trace then corrects nothing.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Annotated, Any, Self

import numpy as np

from rllib.algorithms.algorithm import Algorithm
from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.algorithms.config_object import relation
from rllib.algorithms.settings import NotYet, above, at_least, between, section
from rllib.errors import SampleTimeoutError
from rllib.evaluation.requests_in_flight import RequestsInFlight
from rllib.evaluation.settings import NO_POSTPROCESS, Postprocess
from rllib.learners.learner import Learner
from rllib.losses.impala import IMPALA_LOSS
from rllib.sample_batch import SampleBatch

logger = logging.getLogger(__name__)


class IMPALAConfig(AlgorithmConfig):
    """Settings of IMPALA; the defaults are those of Ray 2.6, but for num_gpus, which is 0."""

    algo_class = "IMPALA"

    @section
    def rollouts(self, *, num_rollout_workers=2, rollout_fragment_length=50) -> Self:
        """Who samples, how much at a time, and how."""

    @section
    def training(
        self,
        *,
        lr=5e-4,
        train_batch_size=500,
        grad_clip=40.0,
        rmsprop_epsilon=0.1,
        vtrace: Annotated[bool, "correct for old weights; False: take the fragments as on-policy"] = True,
        vtrace_clip_rho_threshold: Annotated[
            float, "rho_bar: clips the ratios that weight temporal differences", above(0)
        ] = 1.0,
        vtrace_clip_pg_rho_threshold: Annotated[
            float, "clips the ratios that weight the policy gradient", above(0)
        ] = 1.0,
        lambda_: Annotated[float, "shortens V-trace's sums as GAE's lambda does", between(0, 1)] = 1.0,
        num_sgd_iter: Annotated[int, "gradient steps on each train batch", at_least(1)] = 1,
        vf_loss_coeff: Annotated[float, "coefficient of the value loss", at_least(0)] = 0.5,
        entropy_coeff: Annotated[float | list, "coefficient of the entropy bonus, or a schedule", at_least(0)] = 0.01,
        entropy_coeff_schedule: Annotated[
            list | None, "schedule [[timestep, value], ...] that goes before entropy_coeff", at_least(0)
        ] = None,
        broadcast_interval: Annotated[int, "updates between new weights for the workers", at_least(1)] = 1,
        max_requests_in_flight_per_sampler_worker: Annotated[
            int, "fragments that a worker is asked for ahead of the learner; 2 keep it busy", at_least(1)
        ] = 2,
        learner_queue_size: Annotated[
            int, "train batches that all workers together may be ahead of the learner", at_least(1)
        ] = 16,
        learner_queue_timeout: Annotated[float, "the learner waits so long for a fragment (seconds)", above(0)] = 300.0,
        minibatch_buffer_size: Annotated[
            int, "train batches in the learner's ring", NotYet("Use num_sgd_iter to learn from a batch repeatedly.")
        ] = 1,
        num_aggregation_workers: Annotated[
            int, "processes that join fragments", NotYet("Leave it at 0; joining costs the learner microseconds.")
        ] = 0,
        replay_proportion: Annotated[
            float, "replayed train batches per new one", NotYet("Leave it at 0, or use num_sgd_iter.")
        ] = 0.0,
        replay_buffer_num_slots: Annotated[int, "train batches kept for replay", NotYet("Leave it at 0.")] = 0,
    ) -> Self:
        """How it learns."""

    @section
    def reporting(self, *, min_time_s_per_iteration=10) -> Self:
        """What counts as an iteration, and what is reported about it."""

    @relation("rollout_fragment_length", "train_batch_size")
    def _check_fragment(self):
        length = self.rollout_fragment_length
        if length != "auto" and length > self.train_batch_size:
            return (
                f"rollout_fragment_length={length} must not exceed train_batch_size={self.train_batch_size}: a train "
                f"batch is made of whole fragments. Use .training(train_batch_size={length}) or shorter fragments."
            )


class IMPALA(Algorithm):
    """The algorithm; see the module's docstring."""

    config_class = IMPALAConfig
    samples_sequences = True
    loss = IMPALA_LOSS

    def __init__(self, config: IMPALAConfig | dict | None = None, env: Any = None):
        super().__init__(config, env)
        self._lr = self.config.get_schedule("lr")
        self._entropy_coeff = self.config.get_schedule("entropy_coeff")
        self._arrived: deque[SampleBatch] = deque()
        self._request: Callable | None = None
        self._broadcast_at = 0
        self._requests = RequestsInFlight(self.workers, self._requests_per_worker())
        if not self.config.num_rollout_workers:
            logger.warning(
                "%s with num_rollout_workers=0 runs synchronously: this process samples and learns in turn",
                type(self).__name__,
            )

    def _requests_per_worker(self) -> int:
        """As many as are asked for, as long as all fragments together do not overfill the learner's queue."""
        config = self.config
        steps = config.get_rollout_fragment_length() * config.num_envs_per_worker * max(config.num_rollout_workers, 1)
        fitting = config.learner_queue_size * config.train_batch_size // steps
        return max(1, min(config.max_requests_in_flight_per_sampler_worker, fitting))

    def make_postprocess(self) -> Postprocess:
        return NO_POSTPROCESS

    def make_learner(self) -> Learner:
        return self.make_default_learner(self.loss)

    def training_step(self) -> dict[str, float]:
        config = self.config
        fragments = self.next_fragments(config.train_batch_size)
        batch = SampleBatch.concat(fragments)
        coefficients = {"lr": self._lr(self.timesteps), "entropy_coeff": self._entropy_coeff(self.timesteps)}
        lags = [self.num_updates - fragment.policy_version for fragment in fragments]
        stats = self.learn(
            self.prepared(batch),
            num_epochs=config.num_sgd_iter,
            shuffle=False,
            gamma=config.gamma,
            vtrace=config.vtrace,
            clip_rho=config.vtrace_clip_rho_threshold,
            clip_pg_rho=config.vtrace_clip_pg_rho_threshold,
            lambda_=config.lambda_,
            vf_loss_coeff=config.vf_loss_coeff,
            **coefficients,
            **self.loss_settings(),
        )
        self.after_update(stats)
        return {
            **stats,
            "cur_lr": coefficients["lr"],
            "entropy_coeff": coefficients["entropy_coeff"],
            "var_gnorm": float(np.linalg.norm(self.policy.weights)),
            "policy_lag_mean": float(np.mean(lags)),
            "policy_lag_max": float(max(lags)),
            "diff_num_grad_updates_vs_sampler_policy": float(np.mean(lags)) * config.num_sgd_iter,
        }

    # ------------------------------------------------------------------ fragments, as they come

    def next_fragments(self, num_steps: int) -> list[SampleBatch]:
        """Fragments of so many steps in all, in the order in which they arrived; the workers go on meanwhile."""
        if not self.config.num_rollout_workers:
            return [self.sample(num_steps)]
        with self.metrics.timer("sample"):
            self._ask()
            started = time.monotonic()
            while sum(fragment.env_steps for fragment in self._arrived) < num_steps:
                for _, (fragment, report) in self._requests.take(self.config.learner_queue_timeout):
                    self.take_in(report)
                    self._arrived.append(fragment)
                    started = time.monotonic()
                self._ask()
                self._check_waiting(time.monotonic() - started)
        return self._pop_arrived(num_steps)

    def _ask(self) -> None:
        """Requests with the newest weights that were broadcast, for all workers that have too few."""
        if self._request is None or self.num_updates >= self._broadcast_at:
            filter_state = self.policy.filter.get_state() if self.policy.filters_observations else None
            self._request = self.workers.sample_request(self.policy.weights, self.num_updates, filter_state)
            self._broadcast_at = self.num_updates + self.config.broadcast_interval
        self._requests.ask(self._request)

    def _pop_arrived(self, num_steps: int) -> list[SampleBatch]:
        fragments, steps = [], 0
        while steps < num_steps:
            fragments.append(self._arrived.popleft())
            steps += fragments[-1].env_steps
        return fragments

    def _check_waiting(self, waited_s: float) -> None:
        if waited_s > self.config.learner_queue_timeout:
            raise SampleTimeoutError(
                f"no rollout worker has sent a fragment for {waited_s:.0f} s. Slow environments need a longer "
                f".training(learner_queue_timeout={self.config.learner_queue_timeout:g}) or a shorter "
                f"rollout_fragment_length than {self.config.rollout_fragment_length}."
            )

    @property
    def num_requests_in_flight(self) -> int:
        return self._requests.num_in_flight

    def set_weights(self, weights: dict[str, np.ndarray]) -> None:
        super().set_weights(weights)
        self._request = None

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._request = None

    # ------------------------------------------------------------------ what APPO adds

    def prepared(self, batch: SampleBatch) -> SampleBatch:
        """The batch with what the loss needs beside what the workers sent."""
        return batch

    def loss_settings(self) -> dict[str, float]:
        """Further settings of the loss."""
        return {}

    def after_update(self, stats: dict[str, float]) -> None:
        """Called after each update with its statistics."""
