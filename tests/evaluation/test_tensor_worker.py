"""The worker whose fragments are tensors: rows, values, episodes, filter, and that its loop waits for no device."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, VectorWrapper

from rllib import PPOConfig
from rllib import sample_batch as sb
from rllib.env.episodes import EpisodeTracker
from rllib.env.tasks.torch_cartpole import TorchCartPole
from rllib.env.tasks.torch_pendulum import TorchPendulum
from rllib.evaluation.tensors.worker import TensorEpisodes
from rllib.losses.returns import gae
from rllib.models.observations.filters import MeanStdFilter
from rllib.models.observations.in_torch import TensorFilter
from tests.envs import CountingEnv, HundredReward, MaskedProbe, ProbeEnv
from tests.gpu import DEVICES
from tests.tensor_envs import Tensors, as_tensors, counted_waits

torch.set_num_threads(1)
T, N = 8, 6


def build(env=TorchCartPole, *, num_envs=N, length=T, env_config=None, training=None, rollouts=None, **debugging):
    return (
        PPOConfig()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=0, num_envs_per_worker=num_envs, rollout_fragment_length=length)
        .rollouts(**(rollouts or {}))
        .training(
            **{
                "train_batch_size": num_envs * length, "sgd_minibatch_size": 16, "num_sgd_iter": 2,
                "model": {"fcnet_hiddens": [16, 16]}, "lambda_": 0.9, "gamma": 0.95, **(training or {}),
            }
        )
        .resources(num_gpus=int((env_config or {}).get("device") == "cuda"))
        .debugging(**{"seed": 7, **debugging})
        .build()
    )  # fmt: skip


def sampled(algo):
    """The batch of a fragment in arrays, and its report."""
    ((batch, report),) = algo.workers.sample(algo.snapshots())
    assert all(isinstance(column, torch.Tensor) for column in batch.values())
    return {name: column.cpu().numpy() for name, column in batch.items()}, report


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("env", [TorchCartPole, TorchPendulum])
def test_columns_are_those_that_the_policy_computes(env, device):
    gpus = int(device == "cuda")
    config = {"device": device, "max_episode_steps": 5}
    with build(env, env_config=config, training={"learner": "torch"}) if not gpus else on_gpu(env, config) as algo:
        for _ in range(2):
            batch, report = sampled(algo)
            observations, policy = batch[sb.OBS], algo.policy
            np.testing.assert_allclose(batch[sb.ACTION_DIST_INPUTS], policy.dist_inputs(observations), atol=1e-5)
            np.testing.assert_allclose(batch[sb.VF_PREDS], policy.values(observations), atol=1e-5)
            log_prob = policy.log_prob(batch[sb.ACTION_DIST_INPUTS], batch[sb.ACTIONS])
            np.testing.assert_allclose(batch[sb.ACTION_LOGP], log_prob, atol=1e-5)
            assert report.env_steps == report.rows == T * N and len(observations) == T * N
            assert len(np.unique(batch[sb.ACTIONS])) > 1
            np.testing.assert_allclose(batch[sb.ADVANTAGES] + batch[sb.VF_PREDS], batch[sb.VALUE_TARGETS], atol=1e-5)
            assert batch[sb.TRUNCATEDS].sum() == len(report.episodes) > 0
            algo.train()


def on_gpu(env, config):
    unchecked = PPOConfig().environment(env, env_config=config)
    return (
        unchecked.rollouts(num_rollout_workers=0, num_envs_per_worker=N, rollout_fragment_length=T)
        .training(train_batch_size=N * T, sgd_minibatch_size=16, model={"fcnet_hiddens": [16, 16]})
        .resources(num_gpus=1)
        .build()
    )


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_advantages_bootstrap_from_true_final_observations(mode):
    """CountingEnv: what follows observation s within an episode is s + 1, also at its end."""
    with build(as_tensors(CountingEnv, mode), length=20, training={"lr": 0.0}) as algo:
        batch, report = sampled(algo)
        observations, next_values = batch[sb.OBS], algo.policy.values(batch[sb.OBS] + 1)
        assert report.env_steps == len(observations) == (N * 20 if mode is not AutoresetMode.NEXT_STEP else N * 16)
        ends = batch[sb.TERMINATEDS], batch[sb.TRUNCATEDS]
        assert all(flags.any() for flags in ends) and (ends[1] & ~ends[0]).any()
        rows = [batch[sb.REWARDS], batch[sb.VF_PREDS], next_values, *ends]
        # All environments end their episodes at the same time, so that rows [T * N] are [T, N] without gaps as well.
        columns = [column.reshape(-1, N) for column in rows]
        advantages, targets = gae(*columns, 0.95, 0.9)
        np.testing.assert_allclose(batch[sb.ADVANTAGES], advantages.reshape(-1), atol=1e-5)
        np.testing.assert_allclose(batch[sb.VALUE_TARGETS], targets.reshape(-1), atol=1e-5)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_episodes_go_on_across_fragments(mode):
    """Lengths 3, 5, 4 in turn, and rewards 1, 2, ... up to the length."""
    with build(as_tensors(CountingEnv, mode), length=7) as algo:
        episodes = [episode for _ in range(5) for episode in sampled(algo)[1].episodes]
        for index in range(N):
            own = [(each.length, each.episode_return) for each in episodes if each.env_index == index]
            assert own == ([(3, 6.0), (5, 15.0), (4, 10.0)] * 3)[: len(own)] and len(own) >= 6
        assert 0 <= algo.workers.local_worker().episodes.longest_running <= 5


def test_episodes_are_those_of_arrays():
    rng = np.random.default_rng(0)
    ours, theirs = TensorEpisodes(5, torch.device("cpu")), EpisodeTracker(5)
    for _ in range(4):
        valid = rng.random((9, 5)) < 0.8
        rewards = np.where(valid, rng.normal(size=(9, 5)), 0).astype(np.float32)
        ended = valid & (rng.random((9, 5)) < 0.2)
        ours.add_fragment(*map(torch.from_numpy, (rewards, ended, valid)))
        theirs.add_fragment(rewards, ended, valid)
        found, expected = ours.pop_finished(), theirs.pop_finished()
        assert [(e.length, e.env_index) for e in found] == [(e.length, e.env_index) for e in expected]
        np.testing.assert_allclose([e.episode_return for e in found], [e.episode_return for e in expected], atol=1e-5)
        assert ours.longest_running == theirs.longest_running


def test_reported_rewards_are_raw_and_learned_ones_are_clipped():
    config = changed(build(as_tensors(HundredReward), length=20))
    for clip, largest in ((2.0, 2.0), (True, 1.0)):
        with config.environment(clip_rewards=clip).build() as algo:
            batch, report = sampled(algo)
            assert report.episodes[0].episode_return == 100 * report.episodes[0].length
            assert batch[sb.REWARDS].max() == largest


@pytest.mark.parametrize("training", [{}, {"use_critic": False, "use_gae": False}], ids=["critic", "none"])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_the_loop_over_the_steps_waits_for_nothing(mode, training):
    """What waits for the device does not depend on the number of steps, nor do operations on that of environments.

    (Environments of tests/tensor_envs.py are arrays within, so that one in torch is stepped in both modes.)
    """
    env = NextStep if mode is AutoresetMode.NEXT_STEP else TorchCartPole
    waits, operations = {}, {}
    for length, num_envs in ((4, N), (40, N), (40, 10 * N)):
        limit = {"max_episode_steps": 3}
        with build(env, length=length, num_envs=num_envs, env_config=limit, training=training) as algo:
            sampled(algo)
            with counted_waits() as counts:
                algo.workers.sample(algo.snapshots())
            operations[length, num_envs] = counts.pop("operations")
            waits[length, num_envs] = counts
    assert waits[4, N] == waits[40, N] == waits[40, 10 * N] and 0 < waits[4, N].total() < 20
    assert operations[40, N] == operations[40, 10 * N] > 0
    assert (operations[40, N] - operations[4, N]) / 36 < 100


class NextStep(TorchCartPole):
    """The same, reset in a step that ignores the action."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs=1, max_episode_steps=3):
        super().__init__(num_envs, max_episode_steps=max_episode_steps)
        self._resets = torch.zeros(self.num_envs, dtype=torch.bool)

    def step(self, actions):
        before = torch.where(self._resets[:, None], self.initial_states(), self.states)
        moved, rewards, terminated = self.advance(self.states, actions)
        self.states = torch.where(self._resets[:, None], before, moved)
        self.steps = torch.where(self._resets, 0, self.steps + 1)
        going = ~self._resets
        terminated, truncated = terminated & going, (self.steps >= self.max_episode_steps) & going
        self._resets = terminated | truncated
        return self.states, rewards, terminated, truncated, {}


@pytest.mark.parametrize("device", DEVICES)
def test_observations_are_filtered_and_counted(device):
    with build(rollouts={"observation_filter": "MeanStdFilter"}, env_config={"device": device}) as algo:
        batches = []
        for _ in range(3):
            before = algo.policy.filter.count
            batch = algo.sample(T * N)
            assert batch[sb.OBS].device.type == device
            batches.append(batch[sb.OBS].cpu().numpy())
            assert algo.policy.filter.count - before == T * N + (N if not before else 0)
            algo.policy.values(batches[-1])
        assert abs(batches[-1].mean()) < 1 and 0.2 < batches[-1].std() < 3
        algo.train()  # checks that the learner computes the log-probabilities by which was acted


def test_filter_is_that_of_arrays():
    rng = np.random.default_rng(0)
    theirs = MeanStdFilter((3,), 2.0, keep=((0, 1),))
    ours = TensorFilter(theirs, torch.device("cpu"))
    for fragment in range(3):
        if fragment:
            ours.load(theirs.get_state())
        for _ in range(4):
            rows = rng.normal(100, 5, (6, 3)).astype(np.float32)
            out = torch.empty(6, 3)
            ours.count(torch.from_numpy(rows))
            ours.write(torch.from_numpy(rows), out)
            np.testing.assert_allclose(out.numpy(), theirs(rows, update=True), atol=1e-4)
        expected, found = theirs.pop_delta(), ours.pop_delta()
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
        theirs.merge(found)


@pytest.mark.parametrize("kind", ["observation", "int8", "float"])
def test_masks_leave_legal_actions_alone(kind):
    with build(as_tensors(MaskedProbe), env_config={"mask": kind}, num_envs=8) as algo:
        for _ in range(10):
            algo.train()  # the environment raises on an illegal action
        batch, _ = sampled(algo)
        assert batch[sb.ACTION_DIST_INPUTS].min() < -1e30


def test_an_observation_without_a_legal_action_is_an_error():
    probe = MaskedProbe()
    spaces = {"observation_space": probe.observation_space, "action_space": probe.action_space}
    unchecked = {"env_config": {"never": 1}, "disable_env_checking": True, "clip_rewards": None, **spaces}
    with (
        changed(build(as_tensors(MaskedProbe))).environment(**unchecked).rollouts(tensor_rollouts=True).build() as algo,
        pytest.raises(ValueError, match="environment 0 had no legal action at step 1 of the fragment"),
    ):
        algo.train()


def changed(algo):
    """The config of an algorithm that is not needed itself, to be changed."""
    algo.stop()
    return algo.config.copy(copy_frozen=False)


class Infinite(ProbeEnv):
    """Its tenth step gives what `config` says is wrong."""

    def follow(self, action):
        late = self.t == 10
        wrong = self.config["wrong"]
        return np.nan if late and wrong == "obs" else 0.0, np.inf if late and wrong == "reward" else 0.0, False, False


@pytest.mark.parametrize(("wrong", "what"), [("obs", "observations"), ("reward", "rewards")])
def test_numbers_that_are_not_finite_are_an_error(wrong, what):
    with (
        build(as_tensors(Infinite), length=12, env_config={"wrong": wrong}) as algo,
        pytest.raises(ValueError, match=f"{what} of environment 0 are not finite at step .*the environment gave them"),
    ):
        algo.train()


def test_the_filter_counts_no_fragment_with_numbers_that_are_not_finite():
    rollouts = {"observation_filter": "MeanStdFilter"}
    with build(as_tensors(Infinite), length=12, env_config={"wrong": "obs"}, rollouts=rollouts) as algo:
        for _ in range(2):  # each from a reset
            with pytest.raises(ValueError, match="observations of environment 0 are not finite at step 10"):
                algo.train()
        delta = algo.workers.local_worker()._filter.pop_delta()
        assert np.isfinite([*delta.values()][1]).all()
        assert delta["count"].sum() == 0


def test_a_failing_environment_says_where_and_can_be_sampled_again():
    class Failing(TorchCartPole):
        fails = False

        def step(self, actions):
            if Failing.fails:
                raise RuntimeError("broken")
            return super().step(actions)

    with build(Failing) as algo:
        algo.train()
        Failing.fails = True
        with pytest.raises(RuntimeError, match="broken") as caught:
            algo.train()
        assert "Failing of rollout worker 0 raised in step()" in caught.value.__notes__[0]
        Failing.fails = False
        assert algo.train()["num_env_steps_sampled"] == 2 * T * N


class OnRequest(VectorWrapper):
    """CartPoles that hand over arrays, and tensors once they are asked for them."""

    def __init__(self, num_envs=1):
        super().__init__(gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode="sync"))

    def in_tensors(self) -> None:
        self.env = Tensors(self.env)


@pytest.mark.parametrize("asked", [True, None])
def test_tensors_of_an_environment_that_can_hand_them_over_are_asked_for(asked):
    config = PPOConfig().environment(OnRequest).rollouts(num_rollout_workers=0, num_envs_per_worker=4)
    config.rollouts(tensor_rollouts=asked).training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1)
    with config.build() as algo:
        assert isinstance(algo.sample(64)["obs"], torch.Tensor) is bool(asked)
        assert algo.train()["num_env_steps_sampled"] >= 60 and algo.evaluate(2)["episodes_this_iter"] == 2
