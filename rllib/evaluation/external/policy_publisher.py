"""Publishes the policy to external loops, which act by copies of it."""

import hashlib
import math
import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from rllib.acting.inference import ActingSettings
from rllib.acting.sent_policy import SentPolicy, UserCodeError
from rllib.env.external.stream import ExternalStream
from rllib.env.policy_server.weights import ActionRows, PublishedPolicy, array_message
from rllib.evaluation.lane import Lane
from rllib.evaluation.settings import RolloutSettings
from rllib.policy import Snapshot
from rllib.sample_batch import DEFAULT_POLICY


class PolicyPublisher:
    """The newest edition of the single policy: its description and its weights.

    Args:
        settings: settings of the worker, with `agents`.
        worker_index: index of the worker, whose exploration the copies use.
        stream: receives the editions.
    """

    def __init__(self, settings: RolloutSettings, worker_index: int, stream: ExternalStream):
        self._settings, self._worker_index, self._stream = settings, worker_index, stream
        self._newest: tuple[int, float] | None = None  # version and filter count that were published last
        self._sent: PublishedPolicy | None = None

    def start_over(self) -> None:
        """Makes the next policy a new edition."""
        self._newest = None

    def publish(self, snapshot: Snapshot, lane: Lane) -> None:
        """Publishes the policy of a lane that has loaded this snapshot; it is a new edition if anything has changed."""
        policy = lane.policy
        newest = snapshot.version, policy.filter.count if policy.filters_observations else 0.0
        weights = policy.weights.astype("<f4").tobytes()
        if newest != self._newest or self._sent.weights != weights:  # weights may be set by hand
            # The first number is random, so that a client cannot confuse editions of different servers.
            before = self._sent.edition if self._sent else secrets.randbits(48)
            self._sent = self._published(before + 1, snapshot, lane, weights)
        self._newest, self._sent = newest, replace(self._sent, timesteps=snapshot.timesteps)
        self._stream.publish(self._sent)

    def publish_again(self) -> None:
        """Publishes the newest edition to an environment that replaces another one."""
        if self._sent is not None:
            self._stream.publish(self._sent)

    def _published(self, edition: int, snapshot: Snapshot, lane: Lane, weights: bytes) -> PublishedPolicy:
        description, refusal = self._description
        policy, distribution, shape = lane.policy, lane.policy.distribution, lane.policy.action_shape
        choices = tuple(stop - start for start, stop in distribution.choices)
        rows = ActionRows(
            shape,
            np.dtype(policy.action_dtype),
            choices if len(choices) == math.prod(shape) else (),
            policy.num_dist_inputs if distribution.has_log_prob else 0,
            lane.mapper,
            distribution,
        )
        return PublishedPolicy(
            edition,
            snapshot.version,
            snapshot.timesteps,
            self._settings.max_lag_updates,
            rows,
            weights,
            {name: array_message(array) for name, array in policy.filter.get_state().items()},
            description,
            self._description_id,
            refusal,
        )

    @cached_property
    def _description(self) -> tuple[Mapping[str, Any], str | None]:
        """(policy as JSON data, None), or ({}, reason) if the policy cannot be sent."""
        settings, own = self._settings, self._settings.policies[DEFAULT_POLICY]
        acting = ActingSettings(settings.normalize_actions, settings.clip_actions, explore=own.explore)
        spaces = settings.agents.spaces[DEFAULT_POLICY]
        of_workers = self._worker_index, settings.num_workers
        try:
            return SentPolicy(own.spec, *spaces, acting, own.exploration, *of_workers).to_json(), None
        except UserCodeError as error:
            return {}, str(error)

    @cached_property
    def _description_id(self) -> str:
        """Hash of the description, by which a client recognizes its copy of the policy after a server was replaced."""
        described = msgspec.json.encode((self._description[0], self._settings.max_lag_updates))
        return hashlib.blake2b(described, digest_size=8).hexdigest()
