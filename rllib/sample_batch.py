"""The one data structure: columns of equal length, from the rollout workers to the learner.

| column             | shape after rows [B]   | dtype        | meaning                                              |
|--------------------|------------------------|--------------|------------------------------------------------------|
| obs                | [B, *observation]      | as stored    | what the policy saw before it acted                  |
| new_obs            | [B, *observation]      | as stored    | what followed; the true final one at an episode end  |
| actions            | [B, *action]           | int64, float32 | as the policy drew them, before clipping, in the   |
|                    |                        |              | unit of its distribution (ActionUnit); of Tuple and  |
|                    |                        |              | Dict one row, the numbers of the parts in order      |
| rewards            | [B]                    | float32      | received after the action                            |
| terminateds        | [B]                    | bool         | the task ended: nothing is bootstrapped past it      |
| truncateds         | [B]                    | bool         | the episode was cut: its value is bootstrapped       |
| action_logp        | [B]                    | float32      | log-probability of the action when it was drawn      |
| action_prob        | [B]                    | float32      | its exponential, in recorded data of other programs  |
| action_dist_inputs | [B, K]                 | float32      | parameters of the action distribution at that time   |
| vf_preds           | [B]                    | float32      | value estimate at that time                          |
| advantages         | [B]                    | float32      | advantage estimate                                   |
| value_targets      | [B]                    | float32      | what the value estimate is fitted to                 |
| target_dist_inputs | [B, K]                 | float32      | what the target network computes for the observation |
| loss_mask          | [B]                    | bool         | False where the observation alone counts: the value  |
|                    |                        |              | that the row before is bootstrapped from             |
| discounts          | [B]                    | float32      | gamma^k to new_obs, k steps later; 0 past the end    |
| next_actions       | [B, *action]           | as actions   | recorded in new_obs                                  |
| recorded           | [B]                    | float32      | 1 for a recorded step, 0 for a sampled one           |
| weights            | [B]                    | float32      | importance of the row in the loss                    |
| batch_indexes      | [B]                    | int64        | where the row lies in the replay                     |
| td_targets         | [B]                    | float32      | what the value of the action is fitted to            |
| target_probabilities | [B, atoms]           | float32      | what the distribution of its return is fitted to     |
| intrinsic_rewards  | [B]                    | float32      | scaled reward for what was new (RND, Curiosity)      |
| intrinsic_advantages | [B]                  | float32      | advantage estimate of these                          |
| env_rewards        | [B]                    | float32      | the environment's, where learned ones are in rewards |
| td_errors          | [B]                    | float32      | by the worker's weights: a new row's priority        |
| teacher_actions    | [B, *action]           | as actions   | the teacher's in this observation                    |
| teacher_dist_inputs | [B, K]                | float32      | its parameters of the student's distribution         |
| demonstrated_obs   | [B, *encoded]          | float32, as stored | of an expert's steps that are cloned as well,  |
|                    |                        |              | as the network reads them; they belong to no row     |
| demonstrated_actions | [B, *action]         | as actions   | the expert's in these                                |
| waited             | [B]                    | bool         | of several agents: the action is from before the     |
|                    |                        |              | fragment, perhaps by earlier weights                 |
| eps_id             | [B]                    | int64        | the episode, in batches of RolloutWorker.from_config |
| seq_lens           | [S]                    | int64        | of policies with a memory: lengths of the sequences  |
|                    |                        |              | in which the rows stand, one after the other         |
| state_in_0         | [S, state]             | float32      | the memory's state before the first row of each      |
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from rllib.did_you_mean import explains

DEFAULT_POLICY = "default_policy"  # id of the policy whose rows these are, where there is one

OBS = "obs"
NEXT_OBS = "new_obs"
ACTIONS = "actions"
REWARDS = "rewards"
TERMINATEDS = "terminateds"
TRUNCATEDS = "truncateds"
ACTION_LOGP = "action_logp"
ACTION_PROB = "action_prob"
# Columns of recorded steps that say how probable the action was; the first that is there counts.
PROBABILITIES = (ACTION_LOGP, ACTION_PROB)
ACTION_DIST_INPUTS = "action_dist_inputs"
VF_PREDS = "vf_preds"
ADVANTAGES = "advantages"
VALUE_TARGETS = "value_targets"
WAITED = "waited"
EPS_ID = "eps_id"
LOSS_MASK = "loss_mask"
TARGET_DIST_INPUTS = "target_dist_inputs"
DISCOUNTS = "discounts"
NEXT_ACTIONS = "next_actions"
RECORDED = "recorded"
WEIGHTS = "weights"
INDICES = "batch_indexes"
TD_TARGETS = "td_targets"
TARGET_PROBABILITIES = "target_probabilities"
TARGET_QUANTILES = "target_quantiles"
TD_ERRORS = "td_errors"
INTRINSIC_REWARDS = "intrinsic_rewards"
INTRINSIC_ADVANTAGES = "intrinsic_advantages"
ENV_REWARDS = "env_rewards"
COST_ADVANTAGES = "cost_advantages"
COST_TARGETS = "cost_targets"
COST_DISCOUNTS = "cost_discounts"
TEACHER_ACTIONS = "teacher_actions"
TEACHER_DIST_INPUTS = "teacher_dist_inputs"
DEMONSTRATED_OBS = "demonstrated_obs"
DEMONSTRATED_ACTIONS = "demonstrated_actions"
SEQ_LENS = "seq_lens"
STATE_IN = "state_in_0"
# Names of the columns of the library's own batches.
NAMES = frozenset(value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str)) - {
    DEFAULT_POLICY
}
# Columns with a row for each sequence [S]; all others have one for each step [B].
PER_SEQUENCE = (SEQ_LENS, STATE_IN)


@dataclass(frozen=True)
class Column:
    """One column of a batch.

    Attributes:
        name: its key.
        shape: shape of one row.
        dtype: its name, as numpy reads it.
        before_action: whether it is an input of the action, as the observation is. Fragments have one more row of such
            a column, for the action after the last, and a reset of the environments writes it, too.
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    before_action: bool = False


def table_of(*columns: Column) -> tuple[Column, ...]:
    """The columns, after a check that their names differ.

    Raises:
        ValueError: if two of them have the same name.
    """
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"a batch would have two columns {name!r}. Give a key of info_columns, or what a postprocess adds, "
                "another name."
            )
    return columns


# Columns of RLlib that batches do not have: advice.
_INSTEAD = {
    "infos": "name the keys that are needed in .environment(info_columns={...}) (docs/project/extend.md)",
    "dones": "an episode ends where terminateds or truncateds is True",
    **dict.fromkeys(
        ("prev_actions", "prev_rewards"),
        "they are parts of the observation with model={'lstm_use_prev_action': True} or lstm_use_prev_reward",
    ),
    "t": "rows of an episode are in the order of its steps",
    "env_id": "eps_id tells episodes apart (docs/guide/own_code.md)",
    "agent_index": "a MultiAgentBatch has rows by policy",
    "unroll_id": "eps_id tells episodes apart (docs/guide/own_code.md)",
    "values_bootstrapped": "value_targets has what values are fitted to",
    "action_dist": "its parameters are in action_dist_inputs",
}


# Methods of RLlib's batches that ours do not have: advice.
_WITHOUT = {
    **dict.fromkeys(
        ("enable_slicing_by_batch_id", "disable_slicing_by_batch_id"), "use split_by_episode(), or slices of rows"
    ),
    **dict.fromkeys(
        ("zero_pad", "right_zero_pad"),
        "sequences stand one after the other, with lengths in seq_lens (docs/guide/networks.md)",
    ),
    **dict.fromkeys(("is_training", "set_training"), "the learner sets the mode of networks"),
    **dict.fromkeys(
        ("set_get_interceptor", "to_device", "wrap_as_needed"), "use torch.as_tensor(batch[name], device=...)"
    ),
    "get_single_step_input_dict": "use the columns themselves, such as batch['obs'][-1:]",
}


def array_of(values: list) -> np.ndarray:
    """A list of a program as a column; rows of different forms are objects."""
    try:
        return np.array(values)
    except ValueError:
        column = np.empty(len(values), object)
        column[:] = values
        return column


@explains(_WITHOUT)
class SampleBatch(dict[str, np.ndarray]):
    """A dict of column name -> array whose first dimensions are equal; its length is the number of rows.

    The names of columns are attributes of the class as well, as RLlib's users write them: SampleBatch.OBS.

    With environments that hand over torch tensors (docs/scale/learners.md) the columns are tensors.

    The rows of policies with a memory are grouped in sequences; such a batch has the columns PER_SEQUENCE as well.

    Args:
        columns: mapping of name to array, or list, all of the same length; those in PER_SEQUENCE have one row per
            sequence.
        policy_version: the lowest version of the weights that acted in these rows; learners report the lag from it.
        num_steps: T where the rows are [T * N], step by step, of N environments in lockstep; None: in another order.

    Raises:
        ValueError: if two columns differ in length.
    """

    OBS, CUR_OBS, NEXT_OBS, ACTIONS, REWARDS = OBS, OBS, NEXT_OBS, ACTIONS, REWARDS
    TERMINATEDS, TRUNCATEDS, EPS_ID, SEQ_LENS = TERMINATEDS, TRUNCATEDS, EPS_ID, SEQ_LENS
    ACTION_LOGP, ACTION_PROB, ACTION_DIST_INPUTS, VF_PREDS = ACTION_LOGP, ACTION_PROB, ACTION_DIST_INPUTS, VF_PREDS
    ADVANTAGES, VALUE_TARGETS, LOSS_MASK, WEIGHTS = ADVANTAGES, VALUE_TARGETS, LOSS_MASK, WEIGHTS
    # Columns of RLlib's batches that ours have only where the user adds them.
    PREV_ACTIONS, PREV_REWARDS, INFOS, DONES, T = "prev_actions", "prev_rewards", "infos", "dones", "t"
    ENV_ID, AGENT_INDEX, UNROLL_ID, ACTION_DIST = "env_id", "agent_index", "unroll_id", "action_dist"
    VALUES_BOOTSTRAPPED, OBS_EMBEDS = "values_bootstrapped", "obs_embeds"
    RETURNS_TO_GO, ATTENTION_MASKS = "returns_to_go", "attention_masks"

    def __init__(self, columns=(), *, policy_version: int = 0, num_steps: int | None = None):
        super().__init__(columns)
        self.policy_version = policy_version
        self.num_steps = num_steps
        for name in [name for name, column in self.items() if type(column) is list]:
            self[name] = array_of(self[name])
        lengths = {name: len(column) for name, column in self.items()}
        if len({length for name, length in lengths.items() if name not in PER_SEQUENCE}) > 1:
            raise ValueError(f"the columns of a SampleBatch must have equal lengths, but got {lengths}")

    def __reduce__(self):
        return _rebuild, (dict(self), self.policy_version, self.num_steps)

    def __repr__(self):
        columns = ", ".join(f"{name}{list(column.shape[1:])}" for name, column in self.items())
        return f"SampleBatch({self.count} rows: {columns})"

    @overload
    def __getitem__(self, key: str) -> np.ndarray: ...

    @overload
    def __getitem__(self, key: slice) -> "SampleBatch": ...

    def __getitem__(self, key):
        """The column with this name; for a slice, these rows of all columns, as `rows`."""
        return self.rows(key) if key.__class__ is slice else dict.__getitem__(self, key)

    def __missing__(self, key):
        advice = f": {_INSTEAD[key]}" if key in _INSTEAD else ""
        raise KeyError(f"this batch has no column {key!r}{advice}; it has {', '.join(map(str, self))}")

    def __len__(self):
        return self.count

    @property
    def count(self) -> int:
        """Number of rows."""
        for name, column in self.items():
            if name not in PER_SEQUENCE:
                return len(column)
        return 0

    def env_steps(self) -> int:
        """Number of rows that are steps of an environment, by loss_mask."""
        return int(np.count_nonzero(self[LOSS_MASK])) if LOSS_MASK in self else self.count

    # RLlib's name: there is one agent.
    agent_steps = env_steps

    def as_multi_agent(self) -> "MultiAgentBatch":
        """These rows as a batch of the policy DEFAULT_POLICY."""
        return MultiAgentBatch({DEFAULT_POLICY: self}, self.env_steps())

    def size_bytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in self.values())

    @staticmethod
    def concat(batches: Sequence["SampleBatch"], allocate: Callable[..., np.ndarray] = np.empty) -> "SampleBatch":
        """Joins batches in the given order; a single one is returned as it is, without a copy.

        Args:
            batches: at least one, with the same columns.
            allocate: `allocate(shape, dtype)` for the joined columns.

        Raises:
            ValueError: if there is no batch, or their columns differ.
            TypeError: for a single batch.
        """
        if isinstance(batches, Mapping):  # as in RLlib's batch.concat(other)
            raise TypeError("SampleBatch.concat takes a list: SampleBatch.concat([batch, other])")
        if not batches:
            raise ValueError("SampleBatch.concat needs at least one batch")
        return _joined([batches], [None], allocate)

    # RLlib's name.
    concat_samples = concat

    @staticmethod
    def join_rounds(rounds: "Sequence[Sequence[SampleBatch]]") -> "SampleBatch":
        """Joins workers' batches in an order that does not depend on how environments are distributed among workers.

        Of fragments in lockstep (`num_steps`) the first step of all environments comes first, then the second one;
        other batches of a round come one after the other. A single batch is returned as it is, without a copy.

        Args:
            rounds: for each round of sampling, one batch per worker in the order of the workers; at least one batch.

        Raises:
            ValueError: if their columns differ.
        """
        num_steps = []
        for round_ in rounds:
            lengths = {batch.num_steps for batch in round_}
            num_steps.append(lengths.pop() if len(lengths) == 1 else None)  # None: not all in lockstep, or not as long
        return _joined(rounds, num_steps, np.empty)

    def rows(self, index=None) -> Any:
        """The rows that `index` selects: a view for a slice, a copy for a mask or an array of positions.

        Without an index it is an iterator over the rows, each a dict of column -> value, as in RLlib.

        Raises:
            ValueError: if the rows are grouped in sequences, which cannot be split.
        """
        if SEQ_LENS in self:
            raise ValueError("these rows stand in sequences, which cannot be taken apart (column seq_lens)")
        if index is None:
            return ({name: column[row] for name, column in self.items()} for row in range(self.count))
        columns = {name: column[index] for name, column in self.items()}
        return SampleBatch(columns, policy_version=self.policy_version)

    def by_environment(self) -> "SampleBatch":
        """A copy of rows [T * N], step by step, with those of one environment one after the other."""
        return self.rows(np.arange(self.count).reshape(self.num_steps, -1).T.reshape(-1))

    def shuffled(self, rng: np.random.Generator) -> "SampleBatch":
        """A copy with the rows in random order, the same order in every column."""
        return self.rows(rng.permutation(self.count))

    def minibatches(self, size: int) -> Iterator["SampleBatch"]:
        """Contiguous views of `size` rows; the last one may be shorter.

        Raises:
            ValueError: if size is not positive.
        """
        if size < 1:
            raise ValueError(f"a minibatch needs at least one row, but size={size} was given")
        for start in range(0, self.count, size):
            yield self.rows(slice(start, start + size))

    # ------------------------------------------------------------------ what loops of RLlib's users call

    def copy(self, shallow: bool = False) -> "SampleBatch":
        """A batch of copies of the columns; with `shallow` of the columns themselves."""
        if shallow:
            return SampleBatch(self, policy_version=self.policy_version, num_steps=self.num_steps)
        columns = {name: column.clone() if hasattr(column, "clone") else column.copy() for name, column in self.items()}
        return SampleBatch(columns, policy_version=self.policy_version, num_steps=self.num_steps)

    def columns(self, names: Sequence[str]) -> list[np.ndarray]:
        """The columns with these names, in their order."""
        return [self[name] for name in names]

    def shuffle(self, rng: np.random.Generator | None = None) -> "SampleBatch":
        """Puts the rows of this batch into a random order, the same in every column, and returns it."""
        self.update(self.shuffled(np.random.default_rng() if rng is None else rng))
        self.num_steps = None
        return self

    def slice(self, start: int, end: int) -> "SampleBatch":
        """A view of the rows start ... end - 1; `batch[start:end]` is the same."""
        return self[start:end]

    def timeslices(self, size: int | None = None, num_slices: int | None = None) -> list["SampleBatch"]:
        """Contiguous views of all rows, in their order.

        Args:
            size: rows of each; the last one may have fewer.
            num_slices: number of views instead, of equal sizes to within one row.

        Raises:
            ValueError: unless exactly one of them is given, and is positive.
        """
        if (size is None) == (num_slices is None) or (num_slices if size is None else size) < 1:
            raise ValueError(
                f"timeslices needs either a size or a number of slices, at least 1, but got size={size} and "
                f"num_slices={num_slices}"
            )
        if size is not None:
            return list(self.minibatches(size))
        ends = [self.count * (number + 1) // num_slices for number in range(num_slices)]
        return [self[start:end] for start, end in zip([0, *ends], ends)]

    def split_by_episode(self, key: str = EPS_ID) -> list["SampleBatch"]:
        """The parts of episodes that the rows belong to: a batch for each eps_id, its rows in the order that they had.

        Args:
            key: another column that numbers episodes.

        Raises:
            ValueError: without that column, which batches of RolloutWorker.from_config have.
        """
        if key not in self:
            raise ValueError(
                f"only rows that know their episode can be split: the column {key!r} is missing. Sample them with "
                f"RolloutWorker.from_config(config), or add it: batch[{key!r}] = one integer an episode"
            )
        order = np.argsort(self[key], kind="stable")
        ends = np.flatnonzero(np.diff(self[key][order])) + 1
        return [self.rows(part) for part in np.split(order, ends) if len(part)]

    def is_single_trajectory(self) -> bool:
        """Whether no episode ends before the last row."""
        return not self._ended()[:-1].any()

    def is_terminated_or_truncated(self) -> bool:
        """Whether an episode ends with the last row."""
        return bool(self._ended()[-1])

    def _ended(self) -> np.ndarray:
        """Whether an episode ends with each row, bool [B]."""
        return self[TERMINATEDS] | self[TRUNCATEDS] if TRUNCATEDS in self else self[TERMINATEDS]

    def compress(self, *args, **kwargs) -> "SampleBatch":
        """Has no effect, for programs of RLlib: columns travel through shared memory."""
        return self

    decompress_if_needed = compress


class Postprocessing:
    """Names of the columns that a postprocess adds, as RLlib's module of this name has them."""

    ADVANTAGES, VALUE_TARGETS = ADVANTAGES, VALUE_TARGETS


def concat_samples(samples: Sequence[SampleBatch]) -> SampleBatch:
    """SampleBatch.concat, by RLlib's name."""
    return SampleBatch.concat(samples)


class MultiAgentBatch:
    """Rows of several policies that were sampled in the same steps of the environments.

    Args:
        policy_batches: policy id -> rows in which this policy has acted.
        env_steps: number of steps of the environments.
    """

    def __init__(self, policy_batches: Mapping[str, SampleBatch], env_steps: int):
        self.policy_batches, self._env_steps = dict(policy_batches), env_steps

    def __repr__(self):
        rows = ", ".join(f"{policy_id}: {batch.count}" for policy_id, batch in self.policy_batches.items())
        return f"MultiAgentBatch({self._env_steps} steps of environments; rows of {rows or 'no policy'})"

    def __getitem__(self, policy_id: str) -> SampleBatch:
        return self.policy_batches[policy_id]

    def __len__(self):
        return self._env_steps

    @property
    def count(self) -> int:
        """Number of steps of the environments."""
        return self._env_steps

    def env_steps(self) -> int:
        """Number of steps of the environments."""
        return self._env_steps

    def agent_steps(self) -> int:
        """Number of steps of all agents: rows of all policies."""
        return sum(batch.env_steps() for batch in self.policy_batches.values())

    def as_multi_agent(self) -> "MultiAgentBatch":
        """Itself."""
        return self

    def size_bytes(self) -> int:
        """Bytes of all columns."""
        return sum(batch.size_bytes() for batch in self.policy_batches.values())

    def copy(self) -> "MultiAgentBatch":
        """A batch of copies of the columns."""
        return MultiAgentBatch({name: batch.copy() for name, batch in self.policy_batches.items()}, self._env_steps)

    @staticmethod
    def concat(batches: "Sequence[MultiAgentBatch]") -> "MultiAgentBatch":
        """Joins batches in the given order, policy by policy.

        Raises:
            ValueError: if the columns of a policy differ.
        """
        joined: dict[str, list[SampleBatch]] = {}
        for batch in batches:
            for policy_id, rows in batch.policy_batches.items():
                joined.setdefault(policy_id, []).append(rows)
        parts = {policy_id: SampleBatch.concat(rows) for policy_id, rows in joined.items()}
        return MultiAgentBatch(parts, sum(batch.count for batch in batches))

    # RLlib's name.
    concat_samples = concat

    @staticmethod
    def join_rounds(rounds: "Sequence[Sequence[MultiAgentBatch]]") -> "MultiAgentBatch":
        """`SampleBatch.join_rounds` policy by policy.

        Rows of a policy are ordered by steps where its agents have acted in every step, in all workers; else agent by
        agent. So their order does not depend on how environments are distributed among workers.

        Raises:
            ValueError: if the columns of a policy differ.
        """
        names = dict.fromkeys(name for round_ in rounds for batch in round_ for name in batch.policy_batches)
        joined = {}
        for name in names:
            of_policy = [[batch[name] for batch in round_ if name in batch.policy_batches] for round_ in rounds]
            joined[name] = SampleBatch.join_rounds([_in_one_order(round_) for round_ in of_policy if round_])
        return MultiAgentBatch(joined, sum(batch.count for round_ in rounds for batch in round_))


def _in_one_order(round_: "Sequence[SampleBatch]") -> "Sequence[SampleBatch]":
    """Batches of a round, agent by agent where some are; those step by step are turned."""
    steps = {batch.num_steps for batch in round_}
    if len(steps) == 1:
        return round_
    return [batch if batch.num_steps is None else batch.by_environment() for batch in round_]


def rows_of_sequences(seq_lens: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Positions [B] of the rows after their sequences are put into this order [S]."""
    starts = np.cumsum(seq_lens) - seq_lens
    lengths = seq_lens[order]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(starts[order], lengths) + within


def _rebuild(columns: dict, policy_version: int, num_steps: int | None) -> SampleBatch:
    return SampleBatch(columns, policy_version=policy_version, num_steps=num_steps)


def _joined(
    rounds: Sequence[Sequence[SampleBatch]], num_steps: Sequence[int | None], allocate: Callable[..., np.ndarray]
) -> SampleBatch:
    """The rounds one after the other; the batches of one with a number of steps come side by side, else in turn."""
    batches = [batch for round_ in rounds for batch in round_]
    if len(batches) == 1:
        return batches[0]
    for batch in batches:
        if batch.keys() != batches[0].keys():
            differing = batch.keys() ^ batches[0].keys()
            raise ValueError(f"batches to join must have the same columns; they differ in {differing}")
    columns = {}
    for name, first in batches[0].items():
        if not isinstance(first, np.ndarray):
            columns[name] = _joined_tensors([batch[name] for batch in batches])
            continue
        column = allocate((sum(len(batch[name]) for batch in batches), *first.shape[1:]), first.dtype)
        columns[name], start = column, 0
        for round_, steps in zip(rounds, num_steps):
            parts = [batch[name] for batch in round_]
            stop = start + sum(map(len, parts))
            _write_round(parts, steps, column[start:stop])
            start = stop
    return SampleBatch(
        columns,
        policy_version=min(batch.policy_version for batch in batches),
        num_steps=num_steps[0] if len(rounds) == 1 else None,
    )


def _joined_tensors(parts: list):
    """One after the other: they come from one worker, so that there is no order among workers."""
    import torch

    return torch.cat(parts)


def _write_round(parts: list[np.ndarray], num_steps: int | None, out: np.ndarray) -> None:
    """Writes one column of one round; with num_steps, the parts are [num_steps, N, ...] each and come side by side."""
    if num_steps is None:
        np.concatenate(parts, out=out)
        return
    steps, start = out.reshape(num_steps, -1, *out.shape[1:]), 0
    for part in parts:
        part = part.reshape(num_steps, -1, *part.shape[1:])
        steps[:, start : start + part.shape[1]] = part
        start += part.shape[1]
