"""Steps environments that hand over torch tensors, on their device, with the learner's own network.

Nothing in the loop over the steps waits for the device: what the host has to know (ended episodes, whether numbers are
finite, which rows are transitions) is read once per fragment.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rllib import sample_batch as sb
from rllib.env.tensors.spaces import tensor_action_mapper
from rllib.env.tensors.stream import TensorRow, TensorStream
from rllib.evaluation import seeding
from rllib.evaluation.episode_hooks import EpisodeHooks
from rllib.evaluation.rollout_worker import SampleReport
from rllib.evaluation.settings import RolloutSettings
from rllib.evaluation.tensors.episodes import TensorEpisodes
from rllib.evaluation.worker import Worker
from rllib.models.observations.filters_in_torch import TensorFilter
from rllib.models.observations.masks import no_choice
from rllib.models.tensors import encoded, noise, sample, without_choice
from rllib.policy import Snapshot
from rllib.sample_batch import DEFAULT_POLICY, Column, SampleBatch, table_of
from rllib.spans import span, stopwatch

if TYPE_CHECKING:
    from rllib.learners.learner import Learner

VALID, FINALS = "valid", "final_obs"  # columns of a fragment that no batch has


class TensorRolloutWorker(Worker):
    """The worker of a run whose environments hand over tensors; in this process, and the only one.

    Args:
        settings: see RolloutSettings; the postprocess has `of_tensors`.
        worker_index: 0.
        incarnation: as for RolloutWorker.
        allocate: not used; columns are tensors.
        learner: of the policy, on the environments' device, in torch or numpy; its weights act.

    Raises:
        the user's own exception, with a note, when the environment fails.
    """

    stream: TensorStream

    def __init__(
        self,
        settings: RolloutSettings,
        worker_index: int,
        incarnation: int,
        allocate: Callable[..., np.ndarray],
        learner: "Learner",
    ):
        super().__init__(settings, worker_index, policy=learner.policy)
        self.policy_version = 0
        self._module, self._device, self._fetch_weights = _acting(learner)
        self._indices = range(settings.num_envs)
        self.stream = settings.open_stream(seeding.ENVIRONMENTS, self._indices, worker_index, incarnation, tensors=True)
        self._hooks = EpisodeHooks(self.callbacks, self)
        self.episodes = TensorEpisodes(settings.num_envs, self._device)
        mapping = settings.normalize_actions, settings.clip_actions
        self._to_env = tensor_action_mapper(
            self.stream.action_space, self.policy.distribution, *mapping, self._device
        ).to_env
        self._filter = TensorFilter(self.policy.filter, self._device) if self.policy.filters_observations else None
        self._inputs = torch.ones(settings.num_envs, self.policy.spec.input_width, device=self._device)
        self._columns = self._column_table()
        self._generator = torch.Generator(self._device)
        # The noise of a fragment is drawn on a seed by these two numbers: the state of all that is random here.
        self._incarnation, self._num_fragments = incarnation, 0
        self._newest: Tensor | None = None  # where the next fragment starts, as the environment gave it; None: reset

    def _column_table(self) -> tuple[Column, ...]:
        values = Column(sb.VF_PREDS, (), "float32")
        gaps = [Column(VALID, (), "bool")] if self.stream.has_gaps else []
        observed = self.stream.columns[0]
        finals = [Column(FINALS, observed.shape, observed.dtype)] if self.stream.gives_finals else []
        written = [column for column in self.policy.columns if column.name != sb.ACTION_LOGP]
        return table_of(*self.stream.columns, *written, values, *gaps, *finals)

    # ------------------------------------------------------------------ weights and state

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Takes over version and filter statistics. The weights are the learner's own already."""
        self.policy_version = snapshot.version
        self._fetch_weights()
        if self._filter is not None:
            self._filter.load(snapshot.filter_state)

    def get_state(self) -> list[dict]:
        """What the noise of the next fragment is drawn by, for an exact continuation."""
        return [{"incarnation": self._incarnation, "num_fragments": self._num_fragments}]

    def set_state(self, state: list[dict]) -> None:
        """Restores the state that `get_state` returned."""
        self._incarnation, self._num_fragments = state[0]["incarnation"], state[0]["num_fragments"]

    def start_over(self, incarnation: int | None = None) -> None:
        """Drops the running episodes; arguments as for RolloutWorker."""
        self._newest = None
        self.episodes.reset()
        self._hooks.start_over()
        if incarnation is not None:
            self._incarnation, self._num_fragments = incarnation, 0
            self.stream.reseed(self.settings.seeds(seeding.ENVIRONMENTS, self._indices, incarnation))
            self.settings.seed_process(seeding.ENVIRONMENTS, self.worker_index, incarnation)

    # ------------------------------------------------------------------ sampling

    @torch.no_grad()
    def sample(self) -> tuple[SampleBatch, SampleReport]:
        """One fragment of every environment, as rows of tensors, and its report."""
        report = SampleReport()
        columns, raw = self._new_columns()
        try:
            report.env_time_s, report.inference_time_s = self._step_through(columns, raw)
        except BaseException:
            self.start_over()  # the environments have gone on without the columns
            raise
        self._newest = raw[-1].clone()
        started = time.perf_counter()
        with span("finish"):
            self._finish(columns, raw)
        report.inference_time_s += time.perf_counter() - started
        with span("make rows"):
            batch = self._to_batch(columns)
        report.env_steps, report.rows = batch.count, self.settings.fragment_length * self.settings.num_envs
        report.episodes, report.longest_running = self.episodes.pop_finished(), self.episodes.longest_running
        if self._filter is not None:
            report.filter_deltas = {DEFAULT_POLICY: self._filter.pop_delta()}
        self.callbacks.on_sample_end(worker=self, samples=batch)
        return batch, report

    def _new_columns(self) -> tuple[dict[str, Tensor], Tensor]:
        """Memory for a fragment: its columns [T, N, ...], and for observations as the environment gives them.

        These, and the column of observations, have a row more. Without a filter they are the same.
        """
        num_steps, num_envs = self.settings.fragment_length, self.settings.num_envs
        columns = {
            column.name: torch.empty(
                num_steps + column.before_action,
                num_envs,
                *column.shape,
                dtype=getattr(torch, column.dtype),
                device=self._device,
            )
            for column in self._columns
        }
        raw = columns[sb.OBS]
        if self._filter is not None:
            columns[sb.OBS] = torch.empty_like(raw, dtype=torch.float32)
        if self._newest is None:
            self._newest = self._first_observations()
        raw[0] = self._newest
        return columns, raw

    def _first_observations(self) -> Tensor:
        found = self.stream.reset()
        if found.device.type != self._device.type or found.device.index not in (None, self._device.index or 0):
            raise ValueError(
                f"the environment's tensors are on {found.device}, but the learner is on {self._device}. "
                + how_to_meet(str(found.device))
            )
        if self._filter is not None:
            self._filter.count(found)
        return found

    def _step_through(self, columns: dict[str, Tensor], raw: Tensor) -> tuple[float, float]:
        """The hot loop. Returns the seconds that environments and policy took to ask the device for their work."""
        clock, step, to_env, act = stopwatch("act", "step"), self.stream.step, self._to_env, self._act
        seen = columns[sb.OBS]
        self._observe(raw[0], seen[0], counted=False)
        written = self._noise(), columns[sb.ACTION_DIST_INPUTS], columns[sb.VF_PREDS], columns[sb.ACTIONS]
        rows = zip(raw, raw[1:], *(self._steps_of(columns, name) for name in _ROW))
        env_time = inference_time = 0.0
        for observation, following, row, *of_step in zip(seen, seen[1:], rows, *written):
            begun = clock()
            act(observation, *of_step)
            acted = clock()
            step(to_env(of_step[-1]), TensorRow(*row))
            self._observe(row[1], following)
            inference_time += acted - begun
            env_time += clock() - acted
        return env_time, inference_time

    def _steps_of(self, columns: dict[str, Tensor], name: str):
        return columns.get(name, [None] * self.settings.fragment_length)

    def _noise(self) -> Tensor:
        """Of a fragment, [T, N, ...]; zeros where nothing is to be explored."""
        settings = self.settings
        sequence = seeding.seed_sequence(settings.seed, seeding.ACTIONS, self._num_fragments, self._incarnation)
        self._generator.manual_seed(int(sequence.generate_state(1, np.uint64)[0]) >> 1)
        self._num_fragments += 1
        drawn = noise(self.policy.distribution, self._generator, settings.fragment_length, settings.num_envs)
        return drawn if self.policy_settings.explore else drawn.zero_()

    def _act(self, observations: Tensor, drawn: Tensor, dist_inputs: Tensor, values: Tensor, actions: Tensor) -> None:
        """Writes distribution inputs, values and actions of observations [N, ...] as stored."""
        computed, value = self._module(encoded(self.policy.spec.encoder, observations, self._inputs))
        dist_inputs.copy_(computed)
        if len(value):
            values.copy_(value)
        sample(self.policy.distribution, computed, drawn, actions)

    def _observe(self, raw: Tensor, out: Tensor, counted: bool = True) -> None:
        """Writes what is stored of raw observations; without a filter these are the same memory."""
        if self._filter is not None:
            if counted:
                self._filter.count(raw)
            self._filter.write(raw, out)

    # ------------------------------------------------------------------ the end of a fragment

    def _finish(self, columns: dict[str, Tensor], raw: Tensor) -> None:
        """Counts the episodes, checks the numbers, and computes what rows have beside what was written in the loop."""
        rewards, ended = columns[sb.REWARDS], columns[sb.TERMINATEDS] | columns[sb.TRUNCATEDS]
        self.episodes.add_fragment(rewards, ended, columns.get(VALID))
        self._check(columns, raw)
        clip = self.settings.clip_rewards
        if clip is True:  # the sign alone (DQN, Nature 2015)
            rewards.sign_()
        elif clip:
            rewards.clamp_(-clip, clip)
        dist_inputs, actions = columns[sb.ACTION_DIST_INPUTS], columns[sb.ACTIONS]
        logp = self.policy.distribution.torch_at(dist_inputs.flatten(0, 1)).log_prob(actions.flatten(0, 1))
        columns[sb.ACTION_LOGP] = logp.view_as(rewards)
        self.policy_settings.postprocess.of_tensors(columns, self._next_values(columns))

    def _next_values(self, columns: dict[str, Tensor]) -> Tensor:
        """V(o_{t+1}), [T, N]; after an episode that was truncated, of its final observation."""
        if not self.policy.spec.critic:
            return columns[sb.VF_PREDS].zero_().clone()
        values = columns[sb.VF_PREDS]
        next_values = torch.cat((values[1:], self._values(columns[sb.OBS][-1])[None]))
        if FINALS in columns:
            self.stream.tell_lost_finals()
            where = torch.nonzero(columns[sb.TRUNCATEDS] & ~columns[sb.TERMINATEDS], as_tuple=True)
            if len(where[0]):
                next_values[where] = self._values(self._filtered(columns[FINALS][where]))
        return next_values

    def _filtered(self, raw: Tensor) -> Tensor:
        if self._filter is None:
            return raw
        out = torch.empty_like(raw, dtype=torch.float32)
        self._filter.write(raw, out)
        return out

    def _values(self, observations: Tensor) -> Tensor:
        """Values [B] of observations [B, ...] as stored."""
        return self._module(encoded(self.policy.spec.encoder, observations))[1]

    def _check(self, columns: dict[str, Tensor], raw: Tensor) -> None:
        """Raises an error for numbers that are not finite, and for masks that left no legal action."""
        checked = {"observations": raw, "rewards": columns[sb.REWARDS]}
        checked[sb.ACTION_DIST_INPUTS] = columns[sb.ACTION_DIST_INPUTS]
        if self.policy.spec.critic:
            checked[sb.VF_PREDS] = columns[sb.VF_PREDS]
        sums = [column.sum(dtype=torch.float64).isfinite() for column in checked.values() if column.is_floating_point()]
        if self.policy.is_masked:
            sums.append(~self._without_choice(columns).any())
        if bool(torch.stack(sums).all()):
            return
        for name, column in checked.items():
            self._check_finite(name, column)
        t, i = torch.nonzero(self._without_choice(columns))[0].tolist()
        mask = self.policy.spec.encoder.mask(columns[sb.OBS][t, i][None])[0]
        raise ValueError(f"environment {i} had no legal action at step {t} of the fragment: {no_choice(mask.cpu())}")

    def _without_choice(self, columns: dict[str, Tensor]) -> Tensor:
        """Whether a transition's observation had no legal action, bool [T, N]."""
        seen = columns[sb.OBS][:-1]
        mask = self.policy.spec.encoder.mask(seen.flatten(0, 1))
        without = without_choice(mask, self.policy.distribution).view(seen.shape[:2])
        return without & columns[VALID] if VALID in columns else without

    def _check_finite(self, name: str, column: Tensor) -> None:
        bad = torch.nonzero(~column.isfinite())
        if len(bad):
            t, i, *_ = bad[0].tolist()
            given = name in ("observations", "rewards")
            network = f"{self.policy.spec.network_name} overflowed: scale the observations, or lower the learning rate"
            raise ValueError(
                f"{name} of environment {i} are not finite at step {t} of the fragment: {column[t, i].tolist()}; "
                + ("the environment gave them" if given else network)
            )

    def _to_batch(self, columns: dict[str, Tensor]) -> SampleBatch:
        """The transitions, step by step."""
        num_steps = self.settings.fragment_length
        kept = [name for name in columns if name not in (VALID, FINALS)]
        rows = {name: columns[name][:num_steps].flatten(0, 1) for name in kept}
        batch = SampleBatch(rows, policy_version=self.policy_version, num_steps=num_steps)
        return batch.rows(torch.nonzero(columns[VALID].flatten())[:, 0]) if VALID in columns else batch


def _acting(learner: "Learner") -> tuple:
    """The torch network on the learner's own weights, its device, and what brings changed weights there."""
    backend, policy = learner.backend, learner.policy
    if hasattr(backend, "policy_module"):
        return backend.policy_module, backend.device, backend.fetch_weights
    flat = torch.from_numpy(policy.weights)  # a numpy learner's: the same memory
    return policy.spec.masked_torch(policy.layout, flat, policy.network), flat.device, lambda: None


# The columns that a TensorRow is made of, behind the observations.
_ROW = (sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS, VALID, FINALS)


def how_to_meet(device: str) -> str:
    """What to do where the learner is not on the environments' device."""
    if device.startswith("cuda"):
        return "Use .resources(num_gpus=1)."
    return 'Use .resources(num_gpus=0), or make the environment on the GPU: env_config={"device": "cuda"}.'
