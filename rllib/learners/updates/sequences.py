"""Losses over modules for sequences of steps, of recurrent policies and critics.

A batch has sequences of consecutive steps, each with its columns:

| column       | shape      | dtype   | meaning                                                                |
|--------------|------------|---------|------------------------------------------------------------------------|
| obs          | [B, ...]   |         | encoded; the burn-in, the learned steps, and what followed the last    |
| loss_mask    | [B]        | bool    | whether the step is learned from                                       |
| bootstrap_in | [B]        | int64   | of learned steps: rows between obs and the one to bootstrap from       |
| seq_lens     | [S]        | int64   | lengths of the sequences, with burn-in and the row behind              |
| state_in_0   | [S, state] | float32 | of the policy, and of its target copy, before each sequence            |

Critics, which have not acted, begin with states of zeros. The steps before the first learned one are computed without a
gradient, by each module with its present weights. All columns that the loss reads have numbers in every row; numbers in
rows that are not learned from have no effect.
"""

import dataclasses

import numpy as np

from rllib.learners.updates.objective import POLICY
from rllib.losses.loss import LossOverModules
from rllib.sample_batch import LOSS_MASK, NEXT_OBS, OBS, PER_SEQUENCE, SEQ_LENS, STATE_IN

BOOTSTRAP_IN = "bootstrap_in"
_OF_SEQUENCES = (LOSS_MASK, BOOTSTRAP_IN, *PER_SEQUENCE)


def over_sequences(loss: LossOverModules, moved: str) -> LossOverModules:
    """The loss over the learned steps of sequences, in torch only; it reads the columns above.

    Modules named "policy" and "target_policy" are networks of a recurrent policy, all others MemoryCritics. Row
    statistics are zero in rows that are not learned from.

    Args:
        loss: the loss of single steps.
        moved: name of the module that the gradient is computed for.
    """

    def compute(distribution, modules, minibatch, **settings):
        from rllib.models.memory.unrolling import UnrolledCritics, UnrolledPolicy

        steps, learned = _learned_steps(minibatch, NEXT_OBS in loss.columns)
        unrolled = {
            name: UnrolledPolicy(each) if name.endswith(POLICY) else UnrolledCritics(each, name == moved)
            for name, each in modules.items()
        }
        result, statistics, *of_rows = loss.torch(distribution, unrolled, steps, **settings)
        return result, statistics, *(tuple(_in_all_rows(each, learned) for each in part) for part in of_rows)

    columns = (*(name for name in loss.columns if name != NEXT_OBS), *_OF_SEQUENCES)
    return dataclasses.replace(loss, columns=columns, torch=compute, numpy=None)


def _learned_steps(minibatch, reads_following: bool) -> tuple[dict, object]:
    """The columns of the learned steps, with Steps as observations; and bool [B], whether each row is such a step."""
    import torch

    from rllib.models.memory.unrolling import Sequences, Steps

    mask = minibatch[LOSS_MASK]
    learned, seq_lens = mask.cpu().numpy(), minibatch[SEQ_LENS].on_host
    # The last row of a sequence is no step.
    burn_in = seq_lens - 1 - np.add.reduceat(learned.astype(np.int64), np.cumsum(seq_lens) - seq_lens)
    sequences = Sequences(minibatch[OBS], seq_lens, burn_in, minibatch[STATE_IN])
    rows = torch.from_numpy(sequences.number[learned]).to(mask.device)
    columns = {name: column[mask] for name, column in minibatch.items() if name not in (OBS, *_OF_SEQUENCES)}
    columns[OBS] = Steps(sequences, rows)
    if reads_following:
        columns[NEXT_OBS] = Steps(sequences, rows + minibatch[BOOTSTRAP_IN][mask])
    return columns, mask


def _in_all_rows(of_learned, mask):
    every = of_learned.new_zeros(len(mask))
    every[mask] = of_learned
    return every
