"""Asynchronous advantage actor-critic (Mnih et al., arXiv:1602.01783, algorithm S3).

Every worker samples a short fragment, computes the gradient of the loss at its own weights and sends that; the driver
applies the gradients in the order in which they arrive and answers each worker with the newest weights. No worker waits
for anybody. While a worker computes, the others' gradients change the weights: how many updates a gradient is behind
stands in the results as policy_lag_updates (mean) and policy_lag_updates_max. Among equally fast workers that is less
than the number of requests in flight; a slow worker's gradient is older.

Departures from the paper: as in A2C (a2c.py), and
- one process applies the gradients, so that the optimizer's memory is never written by two at once (Hogwild);
- each gradient is clipped on its own, when it is applied.

With num_rollout_workers=0 this process samples and learns in turn, which is A2C. With workers a restored run
continues with the saved weights and optimizer, but fragments that were under way are lost, so it is not the same to
the bit.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from rllib.algorithms.a2c import A2C, A2CConfig, A2CTrainee
from rllib.config.sections import at_least, only_with, section
from rllib.evaluation.rollout_worker import Gradient


class A3CConfig(A2CConfig):
    """Settings of A3C; the defaults are RLlib's, except those in default_differences.py.

    train_batch_size is used by "auto" fragments alone.
    """

    on_policy = False
    exploration_kinds: ClassVar[tuple[str, ...]] = ("StochasticSampling",)
    refuses: ClassVar[dict[str, str]] = {
        "teacher": "workers compute the gradients, without a teacher",
        "actor_warmup_updates": "workers compute the gradients, of policy and value together",
        "sample_quorum": "gradients are applied as they arrive, without rounds",
    }
    # Ray's default; here workers sample on while their gradients travel, if they are asked for ahead.
    harmless: ClassVar[dict] = {"sample_async": (True,)}  # workers always sample while others' gradients are applied

    @section
    def rollouts(self, *, rollout_fragment_length=10) -> Self: ...

    @section
    def training(
        self,
        *,
        train_batch_size: Annotated[
            int,
            'environment steps per update, with fragments of "auto" length',
            at_least(1),
            only_with("has_automatic_fragments", otherwise="each fragment is a batch; use rollout_fragment_length"),
        ] = 32,
        max_requests_in_flight_per_sampler_worker: Annotated[
            int,
            "gradients that a worker is asked for ahead; each one more makes them older by an update",
            at_least(1),
            only_with("num_rollout_workers"),
        ] = 2,
    ) -> Self: ...

    @property
    def has_automatic_fragments(self) -> bool:
        """Whether train_batch_size says how long fragments are."""
        return self.rollout_fragment_length == "auto"

    @section
    def reporting(self, *, min_time_s_per_iteration=5) -> Self: ...


class A3CTrainee(A2CTrainee):
    """A policy that learns from gradients, as they arrive."""

    def loss_settings(self, at: int | None = None) -> dict[str, Any]:
        # A worker computes each gradient from one whole batch, so "batch" and "minibatch" mean the same here.
        settings = {**super().loss_settings(at), "standardize_advantages": bool(self.config.standardize_advantages)}
        return {**settings, **self.algorithm.auxiliary_weights()}

    def apply(self, gradient: Gradient, lr: float) -> dict[str, float]:
        """One `Learner.apply_gradient`, counted and timed as `learn_on_batch` does."""
        lag = self.num_updates - gradient.policy_version
        with self.algorithm.metrics.timer("learn"):
            norm = self.learner.apply_gradient(gradient.flat, lr=lr)
        self.algorithm.metrics.add_update(self.policy_id, gradient.env_steps)
        return {**gradient.stats, "grad_gnorm": norm, "policy_lag_updates": float(lag)}


class A3C(A2C):
    """Asynchronous advantage actor-critic."""

    config_class = A3CConfig
    trainee_class = A3CTrainee
    trains_several = False  # a worker has the learner of one policy
    is_synchronous = False
    workers_learn = True

    def training_step(self) -> dict[str, float]:
        applied, trainee = [], self.trainee
        while len(applied) < max(self.config.num_rollout_workers, 1):
            lr = trainee.scheduled("lr")["lr"]
            applied += [trainee.apply(gradient, lr) for gradient in self.arriving_gradients()]
        lags = [stats["policy_lag_updates"] for stats in applied]
        loss = trainee.learner.objectives[0].loss
        kinds = {loss.stats[index]: kind for index, kind in loss.extremes}
        of_all = {
            name: float(getattr(np, kinds.get(name, "mean"))([stats[name] for stats in applied])) for name in applied[0]
        }
        return {**of_all, "policy_lag_updates_max": max(lags), "cur_lr": lr, **trainee.scheduled("entropy_coeff")}

    def arriving_gradients(self) -> Iterator[Gradient]:
        """Yields the gradients that have arrived, after waiting for the first; then asks their workers for the next."""
        if not self.config.num_rollout_workers:
            batch = self.sample(1)
            with self.metrics.timer("learn"):
                flat, stats = self.learner.compute_gradient(batch, **self.trainee.loss_settings())
            yield Gradient(flat, stats, batch.count, batch.policy_version)
            return
        if not self.workers.fleet.num_in_flight:
            self._ask()
        with self.metrics.timer("sample"):
            answers = self.workers.fleet.take(self.config.sample_timeout_s)
        for answer in answers:
            gradient, report = answer.value
            self._take_in(report)
            if gradient.env_steps:
                yield gradient
        self._ask()

    def _ask(self) -> None:
        """Sends requests with the newest weights to all workers that have too few."""
        request = self.workers.request("compute_gradient", self.snapshots(), self.trainee.loss_settings())
        self.workers.fleet.keep_in_flight(request, self.config.max_requests_in_flight_per_sampler_worker)
