"""Rows of agents that must not depend on fragments, workers, dicts, arrays that are used again, or unknown ids."""

import gc
import tracemalloc

import numpy as np
import pytest
from agent_workers import SPACES, Schedule, worker_of
from gymnasium.spaces import Box, Dict
from multi_agent import FlexAgentsMultiAgent, collect

from rllib.algorithms.ppo import PPOConfig
from rllib.env.multi_agent import MultiAgentEnv
from rllib.env.multi_agent.pettingzoo_envs import PettingZooEnv

LSTM = {"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [8], "max_seq_len": 5}
ROW = ("obs", "actions", "rewards", "terminateds", "truncateds")


def sampled(worker, num_samples):
    """Batches of the policy p0, and the reports."""
    results = [worker.sample() for _ in range(num_samples)]
    return [batch.policy_batches["p0"] for batch, _ in results if "p0" in batch.policy_batches], [r for _, r in results]


def by_agent(batches, names=ROW):
    """(episode, agent) -> its rows in the order of time; Schedule's observations name both."""
    found = {}
    for batch in batches:
        for row, (number, agent) in enumerate(batch["obs"]):
            values = tuple(np.ravel(batch[name][row]).tolist() for name in names)
            found.setdefault((int(number) // 1000, int(agent)), []).append(values)
    return found


def reference(seeds, num_steps):
    """Number of the observation, agent, reward, flags: rows of the slow reference, sorted."""
    found = []
    for seed in seeds:
        rows, _, _ = collect(Schedule(seed), lambda agent, seen: 0, num_steps)
        found += [(*map(float, r["obs"]), r["reward"], r["terminated"]) for r in rows]
    return sorted(found)


def plain(batches):
    columns = [(b["obs"], b["rewards"], b["terminateds"]) for b in batches]
    return sorted((float(o[0]), float(o[1]), float(r), bool(e)) for parts in columns for o, r, e in zip(*parts))


class TestFragments:
    @pytest.mark.parametrize("num_steps", range(1, 10))
    def test_any_length_gives_the_rows_of_the_reference(self, num_steps):
        for seed in range(8):
            worker = worker_of([Schedule(seed), Schedule(100 + seed)], num_steps)
            batches, _ = sampled(worker, 36 // num_steps)
            assert plain(batches) == reference((seed, 100 + seed), 36 // num_steps * num_steps)

    @pytest.mark.parametrize("model", [{}, LSTM])
    def test_actions_and_states_do_not_depend_on_it(self, model):
        def of(num_steps):
            worker = worker_of([Schedule(5)], num_steps, config=PPOConfig().training(model=model))
            return by_agent(sampled(worker, 56 // num_steps)[0])

        whole = of(56)
        for num_steps in (1, 4, 7):
            parts = of(num_steps)
            # A dropped row truncates the one before it in its own fragment only.
            assert {k: [r[:4] for r in rows] for k, rows in parts.items()} == {
                k: [r[:4] for r in rows] for k, rows in whole.items()
            }

    @pytest.mark.parametrize("num_envs", [1, 2])
    def test_complete_episodes(self, num_envs):
        envs = [Schedule(40 + index) for index in range(num_envs)]
        worker = worker_of(envs, 7, complete_episodes=True)
        for _ in range(5):
            batch, report = worker.sample()
            batch = batch.policy_batches.get("p0")
            assert report.env_steps == sum(episode.length for episode in report.episodes) >= 7 * num_envs
            ended = {}
            for (episode, agent), rows in by_agent([] if batch is None else [batch]).items():
                ended[episode, agent] = [terminated[0] or truncated[0] for *_, terminated, truncated in rows]
            assert all(flags[-1] and not any(flags[:-1]) for flags in ended.values()) or num_envs > 1

    def test_complete_episodes_give_the_rows_of_the_reference(self):
        worker = worker_of([Schedule(40)], 7, complete_episodes=True)
        batches, reports = sampled(worker, 5)
        assert plain(batches) == reference([40], sum(report.env_steps for report in reports))

    @pytest.mark.parametrize("complete", [False, True])
    def test_lengths_in_steps_of_agents(self, complete):
        own = {"counts_agent_steps": True}
        worker = worker_of([Schedule(1), Schedule(2)], 10, own=own, complete_episodes=complete)
        batches, reports = sampled(worker, 6)
        for batch, report in zip(batches, reports):
            steps = sum(report.agent_steps.values())
            assert steps >= 20 and batch.count == steps
            assert complete or steps <= 20 + 6 - 1, "no more than one step of all agents too many"
        assert sum(report.env_steps for report in reports) > 60
        if not complete:
            assert plain(batches) == reference((1, 2), sum(report.env_steps for report in reports) // 2)


class TestMemory:
    def test_states_begin_with_an_agents_first_observation_and_follow_its_own(self):
        worker = worker_of([Schedule(3)], 9, config=PPOConfig().training(model=LSTM))
        policy, states = worker.policies["p0"], {}
        rows = by_agent(sampled(worker, 8)[0], ("obs", "action_dist_inputs"))
        assert len(rows) > 6
        for key, steps in sorted(rows.items()):
            state = np.zeros((1, policy.state_size), np.float32)
            for seen, dist_inputs in steps:
                following = np.empty_like(state)
                inputs = policy.encode(np.array([seen], np.float32))
                np.testing.assert_allclose(policy.network.step(inputs, state, following)[0], dist_inputs, atol=1e-5)
                state = following
            states[key] = state


class TestFilters:
    def test_every_observation_is_counted_once(self):
        config = PPOConfig().rollouts(observation_filter="MeanStdFilter")
        worker = worker_of([Schedule(3), Schedule(4)], 6, config=config)
        counted = 0
        for _ in range(6):
            _, report = worker.sample()
            counted += int(np.sum(report.filter_deltas["p0"]["count"]))
            worker.take_in(report)
        expected = 0
        for seed in (3, 4):
            env = Schedule(seed)
            seen = len(env.reset()[0])
            for _ in range(36):
                observations, _, terminateds, truncateds, _ = env.step({})
                is_over = terminateds["__all__"] or truncateds["__all__"]
                acting = [a for a in observations if not (terminateds.get(a) or truncateds.get(a))]
                seen += len(env.reset()[0]) if is_over else len(acting)
            expected += seen
        assert counted == expected


def test_masks_are_kept():
    class Masked(Schedule):
        observation_space = Dict(observations=SPACES[0], action_mask=Box(0, 1, (2,), np.int8))

        def _observations(self):
            found = super()._observations()
            return {
                agent: {"observations": seen, "action_mask": np.array([int(seen[0]) % 2, 1], np.int8)}
                for agent, seen in found.items()
            }

    worker = worker_of([Masked(3), Masked(4)], 9)
    batches, _ = sampled(worker, 20)
    actions = np.concatenate([batch["actions"] for batch in batches])
    masks = worker.policies["p0"].spec.encoder.mask(np.concatenate([batch["obs"] for batch in batches]))
    first_is_legal = masks[:, 0] == 1
    assert set(actions[~first_is_legal]) == {1} and set(actions[first_is_legal]) == {0, 1}


class Shuffled(Schedule):
    """A Schedule whose dicts have their keys in another order in each step."""

    def _observations(self):
        return self._shuffled(super()._observations())

    def _shuffled(self, values):
        keys = list(values)
        np.random.default_rng(self.time).shuffle(keys)
        return {key: values[key] for key in keys}

    def step(self, action_dict):
        return tuple(map(self._shuffled, super().step(action_dict)))


def equal(left, right, names=(*ROW, "advantages", "value_targets", "action_logp")):
    assert len(left) == len(right)
    for one, other in zip(left, right):
        for name in names:
            np.testing.assert_array_equal(one[name], other[name])


def test_the_order_of_keys_changes_nothing():
    equal(*(sampled(worker_of([kind(3), kind(4)], 8), 10)[0] for kind in (Schedule, Shuffled)))


def test_unknown_agents_have_the_order_in_which_they_appear():
    class Unknown(Shuffled):
        possible_agents = ()

        def __init__(self, seed):
            super().__init__(seed)
            self.possible_agents = ()

        def _observations(self):
            self.possible_agents = "abc"
            found = super()._observations()
            self.possible_agents = ()
            return found

        def step(self, action_dict):
            self.possible_agents = "abc"
            result = super().step(action_dict)
            self.possible_agents = ()
            return result

    own = {"spaces": {"p0": SPACES}, "num_slots": {"p0": 3}, "trained": frozenset(["p0"])}
    policy_of = lambda agent, episode, worker: "p0"  # noqa: E731
    worker = worker_of([Unknown(3), Unknown(4)], 8, policy_of=policy_of, own=own)
    batches, reports = sampled(worker, 10)
    steps = 80
    wanted = reference((3, 4), steps)
    # An episode in which all that were seen have ended is over, so rows may come earlier than in the reference.
    assert plain(batches)[:10] == wanted[:10] and sum(r.env_steps for r in reports) == 2 * steps


class Reusing(Schedule):
    """A Schedule that gives the same arrays again and again, and spoils them at the beginning of each step."""

    arrays = None

    def _observations(self):
        self.arrays = self.arrays or {agent: np.zeros(2, np.float32) for agent in self.possible_agents}
        found = super()._observations()
        for agent, seen in found.items():
            self.arrays[agent][:] = seen
        return {agent: self.arrays[agent] for agent in found}

    def reset(self, **how):
        self._spoil()
        return super().reset(**how)

    def step(self, action_dict):
        self._spoil()
        return super().step(action_dict)

    def _spoil(self):
        for array in (self.arrays or {}).values():
            array[:] = np.nan


@pytest.mark.parametrize("num_steps", [1, 8])
def test_arrays_may_be_used_again(num_steps):
    of = [sampled(worker_of([kind(3), kind(4)], num_steps), 80 // num_steps)[0] for kind in (Schedule, Reusing)]
    equal(*of)


class Rewarded(Schedule):
    """A Schedule with one more agent, which is rewarded and never observes."""

    def __init__(self, seed):
        super().__init__(seed)
        self.possible_agents = (*Schedule.possible_agents, "z")

    def reset(self, **how):
        self.possible_agents = Schedule.possible_agents
        result = super().reset(**how)
        self.possible_agents = (*Schedule.possible_agents, "z")
        return result

    def step(self, action_dict):
        self.possible_agents = Schedule.possible_agents
        observations, rewards, *others = super().step(action_dict)
        self.possible_agents = (*Schedule.possible_agents, "z")
        return observations, {"z": 1.0, **rewards}, *others


def test_an_agent_that_never_acts_changes_no_row():
    without, with_it = (worker_of([kind(3)], 8) for kind in (Schedule, Rewarded))
    (few, reports), (more, others) = sampled(without, 10), sampled(with_it, 10)
    equal(few, more)
    pairs = [(e, o) for r, q in zip(reports, others) for e, o in zip(r.episodes, q.episodes)]
    assert pairs and all(o.episode_return == e.episode_return + e.length for e, o in pairs)
    assert all(o.agent_returns == e.agent_returns for e, o in pairs)


class TestWorkers:
    @pytest.mark.parametrize("filtered", ["NoFilter", "MeanStdFilter"])
    @pytest.mark.parametrize("model", [{}, LSTM])
    def test_two_environments_in_one_worker_are_those_of_two_workers(self, model, filtered):
        def of(worker_index, num_workers, *seeds):
            config = PPOConfig().training(model=model).rollouts(observation_filter=filtered)
            worker = worker_of(
                list(map(Schedule, seeds)), 30, config=config, worker_index=worker_index, num_workers=num_workers
            )
            (batch,), _ = sampled(worker, 1)
            names = (*ROW, "action_logp", "action_dist_inputs", "advantages", "value_targets")
            return [batch[name] for name in names]

        together, first, second = of(0, 0, 3, 4), of(1, 2, 3), of(2, 2, 4)
        for whole, *parts in zip(together, first, second):
            np.testing.assert_array_equal(whole, np.concatenate(parts))

    def test_policies_that_are_not_trained_act_alike(self):
        def of(worker_index, num_workers, *seeds):
            seen = []

            class Noted(Schedule):
                def step(self, action_dict):
                    seen.append((self.seed, self.number, self.time, dict(action_dict)))
                    return super().step(action_dict)

            worker = worker_of(
                list(map(Noted, seeds)),
                70,
                own={"trained": frozenset()},
                worker_index=worker_index,
                num_workers=num_workers,
            )
            for _ in range(2):
                worker.sample()
            return seen

        key = lambda step: step[:3]  # noqa: E731
        together, apart = of(0, 0, 3, 4), of(1, 2, 3) + of(2, 2, 4)
        assert sorted(together, key=key) == sorted(apart, key=key)
        assert {action for *_, actions in together for action in actions.values()} == {0, 1}


class TestTurns:
    def test_a_game_of_turns_is_its_dict_game(self):
        rps = pytest.importorskip("pettingzoo.classic.tictactoe_v3")

        class Dicts(MultiAgentEnv):
            """The same game, written as a MultiAgentEnv on the game's own methods."""

            possible_agents = ("player_1", "player_2")

            def __init__(self):
                self.game = rps.raw_env()
                self.game.reset()
                self.observation_space = self.game.observation_space("player_1")
                self.action_space = self.game.action_space("player_1")

            def _seen(self):
                agent = self.game.agent_selection
                return {agent: self.game.observe(agent)}

            def reset(self, *, seed=None, options=None):
                self.game.reset(seed=seed)
                return self._seen(), {}

            def step(self, action_dict):
                ((agent, action),) = action_dict.items()
                assert agent == self.game.agent_selection
                self.game.step(action)
                is_over = any(self.game.terminations.values())
                seen = {a: self.game.observe(a) for a in self.possible_agents} if is_over else self._seen()
                rewards = dict(self.game.rewards)
                flags = {**dict.fromkeys(self.possible_agents, is_over), "__all__": is_over}
                return seen, rewards, flags, {"__all__": False}, {}

        class Turns(PettingZooEnv):
            def __init__(self):
                super().__init__(rps.env())
                self.observation_space = self.observation_spaces["player_1"]
                self.action_space = self.action_spaces["player_1"]

        of = [sampled(worker_of([kind()], 12, policy_of=lambda agent: "p0"), 6)[0] for kind in (Turns, Dicts)]
        equal(*of)
        assert sum(batch["terminateds"].sum() for batch in of[0]) > 8


class Spawning(MultiAgentEnv):
    """A new agent in each step, with an id that no agent has had before; each acts three times."""

    observation_space, action_space = SPACES
    next_id = 0

    def reset(self, *, seed=None, options=None):
        self.ages, self.t = {}, 0
        return self._spawn(), {}

    def _spawn(self):
        Spawning.next_id += 1
        self.ages[f"agent {Spawning.next_id}"] = 0
        return {agent: np.zeros(2, np.float32) for agent in self.ages}

    def step(self, action_dict):
        assert action_dict.keys() == self.ages.keys()
        self.t += 1
        self.ages = {agent: age + 1 for agent, age in self.ages.items()}
        ended = [agent for agent, age in self.ages.items() if age == 3]
        rewards = dict.fromkeys(action_dict, 1.0)
        observations = {agent: np.zeros(2, np.float32) for agent in self.ages}
        for agent in ended:
            del self.ages[agent]
        observations |= self._spawn()
        return observations, rewards, {**dict.fromkeys(ended, True), "__all__": self.t == 20}, {"__all__": False}, {}


class Crowd(MultiAgentEnv):
    """A number of agents that all act, in episodes of ten steps."""

    observation_space, action_space = SPACES
    size = 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.playing = 0, range(self.size)
        return self._seen(), {}

    def _seen(self):
        return {agent: self.np_random.random(2, np.float32) for agent in self.playing}

    def step(self, action_dict):
        self.t += 1
        rewards = {agent: float(agent + self.t) for agent in action_dict}
        return self._seen(), rewards, {"__all__": self.t == 10}, {"__all__": False}, {}


class TestUnknownAgents:
    def test_slots_are_used_again_and_nothing_is_kept_of_the_agents(self):
        worker = worker_of([Spawning(), Spawning()], 20)

        def memory():
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        def sample(count):
            for _ in range(count):
                batch, report = worker.sample()
                assert len(report.episodes) == 2 and batch["p0"].count == 2 * (1 + 2 + 3 * 18)
                assert all(set(e.agent_returns.values()) <= {1.0, 2.0, 3.0} for e in report.episodes)

        sample(5)
        tracemalloc.start()
        try:
            sample(5)
            before = memory()
            sample(60)
            assert memory() - before < 30_000, "60 bytes for each of 2,500 agents would be five times as much"
        finally:
            tracemalloc.stop()

    def test_more_agents_than_slots_begin_the_fragment_anew(self):
        worker = worker_of([FlexAgentsMultiAgent(), FlexAgentsMultiAgent()], 60)
        most, total = 0, 0
        for _ in range(5):
            batch, report = worker.sample()
            assert batch.count == report.env_steps == 120
            assert sum(report.agent_steps.values()) == batch["p0"].count
            total += batch["p0"].count
            most = max([most, *(len(episode.agent_returns) for episode in report.episodes)])
        assert most > 4 and total > 5 * 120

    def test_random_numbers_go_on_when_slots_are_added(self):
        crowd = Crowd()
        worker = worker_of([crowd], 20)
        first = worker.sample()[0]["p0"]["actions"]
        crowd.size = 9
        worker.sample()
        crowd.size = 1
        worker.start_over()
        again = worker.sample()[0]["p0"]["actions"]
        assert len(first) == len(again) == 20 and not np.array_equal(first, again)

    def test_growth_keeps_the_version_and_the_statistics(self):
        config = PPOConfig().rollouts(observation_filter="MeanStdFilter").environment(normalize_returns=True)
        crowd = Crowd()
        worker = worker_of([crowd], 20, config=config)
        worker.load_snapshots({"p0": worker.policies["p0"].snapshot(version=7, timesteps=1000)})
        for size in (1, 3, 9, 1):
            crowd.size = size
            lane = worker.lanes["p0"]
            before = lane._return_scale.variance, lane.timesteps
            batch, report = worker.sample()
            lane = worker.lanes["p0"]
            assert batch["p0"].policy_version == 7 and lane.timesteps == before[1] + 20
            assert lane._return_scale.variance == before[0]
            assert report.filter_deltas and report.return_deltas
            worker.take_in(report)
