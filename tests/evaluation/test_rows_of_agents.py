"""Rows of agents: gold examples worked out by hand, and random schedules beside a slow reference."""

import numpy as np
import pytest
from agent_workers import Schedule, Script, with_values, worker_of
from gymnasium.spaces import Dict
from multi_agent import collect

from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.env.tasks.tic_tac_toe import TicTacToe
from rllib.env.tasks.two_step_game import TwoStepGame

PPO = PPOConfig().training(gamma=0.9, lambda_=0.8)
ALL, OVER = "__all__", {"__all__": True}
A0, A1, A2, B0, B1, B2 = 10.0, 11.0, 12.0, 20.0, 21.0, 22.0
TURNS = (
    {"A": A0},
    ({"B": B0}, {"A": 0, "B": 0}),
    ({"A": A1}, {"A": -1, "B": 1}),
    ({"B": B1}, {"A": 2}),
    ({"A": A2, "B": B2}, {"A": 5, "B": -5}, OVER),
)
VALUES_OF_TURNS = {A0: 0.5, A1: 1.0, B0: 0.0, B1: -1.0}


def sampled(env, num_steps, values, policy_of=lambda agent: f"p{agent}", config=PPO):
    worker = worker_of([env], num_steps, policy_of=policy_of, config=config.copy())
    for policy in worker.policies.values():
        with_values(policy, values)
    return worker


def table(batch, *names):
    """{first number of the observation: the columns' values}."""
    return {float(seen[0]): tuple(float(batch[name][row]) for name in names) for row, seen in enumerate(batch["obs"])}


def near(expected):
    return {key: pytest.approx(values, abs=1e-5) for key, values in expected.items()}


GAE = ("rewards", "terminateds", "truncateds", "advantages", "value_targets")


class TestGoldExamples:
    def test_turns(self):
        env = Script(*TURNS)
        batch, report = sampled(env, 4, VALUES_OF_TURNS).sample()
        assert table(batch["pA"], *GAE) == near({A0: (-1, 0, 0, 3.72, 4.22), A1: (7, 1, 0, 6, 7)})
        assert table(batch["pB"], *GAE) == near({B0: (1, 0, 0, -2.78, -2.78), B1: (-5, 1, 0, -4, -5)})
        (episode,) = report.episodes
        assert episode.agent_returns == {("A", "pA"): 6.0, ("B", "pB"): -4.0}
        assert (episode.episode_return, episode.length) == (2.0, 4)
        assert episode.agent_lengths == {("A", "pA"): 2, ("B", "pB"): 2}
        assert (report.env_steps, dict(report.agent_steps)) == (4, {"pA": 2, "pB": 2})
        assert env.actions[:4] == [{"A"}, {"B"}, {"A"}, {"B"}]

    def test_turns_in_fragments_of_three_steps(self):
        worker = sampled(Script(*TURNS), 3, VALUES_OF_TURNS)
        first, _ = worker.sample()
        assert table(first["pA"], *GAE) == near({A0: (-1, 0, 0, -0.6, -0.1)})
        assert table(first["pB"], *GAE) == near({B0: (1, 0, 0, 0.1, 0.1)})
        second, _ = worker.sample()
        assert table(second["pA"], "rewards")[A1] == (7,)
        assert table(second["pB"], "rewards")[B1] == (-5,)

    def test_one_dies_early_and_another_is_truncated(self):
        x0, x1, y0, y1, y2, y3 = 1.0, 2.0, 3.0, 4.0, 5.0, 6.0
        env = Script(
            {"X": x0, "Y": y0},
            ({"X": x1, "Y": y1}, {"X": -10, "Y": 1}, {"X": True}),
            ({"Y": y2}, {"X": 0, "Y": 1}),
            ({"Y": y3}, {"Y": 1}, {}, {"Y": True, ALL: True}),
        )
        batch, _ = sampled(env, 3, {y0: 1, y1: 2, y2: 3, y3: 4}).sample()
        assert table(batch["pX"], *GAE) == near({x0: (-10, 1, 0, -10, -10)})
        expected = {y0: (1, 0, 0, 3.85344, 4.85344), y1: (1, 0, 0, 2.852, 4.852), y2: (1, 0, 1, 1.6, 4.6)}
        assert table(batch["pY"], *GAE) == near(expected)
        assert env.actions == [{"X", "Y"}, {"Y"}, {"Y"}]

    def test_one_appears_later_and_was_rewarded_before(self):
        m0, m1, m2, m3, n0, n1 = 1.0, 2.0, 3.0, 4.0, 5.0, 6.0
        env = Script(
            {"M": m0},
            ({"M": m1}, {"M": 1, "N": 7}),
            ({"M": m2, "N": n0}, {"M": 1, "N": 3}),
            ({"M": m3, "N": n1}, {"M": 1, "N": 4}, OVER),
        )
        batch, report = sampled(env, 3, {m2: 1, n0: 2}).sample()
        assert table(batch["pM"], "rewards", "advantages") == near({m0: (1, 2.368), m1: (1, 1.9), m2: (1, 0)})
        assert table(batch["pN"], "rewards", "advantages") == near({n0: (4, 2)})
        assert report.episodes[0].agent_returns == {("M", "pM"): 3.0, ("N", "pN"): 14.0}
        assert report.episodes[0].episode_return == 17

    S0, S1, S2, F = 1.0, 2.0, 3.0, 50.0
    EVERY_THIRD = (
        {"S": S0, "F": F},
        ({"F": F + 1}, {"S": 1, "F": 1}),
        ({"F": F + 2}, {"S": 2, "F": 1}),
        ({"S": S1, "F": F + 3}, {"S": 4, "F": 1}),
        ({"F": F + 4}, {"S": 8, "F": 1}),
        ({"F": F + 5}, {"S": 16, "F": 1}),
        ({"S": S2, "F": F + 6}, {"S": 32, "F": 1}, OVER),
    )

    def test_one_acts_in_every_third_step(self):
        batch, report = sampled(Script(*self.EVERY_THIRD), 6, {self.S0: 10, self.S1: 20}).sample()
        assert table(batch["pS"], "rewards", "terminateds", "advantages") == near(
            {self.S0: (7, 0, 40.92), self.S1: (56, 1, 36)}
        )
        advantages = [3.07388, 2.88039, 2.61165, 2.2384, 1.72, 1]
        assert list(batch["pF"]["advantages"]) == pytest.approx(advantages, abs=1e-5)
        assert (report.env_steps, sum(report.agent_steps.values())) == (6, 8)

    def test_rows_of_two_steps_are_of_the_agents_own_steps(self):
        config = DQNConfig().training(gamma=0.9, n_step=2, num_steps_sampled_before_learning_starts=1)
        for num_steps in (1, 2, 3, 6):
            worker = sampled(Script(*self.EVERY_THIRD), num_steps, {}, config=config)
            found = {"pS": {}, "pF": {}}
            for _ in range(6 // num_steps):
                batch, _ = worker.sample()
                for policy_id, rows in batch.policy_batches.items():
                    for row, seen in enumerate(rows["obs"]):
                        found[policy_id][float(seen[0])] = [float(rows[n][row]) for n in ("rewards", "discounts")]
                        found[policy_id][float(seen[0])].append(float(rows["new_obs"][row][0]))
            assert found["pS"][self.S0][:2] == pytest.approx([57.4, 0])
            assert found["pF"][self.F] == pytest.approx([1.9, 0.81, self.F + 2])
            assert len(found["pF"]) == 6

    def test_nobody_acts_for_a_while(self):
        a0, a1, a2, b0, b1 = 1.0, 2.0, 3.0, 4.0, 5.0
        env = Script(
            {"A": a0, "B": b0},
            ({}, {"A": 1}),
            ({}, {"B": 2}),
            ({"A": a1}, {}),
            ({"A": a2, "B": b1}, {"A": 1, "B": 4}, OVER),
        )
        batch, report = sampled(env, 4, {a0: 1, b0: 2, a1: 3}).sample()
        assert env.actions == [{"A", "B"}, set(), set(), {"A"}]
        assert table(batch["pA"], "rewards", "advantages") == near({a0: (1, 1.26), a1: (1, -2)})
        assert table(batch["pB"], "rewards", "advantages") == near({b0: (6, 4)})
        assert (report.episodes[0].length, sum(report.agent_steps.values())) == (4, 3)

    def test_a_time_limit_comes_while_one_waits(self, caplog):
        env = Script(
            {"A": A0},
            ({"B": B0}, {}),
            ({"A": A1}, {"A": 1, "B": 1}),
            ({"B": B1}, {"A": 2}, {}, OVER),
        )
        batch, report = sampled(env, 3, VALUES_OF_TURNS).sample()
        assert table(batch["pA"], *GAE[:4]) == near({A0: (1, 0, 1, 1.4)})
        assert table(batch["pB"], *GAE[:4]) == near({B0: (1, 0, 1, 0.1)})
        assert report.episodes[0].agent_returns == {("A", "pA"): 3.0, ("B", "pB"): 1.0}

    def test_a_time_limit_that_ends_episodes_leaves_a_row_whose_successor_was_dropped(self):
        env = Script(
            {"A": 1.0, "B": 10.0},
            ({"A": 2.0, "B": 11.0}, {}),
            ({"B": 12.0}, {}),
            ({"B": 13.0}, {}, {}, OVER),
        )
        worker = worker_of([env], 3, policy_of=lambda agent: "p0", config=PPO.copy(), time_limit_ends_episode=True)
        batch, _ = worker.sample()
        flags = table(batch["p0"], "terminateds", "truncateds")
        assert flags == near({1.0: (0, 1), 10.0: (0, 0), 11.0: (0, 0), 12.0: (1, 0)})

    def test_sequences_of_a_shared_policy_are_never_mixed(self):
        config = PPO.copy().training(model={"use_lstm": True, "lstm_cell_size": 8})
        worker = worker_of([Script(*TURNS)], 4, policy_of=lambda agent: "p0", config=config)
        batch, _ = worker.sample()
        assert list(batch["p0"]["seq_lens"]) == [2, 2]
        assert [float(seen[0]) for seen in batch["p0"]["obs"]] == [A0, A1, B0, B1]
        # The state before an agent's second action is the one that its own first action has left.
        policy = worker.policies["p0"]
        state = np.zeros((1, policy.state_size), np.float32)
        following = np.empty_like(state)
        policy.network.step(policy.encode(np.array([[A0]], np.float32)), state, following)
        wanted = policy.network.step(policy.encode(np.array([[A1]], np.float32)), following, state).copy()
        np.testing.assert_allclose(batch["p0"]["action_dist_inputs"][1], wanted[0], rtol=1e-4, atol=1e-6)


class TestMasks:
    class Unmasked(TicTacToe):
        observation_space = Dict(observation=TicTacToe.observation_space["observation"])

        def _seen(self, observations):
            return {agent: {"observation": seen["observation"]} for agent, seen in observations.items()}

        def reset(self, *, seed=None, options=None):
            observations, infos = super().reset(seed=seed)
            return self._seen(observations), infos

        def step(self, action_dict):
            observations, *rest = super().step(action_dict)
            return self._seen(observations), *rest

    @staticmethod
    def games(kind, count):
        """Returns of both players in this number of games of a policy that chooses at random against itself."""
        worker = worker_of([kind() for _ in range(32)], 50, config=PPO.copy().training(model={"fcnet_hiddens": [4]}))
        found = []
        while len(found) < count:
            found += [tuple(episode.agent_returns.values()) for episode in worker.sample()[1].episodes]
        return found

    def test_legal_moves_alone_are_made(self):
        # Whoever makes an illegal move gets -1, and the other one 0.
        assert set(self.games(TicTacToe, 400)) == {(1, -1), (0, 0), (-1, 1)}

    def test_without_masks_whoever_errs_loses_alone(self):
        assert {(-1, 0), (0, -1)} < set(self.games(self.Unmasked, 100))


def test_a_group_is_one_agent_with_the_choices_and_the_rewards_of_its_members():
    worker = worker_of([TwoStepGame().with_agent_groups({"both": ["agent_0", "agent_1"]})], 40)
    batch, report = worker.sample()
    rows = batch.policy_batches["p0"]
    assert dict(report.agent_steps) == {"p0": 40}
    for seen, choices, reward, is_over in zip(*(rows[name] for name in ("obs", "actions", "rewards", "terminateds"))):
        assert len(seen) == 2 * 5 and len(choices) == 2
        state = int(seen[:3].argmax())
        assert reward == (0, 7, choices.sum() if choices.sum() < 2 else 8)[state]
        assert is_over == (state > 0)


@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")  # what numpy before 2.4 says of them
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    "reward", [2, np.int8(2), np.float16(2), np.bool_(True), np.array(2.0), np.array([2.0]), np.array([[2]]), [2.0]]
)
def test_a_reward_is_any_single_number(reward, waits):
    """As with one agent: an array of one number is a number, whether its agent acts again, waits or has ended."""
    number = float(np.asarray(reward).item())
    seen = {"a": 1} if waits else {"a": 1, "b": 1}
    given = {"a": reward, "b": reward}
    over = {"__all__": True}
    env = Script({"a": 0, "b": 0}, (seen, given), (seen, given, {"b": True}), ({}, given, over))
    batch, report = worker_of([env], 3).sample()
    assert sum(batch.policy_batches["p0"]["rewards"]) == 5 * number
    (episode,) = report.episodes
    assert set(episode.agent_returns.values()) == {3 * number}


def rows(batch):
    """Rows as (number of the observation, agent, reward, flags)."""
    if batch is None:
        return []
    columns = batch["obs"], batch["rewards"], batch["terminateds"], batch["truncateds"]
    return [(float(o[0]), float(o[1]), float(r), bool(e), bool(u)) for o, r, e, u in zip(*columns)]


@pytest.mark.parametrize("block", range(10))
def test_random_schedules_make_the_rows_of_the_reference(block):
    for seed in range(30 * block, 30 * (block + 1)):
        rng = np.random.default_rng(seed)
        num_steps, num_envs = int(rng.integers(1, 10)), int(rng.integers(1, 4))
        worker = worker_of([Schedule(1000 * seed + i) for i in range(num_envs)], num_steps)
        count = 40 // num_steps
        found, episodes, total = [], [], 0
        for _ in range(count):
            batch, report = worker.sample()
            found += rows(batch.policy_batches.get("p0"))
            episodes += report.episodes
        for i in range(num_envs):
            expected, _, ended = collect(Schedule(1000 * seed + i), lambda agent, seen: 0, count * num_steps)
            wanted = [(*map(float, r["obs"]), r["reward"], r["terminated"], r["truncated"]) for r in expected]
            for row in wanted:
                # Where a fragment ends before a dropped row, the row before is in an earlier batch, not marked as cut.
                assert row in found or (*row[:4], not row[4]) in found
            mine = [episode for episode in episodes if episode.env_index == i]
            assert [(e.episode_return, e.length) for e in mine] == [(sum(r.values()), t) for r, t in ended]
            total += len(expected)
        assert len(found) == total
