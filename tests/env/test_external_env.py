"""Loops outside: what an ExternalEnv's methods do, and the errors of their callers."""

import threading

import gymnasium
import numpy as np
import pytest

from rllib.env.external import ExternalEnv, ExternalMultiAgentEnv, external_env
from rllib.env.external.exchange import EpisodeLost, Exchange, RunEnded, StepRequest

BOX, CHOICE = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(3)
SEEN = np.zeros(2, np.float32)


class Silent(ExternalEnv):
    """Methods are called by the test, and answered by a thread."""

    def __init__(self, spaces=(CHOICE, BOX), **settings):
        super().__init__(*spaces, **settings)
        self.turns = []

    def answer(self, *actions):
        def serve():
            self.exchange.serve(take, 5.0)

        def take(turns):
            (turn,) = turns
            self.turns.append(turn)
            turn.answer(actions[len(self.turns) - 1])
            return len(self.turns) == len(actions)

        threading.Thread(target=serve, daemon=True).start()


class SilentAgents(Silent, ExternalMultiAgentEnv):
    pass


def test_rewards_go_with_the_next_turn():
    env = Silent()
    env.answer({"agent0": 1}, {"agent0": 2}, {})
    episode = env.start_episode()
    env.log_returns(episode, 5.0)  # before the first action
    assert env.get_action(episode, SEEN) == 1
    env.log_returns(episode, 1.0)
    env.log_returns(episode, 0.5, {"lives": 3})
    assert env.get_action(episode, SEEN) == 2
    env.end_episode(episode, SEEN, truncated=True)
    first, second, last = [turn.step for turn in env.turns]
    assert [turn.is_first for turn in env.turns] == [True, False, False]
    assert first.rewards == {"agent0": 5.0} and second.rewards == {"agent0": 1.5} and last.rewards == {}
    assert second.infos == {"agent0": {"lives": 3}} and not second.has_ends
    assert last.is_over and last.truncateds["__all__"] and not last.terminateds["__all__"]


def test_agents_end_apart_from_their_episode():
    env = SilentAgents()
    env.answer({"a": 0, "b": 1}, {"a": 0}, {})
    episode = env.start_episode("e")
    assert env.get_action(episode, {"a": SEEN, "b": SEEN}) == {"a": 0, "b": 1}
    env.log_returns(episode, {"a": 1.0, "b": 2.0}, None, {"b": True})
    env.get_action(episode, {"a": SEEN})
    env.end_episode(episode, {"a": SEEN})
    step = env.turns[1].step
    assert step.rewards == {"a": 1.0, "b": 2.0} and step.terminateds == {"b": True, "__all__": False} and step.has_ends


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda env: env.get_action("no", SEEN), "Episode no not found."),
        (lambda env: env.start_episode("e"), "Episode e is already started"),
        (lambda env: env.start_episode("over"), "Episode over has already completed."),
        (lambda env: env.get_action("over", SEEN), "Episode over has already completed."),
        (lambda env: env.log_returns("no", 1.0), "Episode no not found."),
        (lambda env: env.end_episode("no", SEEN), "Episode no not found."),
        (lambda env: env.get_action("e", np.zeros(3)), r"observation has shape \(3,\), but .* needs shape \(2,\)"),
        (lambda env: env.log_action("e", SEEN, 3), "action = 3 lies above"),
        (lambda env: env.log_returns("e", float("nan")), "reward in episode e, after 0 steps, must be a finite number"),
        (lambda env: env.log_returns("e", "much"), r"finite number, of at most 1e\+09 in size, but is 'much'"),
        (lambda env: env.start_episode(), "2 episodes are under way, and max_concurrent=2"),
    ],
)
def test_wrong_calls_are_named_in_the_loop(call, message):
    env = Silent(max_concurrent=2)
    env.answer({})
    env.start_episode("over")
    env.end_episode("over", SEEN)
    env.start_episode("e"), env.start_episode("f")
    with pytest.raises(ValueError, match=message):
        call(env)


@pytest.mark.parametrize(
    "given",
    [
        ({"c": 1.0},),
        ({"__all__": 1.0},),
        ({"a": 1.0}, {"c": {}}),
        ({"a": 1.0}, None, {"c": True}),
        ({"a": 1.0}, None, True),
        ({"a": 1.0}, None, {"__common__": True}),
    ],
)
@pytest.mark.parametrize("by_agent", [True, False])
def test_returns_of_agents_that_there_are_not_change_nothing(given, by_agent):
    env = SilentAgents()
    if by_agent:
        env.action_space, env.observation_space = dict.fromkeys("ab", env.action_space), dict.fromkeys("ab", BOX)
    elif "c" in str(given):
        given = ({"a": 1.0}, None, "done")
    env.answer({"a": 0, "b": 1}, {})
    episode = env.start_episode("e")
    env.get_action(episode, {"a": SEEN, "b": SEEN})
    with pytest.raises(ValueError, match=r"there is no agent|is a reserved key|dicts by agent"):
        env.log_returns(episode, *given)
    env.log_returns(episode, {"b": 2.0}, {"__common__": {"x": 1}}, {"__all__": False}, truncated_dict={"__all__": True})
    env.end_episode(episode, {"a": SEEN})
    step = env.turns[1].step
    assert step.rewards == {"b": 2.0}
    assert (step.terminateds, step.truncateds) == ({"__all__": True}, {"__all__": False})


def test_wrong_dicts_by_agent():
    env = SilentAgents()
    episode = env.start_episode()
    with pytest.raises(ValueError, match="must be a dict by agent"):
        env.get_action(episode, SEEN)
    with pytest.raises(ValueError, match=r"shape \(3,\).*agent 'a'"):
        env.get_action(episode, {"a": np.zeros(3)})
    with pytest.raises(ValueError, match="an action for each agent"):
        env.log_action(episode, {"a": SEEN}, {"b": 0})


def test_spaces_are_given_in_rllibs_order():
    with pytest.raises(TypeError, match=r"\(action_space, observation_space\)"):
        ExternalEnv("CartPole-v1", BOX)


def test_a_loop_is_told_that_nobody_samples(monkeypatch):
    monkeypatch.setattr(external_env, "ACTION_TIMEOUT_S", 0.05)
    env = Silent()
    with pytest.raises(TimeoutError, match=r"is train\(\) running\?"):
        env.get_action(env.start_episode(), SEEN)


def test_waiting_and_later_calls_end_with_the_run():
    exchange = Exchange()
    turns = [StepRequest("e", None) for _ in range(2)]
    exchange.submit(turns[0])
    exchange.end(RunEnded("over"))
    exchange.submit(turns[1])
    for turn in turns:
        with pytest.raises(RunEnded, match="over"):
            turn.wait(1.0)


def test_a_lost_episode_is_known_as_ended():
    env = Silent()
    episode = env.start_episode()

    def lose(turns):
        turns[0].fail(EpisodeLost("start a new one"))
        return True

    threading.Thread(target=env.exchange.serve, args=(lose, 5.0), daemon=True).start()
    with pytest.raises(EpisodeLost, match="start a new one"):
        env.get_action(episode, SEEN)
    with pytest.raises(ValueError, match="already completed"):
        env.get_action(episode, SEEN)
