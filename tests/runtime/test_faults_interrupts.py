"""Ctrl-C at any time: one KeyboardInterrupt in the driver, none in workers, and a session that works or has ended."""

import os
import random
import re
import signal
import time

import pytest

import runtime
from runtime.engines.zeromq.system import interrupts

DRIVER = """
import sys, time
import numpy as np
import runtime

@runtime.remote
def add(a, b=1):
    return a + b

@runtime.remote
def slow(a):
    time.sleep(0.02)
    return a

@runtime.remote
class Actor:
    def __init__(self):
        self.value = 0
    def add(self, array):
        self.value += 1
        return array

def work():
    runtime.init("zeromq", num_cpus=2)
    actor = Actor.remote()
    for i in range(3):
        refs = [add.remote(i) for i in range(20)] + [slow.remote(i) for i in range(4)]
        runtime.wait(refs, num_returns=10)
        ref = runtime.put(np.ones(200_000))
        runtime.get([actor.add.remote(ref) for _ in range(10)])
        runtime.get(refs)
        for _ in range(50):
            runtime.get(actor.add.remote(1))
    runtime.shutdown()

print("ready", flush=True)
try:
    while True:
        work()
except KeyboardInterrupt:
    print("interrupted", flush=True)
again = runtime.is_initialized()
if not again:
    runtime.init("zeromq", num_cpus=2)
assert runtime.get([add.remote(i) for i in range(10)], timeout=20) == list(range(1, 11))
assert runtime.get(Actor.remote().add.remote(5), timeout=20) == 5
runtime.shutdown()
print("usable", flush=True)
"""


def interrupt_at(script, fresh, seed):
    driver = script.start(DRIVER, start_new_session=True)
    assert driver.stdout.readline().strip() == "ready", driver.stderr.read()
    delay = random.Random(seed).uniform(0, 1.5)
    try:
        driver.wait(delay)
    except Exception:  # it runs until it is interrupted
        os.killpg(driver.pid, signal.SIGINT)
    out, err = driver.communicate(timeout=30)
    assert out.split() == ["interrupted", "usable"], f"seed {seed}, after {delay:.3f} s: {out}\n{err}"
    assert driver.returncode == 0 and "Traceback" not in err, f"seed {seed}: {err}"
    fresh.leftovers.check(5, own=False)


@pytest.mark.parametrize("seed", range(12))
def test_ctrl_c_at_any_time(fresh, script, seed):
    interrupt_at(script, fresh, seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_at_many_times(fresh, script):
    """A hundred times, or as many as fit into four minutes: a loaded machine takes several seconds for each."""
    end = time.monotonic() + 240
    for seed in range(100, 200):
        interrupt_at(script, fresh, seed)
        if time.monotonic() > end:
            break


def test_ctrl_c_just_before_a_session_has_ended_is_not_lost():
    """It was put off while the runtime kept its books; then the session ended, and put the default handler back."""
    interrupts.Interrupts().close()
    with pytest.raises(KeyboardInterrupt):
        interrupts._again(signal.SIGINT, interrupts._on_interrupt)
        time.sleep(5)


def test_ctrl_c_that_was_put_off_spares_a_handler_that_the_user_has_installed_since():
    interrupts.Interrupts().close()
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        interrupts._again(signal.SIGINT, interrupts._on_interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not heard


def test_ctrl_c_that_reaches_the_node_before_its_process_group_is_its_own(fresh, script):
    source = """
import runtime
from runtime.engines.zeromq.session import boot
boot.command = lambda arguments: ["sh", "-c", f"kill -INT {arguments['driver']} $$"]  # as Ctrl-C does, to both
try:
    runtime.init("zeromq", num_cpus=1)
except KeyboardInterrupt:
    print("interrupted", runtime.is_initialized())
"""
    driver = script.start(source, start_new_session=True)
    out, err = driver.communicate(timeout=30)
    assert out.split() == ["interrupted", "False"] and driver.returncode == 0, err
    fresh.leftovers.check(5, own=False)


@pytest.mark.parametrize(
    "blocked_in",
    [
        "runtime.get(actor.sleep.remote())",
        "runtime.wait([actor.sleep.remote()])",
        "runtime.get(nap.remote(), timeout=100)",
    ],
)
def test_ctrl_c_ends_a_waiting_driver(fresh, script, blocked_in):
    source = f"""
import time, runtime
@runtime.remote
class Actor:
    def ready(self):
        pass
    def sleep(self):
        time.sleep(1000)
@runtime.remote
def nap():
    time.sleep(1000)
runtime.init("zeromq", num_cpus=2)
actor = Actor.remote()
runtime.get(actor.ready.remote())
print("ready", flush=True)
{blocked_in}
"""
    driver = script.start(source, start_new_session=True)
    assert driver.stdout.readline().strip() == "ready", driver.stderr.read()
    with pytest.raises(Exception, match="timed out"):
        driver.wait(0.3)
    os.killpg(driver.pid, signal.SIGINT)
    _, err = driver.communicate(timeout=5)
    assert driver.returncode == -signal.SIGINT and len(re.findall(r"^KeyboardInterrupt", err, re.M)) == 1, err
    assert err.count("Traceback") == 1, err
    fresh.leftovers.check(5, own=False)


@runtime.remote(num_cpus=0)
class Sleeper:
    def sleep(self, seconds):
        time.sleep(seconds)
        return seconds


@pytest.mark.parametrize("waits_s, handler_waits_s", [(1.0, 0.0), (0.5, 1.0)], ids=["comes after", "comes meanwhile"])
@pytest.mark.parametrize("verb", ["get", "wait"])
def test_a_signal_handler_of_the_user_may_wait(fresh, verb, waits_s, handler_waits_s):
    """To save a checkpoint, say. What the driver was waiting for comes after the handler, or meanwhile."""

    def handler(*_):
        handled.append(runtime.get(two.sleep.remote(handler_waits_s), timeout=20))

    fresh()
    handled, one, two = [], Sleeper.remote(), Sleeper.remote()
    runtime.get([one.sleep.remote(0), two.sleep.remote(0)], timeout=20)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        ref = one.sleep.remote(waits_s)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        if verb == "wait":
            assert runtime.wait([ref], timeout=20)[0] == [ref]
        assert runtime.get(ref, timeout=20) == waits_s
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert handled == [handler_waits_s]


NESTED = """
import gc, signal, sys, time
import runtime

@runtime.remote(num_cpus=0)
class Actor:
    def add(self, amount, nested=None):
        return amount

runtime.init("zeromq", num_cpus=2)
actor, other, seen = Actor.remote(), Actor.remote(), []
ref = runtime.put(1)

def use_every_verb():
    refs = [other.add.remote(1), other.add.remote(ref)]
    runtime.wait(refs, num_returns=2)
    seen.append(runtime.get(refs) + [runtime.get(runtime.put(1))])
"""


def test_finalizers_that_the_collector_runs_may_use_verbs(script):
    source = f"""{NESTED}
class Knot:
    def __init__(self):
        self.itself = self
    def __del__(self):
        gc.set_threshold(700)
        use_every_verb()

gc.collect()
gc.freeze()  # so that a collection is quick
pending = [actor.add.remote(i, [ref]) for i in range(3)]
for count in range(1, 100):
    gc.collect()
    Knot()
    gc.set_threshold(count)  # the collector runs after this many allocations
    pending += [actor.add.remote(count, [ref]), actor.add.remote(actor.add.remote(count))]
    assert runtime.get(pending.pop(0)) >= 0
runtime.get(pending)
gc.collect()
assert len(seen) == 99 and all(values == [1, 1, 1] for values in seen), len(seen)
runtime.shutdown()
print("done")
"""
    driver = script(source)
    assert driver.stdout.split() == ["done"] and driver.returncode == 0, driver.stderr


def test_signal_handlers_may_use_verbs_at_any_time(script):
    """Though the signal comes in the middle of another verb, in the driver or in a worker."""
    source = f"""{NESTED}
def at_any_time(count):
    def handler(number, frame):
        try:
            use_every_verb()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0007)
    seen.clear()
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0007)
    while len(seen) < count:
        assert runtime.get([actor.add.remote(i, [ref]) for i in range(20)]) == list(range(20))
    assert signal.signal(signal.SIGALRM, lambda *_: None) is handler
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    assert all(values == [1, 1, 1] for values in seen)
    return "done"

print(at_any_time(150))
print(runtime.get(runtime.remote(at_any_time).remote(50)))
original = signal.signal
runtime.shutdown()
assert signal.signal is not original
"""
    driver = script(source)
    assert driver.stdout.split() == ["done", "done"] and driver.returncode == 0, driver.stderr
