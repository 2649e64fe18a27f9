"""Steps that `rllib evaluate --out` and `rllib record --to` write: of which episodes, and what the environments do."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rllib import DQNConfig, PPOConfig, SACConfig, TD3Config
from rllib.offline.dataset import Dataset
from tests.envs import Lives, in_vector


class Drawn(gymnasium.Env):
    """Episodes of 2 to 11 steps, drawn by the seed; `length` of the config: all of that length."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    reward = 1.0

    def __init__(self, config=None):
        self.config = dict(config or {})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = self.config.get("length", int(self.np_random.integers(2, 12)))
        return self.np_random.random(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        return self.np_random.random(2, np.float32), self.reward, not self.left, False, {}


class Masked(Drawn):
    """No action is legal in final observations."""

    observation_space = gymnasium.spaces.Dict(
        {"observation": Drawn.observation_space, "action_mask": gymnasium.spaces.MultiBinary(2)}
    )

    def reset(self, **options):
        observation, info = super().reset(**options)
        return {"observation": observation, "action_mask": np.ones(2, np.int8)}, info

    def step(self, action):
        observation, *result = super().step(action)
        return {"observation": observation, "action_mask": np.full(2, self.left > 0, np.int8)}, *result


class Other(Drawn):
    reward = 5.0


class Chosen(Drawn):
    """The reward is the action."""

    def step(self, action):
        observation, _, *result = super().step(action)
        return observation, float(np.ravel(action)[0]), *result


class Squared(Chosen):
    """The bounds of the actions are those of no policy."""

    action_space = gymnasium.spaces.Box(-3.0, 3.0, (1,), np.float32)


class Halved(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward / 2


def counted(env):
    """The class with counts of what the environments of evaluations and recordings do."""

    class Counted(env):
        steps = resets = 0

        def __init__(self, config=None):
            super().__init__(config)
            self._counts = getattr(config, "in_evaluation", False)

        def reset(self, **options):
            Counted.resets += self._counts
            return super().reset(**options)

        def step(self, action):
            Counted.steps += self._counts
            return super().step(action)

    return Counted


def saved(directory, env, evaluation_config=None, model=(), **more):
    config = PPOConfig().environment(env, **more).evaluation(evaluation_config=evaluation_config)
    config.rollouts(num_rollout_workers=0).training(model={"fcnet_hiddens": [4], **dict(model)}).debugging(seed=3)
    with config.build() as algorithm:
        algorithm.save(directory)
    return directory


COMMANDS = {"evaluate": ("evaluate", "--out"), "record": ("record", "--to")}
WORLDS = {
    "plain": (Drawn, {}),
    "a memory": (Drawn, {"use_lstm": True, "lstm_cell_size": 4}),
    "a mask": (Masked, {}),
    "lives": (Lives, {}),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("evaluation_config", [None, {"num_envs_per_worker": 2}], ids=str)
def test_environments_make_the_steps_that_are_written(rllib_command, tmp_path, command, world, evaluation_config):
    env, model = WORLDS[world]
    env = counted(env)
    saved(tmp_path / "checkpoint", env, evaluation_config, model)
    verb, target = COMMANDS[command]
    for episodes in (1, 3, 8, 11):
        env.steps = env.resets = 0
        result = rllib_command(verb, "checkpoint", "--episodes", episodes, target, f"{episodes}.npz",
                               "--load-user-code")  # fmt: skip
        assert result.exit_code == 0, result.output
        written = Dataset.from_path(f"{episodes}.npz")
        lives = 3 if world == "lives" else 1
        unused = 1 if command == "evaluate" and evaluation_config and episodes == 1 else 0  # reset, as in evaluations
        assert len(written) == env.steps and env.resets - unused == written.num_episodes == lives * episodes
        assert written.columns["terminateds"].sum() == lives * episodes


@pytest.mark.parametrize("steps", [1, 10, 300, 5001])
def test_environments_make_the_number_of_steps_that_is_asked_for(rllib_command, tmp_path, steps):
    env = counted(Drawn)
    saved(tmp_path / "checkpoint", env)
    result = rllib_command("record", "checkpoint", "--steps", steps, "--to", "steps.npz", "--load-user-code")
    assert result.exit_code == 0, result.output
    written = Dataset.from_path("steps.npz")
    assert len(written) == env.steps == steps and env.resets == written.num_episodes


FORMS = {
    "none": None,
    "an environment's config": {"env_config": {"length": 3}},
    "another environment": {"env": Other},
    "wrappers": {"env_wrappers": [Halved]},
    "a seed": {"seed": 17},
    "one environment": {"num_envs_per_worker": 1},
    "more environments": {"num_envs_per_worker": 9},
    "disturbances": {"disturbances": {"observation_noise": 0.5}},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", [("--episodes", 5), ("--steps", 20)], ids=str)
def test_what_is_written_is_the_evaluation(rllib_command, tmp_path, form, length):
    saved(tmp_path / "checkpoint", Drawn, FORMS[form])
    words = ("evaluate", "checkpoint", *length, "--json", "--load-user-code")
    result, again = rllib_command(*words), rllib_command(*words, "--out", "steps.npz")
    assert again.output == result.output, again.output
    returns = json.loads(result.output)["hist_stats"]["episode_reward"]
    assert sorted(Dataset.from_path("steps.npz").returns.tolist()) == pytest.approx(sorted(returns))
    table = [line for line in rllib_command(*words[:-2], "--load-user-code").output.splitlines() if line]
    (tmp_path / "steps.npz").unlink()
    written = rllib_command(*words[:-2], "--load-user-code", "--out", "steps.npz").output.splitlines()
    assert written[2:] == table and written[0].startswith("steps.npz") and written[1].startswith("rows  ")


SMALL = {"model": {"fcnet_hiddens": [4]}}
EXPLORED = {
    "PPO": (PPOConfig, Chosen, SMALL, None),
    "PPO of a Box": (PPOConfig, Squared, SMALL, None),
    "PPO with a memory": (PPOConfig, Chosen, {"model": {"use_lstm": True, "lstm_cell_size": 4}}, None),
    "lives": (PPOConfig, Lives, SMALL, None),
    "a mask": (PPOConfig, Masked, SMALL, None),
    "gSDE": (PPOConfig, Squared, {"model": {"fcnet_hiddens": [4], "use_sde": True}}, None),
    "a filter": (PPOConfig, Chosen, SMALL, None),
    "DQN": (DQNConfig, Chosen, SMALL, {"initial_epsilon": 0.5}),
    "noisy layers": (DQNConfig, Chosen, {**SMALL, "noisy": True}, None),
    "noise of parameters": (DQNConfig, Chosen, SMALL, {"type": "ParameterNoise"}),
    "SAC at random": (SACConfig, Squared, {}, {"type": "StochasticSampling", "random_timesteps": 100_000}),
    "TD3": (TD3Config, Squared, {}, {"type": "GaussianNoise", "random_timesteps": 0}),
    "TD3 at random": (TD3Config, Squared, {}, {"type": "GaussianNoise", "random_timesteps": 100_000}),
    "noise of each worker": (TD3Config, Squared, {}, {"type": "PerWorkerGaussianNoise", "random_timesteps": 0}),
    "correlated noise": (TD3Config, Squared, {}, {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 0}),
}


def explored(directory, name, evaluation_config=None):
    kind, env, training, exploration = EXPLORED[name]
    config = kind().environment(env).training(**training).debugging(seed=3)
    config.evaluation(evaluation_config=evaluation_config).rollouts(num_rollout_workers=0)
    if exploration is not None:
        config.exploration(exploration_config=exploration)
    if name == "a filter":
        config.rollouts(observation_filter="MeanStdFilter")
    with config.build() as algorithm:
        algorithm.save(directory)


def check_alike(rllib_command, *words):
    """Checks that --out writes the episodes that are played without it; returns the steps."""
    words = ("evaluate", "checkpoint", "--json", "--load-user-code", *words)
    result, again = rllib_command(*words), rllib_command(*words, "--out", "steps.npz")
    assert result.exit_code == 0, result.output
    assert again.output == result.output
    written, played = Dataset.from_path("steps.npz"), json.loads(result.output)["hist_stats"]["episode_reward"]
    assert written.returns.sum() == pytest.approx(sum(played), rel=1e-5, abs=1e-5)
    return written


@pytest.mark.parametrize("name", EXPLORED)
@pytest.mark.parametrize("length", [("--episodes", 11), ("--steps", 30)], ids=str)
def test_what_is_written_explores_as_the_evaluation(rllib_command, tmp_path, name, length):
    explored(tmp_path / "checkpoint", name)
    written = check_alike(rllib_command, "--explore", *length)
    assert written.metadata["behaviour"]["explore"] is True
    if name == "SAC at random":  # the policy's own probabilities, not those of training's first steps
        assert len(np.unique(written.columns["action_logp"])) > 1


@pytest.mark.parametrize("num_envs", [{}, {"num_envs_per_worker": 1}, {"num_envs_per_worker": 3}], ids=str)
@pytest.mark.parametrize("episodes", [1, 2, 4])
def test_draws_are_those_of_the_number_of_environments(rllib_command, tmp_path, num_envs, episodes):
    explored(tmp_path / "checkpoint", "PPO of a Box", {"explore": True, **num_envs})
    check_alike(rllib_command, "--episodes", episodes)


@pytest.mark.parametrize("explore", [(), ("--explore",)], ids=str)
@pytest.mark.parametrize("length", [("--episodes", 1), ("--episodes", 5), ("--steps", 31)], ids=str)
@pytest.mark.parametrize("name", ["PPO of a Box", "noise of each worker"])
def test_processes_of_the_evaluation_write_what_they_play(rllib_command, tmp_path, explore, length, name):
    explored(tmp_path / "checkpoint", name)
    check_alike(rllib_command, "--config", '{"evaluation_num_workers": 2}', *explore, *length)


@pytest.mark.parametrize(("normalizes", "size"), [(True, 1.9), (False, 0.8)])
def test_actions_have_the_units_of_the_evaluation(rllib_command, tmp_path, normalizes, size):
    forms = {"normalize_actions": normalizes, "clip_actions": True, "explore": True}
    saved(tmp_path / "checkpoint", Squared, forms)
    result = rllib_command("evaluate", "checkpoint", "--episodes", 40, "--out", "steps.npz", "--load-user-code")
    assert result.exit_code == 0, result.output
    written = Dataset.from_path("steps.npz")
    assert written.metadata["behaviour"]["explore"] is True and "action_logp" in written.columns
    # Means of the size of a standard normal that is cut at 1 and stretched to 3, or is cut at 3.
    assert np.abs(written.columns["rewards"]).mean() == pytest.approx(size, rel=0.2)


def test_the_training_environment_is_recorded_whatever_evaluation_has(rllib_command, tmp_path):
    forms = {"env": Other, "env_config": {"length": 3}, "explore": True}
    saved(tmp_path / "checkpoint", Drawn, forms, disturbances={"observation_noise": 5.0})
    result = rllib_command("record", "checkpoint", "--episodes", 8, "--to", "steps.npz", "--load-user-code")
    assert result.exit_code == 0, result.output
    written = Dataset.from_path("steps.npz")
    assert (written.columns["rewards"] == 1).all() and len(set(written.lengths)) > 1
    assert written.columns["obs"].min() >= 0 and written.columns["obs"].max() <= 1
    assert written.metadata["behaviour"]["explore"] is False


@pytest.mark.parametrize("more", [(), ("--out", "steps.npz")], ids=["evaluated", "written"])
def test_options_count_before_the_settings_of_evaluation(rllib_command, tmp_path, more):
    saved(tmp_path / "checkpoint", Drawn, {"env": Other, "env_config": {"length": 3}, "seed": 17})

    def played(*options):
        (tmp_path / "steps.npz").unlink(missing_ok=True)
        words = ("evaluate", "checkpoint", "--episodes", 8, "--json", "--load-user-code")
        result = rllib_command(*words, *options, *more)
        assert result.exit_code == 0, result.output
        return json.loads(result.output)["hist_stats"]

    assert set(played()["episode_lengths"]) == {3}
    there = [f"{__name__}:Drawn", "--seed"]
    first, second = played("--env", *there, 1), played("--env", *there, 2)
    assert len(set(first["episode_lengths"])) > 1 and first != second
    assert first["episode_reward"] == first["episode_lengths"]


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=str)
@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("explore", [(), ("--explore",)], ids=str)
def test_episodes_of_a_vector_environment_are_those_that_were_asked_for(
    rllib_command, tmp_path, mode, num_envs, explore
):
    env = in_vector(Chosen, mode)
    config = PPOConfig().environment(env).training(model={"fcnet_hiddens": [4]}).debugging(seed=3)
    with config.rollouts(num_rollout_workers=0, num_envs_per_worker=num_envs).build() as algorithm:
        algorithm.save(tmp_path / "checkpoint")
    for episodes in (6, 3):
        written = check_alike(rllib_command, "--episodes", episodes, *explore)
        assert written.num_episodes == episodes
        (tmp_path / "steps.npz").unlink()
    cut = rllib_command("record", "checkpoint", "--steps", 33, "--to", "cut.npz", "--load-user-code")
    assert cut.exit_code == 0 and len(Dataset.from_path("cut.npz")) == 33, cut.output
