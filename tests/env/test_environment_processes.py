"""gym_env_vectorize_mode="async": environments in processes that hang, die or raise; what is left of them."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rllib import PPOConfig
from rllib.config.conflicts import SettingsError
from rllib.env import make_stream, resolve
from rllib.env.factories.vectorized import AsyncFactory
from rllib.env.streams.process import EnvironmentProcess
from rllib.errors import EnvironmentDiedError, EnvironmentHangsError
from tests.env.transitions import Tape, collect, constant_actions
from tests.envs import CountingEnv, ProbeFailure
from tests.generated import worlds
from tests.generated.comparisons import different, weights_of

FAILS_IN = 1
# An hour: nobody waits for it.
HANG_S = 3600
TIMEOUT_S = 1.0


def _hang():
    time.sleep(HANG_S)


def _spin():
    while True:
        pass


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _leave():
    os._exit(3)


def _exit():
    sys.exit(4)


def _raise():
    raise ProbeFailure("asked to fail, 100%")


WAYS = {"hang": _hang, "spin": _spin, "die": _die, "leave": _leave, "exit": _exit, "raise": _raise}


class Fails(CountingEnv):
    """CountingEnv, of which the first one of index 1 fails.

    Config:
        way: of WAYS.
        call: "step" or "reset", in the call with the number `at` (1).
        marker: file that the failing environment leaves; where there is one, none fails.
    """

    def __init__(self, config):
        super().__init__({"lengths": [6]})
        self.config, self.calls = config, 0
        self.fails = config.vector_index == FAILS_IN and not os.path.exists(config["marker"])

    def _count(self, call: str) -> None:
        if not self.fails or call != self.config["call"]:
            return
        self.calls += 1
        if self.calls == self.config.get("at", 1):
            with open(self.config["marker"], "w"):
                pass
            WAYS[self.config["way"]]()

    def reset(self, **keywords):
        self._count("reset")
        return super().reset(**keywords)

    def step(self, action):
        self._count("step")
        return super().step(action)


def opened(env, config=None, num_envs=2, timeout_s=None, **options):
    return make_stream(
        AsyncFactory(resolve(env), timeout_s),
        num_envs=num_envs, seeds=list(range(num_envs)), env_config=config, worker_index=2, **options,
    )  # fmt: skip


def forked() -> set[int]:
    """The processes of environments; those of the runtime are other programs."""
    own, found = psutil.Process(), set()
    for child in own.children():
        with contextlib.suppress(psutil.Error):  # it has ended, as a process of the runtime may at any time
            found |= {child.pid} if child.cmdline() == own.cmdline() else set()
    return found


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = forked()
    yield
    assert forked() <= before


WORDS = {
    "hang": (EnvironmentHangsError, "has not returned from {call}.. within 1 s", "time.sleep|_hang"),
    "spin": (EnvironmentHangsError, "has not returned from {call}.. within 1 s", "_spin"),
    "die": (EnvironmentDiedError, "has ended in {call}.. with signal SIGKILL", ""),
    "leave": (EnvironmentDiedError, "has ended in {call}.. with exit code 3", ""),
    "exit": (EnvironmentDiedError, "has ended in {call}.. with exit code 4", ""),
    "raise": (ProbeFailure, "asked to fail, 100%", ""),
}


@pytest.mark.parametrize("call", ["step", "reset"])
@pytest.mark.parametrize("way", WAYS)
def test_what_fails_is_named(way, call, tmp_path):
    kind, words, stack = WORDS[way]
    config = {"way": way, "call": call, "marker": tmp_path / "failed"}
    with opened(Fails, config, timeout_s=TIMEOUT_S) as stream, pytest.raises(kind, match=words.format(call=call)) as e:
        tape = Tape(stream)
        tape.reset()
        tape.step(constant_actions(stream))
    told = "\n".join([str(e.value), *e.value.__notes__])
    assert f"environment 1 of rollout worker 2 (Fails) raised in {call}()" in told
    if stack:
        assert any(word in told for word in stack.split("|")), "the line at which it hangs"
    if way == "raise":
        assert "in the environment's own process:\nTraceback" in told and "in _raise" in told


@pytest.mark.parametrize(("way", "call", "at"), [("hang", "step", 3), ("die", "step", 3), ("hang", "reset", 2)])
def test_what_fails_is_replaced_alone(way, call, at, tmp_path, caplog):
    config = {"way": way, "call": call, "at": at, "marker": tmp_path / "failed"}
    with opened(Fails, config, timeout_s=TIMEOUT_S, replace_failed=True) as stream:
        transitions, dropped = collect(stream, 20)
    assert dropped == (call == "step"), "a failed reset costs no row"
    of_other = [row[0][0] for row in transitions[0]]
    assert of_other == [t % 6 for t in range(20)], "the other environment's data are whole"
    of_failed = [row[0][0] for row in transitions[1]]
    # The third step was void: an episode begins behind the second.
    assert of_failed == ([0, 1, *(t % 6 for t in range(17))] if call == "step" else [t % 6 for t in range(20)])
    assert f"raised in {call}()" in caplog.text and "it is replaced by a new one" in caplog.text


def test_a_process_that_dies_between_two_calls_is_found_by_the_next():
    with opened(CountingEnv) as stream:
        tape = Tape(stream)
        tape.reset()
        victim = stream.environments[1]
        os.kill(victim.pid, signal.SIGKILL)
        with pytest.raises(EnvironmentDiedError, match=r"environment 1 of .* with signal SIGKILL"):
            tape.step(constant_actions(stream))


def test_an_environment_that_never_lives_ends_the_run(tmp_path):
    class NeverReplaced(Fails):
        def __init__(self, config):
            super().__init__(config)
            self.fails = True

    config = {"way": "leave", "call": "step", "marker": tmp_path / "failed"}
    with opened(NeverReplaced, config, replace_failed=True) as stream:
        tape = Tape(stream)
        tape.reset()
        with pytest.raises(EnvironmentDiedError, match="exit code 3") as caught:
            for _ in range(20):
                tape.step(constant_actions(stream))
    assert any("is not replaced again" in note for note in caught.value.__notes__)


def test_errors_of_constructors_are_raised_with_their_traceback():
    class CannotBeMade(CountingEnv):
        def __init__(self, config):
            raise ProbeFailure("no such file")

    with pytest.raises(ProbeFailure, match="no such file") as caught:
        opened(CannotBeMade, {"key": 1})
    notes = "\n".join(caught.value.__notes__)
    assert "environment 0 of rollout worker 2 (test_errors" in notes and "env_config={'key': 1}" in notes
    assert 'raise ProbeFailure("no such file")' in notes


def test_an_error_of_a_constructor_is_that_of_each_question():
    """An AttributeError, too, which getattr() with a default would take for the answer; nothing waits for another."""

    class Lacks(CountingEnv):
        def __init__(self, config):
            self.absent  # noqa: B018

    made = EnvironmentProcess(lambda: Lacks({}), "an environment", "Lacks")
    try:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="absent"):
                getattr(made, "agent_iter", None)
            with pytest.raises(RuntimeError, match="absent"):
                made.observation_space  # noqa: B018
    finally:
        made.close()


# Settings that put an adapter between an environment with several agents and its process.
ADAPTED = {
    "plain": {},
    "ids of agents": {"agent_id_in_observation": True},
    "critic of all": {"centralized_critic": True},
    "previous steps": {
        "model": {"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True}
    },
}


@pytest.mark.parametrize("settings", ADAPTED)
@pytest.mark.parametrize("door", ["agents", "parallel", "aec"])
def test_environments_with_several_agents_are_the_same_in_processes(door, settings):
    """What an adapter makes of PettingZoo's interface is spoken to as the adapter is, not as what is inside it."""
    world = {"observation": "numbers", "action": "choice", "length": 3, "agents": 2, "style": "all"}

    def weights(mode: str):
        config = PPOConfig().environment(worlds.DOORS[door], env_config=world).debugging(seed=3)
        config.training(train_batch_size=12, sgd_minibatch_size=6, model={"fcnet_hiddens": [4]})
        config.rollouts(num_rollout_workers=0, gym_env_vectorize_mode=mode).update_from_dict(ADAPTED[settings])
        with config.build() as algorithm:
            assert algorithm.train()["episode_len_mean"] == (6 if door == "aec" else 3)
            return weights_of(algorithm)

    assert not different(weights("sync"), weights("async"))


def test_an_environment_with_its_own_loop_is_refused():
    world = {"observation": "numbers", "action": "choice", "length": 3}
    config = PPOConfig().environment(worlds.External, env_config=world)
    with pytest.raises(SettingsError, match="drives its own loop") as caught:
        config.rollouts(num_rollout_workers=0, gym_env_vectorize_mode="async").build()
    assert {"gym_env_vectorize_mode": "sync"} in caught.value.mistakes[0].remedies


def test_an_error_that_cannot_be_pickled_is_told_all_the_same():
    class Unpicklable(Exception):
        def __init__(self, first, second):
            super().__init__("of two parts")

    class RaisesIt(CountingEnv):
        def step(self, action):
            raise Unpicklable(1, 2)

    with opened(RaisesIt) as stream, pytest.raises(RuntimeError, match="Unpicklable: of two parts"):
        tape = Tape(stream)
        tape.reset()
        tape.step(constant_actions(stream))


# ---- the same as in a loop


class Rich(gymnasium.Env):
    """Dict observations, one part of them larger than a packet; float rewards, infos, generators of its own."""

    observation_space = Dict(
        {"image": Box(0, 255, (120, 120, 3), np.uint8), "place": Box(-9, 9, (2,)), "n": Discrete(3)}
    )
    action_space = Box(-1, 1, (2,))

    def __init__(self, config=None):
        self.t = 0

    def _observe(self):
        image = self.np_random.integers(0, 256, (120, 120, 3), np.uint8)
        return {"image": image, "place": np.full(2, self.t, np.float32), "n": int(self.np_random.integers(3))}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {"drawn": np.random.rand() if seed is not None else 0.0}

    def step(self, action):
        self.t += 1
        reward = float(self.np_random.normal()) + float(action.sum())
        return self._observe(), reward, self.t == 5, self.t == 7, {"t": self.t}


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", Rich, CountingEnv])
def test_transitions_are_those_of_a_loop_bit_by_bit(env):
    def recorded(factory):
        config = {"max_episode_steps": 9} if env == "CartPole-v1" else None
        with make_stream(factory, num_envs=3, seeds=[5, 6, 7], env_config=config) as stream:
            transitions, _ = collect(stream, 40)
            buffers = stream.new_buffers()
            stream.step(constant_actions(stream), buffers, active=np.array([True, False, True]))
            stream.restart(1, 9, buffers.observations)
            return transitions, [np.copy(column) for column in buffers[:4]]

    alone, together = recorded(resolve(env)), recorded(AsyncFactory(resolve(env)))
    assert alone[0] == together[0]
    for one, other in zip(alone[1], together[1]):
        np.testing.assert_array_equal(one, other)


class OldApi:
    """An environment of the old gym API."""

    observation_space, action_space = Box(0, 99, (1,)), Discrete(2)

    def __init__(self, config=None):
        self.t = 0

    def reset(self):
        self.t = 0
        return np.zeros(1, np.float32)

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t == 4, {}


def test_environments_of_the_old_api_are_adapted():
    with opened(OldApi) as stream:
        transitions, _ = collect(stream, 9)
    assert [row[0][0] for row in transitions[1]] == [0, 1, 2, 3, 0, 1, 2, 3, 0]


class DrawsFromAll(CountingEnv):
    """Observations are from numpy's global generator."""

    def step(self, action):
        observation, *rest = super().step(action)
        return observation * 0 + np.float32(np.random.rand()), *rest


def test_global_generators_differ_from_process_to_process_and_repeat():
    found = []
    for _ in range(2):
        with opened(DrawsFromAll) as stream:
            found.append(collect(stream, 4)[0])
    assert found[0] == found[1]
    assert found[0][0][1] != found[0][1][1]


# ---- attributes


class Furnished(CountingEnv):
    colour = "green"

    def paint(self, colour, times=1):
        self.colour = colour * times
        return self.colour


def test_attributes_and_methods_are_those_of_the_environment_in_its_process():
    with opened(Furnished) as stream:
        tape = Tape(stream)
        tape.reset()
        first, second = stream.environments
        assert first.colour == "green" and first.paint("red", times=2) == "redred" == first.colour
        assert second.colour == "green" and not hasattr(second, "_hidden")
        with pytest.raises(AttributeError, match="no attribute 'width'"):
            _ = first.width
        second.begin("step", 0)
        assert second.t == 1, "behind the step that was under way"
        assert second.step(0)[0] == [1.0], "whose result is kept"


# ---- calls that are given up


class Steps(CountingEnv):
    """Action 1 raises; the step of action 2 waits for a file."""

    def __init__(self, config):
        super().__init__()
        self.action_space, self.config = Discrete(3), config

    def step(self, action):
        if action == 1:
            raise ProbeFailure("in this step")
        while action == 2 and not os.path.exists(self.config["goes_on"]):
            time.sleep(0.01)
        return super().step(min(action, 1))


def test_the_answer_to_a_step_that_was_given_up_is_not_that_to_the_next_call():
    with opened(Steps) as stream:
        tape = Tape(stream)
        tape.reset()
        with pytest.raises(ProbeFailure):
            tape.step(np.array([1, 0]))  # the other environment's answer is not awaited
        buffers = stream.new_buffers()
        stream.reset(buffers)
        np.testing.assert_array_equal(buffers.observations, [[0], [0]])


def test_the_answer_to_a_step_that_ctrl_c_has_interrupted_is_dropped(tmp_path):
    process = EnvironmentProcess(lambda: Steps({"goes_on": tmp_path / "goes_on"}), "environment 0", "Steps")
    try:
        assert process.reset(seed=1)[0] == [0.0], "before its spaces were asked for"
        process.begin("step", 2)
        previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                process.step(2)
        finally:
            signal.signal(signal.SIGALRM, previous)
        (tmp_path / "goes_on").touch()
        assert process.reset(seed=1)[0] == [0.0]
        assert process.step(0)[0] == [1.0]
    finally:
        process.close()


def test_an_error_under_way_is_raised_by_its_call_and_no_other():
    with opened(Steps) as stream:
        Tape(stream).reset()
        first = stream.environments[0]
        first.begin("step", 1)
        assert first.t == 0
        with pytest.raises(ProbeFailure):
            first.step(1)


def test_a_process_that_has_died_says_so_again():
    with opened(CountingEnv) as stream:
        Tape(stream).reset()
        victim = stream.environments[1]
        os.kill(victim.pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(EnvironmentDiedError, match="signal SIGKILL"):
                victim.step(0)


def test_environments_compute_in_torch_after_the_parent_has():
    torch = pytest.importorskip("torch")

    class ComputesInTorch(CountingEnv):
        def step(self, action):
            torch.zeros(1 << 20).exp().sum()
            return super().step(action)

    number = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.zeros(1 << 20).exp().sum()  # starts the threads, which a fork does not copy
        with opened(ComputesInTorch, timeout_s=60) as stream:
            assert len(collect(stream, 3)[0][1]) == 3
    finally:
        torch.set_num_threads(number)


# ---- what is left behind


def test_constructors_run_at_the_same_time(tmp_path):
    class WaitsForTheOthers(CountingEnv):
        def __init__(self, config):
            super().__init__()
            (tmp_path / str(config.vector_index)).touch()
            while len(os.listdir(tmp_path)) < 3:
                time.sleep(0.01)

    opened(WaitsForTheOthers, num_envs=3).close()


def test_what_an_environment_starts_ends_with_it():
    class StartsAProgram(CountingEnv):
        def __init__(self, config):
            super().__init__()
            self.program = subprocess.Popen(["sleep", "3600"])

        def step(self, action):
            return _hang()

    with opened(StartsAProgram, num_envs=1, timeout_s=TIMEOUT_S) as stream:
        tape = Tape(stream)
        tape.reset()
        program = psutil.Process(_descendant("sleep"))
        with pytest.raises(EnvironmentHangsError):
            tape.step(constant_actions(stream))
        with contextlib.suppress(psutil.NoSuchProcess):
            program.wait(30)
        assert not program.is_running() or program.status() == psutil.STATUS_ZOMBIE


def _descendant(name: str) -> int:
    (found,) = [child.pid for child in psutil.Process().children(recursive=True) if child.name() == name]
    return found


HOLDS_PROCESSES = """
import os, sys, time
import numpy as np
from rllib.env import make_stream, resolve
from rllib.env.vectorized import AsyncFactory
from tests.env.test_environment_processes import HangsInStep
stream = make_stream(AsyncFactory(resolve(HangsInStep)), num_envs=2, seeds=[0, 1])
buffers = stream.new_buffers()
stream.reset(buffers)
print(*(env.pid for env in stream.environments), flush=True)
stream.step(np.zeros(2, int), buffers)
"""


class HangsInStep(CountingEnv):
    def step(self, action):
        return _hang()


def test_nothing_is_left_when_the_worker_is_killed():
    with subprocess.Popen([sys.executable, "-c", HOLDS_PROCESSES], stdout=subprocess.PIPE, text=True) as worker:
        pids = [int(pid) for pid in worker.stdout.readline().split()]
        processes = [psutil.Process(pid) for pid in pids]
        assert len(processes) == 2
        worker.kill()
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


class Waits(CountingEnv):
    """CountingEnv, whose steps wait for a file."""

    def __init__(self, file):
        super().__init__()
        self._file = file

    def step(self, action):
        while not self._file.exists():
            time.sleep(0.01)
        return super().step(action)


@pytest.mark.parametrize("is_answered", [True, False], ids=["an answer unread", "a step under way"])
def test_a_process_ends_quietly_when_its_worker_does(is_answered, tmp_path, capfd):
    file = tmp_path / "go"
    process = EnvironmentProcess(lambda: Waits(file), "environment 0", "Waits")
    process.begin("step", 0)
    if is_answered:
        file.touch()
        select.select([process._channel._connection], [], [])
    process._channel.close()  # as by the end of the worker, without what `close` says first
    file.touch()
    assert os.waitpid(process.pid, 0)[1] == 0
    assert capfd.readouterr().err == ""
    for descriptor in (process._pidfd, process._stack):
        os.close(descriptor)


def test_environments_made_in_another_thread_outlive_it():
    made = []
    thread = threading.Thread(target=lambda: made.append(opened(CountingEnv)))
    thread.start()
    thread.join()
    with made[0] as stream:
        assert len(collect(stream, 3)[0][1]) == 3


# ---- algorithms


def config(env="CartPole-v1", timeout_s=None, **env_config):
    return (
        PPOConfig()
        .environment(env, env_config=env_config)
        .rollouts(num_envs_per_worker=2, gym_env_vectorize_mode="async", sub_environment_timeout_s=timeout_s)
        .training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .debugging(seed=0)
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_goes_on_without_the_episode_of_the_environment_that_hung(workers, tmp_path):
    of_env = {"way": "hang", "call": "step", "at": 20, "marker": str(tmp_path / "failed")}
    settings = config(Fails, TIMEOUT_S, **of_env).rollouts(num_rollout_workers=workers)
    with settings.fault_tolerance(restart_failed_sub_environments=True).build() as algo:
        result = algo.train()
        assert result["num_faulty_episodes"] == 1
        assert result["timesteps_total"] >= 63
        assert algo.workers.num_restarts == 0


def test_without_replacement_the_worker_fails_with_the_message(tmp_path):
    of_env = {"way": "hang", "call": "step", "at": 20, "marker": str(tmp_path / "failed")}
    with (
        config(Fails, TIMEOUT_S, **of_env).rollouts(num_rollout_workers=1).build() as algo,
        pytest.raises(EnvironmentHangsError, match=r"environment 1 of rollout worker 1 \(Fails\) has not returned"),
    ):
        algo.train()


def test_whole_episodes_and_evaluations_are_played_in_processes():
    batches = []
    for mode in ("sync", "async"):
        settings = config().rollouts(batch_mode="complete_episodes", gym_env_vectorize_mode=mode)
        with settings.evaluation(evaluation_interval=1, evaluation_duration=3).build() as algo:
            batches.append((algo.sample(64), algo.evaluate()["hist_stats"]["episode_lengths"]))
    assert batches[0][1] == batches[1][1]
    for name in batches[0][0]:
        np.testing.assert_array_equal(batches[0][0][name], batches[1][0][name], err_msg=name)


def test_a_bound_needs_processes():
    with pytest.raises(ValueError, match=r"sub_environment_timeout_s=5\.0 needs gym_env_vectorize_mode='async'"):
        config(timeout_s=5.0).rollouts(gym_env_vectorize_mode="sync").build()
    with pytest.raises(ValueError, match="sub_environment_timeout_s=0"):
        config(timeout_s=0.0).build()
