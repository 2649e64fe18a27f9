"""numpy's products take one thread, unless the environment asks for more; several cores share updates."""

import contextlib
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from rllib import PPOConfig, SACConfig
from rllib.algorithms.base import wiring
from rllib.algorithms.sac import SAC
from rllib.cli.checkpoints import acting_algorithm
from rllib.models.arithmetic import kernels
from rllib.models.arithmetic.kernels import SYMBOLS

# Prints the number of threads before and after a policy was made; numpy is imported first, as users do.
CODE = """
import numpy as np
import ctypes
from pathlib import Path
package = Path(np.__file__).parent
paths = [*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")]
if not paths:
    raise SystemExit(77)
library = ctypes.CDLL(str(paths[0]))
names = [name.replace("_set_", "_get_") for name in SYMBOLS]
threads = next(getattr(library, name) for name in names if hasattr(library, name))
import gymnasium as gym
from rllib.models.catalog import policy_spec
from rllib.policy import Policy
import os
if ASKED:
    os.environ["OPENBLAS_NUM_THREADS"] = ASKED
Policy(policy_spec(gym.spaces.Discrete(2), gym.spaces.Discrete(2)))
print(threads())
"""


@pytest.mark.parametrize(("asked", "expected"), [("", 1), ("2", 2)])
def test_threads_of_numpy(asked, expected):
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    code = f"SYMBOLS = {SYMBOLS!r}; ASKED = {asked!r}\n{CODE}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode == 77:
        pytest.skip("this numpy does not bring its own OpenBLAS")
    assert done.returncode == 0, done.stderr
    if expected > 1 and (os.cpu_count() or 1) < 2:
        pytest.skip("one core cannot show two threads")
    assert int(done.stdout) == expected


def matrix(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def matmul(out):
    kernels.matmul(matrix(2, 5, 3).swapaxes(1, 2), matrix(2, 5, 4), out=out)


def relu(out):
    kernels.relu(matrix(2, 3, 4), out=out)


def relu_derivative(out):
    out[:] = matrix(2, 3, 4, seed=1)
    kernels.relu_derivative(out, np.maximum(matrix(2, 3, 4), 0))


def matmul_plus_rows(out):
    kernels.matmul(matrix(2, 5, 3).swapaxes(1, 2), matrix(2, 5, 4), out=out, plus=matrix(2, 3, 1, seed=1))


def scale_rows(out):
    kernels.scale_rows(matrix(2, 3, 4), matrix(2, 3, 1), out=out)


def scale_rows_of_all_towers(out):
    kernels.scale_rows(matrix(1, 3, 4), matrix(2, 3, 1), out=out)


def scale_repeated_row(out):
    kernels.scale_rows(matrix(2, 1, 4), matrix(2, 3, 1), out=out)


def add_scaled_rows(out):
    out[:] = matrix(2, 3, 4)
    kernels.add_scaled_rows(matrix(1, 3, 4, seed=1), matrix(2, 3, 1), out=out, scratch=np.empty_like(out))


def subtract_from_rows(out):
    kernels.subtract_from_rows(matrix(2, 3, 4), matrix(2, 3, 1), out=out)


def row_sums(out):
    out[:] = kernels.row_sums(matrix(2, 3, 4))


def row_squares(out):
    out[:] = kernels.row_squares(matrix(2, 3, 4))


def move_towards(out):
    weights = matrix(24)
    kernels.move_towards(weights, matrix(24, seed=1), 0.3)
    out[:] = weights.reshape(out.shape)


def adam(out, epsilon=1e-8):
    state = [matrix(24), *np.zeros((2, 24), np.float32)]
    for _ in range(3):
        kernels.adam(
            *state, matrix(24, seed=1), np.empty(24, np.float32), betas=(0.9, 0.999), step_size=0.1, epsilon=epsilon
        )
    out[:] = state[0].reshape(out.shape)


def adam_without_division(out):
    adam(out, None)


@pytest.mark.parametrize(
    "computes",
    [
        *(matmul, matmul_plus_rows, relu, relu_derivative),
        *(scale_rows, scale_rows_of_all_towers, scale_repeated_row, add_scaled_rows, subtract_from_rows),
        *(row_sums, row_squares, move_towards, adam, adam_without_division),
    ],
)
@pytest.mark.filterwarnings("error")
def test_several_cores_compute_what_one_computes(computes, monkeypatch):
    for least in ("PART", "FEWEST_ROWS", "MANY"):
        monkeypatch.setattr(kernels, least, 1)
    monkeypatch.setattr(kernels, "SLICE", 5)
    monkeypatch.setattr(kernels, "SLICED", 5)
    # As in a network with towers: rows lie apart in the memory of a larger array.
    larger = np.full((3, 2, 4, 4), np.nan, np.float32)
    for cores, out in zip((1, 2, 4), larger[:, :, :-1]):
        with kernels.on_cores(cores):
            computes(out)
    assert np.isfinite(larger[:, :, :-1]).all() and np.isnan(larger[:, :, -1]).all()
    assert len({each.tobytes() for each in larger}) == 1


def layouts(rows, width):
    """Factors as in the networks: transposed, with a column for the bias, views into larger arrays, stacks."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, width + 1), np.float32)
    w = rng.standard_normal((2, width + 1, 256), np.float32)
    d = rng.standard_normal((2, 256, rows), np.float32)
    yield w.swapaxes(1, 2)[0], x.T
    yield d[0], x
    yield w[0, :-1], d[0]
    yield w[:, :-1], d
    yield d, np.stack([x, x])
    yield d, x[None]


@pytest.mark.parametrize("rows", [1, 40, 1000])
@pytest.mark.parametrize("width", [17, 256])
def test_products_have_the_same_bits_on_any_number_of_cores(rows, width):
    for a, b in layouts(rows, width):
        results = []
        for cores in (1, 2, 3):
            larger = np.full((*a.shape[:-2], a.shape[-2] + 1, b.shape[-1]), np.nan, np.float32)
            with kernels.on_cores(cores):
                kernels.matmul(a, b, out=larger[..., :-1, :])
            results.append(larger.tobytes())
        assert len(set(results)) == 1
        assert np.isnan(larger[..., -1, :]).all(), "nothing is written behind the result"
        np.testing.assert_allclose(larger[..., :-1, :], np.matmul(a, b), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("most", [0, 100, 700, 10**6])
@pytest.mark.parametrize("inner", [1, 3])
@pytest.mark.parametrize("columns", [4, 40, 41, 5000])
def test_products_of_fixed_memory_in_blocks_are_those_of_whole_matrices(most, inner, columns, monkeypatch):
    monkeypatch.setattr(kernels, "most_unpacked", lambda: most)
    monkeypatch.setattr(kernels, "FEWEST_COLUMNS", 2)
    left, right = matrix(2, inner, 5).swapaxes(1, 2), matrix(2, inner + 1, columns, seed=1)[:, :-1]
    for a, b in ((left, right), (left[0], right[0]), (left[0], matrix(columns, inner).T)):
        larger = np.full((*a.shape[:-2], 6, columns), np.nan, np.float32)
        multiply = kernels.product(a, b, larger[..., :-1, :])
        for _ in range(2):
            b += 1
            multiply()
            np.testing.assert_allclose(larger[..., :-1, :], np.matmul(a, b), rtol=1e-4, atol=1e-4)
        assert np.isnan(larger[..., -1, :]).all(), "nothing is written behind the result"


@pytest.mark.parametrize("most", [0, 1500, 10**6])
@pytest.mark.parametrize(("rows", "inner"), [(13, 40), (26, 40), (26, 41), (17, 40)])
def test_products_along_rows_are_those_of_whole_matrices(most, rows, inner, monkeypatch):
    monkeypatch.setattr(kernels, "most_unpacked", lambda: most)
    monkeypatch.setattr(kernels, "FEWEST_COLUMNS", 2)
    monkeypatch.setattr(kernels, "MOST_COLUMNS", 10)
    a, gradient = matrix(2, rows + 1, inner)[:, :-1], matrix(2, 9, inner, seed=1)
    larger = np.full((2, rows + 1, 9), np.nan, np.float32)
    for index in (slice(None), 0):
        b, out = gradient[index].swapaxes(-1, -2), larger[index][..., :-1, :]
        multiply = kernels.product_along_rows(a[index], b, out)
        for _ in range(2):
            b += 1
            multiply()
            np.testing.assert_allclose(out, np.matmul(a[index], b), rtol=1e-4, atol=1e-4)
    assert np.isnan(larger[:, -1]).all(), "nothing is written behind the result"


@pytest.mark.parametrize(
    ("shape", "most", "count"),
    [
        ((64, 65, 1024), 10**6, 128),
        ((64, 65, 1000), 10**6, 200),
        ((64, 65, 128), 10**6, 128),
        ((64, 65, 1021), 10**6, 0),
        ((256, 256, 256), 10**6, 0),
        ((64, 65, 1024), 0, 0),
    ],
)
def test_blocks_are_as_large_as_the_library_takes_them_and_equal(shape, most, count, monkeypatch):
    monkeypatch.setattr(kernels, "most_unpacked", lambda: most)
    assert kernels.unpacked_columns(*shape) == count


@pytest.mark.parametrize(("core", "most"), [("Haswell", 0), ("SkylakeX", kernels.UNPACKED)])
def test_the_kernels_in_use_say_whether_they_pack(core, most):
    """SkylakeX is chosen, not run: this processor need not have its instructions."""
    code = "from rllib.models.arithmetic import kernels; print(kernels.most_unpacked())"
    environment = {**os.environ, "OPENBLAS_CORETYPE": core}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    if not list(Path(np.__file__).parent.parent.glob("numpy.libs/*openblas*")) or platform.machine() != "x86_64":
        pytest.skip("this numpy does not bring its own OpenBLAS for x86")
    assert (done.returncode, int(done.stdout)) == (0, most), done.stderr


def test_factors_that_do_not_fit_are_refused():
    a = np.ones((512, 512), np.float32)
    for b, out in ((a[:400], a.copy()), (a, a[:400].copy())):
        with kernels.on_cores(2), pytest.raises(ValueError, match=r"align|shape|dimension|mismatch"):
            kernels.matmul(a, b, out=out)


def test_several_cores_compute_large_products():
    """The threads that helped are those of the crew, and they sleep afterwards."""
    a = matrix(2, 512, 512)
    seen = []
    multiply = kernels._multiply

    def noted(*factors):
        seen.append(threading.current_thread().name)
        barrier.wait(30)  # neither can have both
        multiply(*factors)

    barrier = threading.Barrier(2)
    with pytest.MonkeyPatch.context() as patch, kernels.on_cores(2):
        patch.setattr(kernels, "_multiply", noted)
        kernels.matmul(a, a, out=np.empty_like(a))
    assert sorted(name.startswith("rllib-update-helper") for name in seen) == [False, True]


def test_an_array_that_may_not_be_written_is_no_result():
    fixed = matrix(2, 4)
    fixed.flags.writeable = False
    for cores in (1, 2):
        with kernels.on_cores(cores), pytest.raises(ValueError, match="read-only"):
            kernels.relu(matrix(2, 4), out=fixed)


def test_other_threads_and_outer_contexts_keep_their_arithmetic():
    seen = []

    def of_this_thread():
        return kernels._here.crew is not None

    with kernels.on_cores(2):
        other = threading.Thread(target=lambda: seen.append(of_this_thread()))
        other.start()
        other.join()
        with kernels.on_cores(3):
            seen.append(of_this_thread())
        seen.append(of_this_thread())
    assert [*seen, of_this_thread()] == [False, True, True, False]


def test_threads_that_the_user_gives_to_numpy_are_left_alone(monkeypatch):
    """OpenBLAS would start as many in each of ours."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    with kernels.on_cores(2):
        assert kernels._here.crew is None


@pytest.mark.parametrize(
    ("config", "asked", "taken"),
    [
        (SACConfig().training(train_batch_size=256), "auto", 4),
        (SACConfig().training(train_batch_size=256), 1, 1),
        (SACConfig().training(train_batch_size=128), 8, 3),  # 128 rows, 3 networks of 256x256
        (SACConfig().training(train_batch_size=32), 8, 1),
        (PPOConfig().training(train_batch_size=512, sgd_minibatch_size=512), 8, 4),  # 512 rows, 2 networks of 256x256
    ],
    ids=["by default", "one core", "large", "small", "PPO"],
)
def test_updates_take_as_many_of_the_cores_asked_for_as_they_are_worth(monkeypatch, config, asked, taken):
    found = []

    @contextlib.contextmanager
    def noted(count):
        found.append(count)
        yield

    monkeypatch.setattr(kernels, "on_cores", noted)
    monkeypatch.setattr("rllib.processes.cpu_count", lambda: 8)
    if config.algo_class is SAC:
        config.training(num_steps_sampled_before_learning_starts=10)
    config.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=12)
    config.learners(num_cpus_per_learner=asked)
    with config.rollouts(num_rollout_workers=0).build(env="Pendulum-v1") as algo:
        while not found:
            algo.train()
    assert found[0] == taken  # then the target copies move


@pytest.mark.parametrize(("asked", "expected"), [("auto", 3), (1, 1), (2, 2)])
def test_torch_in_this_process_has_the_cores_asked_for(asked, expected):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        config = PPOConfig().training(learner="torch").learners(num_cpus_per_learner=asked)
        with config.build(env="CartPole-v1"):
            assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


def test_more_cores_for_updates_than_a_trial_holds_bring_one_notice(monkeypatch, caplog):
    monkeypatch.setattr("rllib.processes.cpu_count", lambda: 4)
    monkeypatch.setattr(wiring, "num_cores", lambda: 2)
    for asked in (3, 2, "auto"):
        with PPOConfig().learners(num_cpus_per_learner=asked).build(env="CartPole-v1"):
            pass
    told = [record.getMessage() for record in caplog.records if "num_cpus_per_learner" in record.getMessage()]
    assert told == [
        "num_cpus_per_learner=3 threads share 2 cores and wait for one another, which is slower than a core for each. "
        "Use .learners(num_cpus_per_learner=2)."
    ]


def test_more_cores_for_updates_than_the_machine_has_are_refused(monkeypatch):
    monkeypatch.setattr("rllib.processes.cpu_count", lambda: 4)
    config = PPOConfig().environment("CartPole-v1")
    told = "num_cpus_per_learner=5, but this process may use 4 .*num_cpus_per_learner=4"
    with pytest.raises(ValueError, match=told):
        config.copy().learners(num_cpus_per_learner=5).build()
    config.learners(num_cpus_per_learner=4).build().stop()


def test_a_policy_that_learned_on_more_cores_acts_here(monkeypatch, tmp_path):
    monkeypatch.setattr("rllib.processes.cpu_count", lambda: 4)
    with PPOConfig().learners(num_cpus_per_learner=4).build(env="CartPole-v1") as algo:
        checkpoint = algo.save(tmp_path / "checkpoint")
    monkeypatch.setattr("rllib.processes.cpu_count", lambda: 2)
    with acting_algorithm(checkpoint, load_user_code=False) as algo:
        assert algo.config.num_cpus_per_learner == "auto"


def test_measured_cores_are_those_of_this_process():
    config = PPOConfig().environment("CartPole-v1").learners(num_cpus_per_learner="measured", num_learners=2)
    with pytest.raises(ValueError, match="num_learners=2: cores of this process"):
        config.build()
    assert wiring.resource_request(config.learners(num_learners=0))["cpu"] == 1


def test_a_trial_claims_the_cores_of_its_updates():
    config = SACConfig().environment("Pendulum-v1").rollouts(num_rollout_workers=2)
    alone = config.copy().learners(num_cpus_per_learner=3)
    assert wiring.resource_request(alone)["cpu"] == 3
    assert wiring.resource_request(config)["cpu"] == 1
