"""The table of docs/guide/algorithms.md: what it says an algorithm takes is built, and the rest is refused."""

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rllib import make_multi_agent
from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config
from rllib.offline.dataset import Dataset

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "algorithms.md"
VECTOR, IMAGE = Box(-1, 1, (3,)), Box(0, 255, (42, 42, 3), np.uint8)
BOUNDED, UNBOUNDED = Box(-1, 1, (2,)), Box(-np.inf, np.inf, (2,))
PARTS, NUMBERS = Tuple([Discrete(2), UNBOUNDED]), MultiDiscrete([2, 3])
# What the cell "actions" says -> action spaces that are taken, and that are refused; the first is that of other cells.
ACTIONS = {
    "all": ([Discrete(2), PARTS, NUMBERS, UNBOUNDED], []),
    "all but Tuple, Dict": ([Discrete(2), NUMBERS, UNBOUNDED], [PARTS]),
    "Discrete": ([Discrete(2)], [BOUNDED, NUMBERS, PARTS]),
    "Box with bounds, Discrete": ([Discrete(2), BOUNDED], [UNBOUNDED, NUMBERS, PARTS]),
    "Box with bounds": ([BOUNDED], [Discrete(2), UNBOUNDED, NUMBERS, PARTS]),
}
LSTM = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 4}
ATTENTION = {
    "use_attention": True, "attention_dim": 8, "attention_memory_inference": 4, "attention_memory_training": 4,
    "max_seq_len": 4,
}  # fmt: skip


def table() -> dict[str, dict[str, str]]:
    """Cells of the table by algorithm and column."""
    text = PAGE.read_text().split("### What each takes\n\n")[1].split("\n\n")[0]
    names, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {each: dict(zip(names, row, strict=True)) for row in rows for each in row[0].split(", ")}


TABLE = table()


class Drawn(gymnasium.Env):
    """Observations are drawn from the space; an episode has ten steps."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space, self.steps = observation_space, action_space, 0

    def observe(self):
        seen = self.observation_space.sample()
        return {**seen, "action_mask": np.ones_like(seen["action_mask"])} if isinstance(seen, dict) else seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        return self.observe(), 0.0, self.steps == 10, False, {}


def steps_of(env: Drawn, count: int = 40) -> dict:
    rows, ends = [env.observe() for _ in range(count)], np.arange(count)
    is_dict = isinstance(env.observation_space, Dict)
    actions = [gymnasium.spaces.flatten(env.action_space, each) if isinstance(env.action_space, Tuple) else each
               for each in (env.action_space.sample() for _ in range(count))]  # fmt: skip
    return {
        "obs": {key: np.array([row[key] for row in rows]) for key in rows[0]} if is_dict else np.array(rows),
        "actions": np.array(actions),
        "rewards": np.zeros(count, np.float32),
        "terminateds": ends % 10 == 9,
        "eps_id": ends // 10,
    }


def builds(
    name: str, action_space, *, observation_space=VECTOR, model=None, agents=False, input_=None, **settings
) -> bool:
    """Whether the algorithm can be built for these spaces; False where it is refused."""
    config = get_algorithm_config(name)

    def make(_):
        return Drawn(observation_space, action_space)

    config.environment(make_multi_agent(make) if agents else make)
    config.rollouts(num_rollout_workers=1 if name.startswith("Apex") else 0).training(**settings)
    config.training(**({"noise_size": 250_000} if name in ("ES", "ARS") else {"model": {"fcnet_hiddens": [8]}}))
    if config.get("teacher_coeff"):
        config.training(teacher=len)  # it is not asked
    if name == "R2D2" and not model:
        model = LSTM
    if model:
        config.training(model=model)
    if "num_steps_sampled_before_learning_starts" in config.settings:
        config.training(replay_buffer_config={"capacity": 1000}, num_steps_sampled_before_learning_starts=500)
    if name.startswith("Apex"):
        config.training(num_replay_buffer_shards=1)
    if input_ is not None:
        config.offline_data(input_=input_)
    elif config.needs_data:
        config.offline_data(input_=steps_of(make(None)))
    if "demonstrations" in config.settings:
        config.offline_data(demonstrations=steps_of(make(None)))
    try:
        config.build().stop()
    except ValueError:
        return False
    return True


def test_every_algorithm_is_in_the_table():
    assert sorted(TABLE) == sorted(algorithm_names())


@pytest.mark.parametrize("name", [name for name in TABLE if name not in ("QMix", "VDN")])
def test_what_an_algorithm_takes(name, tmp_path):
    cells = TABLE[name]
    taken, refused = ACTIONS[cells["actions"]]
    own = taken[0]
    found = {f"{space}": builds(name, space) for space in (*taken, *refused)}
    assert found == {f"{space}": space in taken for space in (*taken, *refused)}
    assert builds(name, own, model=LSTM) is cells["memory"].startswith("LSTM")
    assert builds(name, own, model=ATTENTION) is ("attention" in cells["memory"])
    if cells["masks"]:
        masked = Dict(action_mask=MultiBinary(2), observations=VECTOR)
        assert builds(name, own, observation_space=masked) is cells["masks"].startswith("yes")
    more = {"batch_norm_actor": False} if "batch_norm_actor" in cells["images"] else {}
    assert builds(name, own, observation_space=IMAGE, **more) is (cells["images"] != "-")
    if not get_algorithm_config(name).needs_data:
        assert builds(name, own, agents=True) is (cells["several agents"] == "yes")
    data = steps_of(Drawn(VECTOR, own))
    Dataset.from_columns(data).save(tmp_path / "steps.npz")
    assert builds(name, own, input_=data) is ("alone" in cells["recorded data"])
    mixture = {"sampler": 0.5, str(tmp_path / "steps.npz"): 0.5}
    assert builds(name, own, input_=mixture) is ("mixed" in cells["recorded data"])


@pytest.mark.parametrize("name", ["QMix", "VDN"])
def test_what_a_group_takes(name):
    def group(observation_space):
        return Tuple([observation_space] * 2)

    actions, masked = Tuple([Discrete(2)] * 2), Dict(action_mask=MultiBinary(2), observations=VECTOR)
    assert re.match("of a group", TABLE[name]["actions"])
    assert builds(name, actions, observation_space=group(VECTOR))
    assert not builds(name, Discrete(2))
    assert not builds(name, actions, observation_space=group(IMAGE))
    assert not builds(name, actions, observation_space=group(VECTOR), model=LSTM)
    assert builds(name, actions, observation_space=group(masked)) is (TABLE[name]["masks"] == "yes")
