"""A stream over a VectorEnv that takes and returns torch tensors: nothing leaves their device."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from rllib.env.streams.first_results import env_name
from rllib.env.streams.tensors_as_arrays import device_of, final_observations, warn_of_lost_finals
from rllib.env.streams.vector import autoreset_mode, check_vector, mask_is_ignored, seed_argument
from rllib.env.tensors.first_results import check_first_reset, check_first_step
from rllib.env.tensors.spaces import TensorColumn
from rllib.sample_batch import OBS, REWARDS, TERMINATEDS, TRUNCATEDS, Column


class TensorStepBuffers(NamedTuple):
    """Tensors for one step of N environments, all on the environments' device.

    Attributes:
        before: [N, *observation_shape], what the actions of this step were chosen from; read, and not written.
        observations: [N, *observation_shape], what the next action is chosen from.
        rewards: [N] float32.
        terminated, truncated: [N] bool.
        valid: [N] bool, False where the step is no transition; None with streams without gaps.
        finals: [N, *observation_shape], where an episode has ended its final observation, elsewhere anything; None
            with streams that have `gives_finals` False.
    """

    before: Tensor
    observations: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor | None
    finals: Tensor | None


class TensorStream:
    """A stream over a VectorEnv of tensors; a step is a constant number of tensor operations, and waits for none.

    | mode      | final observations                                                    | gaps | waits for the device |
    |-----------|-----------------------------------------------------------------------|------|----------------------|
    | NEXT_STEP | are written as observations; the step after them is no transition     | yes  | no                   |
    | SAME_STEP | from info["final_obs"]; if absent, the observation before the step    | no   | no                   |
    | DISABLED  | are what step() returns; ended episodes are then reset by reset_mask  | no   | once in each step    |

    Args:
        env: the vector environment; the stream owns and closes it.
        seeds: one int for each environment; as for VectorEnvStream.
        worker_index: for messages.

    Attributes:
        num_envs, observation_space, action_space: N, and the spaces of a single environment.
        columns: what a step writes.
        has_gaps: whether some steps are no transitions.
        gives_finals: whether final observations are written apart from the others.

    Raises:
        ValueError: if the number of environments differs, a space is not supported, or no autoreset mode is declared.
    """

    def __init__(self, env: VectorEnv, seeds: list[int], *, worker_index: int = 0):
        check_vector(env, len(seeds))
        self.num_envs = env.num_envs
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self._env, self._worker_index = env, worker_index
        self._mode = autoreset_mode(env)
        self.has_gaps = self._mode is AutoresetMode.NEXT_STEP
        self.gives_finals = not self.has_gaps
        self._column = TensorColumn(self.observation_space)
        self.columns = (
            Column(OBS, self._column.shape, self._column.dtype, before_action=True),
            Column(REWARDS),
            Column(TERMINATEDS, (), "bool"),
            Column(TRUNCATEDS, (), "bool"),
        )
        self.reseed(seeds)
        self._clock = 0
        self._device: str | None = None  # of its tensors, from the first reset on
        self._has_stepped = False
        self._resets_next: Tensor | None = None  # NEXT_STEP: [N] bool, whether the next step is no transition
        self._lacks_finals: Tensor | None = None  # SAME_STEP: whether a truncated episode has had none
        self._has_warned = False
        self._mask_is_kept = False  # DISABLED: whether reset_mask has been seen to spare the others

    @property
    def environments(self) -> list:
        """The vector environment."""
        return [self._env]

    def watch(self, observer) -> None:
        """Nothing: single episodes cannot be observed (tensor_rollouts.py refuses the hooks that would)."""

    def reseed(self, seeds: list[int]) -> None:
        """Sets the seeds of the next reset, one int per environment."""
        self._seed = seed_argument(self._env, seeds)

    def reset(self) -> Tensor:
        """Starts an episode in every environment; the first observations, [N, *observation_shape], a new tensor.

        Raises:
            TypeError: if the environment hands over no tensors.
            ValueError: if the observations of the first reset do not fit the space.
        """
        result = self._called("reset", lambda: self._env.reset(seed=self._seed))
        self._seed = None
        batch = result[0] if isinstance(result, tuple) and result else result
        device = device_of(batch)
        if device is None:
            raise TypeError(
                f"tensor_rollouts=True needs an environment that hands over torch tensors, but reset() of "
                f"{env_name(self._env)} gave {type(batch).__name__}. Leave the setting out, or wrap the environment: "
                'gymnasium.wrappers.vector.NumpyToTorch(env, device="cuda").'
            )
        if self._device is None:
            check_first_reset(self._env, result, device)
            self._device = device
        dtype = getattr(torch, self._column.dtype)
        observations = torch.empty(self.num_envs, *self._column.shape, dtype=dtype, device=device)
        self._column.write(batch, observations)
        self._resets_next = torch.zeros(self.num_envs, dtype=torch.bool, device=device) if self.has_gaps else None
        self._lacks_finals = None
        return observations

    def step(self, actions: Tensor, buffers: TensorStepBuffers) -> None:
        """One step of every environment.

        Args:
            actions: [N, ...] in the action space of the environment.
            buffers: receives the results; nothing of it is kept.

        Raises:
            ValueError: if the results have other shapes, or tell lives from games; or, of the first step, if they are
                of another dtype or on another device.
            TypeError: if the first step's results are of another form.
            Exception: whatever the environment raises, with a note that says where.
        """
        self._clock += 1
        result = self._called("step", lambda: self._env.step(actions))
        if not self._has_stepped:
            check_first_step(self._env, result, self._device)
            self._has_stepped = True
        batch, *results, infos = result
        self._check_shapes(results)
        if "life_lost" in infos:
            raise ValueError(
                f'{env_name(self._env)}: infos["life_lost"] says which episodes are lives of a game, whose returns '
                "rollouts of tensors cannot report. Use .rollouts(tensor_rollouts=False), or leave the key out: each "
                "life is then an episode."
            )
        rewards, terminated, truncated = results
        self._column.write(batch, buffers.observations)
        buffers.rewards.copy_(rewards)
        buffers.terminated.copy_(terminated)
        buffers.truncated.copy_(truncated)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._drop_resets(buffers)
        elif self._mode is AutoresetMode.SAME_STEP:
            self._write_finals(infos, buffers)
        else:
            self._reset_ended(buffers)

    def warn_of_lost_finals(self) -> None:
        """Logs once that truncated episodes have had no final observation, if so; waits for the device."""
        if self._lacks_finals is not None and not self._has_warned and bool(self._lacks_finals):
            self._has_warned = True
            warn_of_lost_finals(env_name(self._env))

    def resume_at(self, steps: int) -> None:
        """Tells an environment that counts the steps of the run how many it has made."""
        resume_at = getattr(self._env, "resume_at", None)
        if resume_at is not None:
            resume_at(steps)

    def pop_log(self) -> dict[str, float]:
        """Means of numbers that the environment has logged since the last call; empty for one that logs none."""
        pop_log = getattr(self._env, "pop_log", None)
        return {} if pop_log is None else pop_log()

    def close(self) -> None:
        """Closes the environment. May be called twice."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _drop_resets(self, buffers: TensorStepBuffers) -> None:
        resets = self._resets_next
        torch.logical_not(resets, out=buffers.valid)
        buffers.rewards.masked_fill_(resets, 0)
        buffers.terminated.logical_and_(buffers.valid)
        buffers.truncated.logical_and_(buffers.valid)
        self._resets_next = buffers.terminated | buffers.truncated

    def _write_finals(self, infos: dict, buffers: TensorStepBuffers) -> None:
        final = final_observations(infos)
        if final is not None:
            self._column.write(final, buffers.finals)
            return
        buffers.finals.copy_(buffers.before)
        if not self._has_warned:
            lacking = (buffers.truncated & ~buffers.terminated).any()
            self._lacks_finals = lacking if self._lacks_finals is None else self._lacks_finals | lacking

    def _reset_ended(self, buffers: TensorStepBuffers) -> None:
        ended = buffers.terminated | buffers.truncated
        buffers.finals.copy_(buffers.observations)
        if not bool(ended.any()):
            return
        batch, _ = self._called("reset", lambda: self._env.reset(options={"reset_mask": ended.clone()}))
        fresh = torch.empty_like(buffers.observations)
        self._column.write(batch, fresh)
        merged = torch.where(ended.reshape(-1, *(1,) * (fresh.dim() - 1)), fresh, buffers.observations)
        if not self._mask_is_kept and not bool(ended.all()):
            if not torch.equal(merged, fresh):
                raise mask_is_ignored(self._env)
            self._mask_is_kept = True
        buffers.observations.copy_(merged)

    def _check_shapes(self, results: Sequence) -> None:
        for name, column in zip(("rewards", "terminated", "truncated"), results):
            if tuple(getattr(column, "shape", ())) != (self.num_envs,):
                raise ValueError(
                    f"{env_name(self._env)}: step() must return {name} as a tensor of shape [{self.num_envs}], but "
                    f"gave {list(column.shape) if hasattr(column, 'shape') else repr(column)[:80]}"
                )

    def _called(self, method: str, call):
        try:
            return call()
        except Exception as error:
            place = f"vector environment {env_name(self._env)} of rollout worker {self._worker_index}"
            error.add_note(f"{place} raised in {method}() at its step {self._clock}")
            raise
