"""Labels of a teacher: computed in the workers, with the step, from what the teacher alone reads."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rllib import sample_batch as sb
from rllib.algorithms.distillation import DistillationConfig
from tests.algorithms.taught_worlds import GRU, Secretive, answers, by_rule, played, whole

pytestmark = pytest.mark.usefixtures("workers_know_the_module")

HIDDEN = ["secret"]
SPLITS = [(0, 8), (2, 4), (4, 2)]


def config(teacher=None, *, workers=0, envs=2, model=None, env=Secretive, **training):
    made = DistillationConfig().environment(env, teacher_observation_keys=HIDDEN).debugging(seed=0)
    made.rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, rollout_fragment_length=16)
    given = {"train_batch_size": 16 * envs * max(workers, 1), "sgd_minibatch_size": 16, "lr": 0.01}
    return made.training(teacher=teacher, model={"fcnet_hiddens": [8], **(model or {})}, **given | training)


def batch_of(made, rounds=1):
    """The rows of the local worker's last fragment of some."""
    with made.build() as algo:
        worker = algo.workers.local_worker()
        worker.load_snapshots(algo.snapshots())
        for _ in range(rounds):
            batch, _ = worker.sample()
        return batch, algo


@pytest.mark.parametrize("student", [{}, GRU], ids=["plain", "gru"])
def test_labels_are_what_the_teacher_would_do(teacher_with_memory, student):
    """With its own filter, all keys, and the memory of each episode, across fragments."""
    with config(teacher_with_memory, envs=1, model=student).build() as algo:
        rows = sb.SampleBatch.concat([algo.workers.local_worker().sample()[0] for _ in range(3)])
    actions, inputs = played(teacher_with_memory, rows[sb.OBS])
    assert rows[sb.OBS].shape == (48, 3)  # the student gets the place alone
    assert len({tuple(place[:2]) for place in rows[sb.OBS].tolist()}) > 5
    np.testing.assert_array_equal(rows[sb.TEACHER_ACTIONS], actions)
    np.testing.assert_allclose(rows[sb.TEACHER_DIST_INPUTS], inputs, atol=1e-5)


@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
def test_a_function_gets_batches_in_the_structure_of_the_space(batch_mode):
    seen = []

    def teach(observations):
        assert set(observations) == {"place", "secret"} and len(observations["place"]) == 2
        seen.append(observations)
        return by_rule(observations)

    made = config(teach).rollouts(batch_mode=batch_mode)
    batch, _ = batch_of(made, rounds=2)
    np.testing.assert_array_equal(batch[sb.TEACHER_ACTIONS], answers(by_rule, batch[sb.OBS]))
    assert sb.TEACHER_DIST_INPUTS not in batch
    assert all(np.array_equal(whole(o["place"][1])["secret"], o["secret"][1]) for o in seen)


def test_the_students_filter_is_not_the_teachers(teacher):
    plain, _ = batch_of(config(teacher))
    made = config(teacher).rollouts(observation_filter="MeanStdFilter")
    filtered, algo = batch_of(made)
    assert np.abs(filtered[sb.OBS]).max() <= 10 and not np.allclose(filtered[sb.OBS], plain[sb.OBS])
    np.testing.assert_array_equal(filtered[sb.TEACHER_DIST_INPUTS], plain[sb.TEACHER_DIST_INPUTS])
    assert algo.policy.filter.get_state()["mean"].shape == (3,)


def test_who_acts(teacher):
    """By beta the environment gets the teacher's action; the log-probability is the student's in any case."""
    alone, _ = batch_of(config(teacher, beta=1.0))
    np.testing.assert_array_equal(alone[sb.ACTIONS], alone[sb.TEACHER_ACTIONS])
    mixed, algo = batch_of(config(teacher, beta=0.5, envs=8))
    student, _ = batch_of(config(teacher, envs=8))
    for batch in (alone, mixed):
        of_student = algo.policy.log_prob(batch[sb.ACTION_DIST_INPUTS], batch[sb.ACTIONS])
        np.testing.assert_array_equal(batch[sb.ACTION_LOGP], of_student)
    agreement = [(batch[sb.ACTIONS] == batch[sb.TEACHER_ACTIONS]).mean() for batch in (student, mixed)]
    assert agreement[0] < agreement[1] < 1


def test_beta_follows_the_environment_steps(teacher):
    """A line from 1 to 0 over the first two fragments: the teacher alone at first, the student alone at last."""
    with config(teacher, beta=[[0, 1.0], [1, 1.0], [64, 0.0]]).build() as algo:
        first, _ = algo.workers.local_worker().sample()
        np.testing.assert_array_equal(first[sb.ACTIONS][:2], first[sb.TEACHER_ACTIONS][:2])
        algo.train(), algo.train()
        assert algo.train()["info/learner/default_policy/learner_stats/beta"] == 0


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("student", [{}, GRU], ids=["plain", "gru"])
def test_bits_do_not_depend_on_the_division(teacher_with_memory, deterministic, student):
    """Weights after two iterations are equal for 0x8, 2x4 and 4x2 workers and environments."""
    weights = []
    for workers, envs in SPLITS:
        made = config(teacher_with_memory, workers=workers, envs=envs, model=student, beta=[[0, 0.8], [400, 0.0]])
        made.rollouts(observation_filter="MeanStdFilter").training(teacher_deterministic=deterministic)
        with made.build() as algo:
            before = algo.policy.weights.copy()
            algo.train(), algo.train()
            weights.append(algo.policy.weights.copy())
    np.testing.assert_array_equal(weights[0], weights[1])
    np.testing.assert_array_equal(weights[0], weights[2])
    assert (weights[0] != before).any()


@pytest.mark.parametrize(
    ("beta", "expected"),
    [
        ([[0, 1.0], [10, 0.0]], [1, 0.9, 0.8, 0]),
        ({"type": "linear", "initial": 1.0, "final": 0.0, "timesteps": 10}, [1, 0.9, 0.8, 0]),
        ({"type": "exponential", "initial": 1.0, "decay_rate": 0.9, "timesteps": 1}, [1, 0.9, 0.81, 0.34867844]),
        (lambda timestep: 0.9**timestep, [1, 0.9, 0.81, 0.34867844]),
    ],
)
def test_schedules_of_dagger(teacher, beta, expected):
    """Of rounds 0, 1, 2 and 10: a line to 0, and powers, as in arXiv:1011.0686."""
    schedule = config(teacher, beta=beta).get_schedule("beta")
    assert [schedule(number) for number in (0, 1, 2, 10)] == pytest.approx(expected, abs=1e-8)


def test_drawn_labels_are_of_the_environments_streams(teacher):
    drawn = [batch_of(config(teacher, teacher_deterministic=False))[0][sb.TEACHER_ACTIONS] for _ in range(2)]
    np.testing.assert_array_equal(*drawn)
    fixed, _ = batch_of(config(teacher))
    assert (drawn[0] != fixed[sb.TEACHER_ACTIONS]).any()


def test_several_teachers():
    """The mapping says, observation by observation, which of them counts."""
    teachers = {"zero": lambda o: np.zeros(len(o["place"]), int), "one": lambda o: np.ones(len(o["place"]), int)}
    made = config(teachers, teacher_mapping_fn=lambda observation: "one" if observation["secret"][1] > 0 else "zero")
    batch, _ = batch_of(made)
    expected = [int(whole(place)["secret"][1] > 0) for place in batch[sb.OBS]]
    np.testing.assert_array_equal(batch[sb.TEACHER_ACTIONS], expected)


def test_names_of_teachers_need_not_be_strings():
    teachers = {0: lambda o: np.zeros(len(o["place"]), int), "one": lambda o: np.ones(len(o["place"]), int)}
    made = config(teachers, teacher_mapping_fn=lambda observation: "one" if observation["secret"][1] > 0 else 0)
    batch, _ = batch_of(made)
    assert batch[sb.TEACHER_ACTIONS].tolist() == [int(whole(place)["secret"][1] > 0) for place in batch[sb.OBS]]


@pytest.mark.parametrize("name", ["two", ["zero", "zero"], None])
def test_a_name_that_no_teacher_has(name):
    made = config({"zero": by_rule}, teacher_mapping_fn=lambda observation: name)
    with made.build() as algo, pytest.raises(ValueError, match="teacher_mapping_fn"):
        algo.train()


@pytest.mark.parametrize(
    "answer",
    [
        lambda o: 1,
        lambda o: np.zeros((2, 2), int),
        lambda o: np.full(2, 5),
        lambda o: np.array([0.5, 1.0]),
        lambda o: None,
    ],
)
def test_a_function_that_returns_something_else(answer):
    with config(answer).build() as algo, pytest.raises(ValueError, match="the teacher is a function"):
        algo.train()


NUMBERS = Box(-1, 1, (1,), np.float32)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("wrong", [None, 1j, "0", b"0", {}, np.datetime64(1, "s")], ids=repr)
@pytest.mark.parametrize("space", [Discrete(2), NUMBERS, Dict({"a": Discrete(2), "b": NUMBERS})], ids=str)
def test_a_function_that_returns_no_numbers(space, wrong):
    """Whatever numpy makes an array of, and might convert with a warning, or fail at."""

    def answer(observations):
        row = np.array([wrong] * 2)
        if isinstance(space, Dict):
            return {"a": np.zeros(2, int), "b": row[:, None]}
        return row.reshape(2, *space.shape)

    made = config(answer).environment(env_config={"actions": space})
    with made.build() as algo, pytest.raises(ValueError, match="the teacher is a function"):
        algo.train()


@pytest.mark.filterwarnings("error")
def test_a_choice_that_is_no_number():
    with config(lambda o: np.full(2, np.nan)).build() as algo, pytest.raises(ValueError, match="the teacher is a func"):
        algo.train()


@pytest.mark.parametrize("name", ["teacher", "teacher_mapping_fn"])
def test_a_function_that_raises_is_named(name):
    def fails(observations):
        raise RuntimeError("no path found")

    given = {"teacher": fails} if name == "teacher" else {"teacher": {"a": by_rule}, "teacher_mapping_fn": fails}
    with config(**given).build() as algo, pytest.raises(RuntimeError, match="no path found") as caught:
        algo.train()
    assert name in caught.value.__notes__[0].lower()


def test_a_function_may_return_tensors():
    """As a network in torch does, whose graph nobody needs."""
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2, 2)
    made = config(lambda o: layer(torch.as_tensor(o["secret"])).argmax(1))
    assert set(batch_of(made)[0][sb.TEACHER_ACTIONS]) <= {0, 1}
    made = config(lambda o: layer(torch.as_tensor(o["secret"]))).environment(
        env_config={"actions": Box(-9, 9, (2,), np.float32)}
    )
    assert batch_of(made)[0][sb.TEACHER_ACTIONS].any()


@pytest.mark.parametrize("model", [{}, {"squash_actions": True}], ids=["plain", "squashed"])
def test_labels_are_what_reaches_the_environment(model):
    """A controller that asks for more than the largest torque is learned at that one."""
    made = config(lambda o: np.full((2, 1), 99.0), model=model, beta=1.0)
    batch, algo = batch_of(made.environment(env_config={"actions": Box(-2, 2, (1,), np.float32)}))
    unit = algo.policy.distribution.unit
    np.testing.assert_allclose(unit.read(batch[sb.TEACHER_ACTIONS]), 1, atol=1e-5)
    np.testing.assert_array_equal(batch[sb.ACTIONS], batch[sb.TEACHER_ACTIONS])


def test_numbers_are_in_the_students_units():
    """Of a Box from 0 to 10, the middle is 0 to the student, and drawn actions vary around its mean."""
    made = config(lambda o: np.full((2, 1), 7.5, np.float32)).environment(
        env_config={"actions": Box(0, 10, (1,), np.float32)}
    )
    batch, algo = batch_of(made)
    np.testing.assert_allclose(batch[sb.TEACHER_ACTIONS], 0.5)
    assert algo.policy.spec.free_log_std
    np.testing.assert_allclose(batch[sb.ACTION_DIST_INPUTS][:, 1], -1)


def test_structured_actions():
    space = Dict({"gear": Discrete(3, start=1), "force": Box(-2, 2, (2,), np.float32)})

    def teach(observations):
        return {"gear": np.array([1, 3]), "force": np.array([[1, -1], [0, 2]], np.float32)}

    made = config(teach).environment(env_config={"actions": space})
    with made.build() as algo:
        batch, _ = algo.workers.local_worker().sample()
        labels = batch[sb.TEACHER_ACTIONS].reshape(-1, 2, 3)
        assert labels[0].tolist() == [[0.5, -0.5, 0], [0, 1, 2]]  # in the order of the space: force, gear
        before = algo.train()["info/learner/default_policy/learner_stats/distillation_loss"]
        for _ in range(20):
            result = algo.train()
        assert result["info/learner/default_policy/learner_stats/distillation_loss"] < before


class Masked(Secretive):
    """In odd steps the second action is illegal."""

    observation_space = Dict({**Secretive.observation_space.spaces, "action_mask": Box(0, 1, (2,), np.float32)})

    def _observation(self):
        mask = np.array([1, self._step % 2 == 0], np.float32)
        return {**super()._observation(), "action_mask": mask}


def test_illegal_labels(teacher):
    """A network's are masked, as the student's are; a function that breaks the rules is told so."""
    batch, _ = batch_of(config(teacher, env=Masked, distillation_loss="kl"))
    odd = batch[sb.OBS][:, -1] % 2 == 1
    assert odd.any() and not batch[sb.TEACHER_ACTIONS][odd].any()
    assert (batch[sb.TEACHER_DIST_INPUTS][odd, 1] < -1e30).all()
    with config(lambda o: np.ones(2, int), env=Masked).build() as algo, pytest.raises(ValueError, match="illegal"):
        algo.train()
