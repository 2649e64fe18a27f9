"""`rllib play` and `rllib record` with several agents: boards, people, and other checkpoints."""

from typing import ClassVar

import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from rllib import PolicySpec, PPOConfig
from rllib.cli import command
from rllib.env import MultiAgentEnv
from rllib.env.spaces.legal import choices_of
from rllib.env.tasks.board_players import TicTacToeMinimax
from rllib.env.tasks.rock_paper_scissors import RockPaperScissors

TIC_TAC_TOE = "rllib.env.tasks.tic_tac_toe:TicTacToe"


def config_of(env, **of_agents):
    model = {"fcnet_hiddens": [4]}
    config = PPOConfig().environment(env).rollouts(num_rollout_workers=0).debugging(seed=0)
    return config.training(train_batch_size=20, sgd_minibatch_size=20, model=model).multi_agent(**of_agents)


def save(path, env=TIC_TAC_TOE, **of_agents):
    with config_of(env, **of_agents).build() as algo:
        return algo.save(path / "checkpoint_000001")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of games, with an untrained network `net`, and `best`, which never loses."""
    directory = tmp_path_factory.mktemp("runs")
    hand_written = PolicySpec(TicTacToeMinimax, config={"deterministic": True})
    save(directory / "game", policies={"net": None, "best": hand_written}, policy_mapping_fn={"*": "net"})
    save(directory / "shared")
    save(directory / "other", env=RockPaperScissors)
    return directory


@pytest.fixture
def play(runs, monkeypatch):
    """Runs `rllib VERB ...` where the runs are; `typed` is its input."""
    monkeypatch.chdir(runs)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments, typed="", verb="play": CliRunner().invoke(command, [verb, *arguments], input=typed)


GAME = ("game", "--load-user-code")


def test_boards_and_returns_are_printed(play):
    result = play(*GAME, "--episodes", "2", "--policy", "player_2=best")
    assert result.exit_code == 0, result.output
    assert " 0 | 1 | 2\n---+---+---\n" in result.output and "There is no display" not in result.output
    lines = result.output.splitlines()
    assert any(line.startswith("  player_2  best  ") for line in lines)
    assert [line.split()[0] for line in lines[-3:]] == ["policy", "best", "net"] and "win/draw/loss" in lines[-3]


def test_a_person_plays_by_typed_numbers(play):
    typed = "4\nx\n9\n4\n0\n1\n2\n3\n5\n6\n7\n8\n"
    result = play(*GAME, "--episodes", "1", "--human", "player_1", "--policy", "player_2=best", typed=typed)
    assert result.exit_code == 0, result.output
    assert "player_1, one of 0, 1, 2, 3, 4, 5, 6, 7, 8: " in result.output
    assert "'x' is no number from 0 to 8" in result.output and "'9' is no number" in result.output
    assert "4 is not legal now" in result.output
    assert "  player_1  human  " in result.output and "  player_2  best  " in result.output


def test_without_a_board_observations_are_printed(play):
    result = play("other", "--episodes", "1", "--human", "player_0", typed="0\n" * 10)
    assert result.exit_code == 0, result.output
    assert "player_0 observes 3\nplayer_0, a number from 0 to 2: " in result.output


def test_another_checkpoint_takes_the_other_slot(play):
    result = play("shared", "--episodes", "1", "--against", "game:best", "--load-user-code")
    assert result.exit_code == 0, result.output
    assert "  player_1  default_policy  " in result.output and "  player_2  game:best  " in result.output
    both = play("shared", "--episodes", "1", "--human", "player_2", "--against", "player_1=game", "--load-user-code",
                typed="8\n7\n6\n5\n4\n3\n2\n1\n0\n" * 3)  # fmt: skip
    assert both.exit_code == 0 and "  player_1  game:net  " in both.output, both.output


def test_random_actions_are_an_opponent(play):
    result = play(*GAME, "--episodes", "3", "--against", "random")
    assert result.exit_code == 0 and "  player_2  random  " in result.output, result.output
    result = play(*GAME, "--episodes", "1", "--policy", "player_2=best", "--against", "random")
    assert "  player_2  best  " in result.output and "  player_1  random  " in result.output, result.output
    result = play(*GAME, "--episodes", "1", "--policy", "player_1=best", "--against", "random")
    assert "  player_1  best  " in result.output and "  player_2  random  " in result.output


class Typed(MultiAgentEnv):
    """Two agents, whose masks allow one choice of each number; others raise.

    Config:
        kind: of the actions.
        by: "observation" or "info", where the mask is, under the key `legal`.
    """

    possible_agents: ClassVar[list[str]] = ["first", "second"]
    SPACES: ClassVar[dict] = {
        "Discrete": (Discrete(3, start=5), [7]),
        "MultiDiscrete": (MultiDiscrete([[2, 3], [2, 2]], start=[[0, 5], [0, 0]]), [1, 6, 0, 1]),
        "MultiBinary": (MultiBinary(2), [1, 0]),
        "integers": (Box(-1, 2, (2,), np.int8), [2, -1]),
    }

    def __init__(self, config):
        space, self.right = self.SPACES[config["kind"]]
        self.in_infos, seen = config["by"] == "info", Box(0, 1, (1,))
        choices = [np.arange(count) + low for count, low in zip(*choices_of(space))]
        self.mask = np.concatenate([each == right for each, right in zip(choices, self.right)]).astype(np.int8)
        if not self.in_infos:
            seen = Dict(legal=MultiBinary(len(self.mask)), seen=seen)
        self.observation_spaces = dict.fromkeys(self.possible_agents, seen)
        self.action_spaces = dict.fromkeys(self.possible_agents, space)

    def seen(self):
        observation = np.zeros(1, np.float32)
        observation = observation if self.in_infos else {"legal": self.mask, "seen": observation}
        infos = {agent: {"legal": self.mask} if self.in_infos else {} for agent in self.possible_agents}
        return dict.fromkeys(self.possible_agents, observation), infos

    def reset(self, *, seed=None, options=None):
        return self.seen()

    def step(self, actions):
        for action in actions.values():
            assert np.ravel(action).tolist() == self.right
        observations, infos = self.seen()
        return observations, dict.fromkeys(actions, 1.0), {"__all__": True}, {"__all__": False}, infos


@pytest.mark.parametrize("by", ["observation", "info"])
@pytest.mark.parametrize("kind", Typed.SPACES)
def test_people_and_random_opponents_take_legal_actions(play, tmp_path, kind, by):
    config = config_of(Typed).environment(env_config={"kind": kind, "by": by})
    with config.environment(action_mask_key="legal", action_mask_from=by).build() as algo:
        algo.save(tmp_path / "checkpoint_000001")
    space, right = Typed.SPACES[kind]
    wrong = {"Discrete": [5], "MultiDiscrete": [1, 6, 1, 1], "MultiBinary": [1, 1], "integers": [2, 0]}[kind]
    typed = "".join(" ".join(map(str, each)) + "\n" for each in (wrong, right))
    result = play(str(tmp_path), "--episodes", "1", "--human", "first", "--against", "second=random", typed=typed)
    assert result.exit_code == 0, result.output
    assert "is not legal now" in result.output and "  second  random  1" in result.output, result.output
    assert f"one of {right[0]}" in result.output and np.array(wrong, space.dtype).reshape(space.shape) in space


def test_a_game_that_draws_text_alone_has_no_video(play):
    result = play(*GAME, "-o", "game.mp4", verb="record")
    assert result.exit_code == 2 and "in the render modes ansi alone, and here rgb_array is needed" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--human", "player_3"), "--human player_3 names the agent 'player_3', but there are player_1, player_2"),
     (("--human", "player_1", "--policy", "player_1=net"), "gives agent 'player_1' a second player"),
     (("--policy", "player_1"), "--policy player_1 must be AGENT=ID"),
     (("--policy", "player_1=worst"), "names the policy 'worst', but there are best, net"),
     (("--policy", "player_1=random"), "but there are best, net. --against AGENT=random is for random actions"),
     (("--against", "game:worst"), "names the policy 'worst', but there are best, net"),
     (("--against", "nowhere"), "there is no checkpoint /"),
     (("--against", "other"), "the checkpoint's environment has no agent 'player_2'"),
     (("--human", "player_2", "--against", "shared"), "no agent is left for it. Name one, --against AGENT=shared"),
     (("--human", "player_1"), "the input has ended, and player_1 has not acted")],
)  # fmt: skip
def test_mistakes_are_one_message(play, arguments, message):
    result = play(*GAME, *arguments)
    assert result.exit_code == 2 and message in result.output, result.output


class Drawn(RockPaperScissors):
    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, config=None):
        super().__init__({"rounds": 3})
        self.render_mode = (config or {}).get("render_mode")

    def render(self):
        return np.zeros((32, 32, 3), np.uint8)


def test_a_video_of_several_agents(play, runs, tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    save(tmp_path, env=Drawn)
    result = play(str(tmp_path), "-o", str(tmp_path / "game.gif"), verb="record")
    assert result.exit_code == 0 and (tmp_path / "game.gif").stat().st_size, result.output
    assert "episode 1  return 0  length 3" in result.output


def test_slots_are_for_several_agents(play, tmp_path):
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    with config.training(train_batch_size=20, sgd_minibatch_size=20, model={"fcnet_hiddens": [4]}).build() as algo:
        algo.save(tmp_path / "checkpoint_000001")
    result = play(str(tmp_path), "--human", "player_1")
    assert result.exit_code == 2 and "this run's environment has one" in result.output


def test_the_player_of_several_agents_is_by_agent():
    with config_of(TIC_TAC_TOE).build() as algo:
        observation = {"observation": np.zeros((3, 3, 2), np.int8), "action_mask": np.ones(9, np.int8)}
        assert algo.make_player().act({"player_1": observation}).keys() == {"player_1"}
        assert algo.make_player(policy_id="default_policy").act(observation) in range(9)
