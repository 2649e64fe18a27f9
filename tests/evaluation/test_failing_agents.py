"""Failures where several agents act: of environments, mappings and policies that are written by hand."""

import numpy as np
import pytest
from agent_workers import SPACES, Schedule, Script, worker_of
from gymnasium.spaces import Box, Dict, Discrete

from rllib.algorithms.ppo import PPOConfig
from rllib.env.multi_agent import MultiAgentEnv

OVER = {"__all__": True}
A0, A1, A2, B0, B1 = 10.0, 11.0, 12.0, 20.0, 21.0
TURNS = (
    {"A": A0},
    ({"B": B0}, {"A": 1}),
    ({"A": A1}, {"B": 2}),
    ({"B": B1}, {"A": 3}),
    ({"A": A2}, {"B": 4}, OVER),
)


class FailsAt(Script):
    """A script whose step with this number raises, once in all."""

    def __init__(self, step, *script):
        super().__init__(*script)
        self.fails_at = step

    def step(self, action_dict):
        if len(self.actions) == self.fails_at:
            raise RuntimeError("asked to fail")
        return super().step(action_dict)


def rows(batch):
    if batch is None:
        return []
    names = ("rewards", "terminateds", "truncateds")
    return [(float(seen[0]), *(float(batch[n][row]) for n in names)) for row, seen in enumerate(batch["obs"])]


class TestEnvironments:
    @pytest.mark.parametrize("complete", [False, True])
    def test_a_replaced_one_cuts_the_rows_of_its_agents(self, complete, caplog):
        worker = worker_of(
            [FailsAt(3, *TURNS)],
            8,
            policy_of=lambda agent: f"p{agent}",
            remake=lambda index: Script(*TURNS),
            complete_episodes=complete,
        )
        batch, report = worker.sample()
        # A1 and B1 were acted upon when it failed: nothing says what followed.
        assert rows(batch["pA"])[0] == (A0, 1, 0, 1)
        assert rows(batch["pB"])[0] == (B0, 2, 0, 1)
        assert (report.num_faulty_episodes, [episode.length for episode in report.episodes]) == (1, [4])
        assert report.env_steps == 7, "the step that failed is none"
        assert rows(batch["pA"])[1:3] == [(A0, 1, 0, 0), (A1, 3, 1, 0)]
        assert "environment 0 of rollout worker 0 (FailsAt) raised in step() at step 3" in caplog.text

    def test_values_of_the_cut_rows_are_those_of_the_last_observations(self):
        config = PPOConfig().training(gamma=0.5, lambda_=1.0)
        worker = worker_of([FailsAt(3, *TURNS)], 4, config=config, remake=lambda index: Script(*TURNS))
        policy = worker.policies["p0"]
        policy.values = lambda seen, state=None: np.array([1000 * float(row[0]) for row in seen], np.float32)
        batch, _ = worker.sample()
        by_row = {
            float(seen[0]): float(target) for seen, target in zip(batch["p0"]["obs"], batch["p0"]["value_targets"])
        }
        assert by_row[A0] == pytest.approx(1 + 0.5 * 1000 * A1)

    def test_without_replacement_the_error_is_the_users_and_the_worker_goes_on(self):
        worker = worker_of([FailsAt(3, *TURNS), Schedule1()], 8)
        with pytest.raises(RuntimeError, match="asked to fail") as raised:
            worker.sample()
        (note,) = raised.value.__notes__
        assert note.startswith("environment 0 of rollout worker 0 (FailsAt) raised in step() at step 3 of its episode")
        worker.stream.environments[0].fails_at = None
        batch, report = worker.sample()
        assert report.env_steps == 16 and rows(batch["p0"])

    def test_others_see_nothing_of_it(self):
        def of_second(failing):
            first = FailsAt(3 if failing else None, *TURNS)
            worker = worker_of([first, Script(*TURNS)], 8, remake=lambda index: Script(*TURNS))
            seen = []
            for _ in range(3):
                worker.sample()
                seen.append([sorted(step) for step in worker.stream.environments[1].actions])
            return seen

        assert of_second(True) == of_second(False)

    def test_one_that_fails_in_reset(self):
        class Once(Script):
            def reset(self, **kwargs):
                raise RuntimeError("asked to fail")

        worker = worker_of([Once(*TURNS)], 4, remake=lambda index: Script(*TURNS))
        _, report = worker.sample()
        assert [episode.length for episode in report.episodes] == [4]
        with pytest.raises(RuntimeError, match="asked to fail") as raised:
            worker_of([Once(*TURNS)], 4, remake=lambda index: Once(*TURNS)).sample()
        assert "times in a row" in raised.value.__notes__[-1]


class Schedule1(Schedule):
    """Schedule with observations of the form of a Script's."""

    observation_space, action_space = Script.observation_space, Script.action_space

    def __init__(self):
        super().__init__(7)

    def _observations(self):
        return {agent: seen[:1] for agent, seen in super()._observations().items()}


class TestMappings:
    def test_an_unknown_policy(self):
        worker = worker_of([Script(*TURNS)], 4, policy_of=lambda agent, episode, worker: "p3", own=OWN)
        text = "policy_mapping_fn gave agent 'A' the policy 'p3', but there are p0. Add it to "
        for kind in (KeyError, ValueError):
            with pytest.raises(kind) as raised:
                worker.sample()
            assert str(raised.value).startswith(text)

    def test_no_string(self):
        worker = worker_of([Script(*TURNS)], 4, policy_of=lambda agent, episode, worker: 3, own=OWN)
        with pytest.raises(TypeError, match="must return the id of a policy, a string, but gave 3 for agent 'A'"):
            worker.sample()

    def test_one_that_raises(self):
        def policy_of(agent, episode, worker):
            if agent == "B" and episode.number == 1:
                raise ZeroDivisionError("asked to fail")
            return "p0"

        worker = worker_of([Script(*TURNS)], 8, policy_of=policy_of, own=OWN)
        with pytest.raises(ZeroDivisionError) as raised:
            worker.sample()
        assert raised.value.__notes__ == [
            "policy_mapping_fn was asked for the policy of agent 'B', in episode 1 of environment 0 of rollout worker 0"
        ]


OWN = {
    "spaces": {"p0": (Script.observation_space, Script.action_space)},
    "num_slots": {"p0": 2},
    "trained": frozenset(["p0"]),
}


class Heuristic:
    """Returns the answers that it was made with."""

    answer = staticmethod(lambda observations: [0] * len(observations))

    def compute_actions(self, observations, state_batches=None, **kwargs):
        return self.answer(observations)


class TestPoliciesByHand:
    def worker(self, answer):
        heuristic = Heuristic()
        heuristic.answer = answer
        return worker_of([Schedule(1)], 8, own={"hand_written": {"p0": heuristic}, "trained": frozenset()})

    def test_they_make_no_rows(self):
        batch, report = self.worker(Heuristic.answer).sample()
        assert not batch.policy_batches and report.agent_steps["p0"] > 0 and batch.count == 8

    @pytest.mark.parametrize("answer", [lambda seen: [0] * (len(seen) + 1), lambda seen: 1])
    def test_another_number_of_actions(self, answer):
        with pytest.raises(
            ValueError, match=r"Heuristic 'p0' gave .* for \d observations; compute_actions returns one"
        ):
            self.worker(answer).sample()

    def test_one_that_raises_is_named_with_its_agents(self):
        with pytest.raises(ZeroDivisionError) as raised:
            self.worker(lambda seen: 1 // 0).sample()
        (note,) = raised.value.__notes__
        assert note.startswith("Heuristic 'p0' was asked for ") and "of environment 0 of rollout worker 0" in note


class Endless(MultiAgentEnv):
    """Nobody observes anything after the first step."""

    possible_agents = ("a",)
    observation_space, action_space = SPACES

    def reset(self, *, seed=None, options=None):
        return {"a": np.zeros(2, np.float32)}, {}

    def step(self, action_dict):
        return {}, {}, {"__all__": False}, {"__all__": False}, {}


def test_an_episode_in_which_nobody_acts_any_more():
    with pytest.raises(
        ValueError, match=r"no agent has had an observation for 1,000 steps of environment 0 of rollout"
    ):
        worker_of([Endless()], 1100).sample()


class Seldom(Endless):
    """The agent has an observation in every 600th step."""

    def reset(self, **options):
        self.time = 0
        return super().reset(**options)

    def step(self, action_dict):
        self.time += 1
        _, *rest = super().step(action_dict)
        return {"a": np.zeros(2, np.float32)} if self.time % 600 == 0 else {}, *rest


def test_steps_without_an_observation_count_in_a_row():
    _, report = worker_of([Seldom()], 1300).sample()
    assert report.agent_steps["p0"] == 2


class Late(MultiAgentEnv):
    """Gives `value` as the reward, and part of the observation, of agent "b" in step 20."""

    possible_agents = ("a", "b")
    observation_space, action_space = SPACES

    def __init__(self, reward=0.0, seen=0.0):
        self.reward, self.seen = reward, seen

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return {agent: np.zeros(2, np.float32) for agent in "ab"}, {}

    def step(self, action_dict):
        self.t += 1
        value = self.seen if self.t == 20 else 0.0
        observations = {"a": np.zeros(2, np.float32), "b": np.full(2, value, np.float32)}
        rewards = {"b": self.reward if self.t == 20 else 0.0}
        return observations, rewards, {"__all__": False}, {"__all__": False}, {}


class TestNumbersThatAreNotFinite:
    def test_a_reward(self):
        with pytest.raises(ValueError, match=r"agent 'b'.*nan.*at step 20"):
            worker_of([Late(reward=np.nan)], 30).sample()

    def test_an_observation(self):
        with pytest.raises(ValueError, match=r"obs of agent 'b' of environment 0 of rollout worker 0.*is not finite"):
            worker_of([Late(seen=np.nan)], 30).sample()

    def test_the_agents_do_not_act_on_it(self):
        env = Late(seen=np.nan)
        with pytest.raises(ValueError, match="is not finite"):
            worker_of([env], 30).sample()
        assert env.t == 20


class NoChoice(Late):
    """Agent "b" has no legal action in step 20."""

    observation_space = Dict(observations=Box(-1e9, 1e9, (2,), np.float32), action_mask=Box(0, 1, (2,), np.int8))
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self._masked(super().reset()[0]), {}

    def step(self, action_dict):
        observations, *others = super().step(action_dict)
        return self._masked(observations), *others

    def _masked(self, observations):
        mask = {agent: np.array([0, agent == "a" or self.t != 20], np.int8) for agent in observations}
        return {agent: {"observations": seen, "action_mask": mask[agent]} for agent, seen in observations.items()}


@pytest.mark.parametrize("trained", [True, False])
def test_an_observation_without_a_legal_action(trained):
    own = {} if trained else {"trained": frozenset()}
    with pytest.raises(
        ValueError, match=r"agent 'b' of environment 0 of rollout worker 0 \(policy 'p0'\) ha[sd] no legal"
    ):
        worker_of([NoChoice()], 30, own=own).sample()


def test_a_row_that_is_dropped_is_reported_once(caplog):
    env = Script({"A": A0}, ({"B": B0}, {}), ({"A": A1}, {}), ({"B": B1}, {}, {}, OVER))
    worker = worker_of([env], 3)
    for _ in range(3):
        worker.sample()
    assert caplog.text.count("an episode was truncated while agent 'A' waited") == 1
