"""Runs a stream and writes down what a rollout worker would store."""

import numpy as np

from rllib.env import EnvironmentStream


class Tape:
    """Buffers of a stream's steps, filled with values that no environment here produces."""

    def __init__(self, stream: EnvironmentStream):
        self.stream = stream
        self.buffers = stream.new_buffers()
        self.observations, self.rewards, self.terminated, self.truncated, self.infos = self.buffers
        self.observations.fill(99)
        self.rewards.fill(np.nan)
        self.terminated.fill(True)
        self.truncated.fill(True)

    def reset(self) -> np.ndarray:
        self.stream.reset(self.buffers)
        return self.observations.copy()

    def step(self, actions, active=None) -> list:
        return self.stream.step(np.asarray(actions), self.buffers, active)


def constant_actions(stream: EnvironmentStream, value=0) -> np.ndarray:
    space = stream.action_space
    return np.full((stream.num_envs, *space.shape), value, np.float32 if space.dtype.kind == "f" else np.int64)


def collect(stream: EnvironmentStream, num_steps: int, policy=None) -> tuple[list[list[tuple]], int]:
    """Valid transitions (s, a, r, s', terminated, truncated) of each environment, and the number of rows dropped.

    policy: function of one observation [*shape] to an action; 0 by default. Acts on what the stream says is next.
    """
    tape = Tape(stream)
    tape.reset()
    transitions = [[] for _ in range(stream.num_envs)]
    dropped = 0
    for _ in range(num_steps):
        before = tape.observations.copy()
        actions = constant_actions(stream)
        if policy is not None:
            actions = np.array([policy(observation) for observation in before], actions.dtype)
        finals = dict(tape.step(actions))
        for index in range(stream.num_envs):
            if stream.reset_rows is not None and stream.reset_rows[index]:
                assert not tape.rewards[index] and not tape.terminated[index] and not tape.truncated[index]
                assert index not in finals
                dropped += 1
                continue
            terminated, truncated = bool(tape.terminated[index]), bool(tape.truncated[index])
            assert (index in finals) == (terminated or truncated)
            after = finals.get(index, tape.observations[index])
            transitions[index].append(
                (
                    before[index].tolist(),
                    actions[index].tolist(),
                    float(tape.rewards[index]),
                    after.tolist(),
                    terminated,
                    truncated,
                )
            )
    return transitions, dropped
