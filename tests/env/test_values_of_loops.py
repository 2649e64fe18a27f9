"""Values as loops write them, through every door: a loop in the worker, clients that ask, and clients that act.

What one door takes every other takes, as the same numbers; what one refuses is refused by all, and costs nothing else.
"""

import array
import contextlib
import threading
from types import MappingProxyType
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch

from rllib import DefaultCallbacks, DQNConfig
from rllib.client import PolicyClient, RunEnded
from rllib.env.external import ExternalEnv, exchange
from rllib.errors import SampleTimeoutError

SEEN = gymnasium.spaces.Dict(
    at=gymnasium.spaces.Box(-np.inf, np.inf, (2,)),
    half=gymnasium.spaces.Box(-1, 1, (2,), np.float16),
    parts=gymnasium.spaces.Tuple([gymnasium.spaces.Box(0, 255, (2,), np.uint8), gymnasium.spaces.Discrete(9)]),
)
CHOSEN = gymnasium.spaces.Discrete(3)
FORMS = {
    "list": list,
    "tuple": tuple,
    "float32": lambda given: np.array(given, np.float32),
    "big endian": lambda given: np.array(given, ">f4"),
    "float16": lambda given: np.array(given, np.float16),
    "longdouble": lambda given: np.array(given, np.longdouble),
    "int64": lambda given: np.array(given, ">i8"),
    "strided": lambda given: np.repeat(np.array(given, float), 2)[::2],
    "masked": lambda given: np.ma.array(given, float),
    "numbers of numpy": lambda given: [np.float64(each) for each in given],
    "0-d arrays": lambda given: [np.array(each) for each in given],
    "tensor": lambda given: torch.tensor(given),
    "tensors": lambda given: [torch.tensor(each) for each in given],
    "array.array": lambda given: array.array("d", given),
}
WRONG = {
    "text": ["1", "2"],
    "missing": [1],
    "beyond float16": [0, 70_000],
    "infinite": [0, float("inf")],
    "complex": np.array([1j, 2]),
    "object": [object(), 1],
}
DOORS = ("loop", "http", "tcp", "http local", "tcp local")
LENGTH = 3
LAST = 99  # number of the episodes that follow


class Infos(DefaultCallbacks):
    """Notes the infos of the only agent."""

    noted: ClassVar[list] = []

    def on_episode_step(self, *, episode, **_):
        self.noted.append(episode.last_info_for())


def observation(number: int, step: int, form=list) -> dict:
    whole = [number, step]
    return {"at": form(whole), "half": form([step / 4, 0.5] if form is not FORMS["int64"] else [0, 1]),
            "parts": (form(whole), form([step])[0])}  # fmt: skip


def play(loop, refused: list[str]) -> None:
    """An episode for each form; in the midst of the next ones wrong values."""
    for number, (name, form) in enumerate([*FORMS.items(), *WRONG.items()]):
        episode = loop.start_episode()
        for step in range(LENGTH):
            if name in WRONG and step == 1:
                with pytest.raises(ValueError):
                    loop.get_action(episode, {**observation(number, step), "half": form})
                refused.append(name)
            own = form if name in FORMS else list
            seen = observation(number, step, own)
            loop.get_action(episode, MappingProxyType(seen) if step == 2 else seen)
            loop.log_returns(episode, 1.0, {"at": own([number, step])})
        loop.end_episode(episode, observation(number, LENGTH, own))
    while True:
        episode = loop.start_episode()
        for _ in range(LENGTH):
            loop.get_action(episode, observation(LAST, 0))
            loop.log_returns(episode, 0.0, {"at": [LAST, 0]})
        loop.end_episode(episode, observation(LAST, 0))


@contextlib.contextmanager
def through(door: str, space, play, callbacks=DefaultCallbacks):
    """A run whose loop plays through a door; what the loop raises is raised at the end."""
    errors: list[BaseException] = []
    kind, _, mode = door.partition(" ")

    def guarded(loop):
        try:
            play(loop)
        except (RunEnded, exchange.RunEnded):
            pass
        except BaseException as error:
            errors.append(error)

    class Loop(ExternalEnv):
        def __init__(self, config):
            super().__init__(CHOSEN, space)

        def run(self):
            guarded(self)

    def client(url):
        with contextlib.suppress(RunEnded), PolicyClient(url, mode or "remote", fragment_length=2) as made:
            guarded(made)

    config = DQNConfig().callbacks(callbacks)
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=8, sample_timeout_s=5)
    if kind == "loop":
        config.environment(Loop)
    else:
        listen = "127.0.0.1:0" if kind == "http" else "tcp://127.0.0.1:0"
        config.environment(observation_space=space, action_space=CHOSEN).external(listen=listen)
    threads = []
    # A loop that has failed is silent, or has returned.
    with contextlib.suppress(SampleTimeoutError, RuntimeError), config.build() as algorithm:
        for url in algorithm.workers.foreach_worker(lambda worker: getattr(worker.env, "url", None)):
            threads += [threading.Thread(target=client, args=(url,))] if url else []
        for each in threads:
            each.start()
        yield algorithm
    for each in threads:
        each.join(20)
    if errors:
        raise errors[0]


@pytest.mark.parametrize("door", DOORS)
def test_values_are_the_same_through_each_door(door, monkeypatch):
    monkeypatch.setattr(Infos, "noted", [])
    refused: list[str] = []
    rows: list = []
    with through(door, SEEN, lambda loop: play(loop, refused), Infos) as algorithm:
        while not rows or rows[-1][0] != LAST:
            rows += algorithm.sample(8)["obs"].tolist()
    assert refused == list(WRONG)
    expected = []
    for number, name in enumerate([*FORMS, *WRONG]):
        for step in range(LENGTH):
            half = [0, 1] if name == "int64" else [step / 4, 0.5]
            expected.append([number, step, *half, number, step, *np.eye(9)[step]])
    count = len(expected)
    np.testing.assert_allclose(np.array(rows[:count]), expected, atol=1e-3)
    noted = [np.asarray(info["at"]).tolist() for info in Infos.noted[:count]]
    assert noted == [row[:2] for row in expected]


BEYOND = {
    np.float16: [70_000, -70_000, 1e9],
    np.float32: [1e10, 1e39, 1e300],
    np.float64: [1e10, 1e300],
    np.uint8: [-1, 256, 0.5],
    np.int32: [2**31, 2.5],
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("dtype", BEYOND, ids=lambda dtype: dtype.__name__)
def test_what_a_lone_array_cannot_hold_is_refused(door, dtype):
    """It would end the run, or be stored as another number."""
    space = gymnasium.spaces.Box(0, 1, (2,), dtype)

    def play(loop):
        while True:
            episode = loop.start_episode()
            for wrong in BEYOND[dtype]:
                for given in ([wrong, 0], np.array([wrong, 0])):
                    with pytest.raises(ValueError):
                        loop.get_action(episode, given)
                loop.get_action(episode, [1, 0])
                loop.log_returns(episode, 1.0)
            loop.end_episode(episode, [0, 0])

    with through(door, space, play) as algorithm:
        rows = algorithm.sample(8)["obs"]
    assert (rows == [1, 0]).all()
