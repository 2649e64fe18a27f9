"""Keys of the environments' info dicts as columns: with the reward, or with the observation."""

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from rllib.env import make_stream, resolve
from rllib.sample_batch import Column
from tests.env.transitions import Tape, constant_actions
from tests.envs import CountingEnv, ProbeFailure, in_vector

COLUMNS = (Column("cost"), Column("action_mask", (2,), "bool", before_action=True))


class Informed(CountingEnv):
    """`cost` is ten times the reward; `action_mask` says of each action whether the step count divides by 2, by 3."""

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed)
        return observation, {"action_mask": self.mask()}

    def step(self, action):
        *result, _ = super().step(action)
        return *result, {"cost": 10 * result[1], "action_mask": self.mask()}

    def mask(self) -> np.ndarray:
        return np.array([self.t % 2 == 0, self.t % 3 == 0])


KINDS = {
    "own": Informed,
    "sync next": in_vector(Informed, AutoresetMode.NEXT_STEP),
    "sync same": in_vector(Informed, AutoresetMode.SAME_STEP),
    "sync disabled": in_vector(Informed, AutoresetMode.DISABLED),
    "async same": in_vector(Informed, AutoresetMode.SAME_STEP, AsyncVectorEnv),
}


def open_stream(env, columns=COLUMNS, **options):
    return make_stream(resolve(env), num_envs=3, seeds=[1, 2, 3], info_columns=columns, **options)


def check_masks(tape: Tape) -> None:
    counts = tape.observations[:, 0]
    np.testing.assert_array_equal(tape.infos["action_mask"], np.stack([counts % 2 == 0, counts % 3 == 0], 1))


@pytest.mark.parametrize("kind", KINDS)
def test_columns_come_with_the_reward_or_with_the_observation(kind):
    with open_stream(KINDS[kind]) as stream:
        tape = Tape(stream)
        tape.reset()
        check_masks(tape)
        for _ in range(30):
            tape.step(constant_actions(stream))
            check_masks(tape)
            np.testing.assert_array_equal(tape.infos["cost"], 10 * tape.rewards)


def test_environments_that_stand_still_keep_theirs():
    with open_stream(Informed) as stream:
        tape = Tape(stream)
        tape.reset()
        for active in ([True, True, False], [True, False, False]):
            tape.step(constant_actions(stream), active=active)
            check_masks(tape)
            assert (tape.infos["cost"] > 0).tolist() == active


def test_a_replaced_environment_has_no_cost_and_a_new_mask():
    class Failing(Informed):
        def step(self, action):
            if self.t == 2:
                raise ProbeFailure
            return super().step(action)

    with open_stream(Failing, replace_failed=True) as stream:
        tape = Tape(stream)
        tape.reset()
        for cost in (10, 20, 0, 10):
            tape.step(constant_actions(stream))
            check_masks(tape)
            assert tape.infos["cost"].tolist() == [cost] * 3


@pytest.mark.parametrize("kind", ["own", "sync next"])
@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        (Column("price"), r"'price'.* with shape \(\) .* environment 0 has only \['action_mask', 'cost'\]"),
        (Column("action_mask"), r"'action_mask'.* with shape \(\) .* environment 0 has array\(\[False, False\]\)"),
    ],
)
def test_an_info_that_lacks_the_key_or_does_not_fit_is_refused(kind, column, complaint):
    with open_stream(KINDS[kind], [column]) as stream:
        tape = Tape(stream)
        tape.reset()
        with pytest.raises(ValueError, match=complaint):
            tape.step(constant_actions(stream))
