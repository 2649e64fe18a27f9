"""Steps after which the same agents act again take a short way: bits, counts and hooks are those of the general way.

The worlds are drawn: in some episodes all agents act until the end, in others one ends early, waits, or comes late.
Steps of a world that gives its observations in another Mapping than a dict never take the short way.
"""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from gymnasium.wrappers import TimeLimit
from numpy.testing import assert_equal

from rllib import Algorithm, DefaultCallbacks, DQNConfig, PPOConfig, SACConfig
from rllib.env.multi_agent import MultiAgentEnv
from rllib.env.multi_agent.pettingzoo_envs import ParallelPettingZooEnv
from rllib.evaluation.multi_agent.environment_episode import EnvironmentEpisode
from rllib.policies import PolicySpec, RandomPolicy

pytestmark = pytest.mark.usefixtures("workers_know_the_module")

AGENTS = ["a", "b", "c"]
KINDS = ("all", "dies", "waits", "late")
SEEN = Box(-50, 50, (5,), np.float32)


class Observations(dict):
    """No dict to the letter, so that no step is taken in on the short way."""


class Drawn(MultiAgentEnv):
    """Three agents, who see their number, the step, their last action and a random number. Rewards have many types.

    Config:
        general: whether no step may take the short way.
        kinds: what may happen in an episode, of KINDS.
        masked: whether observations have masks.
    """

    possible_agents = AGENTS
    action_spaces = dict.fromkeys(AGENTS, Discrete(3))

    def __init__(self, config):
        super().__init__()
        self._general, self._kinds = config.get("general", False), config.get("kinds", KINDS)
        self._masked = config.get("masked", False)
        space = Dict({"action_mask": MultiBinary(3), "observations": SEEN}) if self._masked else SEEN
        self.observation_spaces = dict.fromkeys(AGENTS, space)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        rng = self.np_random
        self._kind, self._who = self._kinds[int(rng.integers(len(self._kinds)))], AGENTS[int(rng.integers(3))]
        self._when, self._length = int(rng.integers(1, 8)), int(rng.integers(3, 14))
        self._terminates, self._dies = bool(rng.integers(2)), bool(rng.integers(2))
        self._time, self._ended = 0, set()
        self._actions = dict.fromkeys(AGENTS, 0)
        return self._seen(), {}

    def _acts(self, agent):
        if agent in self._ended or agent != self._who:
            return agent not in self._ended
        if self._kind == "late":
            return self._time >= self._when
        return self._kind != "waits" or self._time % 4 < 2

    def _seen(self, ending=()):
        found = Observations() if self._general else {}
        for place, agent in enumerate(AGENTS):
            if self._acts(agent) or agent in ending:
                numbers = [place, self._time, self._actions[agent], self.np_random.integers(9), 1]
                row = np.array(numbers, np.float32)
                mask = np.roll(np.array([1, 1, 0], np.int8), self._time + place)
                found[agent] = {"action_mask": mask, "observations": row} if self._masked else row
        return found

    def step(self, action_dict):
        self._time += 1
        self._actions.update(action_dict)
        types = (float, int, np.float32, np.float64, np.int64)
        rewards = {
            agent: types[(self._time + place) % 5](1 + 0.1 * place + int(action_dict[agent]))
            for place, agent in enumerate(AGENTS)
            if agent in action_dict
        }
        is_over = self._time >= self._length
        terminateds, truncateds = ({"__all__": is_over and self._terminates is kind} for kind in (True, False))
        ending = set()
        if self._kind == "dies" and self._time == self._when and not is_over:
            ending = {self._who}
            (terminateds if self._dies else truncateds)[self._who] = True
            self._ended |= ending
        infos = {agent: {"cost": 0.1 * self._time} for agent in action_dict}
        return self._seen(ending), rewards, terminateds, truncateds, infos


def limited(config):
    """Drawn, whose episodes are truncated after six steps."""
    return TimeLimit(Drawn(config), 6)


class Heard(DefaultCallbacks):
    """Notes what hooks of episodes get."""

    notes: list = []  # noqa: RUF012

    def on_episode_start(self, *, episode, **_):
        self.notes.append(("start", episode.episode_id))

    def on_episode_step(self, *, episode, **_):
        newest = [
            (agent, episode.last_reward_for(agent), episode.last_action_for(agent), episode.last_info_for(agent))
            for agent in episode.get_agents()
        ]
        self.notes.append(("step", episode.length, episode.agent_rewards, episode.agent_steps(), newest))

    def on_episode_end(self, *, episode, **_):
        self.notes.append(("end", episode.length, episode.total_reward))
        episode.custom_metrics["length"] = episode.length

    def on_postprocess_trajectory(self, *, agent_id, postprocessed_batch, **_):
        self.notes.append(("rows", agent_id, postprocessed_batch["rewards"].tolist()))


def ppo(**training):
    small = {"train_batch_size": 48, "sgd_minibatch_size": 24, "num_sgd_iter": 2, "lr": 0.01}
    model = training.pop("model", {"fcnet_hiddens": [8]})
    return PPOConfig().training(**small, model=model, **training)


def off_policy(config, **training):
    config.training(train_batch_size=16, num_steps_sampled_before_learning_starts=16, **training)
    return config.training(replay_buffer_config={"capacity": 500}).reporting(min_sample_timesteps_per_iteration=48)


LSTM = {"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [8], "max_seq_len": 5}
OWN = {"policies": "own"}
HAND = {
    "policies": {"first": None, "rest": None, "random": PolicySpec(RandomPolicy)},
    "policy_mapping_fn": {"a": "first", "b": "rest", "c": "random"},
    "policies_to_train": ["first"],
}
# name -> (config, settings of .multi_agent(), of .environment())
CASES = {
    "one policy": lambda: (ppo(), {}, {}),
    "own policies": lambda: (ppo(), OWN, {}),
    "policies that do not learn": lambda: (ppo(), HAND, {}),
    "memory": lambda: (ppo(model=LSTM), OWN, {}),
    "filters": lambda: (ppo().rollouts(observation_filter="MeanStdFilter"), OWN, {}),
    "masks": lambda: (ppo(), {}, {"env_config": {"masked": True}}),
    "scaled rewards": lambda: (ppo(), {}, {"normalize_returns": True}),
    "time limits": lambda: (ppo(), OWN, {"env": limited}),
    "time limits as ends": lambda: (ppo(), {}, {"env": limited, "time_limit_ends_episode": True}),
    "whole episodes": lambda: (ppo().rollouts(batch_mode="complete_episodes"), OWN, {}),
    "steps of agents": lambda: (ppo(), {"count_steps_by": "agent_steps"}, {}),
    "n steps": lambda: (off_policy(DQNConfig(), n_step=3), {}, {}),
    "critics": lambda: (off_policy(SACConfig()), OWN, {}),
    "evaluation": lambda: (ppo().evaluation(evaluation_interval=1, evaluation_duration=3), OWN, {}),
}


def config_of(case, general, workers=0, envs=2, seed=0, **env_config):
    config, agents, environment = CASES[case]()
    env_config = {**environment.pop("env_config", {}), **env_config, "general": general}
    environment.setdefault("env", Drawn)
    config.environment(env_config=env_config, **environment).multi_agent(**{"policies": "shared", **agents})
    config.rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, rollout_fragment_length=12)
    return config.debugging(seed=seed).reporting(min_time_s_per_iteration=None)


def counted(result):
    names = ("timesteps_total", "num_agent_steps_sampled", "num_agent_steps_trained", "episodes_total", "hist_stats")
    more = ("policy_reward_mean", "episode_reward_mean", "episode_len_mean", "info", "custom_metrics", "evaluation")
    return {name: without_times(result[name]) for name in (*names, *more) if name in result}


def without_times(value):
    if not isinstance(value, dict):
        return value
    return {k: without_times(v) for k, v in value.items() if "time" not in str(k) and "throughput" not in str(k)}


def weights_of(algorithm):
    return {i: np.array(policy.weights) for i, policy in algorithm.policies.items() if hasattr(policy, "weights")}


def trained(config, tmp_path, iterations=2):
    """Weights and counts of a run, and of one that goes on from its checkpoint."""
    with config.build() as algorithm:
        results = [counted(algorithm.train()) for _ in range(iterations)]
        algorithm.save_checkpoint(tmp_path)
        weights = [weights_of(algorithm)]
    with Algorithm.from_checkpoint(tmp_path, load_user_code=True) as algorithm:
        results.append(counted(algorithm.train()))
        weights.append(weights_of(algorithm))
    return weights, results


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", CASES)
def test_runs_are_the_same(case, seed, tmp_path):
    short = trained(config_of(case, False, seed=seed), tmp_path / "short")
    assert_equal(short, trained(config_of(case, True, seed=seed), tmp_path / "general"))


@pytest.mark.parametrize("case", ["own policies", "memory", "filters"])
def test_runs_of_two_workers_are_the_same(case, tmp_path):
    short = trained(config_of(case, False, workers=2), tmp_path / "short")
    assert_equal(short, trained(config_of(case, True, workers=2), tmp_path / "general"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("envs", [1, 3])
def test_rows_and_hooks_are_the_same(kind, envs, monkeypatch):
    general_steps = [0]
    take_in = EnvironmentEpisode.take_in

    def counting(self, actions, step):
        general_steps[0] += 1
        return take_in(self, actions, step)

    monkeypatch.setattr(EnvironmentEpisode, "take_in", counting)

    def sampled(general):
        Heard.notes, general_steps[0] = [], 0
        config = config_of("own policies", general, envs=envs, kinds=(kind,)).callbacks(Heard)
        config.training(train_batch_size=12 * envs, sgd_minibatch_size=6)
        with config.build() as algorithm:
            worker = algorithm.workers.local_worker()
            samples = [worker.sample() for _ in range(8)]
        rows = [{i: dict(b) for i, b in batch.policy_batches.items()} for batch, _ in samples]
        counts = [(list(r.episodes), r.agent_steps, r.agent_steps_by_agent, r.longest_running) for _, r in samples]
        return rows, counts, Heard.notes, general_steps[0]

    *short, few = sampled(False)
    *expected, all_of_them = sampled(True)
    assert_equal(short, expected)
    assert all_of_them == 8 * 12 * envs
    assert 0 < few < all_of_them * (0.4 if kind == "all" else 0.9)


class Parallel:
    """Drawn with PettingZoo's methods; ended agents keep their entries if `keeps` is set."""

    metadata, render_mode = {"name": "drawn"}, None

    def __init__(self, keeps):
        self._env, self._keeps = Drawn({"kinds": ("all", "dies")}), keeps
        self.possible_agents, self.agents = list(AGENTS), []

    def observation_space(self, agent):
        return SEEN

    def action_space(self, agent):
        return Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents, (seen, _) = list(AGENTS), self._env.reset(seed=seed)
        return seen, {agent: {} for agent in seen}

    def step(self, actions):
        before, (seen, rewards, terminateds, truncateds, _) = self.agents, self._env.step(actions)
        flags = [{a: f.get(a, False) or f["__all__"] for a in before} for f in (terminateds, truncateds)]
        self.agents = [agent for agent in before if not (flags[0][agent] or flags[1][agent])]
        named = AGENTS if self._keeps else before
        return (
            {agent: seen.get(agent, np.zeros(5, np.float32)) for agent in named},
            {agent: float(rewards.get(agent, 0.0)) for agent in named},
            *({agent: each.get(agent, True) for agent in named} for each in flags),
            {agent: {} for agent in named},
        )


@pytest.mark.parametrize("seed", range(4))
def test_entries_of_agents_that_have_ended_are_left_out(seed):
    leaving, keeping = ParallelPettingZooEnv(Parallel(False)), ParallelPettingZooEnv(Parallel(True))
    for _ in range(6):
        assert_equal(leaving.reset(seed=seed), keeping.reset(seed=seed))
        is_over = False
        while not is_over:
            actions = dict.fromkeys(leaving.agents, 1)
            (seen, _, *flags), (other, _, *other_flags) = leaving.step(actions), keeping.step(actions)
            assert_equal((seen, *flags), (other, *other_flags))
            is_over = flags[0]["__all__"] or flags[1]["__all__"]
