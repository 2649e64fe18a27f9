"""Callbacks for episodes of several agents, and the episode object that mappings get."""

import numpy as np
import pytest
from agent_workers import Schedule, Script, worker_of
from multi_agent import MultiAgentCartPole

from rllib.evaluation.callbacks import DefaultCallbacks
from rllib.evaluation.evaluator import Duration
from rllib.evaluation.multi_agent.evaluator import MultiAgentEvaluationWorker
from rllib.sample_batch import MultiAgentBatch

ALL = {"__all__": True}
GAME = (
    {"A": 1.0},
    ({"B": 2.0}, {"A": 5, "C": 1}),
    ({"A": 3.0}, {"A": -1, "B": 7}),
    ({"A": 4.0, "B": 5.0}, {"A": 2}, {"B": True, **ALL}),
)


class Journal(DefaultCallbacks):
    """Writes down the calls, and what the episode says of its agents."""

    def __init__(self):
        self.calls, self.parts, self.samples, self.policies = [], [], [], []

    def on_create_policy(self, *, policy_id, policy):
        self.policies.append(policy_id)

    def on_sub_environment_created(self, *, worker, sub_environment, env_context, **kwargs):
        self.calls.append(("environment", type(sub_environment).__name__, env_context.vector_index))

    def on_episode_created(self, *, worker, base_env, policies, env_index, episode, **kwargs):
        assert episode.length == 0 and not episode.get_agents() and episode.started is False
        episode.user_data["before"] = base_env.get_sub_environments()[env_index]
        self.calls.append(("created", episode.episode_id))

    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        self.calls.append(("start", episode.last_observation_for("A")))
        assert episode.started is True
        assert episode.last_action_for("A") == 0 and episode.last_reward_for("A") == 0

    def on_episode_step(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        self.calls.append(("step", episode.length, episode.get_agents()))

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert set(policies) == {"pA", "pB"} and worker is episode.worker
        episode.custom_metrics["total"] = episode.total_reward
        episode.hist_data["rewards"] = list(episode.agent_rewards.values())
        episode.media["last"] = "picture"
        self.calls.append(("end", episode.length, dict(episode.agent_rewards)))
        self.last = episode

    def on_postprocess_trajectory(
        self, *, worker, episode, agent_id, policy_id, policies, postprocessed_batch, original_batches, **kwargs
    ):
        others = {agent: (i, batch.count) for agent, (i, _, batch) in original_batches.items()}
        assert "advantages" not in original_batches[agent_id][2]
        assert original_batches[agent_id][1] is policies[policy_id]
        np.testing.assert_array_equal(original_batches[agent_id][2]["obs"], postprocessed_batch["obs"])
        self.parts.append((episode.episode_id, agent_id, policy_id, list(postprocessed_batch["obs"][:, 0]), others))
        postprocessed_batch["advantages"] = 100 + postprocessed_batch["obs"][:, 0]

    def on_sample_end(self, *, worker, samples, **kwargs):
        self.samples.append(samples)


def by_agent(agent):
    return "pB" if agent == "B" else "pA"


def heard(env, num_steps, **more):
    more = {"callbacks": Journal, "policy_of": by_agent, **more}
    worker = worker_of([env], num_steps, **more)
    return worker, worker.callbacks


def test_hooks_of_an_episode_in_their_order():
    worker, journal = heard(Script(*GAME), 3)
    batch, report = worker.sample()
    assert journal.policies == ["pA", "pB"]
    assert journal.calls[:7] == [
        ("environment", "Script", 0),
        ("created", 0),
        ("start", np.array([1.0], np.float32)),
        ("step", 1, ["A", "B"]),
        ("step", 2, ["A", "B"]),
        ("step", 3, ["A", "B"]),
        ("end", 3, {("A", "pA"): 6.0, ("B", "pB"): 7.0}),
    ]
    assert journal.calls[7] == ("created", 1)
    (episode,) = report.episodes
    assert episode.custom_metrics == {"total": 14.0}, "with what C was given, which has no policy"
    assert episode.hist_data == {"rewards": [6.0, 7.0]} and episode.media == {"last": "picture"}
    assert isinstance(journal.samples[0], MultiAgentBatch) and journal.samples[0] is batch


def test_an_episode_knows_the_newest_of_each_agent():
    worker, journal = heard(Script(*GAME), 3)
    worker.sample()
    episode = journal.last
    assert [float(episode.last_raw_obs_for(agent)[0]) for agent in "AB"] == [4.0, 5.0]
    assert (episode.last_reward_for("A"), episode.prev_reward_for("A")) == (2.0, -1.0)
    assert (episode.last_reward_for("B"), episode.prev_reward_for("B")) == (7.0, 0.0)
    assert episode.last_action_for("A") in (0, 1) and episode.prev_action_for("B") == 0
    assert episode.last_terminated_for("A") and not episode.last_truncated_for("A")
    assert [episode.agent_index(agent) for agent in "AB"] == [0, 1]
    assert episode.policy_for("B") == "pB" and episode.last_info_for("__common__") is None
    with pytest.raises(ValueError, match="not in list"):
        episode.agent_index("D")


BOTH = {"A": 3.0, "B": 5.0}
# Flags of the second step and of the third, and whether the episode is terminated, and truncated.
ENDS = {
    "all terminate": (({}, {}), (ALL, {}), (True, False)),
    "all are truncated": (({}, {}), ({}, ALL), (False, True)),
    "each terminates": (({}, {}), ({"A": True, "B": True}, {}), (True, False)),
    "each, one after the other": (({"A": True}, {}), ({"B": True}, {}), (True, False)),
    "each is truncated": (({}, {}), ({}, {"A": True, "B": True}), (False, True)),
    "each in its way": (({"A": True}, {}), ({}, {"B": True}), (False, True)),
    "each in its way, the other way round": (({}, {"A": True}), ({"B": True}, {}), (False, True)),
}


@pytest.mark.parametrize(("second", "third", "expected"), ENDS.values(), ids=ENDS)
def test_an_episode_that_has_ended_is_done_however_its_agents_have(second, third, expected):
    has_ended = {agent for flags in second for agent in flags}
    left = {agent: number for agent, number in BOTH.items() if agent not in has_ended}
    script = Script(BOTH, (BOTH, BOTH), (BOTH, BOTH, *second), (left, left, *third))
    worker, journal = heard(script, 3)
    worker.sample()
    episode = journal.last
    assert episode.length == 3 and episode.is_done
    assert (episode.is_terminated, episode.is_truncated) == expected


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7])
def test_each_part_of_an_episode_is_postprocessed_once(num_steps):
    worker, journal = heard(Schedule(3), num_steps, policy_of=lambda agent: "p0", callbacks=HearsParts)
    rows = 0
    for _ in range(40 // num_steps):
        journal.parts.clear()
        batch, _ = worker.sample()
        batch = batch.policy_batches.get("p0")
        rows += 0 if batch is None else batch.count
        parts = [(seen, agent) for _, agent, _, observations, _ in journal.parts for seen in observations]
        written = [] if batch is None else [(float(seen[0]), "abc"[int(seen[1])]) for seen in batch["obs"]]
        assert sorted(parts) == sorted(written), "every row is in one part, under the name of its agent"
        for episode_id, agent, policy_id, observations, others in journal.parts:
            assert {int(seen) // 1000 for seen in observations} == {episode_id}
            assert others[agent] == (policy_id, len(observations))
        if batch is not None:
            np.testing.assert_array_equal(batch["advantages"], 100 + batch["obs"][:, 0])
    assert rows > 20


class HearsParts(Journal):
    on_episode_start = on_episode_end = on_episode_created = DefaultCallbacks.on_episode_start


def test_hooks_in_evaluation():
    player, journal = heard(Script(*GAME), 3, kind=MultiAgentEvaluationWorker)
    (episode,) = player.play_episodes(Duration(1), 0)
    assert [call[0] for call in journal.calls] == ["environment", "created", "start", "step", "step", "step", "end"]
    assert episode.custom_metrics == {"total": 14.0} and not journal.parts


def test_ids_and_random_numbers_do_not_depend_on_the_worker():
    def drawn(num_envs, worker_index, num_workers):
        seen = []

        def policy_of(agent, episode, worker):
            seen.append((episode.episode_id, float(episode.rng.random()), agent, episode.policy_for(agent + "'")))
            return "p0"

        def once(agent, episode, worker):
            return "p0" if agent.endswith("'") else policy_of(agent, episode, worker)

        first = max(worker_index - 1, 0) * num_envs
        envs = [Schedule(first + index) for index in range(num_envs)]
        spaces = Schedule.observation_space, Schedule.action_space
        own = {"spaces": {"p0": spaces}, "num_slots": {"p0": 3}, "trained": frozenset(["p0"])}
        worker = worker_of(envs, 30, policy_of=once, own=own, worker_index=worker_index, num_workers=num_workers)
        worker.sample()
        return seen

    together = drawn(2, 0, 0)
    apart = drawn(1, 1, 2) + drawn(1, 2, 2)
    assert sorted(together) == sorted(apart)
    assert {episode_id >> 32 for episode_id, *_ in apart} == {0, 1}
    assert len({number for _, number, *_ in together}) == len(together)


def test_a_mapping_holds_for_the_whole_episode():
    number = iter(range(1000))

    def policy_of(agent, episode, worker):
        return f"p{next(number) % 2}"

    spaces = Schedule.observation_space, Schedule.action_space
    own = {"spaces": {"p0": spaces, "p1": spaces}, "num_slots": {"p0": 3, "p1": 3}, "trained": frozenset(["p0", "p1"])}
    worker = worker_of([Schedule(5)], 60, policy_of=policy_of, own=own)
    _, report = worker.sample()
    for episode in report.episodes:
        agents = [agent for agent, _ in episode.agent_returns]
        assert len(agents) == len(set(agents)), "one policy each"


def test_self_play_by_the_number_of_the_episode():
    def policy_of(agent, episode, worker):
        return f"p{(agent + hash(episode.episode_id)) % 2}"

    env = MultiAgentCartPole({"num_agents": 2})
    spaces = env.observation_spaces[0], env.action_spaces[0]
    own = {"spaces": {"p0": spaces, "p1": spaces}, "num_slots": {"p0": 1, "p1": 1}, "trained": frozenset(["p0", "p1"])}
    _, report = worker_of([env], 150, policy_of=policy_of, own=own).sample()
    pairs = [set(episode.agent_returns) for episode in report.episodes]
    assert pairs[:2] == [{(0, "p0"), (1, "p1")}, {(0, "p1"), (1, "p0")}]
