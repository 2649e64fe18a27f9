"""EnvPool's environments by their names."""

import numpy as np
import pytest
from click.testing import CliRunner

from rllib import PPOConfig
from rllib.cli import command
from rllib.env import make_stream, resolve

SEEDS = [3, 4, 2**32 - 1]


def test_without_envpool_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rllib.env.factories.envpool_envs", None)
    with pytest.raises(ValueError, match=r"'envpool:CartPole-v1' needs EnvPool: pip install .*\[envpool\]'"):
        PPOConfig().environment("envpool:CartPole-v1").build()


def steps_of(stream, count):
    buffers = stream.new_buffers()
    stream.reset(buffers)
    for _ in range(count):
        before = buffers.observations.copy()
        ended = stream.step(np.ones(len(SEEDS), np.int64), buffers)
        yield before, buffers, ended


@pytest.mark.extras("envpool")
def test_rows_are_transitions_and_final_observations_are_true():
    with make_stream(resolve("envpool:CartPole-v1"), num_envs=3, seeds=SEEDS, env_config={"num_threads": 1}) as stream:
        ends = []
        for _, buffers, ended in steps_of(stream, 40):
            made = np.ones(3, bool) if stream.reset_rows is None else ~stream.reset_rows
            assert (buffers.rewards[made] == 1).all() and (buffers.rewards[~made] == 0).all()
            assert (np.abs(buffers.observations[~made]) <= 0.05).all()  # a first observation
            ends += ended
        # Pushed to one side, the pole falls in 8 to 10 steps; the final observation is beyond the limit.
        assert len(ends) >= 9 and all(abs(final[2]) > 12 * 2 * np.pi / 360 for _, final in ends)


@pytest.mark.extras("envpool")
def test_seeds_decide_the_first_observations():
    with make_stream(resolve("envpool:CartPole-v1"), num_envs=3, seeds=SEEDS) as stream:
        first = next(steps_of(stream, 1))[0]
        stream.reseed([5, 6, 7])
        other = next(steps_of(stream, 1))[0]
        stream.reseed(SEEDS)
        again = next(steps_of(stream, 1))[0]
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first, other).any() and len(np.unique(first[:, 0])) == 3


@pytest.mark.extras("envpool")
@pytest.mark.parametrize("name", ["BipedalWalker-v3", "AcrobotSwingup-v1", "HalfCheetah-v5", "Game2048-v1"])
def test_spaces_without_bounds_say_so(name):
    with make_stream(resolve(f"envpool:{name}"), num_envs=3, seeds=SEEDS) as stream:
        largest = np.finfo(np.float32).max
        for leaf in spaces_in(stream.observation_space):
            if leaf.dtype.kind == "f":
                assert (np.isneginf(leaf.low) | (leaf.low <= 0)).all() and not (np.abs(leaf.low) == largest).any()


def spaces_in(space):
    parts = getattr(space, "spaces", None)
    return [space] if parts is None else [leaf for part in parts.values() for leaf in spaces_in(part)]


@pytest.mark.extras("envpool")
@pytest.mark.parametrize("name", ["TicTacToe-v1", "Chess-v1", "SparrowMahjong-v1"])
def test_games_of_several_players_are_refused(name):
    with pytest.raises(ValueError, match=rf"'envpool:{name}' is a game of [23] players.*PettingZoo or OpenSpiel"):
        PPOConfig().environment(f"envpool:{name}").build()


@pytest.mark.extras("envpool")
def test_ppo_trains_and_evaluates():
    config = PPOConfig().environment("envpool:CartPole-v1", env_config={"num_threads": 1, "max_episode_steps": 20})
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=8).debugging(seed=0)
    with config.training(train_batch_size=256, sgd_minibatch_size=64, num_sgd_iter=2).build() as algo:
        result = [algo.train() for _ in range(2)][-1]
        assert 8 < result["episode_len_mean"] <= 20 and result["num_env_steps_sampled"] > 450
        assert len(algo.evaluate(5)["hist_stats"]["episode_lengths"]) == 5


@pytest.mark.extras("envpool")
def test_what_would_end_the_process_is_refused():
    with pytest.raises(ValueError, match=r"num_threads=-1, but 'envpool:CartPole-v1' takes no negative number"):
        PPOConfig().environment("envpool:CartPole-v1", env_config={"num_threads": -1}).build()


@pytest.mark.extras("envpool")
def test_nothing_is_warned_of(recwarn):
    with make_stream(resolve("envpool:CartPole-v1"), num_envs=3, seeds=SEEDS) as stream:
        next(steps_of(stream, 1))
    assert not [each for each in recwarn if "precision lowered" in str(each.message)]


@pytest.mark.extras("envpool")
def test_an_environment_that_is_named_to_play_in_is_not_simulated(tmp_path):
    """`rllib evaluate --env`, where the run had a simulator; and evaluation_config may leave it out."""
    config = PPOConfig().environment("CartPole-v1", simulator="envpool").rollouts(num_rollout_workers=0)
    config.training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1)
    # EnvPool lacks these rewards: -1 at the end alone.
    config.evaluation(evaluation_config={"simulator": None, "env_config": {"sutton_barto_reward": True}})
    with config.build() as algo:
        assert algo.evaluate(2)["episode_reward_mean"] == -1
        algo.save(tmp_path / "checkpoint")
    env = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"  # no id, which EnvPool could simulate
    result = CliRunner().invoke(command, ["evaluate", str(tmp_path / "checkpoint"), "--env", env, "--steps", "50"])
    assert result.exit_code == 0, result.output
