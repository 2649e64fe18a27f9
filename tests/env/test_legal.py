"""Random actions of checks: legal by their masks, whatever the space of the actions."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rllib import PPOConfig, check_env
from rllib.env import MultiAgentEnv
from rllib.env.spaces.legal import legal_action
from rllib.hand_written import RandomPolicy
from rllib.models.distributions.choose import distribution_for

SPACES = {
    "Discrete": Discrete(4, start=3),
    "MultiDiscrete": MultiDiscrete([[2, 3], [4, 2]], start=[[5, 0], [1, 7]]),
    "MultiBinary": MultiBinary(3),
    "bytes": MultiDiscrete([3, 4], dtype=np.uint8),
    "integers": Box(-1, 2, (2,), np.int8),
    "integer": Box(-1, 2, (), np.int8),
    "Tuple": Tuple((Discrete(3), Box(0.0, 1.0, (2,)), MultiBinary(2))),
    "Dict": Dict(b=Discrete(2, start=1), a=Tuple((MultiDiscrete([3, 2]), Discrete(2)))),
}


def random_mask(space, rng):
    """A mask with a legal choice in each part, and those parts, as rows of batches have them."""
    choices = distribution_for(space).choices
    first = min(start for start, _ in choices)
    sizes = [stop - start for start, stop in choices]
    parts = [rng.random(size) < 0.4 for size in sizes]
    for part in parts:
        part[rng.integers(len(part))] = True
    assert first == 0 or isinstance(space, Tuple | Dict)
    return parts


def drawn_by_checks(space):
    return partial(legal_action, space)


def drawn_by_a_policy(space):
    policy = RandomPolicy(None, space, {"seed": 0, "action_mask_key": "legal"})
    return lambda mask: policy.compute_actions([{"legal": mask}])[0]


@pytest.mark.filterwarnings("error")  # of gymnasium, which casts numbers that are no arrays
@pytest.mark.parametrize("drawn", [drawn_by_checks, drawn_by_a_policy])
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_choices_are_legal_and_all_legal_ones_are_drawn(space, drawn):
    rng = np.random.default_rng(0)
    space.seed(0)
    draw = drawn(space)
    for _ in range(20):
        parts = random_mask(space, rng)
        seen = [set() for _ in parts]
        for _ in range(60):
            action = draw(np.concatenate(parts))
            assert action in space
            row = np.ravel(np.asarray(action_row(space, action)))
            for chosen, number in zip(seen, row, strict=True):
                chosen.add(int(number))
        assert seen == [set(np.flatnonzero(part)) for part in parts]


def action_row(space, action):
    """The choices of an action, from 0 on, without its floats."""
    if isinstance(space, Tuple):
        return np.concatenate([action_row(part, each) for part, each in zip(space.spaces, action)])
    if isinstance(space, Dict):
        return np.concatenate([action_row(part, action[key]) for key, part in space.spaces.items()])
    if isinstance(space, Box) and space.dtype.kind == "f":
        return np.empty(0)
    low = space.low if isinstance(space, Box) else getattr(space, "start", 0)
    return np.ravel(np.asarray(action, int) - np.asarray(low, int))


def test_what_is_no_mask_of_the_space_is_no_mask():
    space = MultiDiscrete([2, 2])
    assert legal_action(space, np.zeros(3)) in space
    assert legal_action(space, None) in space
    assert legal_action(Box(0.0, 1.0, (1,)), np.ones(1)) in Box(0.0, 1.0, (1,))
    assert list(legal_action(space, np.zeros(4))) == [0, 0]


class Picky(gymnasium.Env):
    """Its two choices are legal in turn; an illegal action is an error."""

    action_space = MultiDiscrete([2, 2])
    observation_space = Dict(action_mask=MultiBinary(4), x=Box(-10, 10, (1,), np.float32))

    def __init__(self, config=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.seen(), {}

    def seen(self):
        legal = [self.t % 2 == 0, self.t % 2 == 1, self.t % 2 == 1, self.t % 2 == 0]
        return {"action_mask": np.array(legal, np.int8), "x": self.np_random.normal(size=1).astype(np.float32)}

    def step(self, action):
        assert list(action) == [self.t % 2, 1 - self.t % 2], f"{action} is illegal"
        self.t += 1
        return self.seen(), float(self.np_random.normal()), self.t == 5, False, {}


class PickyAgents(MultiAgentEnv):
    """Two agents of that kind; `key` names the mask."""

    possible_agents = ("a", "b")
    action_space = Picky.action_space

    def __init__(self, config=None):
        super().__init__()
        self.key = (config or {}).get("key", "action_mask")
        self.observation_space = Dict({self.key: MultiBinary(4), "x": Box(-10, 10, (1,), np.float32)})
        self.parts = {agent: Picky() for agent in self.possible_agents}

    def _named(self, seen):
        return {self.key: seen["action_mask"], "x": seen["x"]}

    def reset(self, *, seed=None, options=None):
        seeds = [None, None] if seed is None else [seed, seed + 1]
        return {
            agent: self._named(part.reset(seed=each)[0]) for (agent, part), each in zip(self.parts.items(), seeds)
        }, {}

    def step(self, action_dict):
        results = {agent: self.parts[agent].step(action) for agent, action in action_dict.items()}
        is_over = any(result[2] for result in results.values())
        observations = {agent: self._named(result[0]) for agent, result in results.items()}
        rewards = {agent: result[1] for agent, result in results.items()}
        return observations, rewards, {"__all__": is_over}, {"__all__": False}, {}


@pytest.mark.parametrize("env", [Picky, PickyAgents])
def test_checks_of_environments_take_legal_actions_of_several_parts(env):
    assert check_env(env, steps=50).passes()


@pytest.mark.parametrize(("env", "key"), [(Picky, "action_mask"), (PickyAgents, "action_mask"), (PickyAgents, "legal")])
def test_the_check_before_a_run_takes_legal_actions_of_several_parts(env, key):
    config = PPOConfig().environment(env, env_config={"key": key} if key == "legal" else {}, action_mask_key=key)
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=20)
    config.training(train_batch_size=20, sgd_minibatch_size=20, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
    with config.build() as algo:
        algo.train()
