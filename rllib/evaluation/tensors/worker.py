"""Steps environments that return torch tensors, on their device, with the learner's own network.

Nothing in the loop over the steps waits for the device. The host reads ended episodes, the checks for finite numbers
and the rows that are transitions once per fragment.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rllib import sample_batch as sb
from rllib.env.episodes import Episode
from rllib.env.tensors.spaces import tensor_action_mapper
from rllib.env.tensors.stream import TensorStepBuffers, TensorStream
from rllib.evaluation import seeding
from rllib.evaluation.episode_hooks import StreamEpisodes
from rllib.evaluation.lane import Lane
from rllib.evaluation.sampling_worker import SampleReport, SamplingWorker
from rllib.evaluation.settings import RolloutSettings
from rllib.models.observations.in_torch import TensorFilter
from rllib.models.tensors import encoded, noise, sample, without_choice
from rllib.policy import Snapshots
from rllib.sample_batch import DEFAULT_POLICY, Column, SampleBatch, table_of
from rllib.spans import stopwatch

if TYPE_CHECKING:
    from rllib.learners.learner import Learner

VALID, FINALS = "valid", "final_obs"  # columns of a fragment that no batch has


class TensorRolloutWorker(SamplingWorker[SampleBatch]):
    """The only worker of a run whose environments return tensors; it is in the learner's process.

    Args:
        settings: see RolloutSettings; the postprocess has `of_tensors`.
        worker_index: 0.
        incarnation: as for RolloutWorker.
        allocate: unused; columns are tensors.
        learner: trains the policy, on the environments' device, in torch or numpy; its weights act.

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
        self._hooks = StreamEpisodes(self.callbacks, self)
        self.episodes = TensorEpisodes(settings.num_envs, self._device)
        mapping = settings.normalize_actions, settings.clip_actions
        self._to_env = tensor_action_mapper(
            self.stream.action_space, self.policy.distribution, *mapping, self._device
        ).to_env
        self._filter = TensorFilter(self.policy.filter, self._device) if self.policy.filters_observations else None
        self._inputs = torch.ones(settings.num_envs, self.policy.spec.input_width, device=self._device)
        self._columns = self._column_table()
        self._generator = torch.Generator(self._device)
        # A fragment's noise is seeded by these two numbers; nothing else here is random.
        self._incarnation, self._num_fragments = incarnation, 0
        self._newest: Tensor | None = None  # first observations of the next fragment, unfiltered; None: reset

    def _column_table(self) -> tuple[Column, ...]:
        values = Column(sb.VF_PREDS, (), "float32")
        gaps = [Column(VALID, (), "bool")] if self.stream.has_gaps else []
        observed = self.stream.columns[0]
        finals = [Column(FINALS, observed.shape, observed.dtype)] if self.stream.gives_finals else []
        written = [column for column in self.policy.columns if column.name != sb.ACTION_LOGP]
        return table_of(*self.stream.columns, *written, values, *gaps, *finals)

    # ------------------------------------------------------------------ weights and state

    def load_snapshots(self, snapshots: Snapshots) -> None:
        """Takes over version and filter statistics. The weights are the learner's already."""
        snapshot = snapshots[DEFAULT_POLICY]
        self.policy_version = snapshot.version
        self._fetch_weights()
        if self._filter is not None:
            self._filter.load(snapshot.filter_state)

    def get_state(self) -> list[dict]:
        """The numbers that seed the next fragment's noise, for an exact continuation."""
        return [{"incarnation": self._incarnation, "num_fragments": self._num_fragments}]

    def set_state(self, state: list[dict]) -> None:
        """Restores the state that `get_state` returned."""
        self._incarnation, self._num_fragments = state[0]["incarnation"], state[0]["num_fragments"]
        self.stream.resume_at(self._num_fragments * self.settings.fragment_length)

    @property
    def lanes(self) -> dict[str, Lane]:
        """None: rows are tensors, which this worker writes itself."""
        return {}

    def _drop_episodes(self) -> None:
        self._newest = None
        if self._filter is not None:
            self._filter.forget()
        self.episodes.reset()
        self._hooks.start_over()

    def _begin_life(self, incarnation: int) -> None:
        self._incarnation, self._num_fragments = incarnation, 0

    # ------------------------------------------------------------------ sampling

    @torch.no_grad()
    def sample(self) -> tuple[SampleBatch, SampleReport]:
        """One fragment of every environment, as rows of tensors, and its report."""
        return super().sample()

    def _collect(self) -> tuple[tuple[dict[str, Tensor], Tensor], SampleReport]:
        report = SampleReport()
        columns, raw = self._new_columns()
        try:
            report.env_time_s, report.inference_time_s = self._step_through(columns, raw)
        except BaseException:
            self.start_over()  # the environments have stepped past the columns
            raise
        self._newest = raw[-1].clone()
        return (columns, raw), report

    def _new_columns(self) -> tuple[dict[str, Tensor], Tensor]:
        """Memory for a fragment: its columns [T, N, ...], and the unfiltered observations [T + 1, N, ...].

        The column of observations has T + 1 rows as well. Without a filter it is the same memory.
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
        """The hot loop. Returns the seconds spent in launching the work of environments and policy on the device."""
        clock, step, to_env, act = stopwatch("act", "step"), self.stream.step, self._to_env, self._act
        seen = columns[sb.OBS]
        self._observe(raw[0], seen[0], counted=False)
        written = self._noise(), columns[sb.ACTION_DIST_INPUTS], columns[sb.VF_PREDS], columns[sb.ACTIONS]
        absent = [None] * self.settings.fragment_length
        of_steps = zip(raw, raw[1:], *(columns.get(name, absent) for name in _STEP_COLUMNS))
        env_time = inference_time = 0.0
        for observation, following, buffers, *of_step in zip(seen, seen[1:], of_steps, *written):
            begun = clock()
            act(observation, *of_step)
            acted = clock()
            step(to_env(of_step[-1]), TensorStepBuffers(*buffers))
            self._observe(buffers[1], following)
            inference_time += acted - begun
            env_time += clock() - acted
        return env_time, inference_time

    def _noise(self) -> Tensor:
        """Noise of a fragment, [T, N, ...]; zeros without exploration."""
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
        """Writes filtered observations, and counts the raw ones; without a filter both are the same memory."""
        if self._filter is not None:
            if counted:
                self._filter.count(raw)
            self._filter.write(raw, out)

    # ------------------------------------------------------------------ the end of a fragment

    def _finish(self, fragment: tuple[dict[str, Tensor], Tensor], report: SampleReport) -> None:
        columns, raw = fragment
        rewards, ended = columns[sb.REWARDS], columns[sb.TERMINATEDS] | columns[sb.TRUNCATEDS]
        self.episodes.add_fragment(rewards, ended, columns.get(VALID))
        try:
            self._check(columns, raw)
        except ValueError:
            self.start_over()  # neither the next fragment nor the filter must get the number that is not finite
            raise
        clip = self.settings.clip_rewards
        if clip is True:  # the sign alone (DQN, Nature 2015)
            rewards.sign_()
        elif clip:
            rewards.clamp_(-clip, clip)
        dist_inputs, actions = columns[sb.ACTION_DIST_INPUTS], columns[sb.ACTIONS]
        logp = self.policy.distribution.torch_at(dist_inputs.flatten(0, 1)).log_prob(actions.flatten(0, 1))
        columns[sb.ACTION_LOGP] = logp.view_as(rewards)
        self.policy_settings.postprocess.of_tensors(columns, self._next_values(columns))
        report.episodes, report.longest_running = self.episodes.pop_finished(), self.episodes.longest_running
        report.env_log = self.stream.pop_log()

    def _next_values(self, columns: dict[str, Tensor]) -> Tensor:
        """V(o_{t+1}), [T, N]; after an episode that was truncated, of its final observation."""
        if not self.policy.spec.critic:
            return columns[sb.VF_PREDS].zero_().clone()
        values = columns[sb.VF_PREDS]
        next_values = torch.cat((values[1:], self._values(columns[sb.OBS][-1])[None]))
        if FINALS in columns:
            self.stream.warn_of_lost_finals()
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
        """Raises ValueError for numbers that are not finite, and for masks that left no legal action."""
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
            bad = torch.nonzero(~column.isfinite())
            if len(bad):
                t, i, *_ = bad[0].tolist()
                network = self.policy.spec.architecture.network_name
                by_network = f"{network} overflowed: scale the observations, or lower the learning rate"
                raise ValueError(
                    f"{name} of environment {i} are not finite at step {t} of the fragment: {column[t, i].tolist()}; "
                    + ("the environment gave them" if name in ("observations", "rewards") else by_network)
                )
        num_envs = self.settings.num_envs
        self.policy.check_masks(
            columns[sb.OBS][:-1].flatten(0, 1).cpu().numpy(),
            lambda row: f"environment {row % num_envs} had no legal action at step {row // num_envs} of the fragment",
            columns[VALID].flatten().cpu().numpy() if VALID in columns else None,
        )

    def _without_choice(self, columns: dict[str, Tensor]) -> Tensor:
        """Transitions whose observation had no legal action, bool [T, N]."""
        seen = columns[sb.OBS][:-1]
        mask = self.policy.spec.encoder.mask(seen.flatten(0, 1))
        without = without_choice(mask, self.policy.distribution).view(seen.shape[:2])
        return without & columns[VALID] if VALID in columns else without

    def _make_rows(self, fragment: tuple[dict[str, Tensor], Tensor], report: SampleReport) -> SampleBatch:
        """The transitions, ordered by step."""
        columns, _ = fragment
        num_steps = self.settings.fragment_length
        kept = [name for name in columns if name not in (VALID, FINALS)]
        rows = {name: columns[name][:num_steps].flatten(0, 1) for name in kept}
        batch = SampleBatch(rows, policy_version=self.policy_version, num_steps=num_steps)
        if VALID in columns:
            batch = batch.rows(torch.nonzero(columns[VALID].flatten())[:, 0])
        report.env_steps, report.rows = batch.count, num_steps * self.settings.num_envs
        return batch

    def _pop_deltas(self, report: SampleReport) -> None:
        if self._filter is not None:
            report.filter_deltas = {DEFAULT_POLICY: self._filter.pop_delta()}


def _acting(learner: "Learner") -> tuple:
    """The torch network on the learner's weights, its device, and a function that copies changed weights there."""
    backend, policy = learner.backend, learner.policy
    if backend.policy_module is not None:
        return backend.policy_module, backend.device, backend.fetch_weights
    flat = torch.from_numpy(policy.weights)  # a numpy learner's: the same memory
    return policy.spec.masked_torch(policy.layout, flat, policy.network), flat.device, lambda: None


# Columns of TensorStepBuffers, behind the observations.
_STEP_COLUMNS = (sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS, VALID, FINALS)


def how_to_meet(device: str) -> str:
    """Advice for a learner that is not on the environments' device."""
    if device.startswith("cuda"):
        return "Use .resources(num_gpus=1)."
    return 'Use .resources(num_gpus=0), or make the environment on the GPU: env_config={"device": "cuda"}.'


class EndedEpisodes(Sequence):
    """A sequence that makes its episodes of a table's columns on access: thousands may end in one fragment.

    Args:
        table: float64 [3, E]: return, length and environment of each.
    """

    def __init__(self, table: np.ndarray):
        self._table = table

    def __len__(self) -> int:
        return self._table.shape[1]

    def __getitem__(self, index):
        if isinstance(index, slice):
            return EndedEpisodes(self._table[:, index])
        total, length, environment = self._table[:, index].tolist()
        return Episode(total, int(length), int(environment))


class TensorEpisodes:
    """An EpisodeTracker on a device: follows the running episode of each of N environments across fragments.

    Args:
        num_envs: N.
        device: device of the rewards.
    """

    def __init__(self, num_envs: int, device: torch.device):
        self._totals = torch.zeros(2, num_envs, dtype=torch.float64, device=device)  # returns, lengths
        self._finished = [np.empty((3, 0))]  # columns (return, length, environment) of each fragment's episodes

    def add_fragment(self, rewards: Tensor, ended: Tensor, valid: Tensor | None = None) -> None:
        """Counts T steps of every environment; the ended episodes are copied to the host in one transfer.

        Args:
            rewards: [T, N] raw rewards; 0 where not valid.
            ended: [T, N] bool, terminated or truncated with this step.
            valid: [T, N] bool, False in rows that were no steps, or None.
        """
        steps = torch.ones_like(rewards) if valid is None else valid.to(rewards.dtype)
        sums = torch.stack((rewards, steps)).double().cumsum(1)  # [2, T, N]
        sums += self._totals[:, None]
        environments, times = torch.nonzero(ended.T, as_tuple=True)  # ordered by environment, then by time
        at_ends = sums[:, times, environments]
        # The sum of an episode begins at the same environment's earlier end, if there is one.
        same = environments[1:] == environments[:-1]
        of_episodes = at_ends.clone()
        of_episodes[:, 1:] -= at_ends[:, :-1] * same
        self._totals = sums[:, -1] - self._at_last_ends(sums, ended)
        found = torch.cat((of_episodes, environments.double()[None], times.double()[None])).cpu().numpy()
        self._finished.append(found[:3, np.lexsort((found[2], found[3]))])

    @staticmethod
    def _at_last_ends(sums: Tensor, ended: Tensor) -> Tensor:
        """The sums at each environment's last end, [2, N]; 0 where no episode has ended."""
        numbers = torch.arange(1, len(ended) + 1, device=ended.device)[:, None]
        last = (ended * numbers).amax(0)
        found = sums.gather(1, (last - 1).clamp_(min=0).expand(2, 1, -1))[:, 0]
        return found * (last > 0)

    def pop_finished(self) -> EndedEpisodes:
        """The episodes that have ended since the last call, in the order in which they ended."""
        finished, self._finished = self._finished, [np.empty((3, 0))]
        return EndedEpisodes(np.concatenate(finished, axis=1))

    @property
    def longest_running(self) -> int:
        """Steps of the longest episode that has not ended; waits for the device."""
        return int(self._totals[1].max())

    def reset(self) -> None:
        """Drops the running episodes. Call it after the environments were reset."""
        self._totals.zero_()
