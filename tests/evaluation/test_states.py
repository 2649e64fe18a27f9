"""Fragments of policies with a memory: sequences, and the state before each, from which learners compute the same."""

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch import nn

from rllib import sample_batch as sb
from rllib.env.factories.registry import resolve
from rllib.evaluation import seeding
from rllib.evaluation.postprocess.advantages import AdvantageEstimator
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.evaluation.settings import NO_POSTPROCESS
from rllib.losses.returns import gae
from rllib.models.catalog.catalog import policy_spec
from rllib.models.user.module import RecurrentSpec, Unrolled
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch
from tests.envs import CountingEnv, ProbeFailure, in_vector
from tests.rollouts import rollout_settings

SIZE = 4


class Cell(nn.Module):
    """Scales the counts down, so that states differ."""

    def __init__(self, num_inputs: int, num_outputs: int):
        super().__init__()
        self.cell, self.head = nn.GRUCell(num_inputs, SIZE), nn.Linear(SIZE, num_outputs + 1)

    def forward(self, inputs, state):
        state = self.cell(inputs / 5, state)
        outputs = self.head(state)
        return outputs[:, :-1], outputs[:, -1], state


class Failing(CountingEnv):
    """Raises in the third step of every second episode."""

    def step(self, action):
        if self.t == 2 and self.episode % 2:
            raise ProbeFailure
        return super().step(action)


KINDS = {
    "own": (CountingEnv, {}),
    "next step": (in_vector(CountingEnv, AutoresetMode.NEXT_STEP), {}),
    "same step": (in_vector(CountingEnv, AutoresetMode.SAME_STEP), {}),
    "whole episodes": (CountingEnv, {"complete_episodes": True}),
    "failing": (Failing, {"replace_failed_envs": True}),
}


def worker(env=CountingEnv, max_seq_len=20, model=None, **options) -> RolloutWorker:
    """A sampler whose policy has the memory above, or the model's."""
    spec = policy_spec(CountingEnv.observation_space, CountingEnv.action_space, model)
    settings = rollout_settings(
        env=resolve(env),
        env_config={},
        policy=spec if model else RecurrentSpec.of(spec, Cell, state_size=SIZE, max_seq_len=max_seq_len),
        **{"postprocess": AdvantageEstimator(0.9, 0.8), "num_envs": 3, "fragment_length": 7, "seed": 3, **options},
    )
    made = RolloutWorker(settings)
    made.policy.spec.initialize(made.policy.layout, made.policy.weights, seeding.generator(0, 1))
    return made


def learned(policy: Policy, batch: SampleBatch) -> tuple[np.ndarray, np.ndarray]:
    """Distribution inputs and values as a learner computes them."""
    module = policy.spec.torch(policy.layout, torch.from_numpy(policy.weights), None)
    columns = policy.encode(batch[sb.OBS]), batch[sb.SEQ_LENS], batch[sb.STATE_IN]
    dist_inputs, values = module(*map(torch.from_numpy, columns))
    return dist_inputs.detach().numpy(), values.detach().numpy()


@pytest.mark.parametrize("max_seq_len", [1, 3, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_give_what_acting_gave(kind, max_seq_len):
    env, options = KINDS[kind]
    sampler = worker(env, max_seq_len, **options)
    for _ in range(4):
        batch, _ = sampler.sample()
        dist_inputs, values = learned(sampler.policy, batch)
        np.testing.assert_allclose(dist_inputs, batch[sb.ACTION_DIST_INPUTS], atol=1e-6)
        np.testing.assert_allclose(values, batch[sb.VF_PREDS], atol=1e-6)
        starts = np.cumsum(batch[sb.SEQ_LENS]) - batch[sb.SEQ_LENS]
        assert batch[sb.SEQ_LENS].max() <= max_seq_len
        begins = batch[sb.OBS][starts, 0] == 0
        assert not batch[sb.STATE_IN][begins].any(), "an episode begins without a memory"
        assert batch[sb.STATE_IN][~begins].all(1).all(), "what is cut goes on"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_bootstrapped_from_stands_in_its_sequence(kind):
    """Advantages by the worker, and by a learner from the observations behind each sequence, are the same."""
    env, options = KINDS[kind]
    computed, _ = worker(env, **options).sample()
    sampler = worker(env, sequences=True, postprocess=NO_POSTPROCESS, **options)
    batch, _ = sampler.sample()
    _, values = learned(sampler.policy, batch)
    steps = batch[sb.LOSS_MASK]
    following = np.append(values[1:], 0)
    ends = batch[sb.TRUNCATEDS] | ~np.append(steps[1:], False)
    rows = [batch[name][steps][:, None] for name in (sb.REWARDS, sb.TERMINATEDS)]
    advantages, _ = gae(
        rows[0], values[steps][:, None], following[steps][:, None], rows[1], ends[steps][:, None], 0.9, 0.8
    )
    np.testing.assert_allclose(advantages[:, 0], computed[sb.ADVANTAGES], atol=1e-5)


MODELS = {
    "lstm": {"use_lstm": True, "lstm_cell_size": SIZE, "fcnet_hiddens": [3], "vf_share_memory": False},
    # Windows shorter and longer than the episodes.
    **{
        f"attention to {window}": {
            "use_attention": True,
            "attention_dim": SIZE,
            "attention_memory_inference": window,
            "attention_memory_training": window,
            "fcnet_hiddens": [3],
        }
        for window in (2, 9)
    },
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fragment_length", [3, 7, 50])
@pytest.mark.parametrize("memory", MODELS)
def test_states_carried_over_fragments_are_one_long_sequence(kind, fragment_length, memory):
    """Each episode from its first observation and zeros, however it is cut, gives what acting gave."""
    env, options = KINDS[kind]
    model = MODELS[memory] | {"max_seq_len": 4}
    sampler = worker(env, model=model, num_envs=1, fragment_length=fragment_length, **options)
    parts = [sampler.sample()[0] for _ in range(60 // fragment_length + 1)]
    rows = {
        name: np.concatenate([part[name] for part in parts]) for name in (sb.OBS, sb.ACTION_DIST_INPUTS, sb.VF_PREDS)
    }
    starts = np.flatnonzero(rows[sb.OBS][:, 0] == 0)
    assert len(starts) > 10 and starts[0] == 0
    policy, seq_lens = sampler.policy, np.diff(starts, append=len(rows[sb.OBS]))
    zeros = np.zeros((len(starts), policy.state_size), np.float32)
    dist_inputs, values = policy.network.forward(policy.encode(rows[sb.OBS]), seq_lens, zeros)
    np.testing.assert_allclose(dist_inputs, rows[sb.ACTION_DIST_INPUTS], atol=1e-6)
    np.testing.assert_allclose(values, rows[sb.VF_PREDS], atol=1e-6)
    assert dist_inputs.std() > 1e-4 and values.std() > 1e-2


def test_unrolling_is_stepping():
    torch.manual_seed(0)
    module, lengths = Cell(3, 2), [4, 1, 6, 4]
    inputs, state = torch.randn(15, 3), torch.randn(4, SIZE)
    encoded = torch.cat([inputs, torch.ones(15, 1)], 1)
    dist_inputs, values = Unrolled(module, 3)(encoded, torch.tensor(lengths), state)
    row = 0
    for sequence, length in enumerate(lengths):
        own = state[sequence : sequence + 1]
        for _ in range(length):
            expected, value, own = module(inputs[row : row + 1], own)
            torch.testing.assert_close(dist_inputs[row : row + 1], expected)
            torch.testing.assert_close(values[row : row + 1], value)
            row += 1
