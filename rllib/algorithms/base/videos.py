"""Rendered episodes: of `rllib play` and `rllib record`, and after evaluations with evaluation_videos=1."""

from collections.abc import Callable
from pathlib import Path

from gymnasium.vector import VectorEnv

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.wiring import playable_environment
from rllib.env.agents import is_multi_agent
from rllib.env.factories.masks import METHOD
from rllib.env.factories.registry import EnvContext, EnvFactory
from rllib.runs.video import DEFAULT_FPS, VideoFile, fps_of

# Largest number of frames of an evaluation's video: a longer one would fill the disk, and the viewer's memory.
MOST_FRAMES = 2000


def drawn_environment(config: AlgorithmConfig, *modes: str):
    """Makes the environment of a config with the first of these render modes that it lists, or else the first one.

    Raises:
        ValueError: if the environment cannot be rendered.
    """
    factory, mode = playable_environment(config), modes[0]
    env = _made(factory, config, mode)
    if (other := next((each for each in modes if each in _modes_of(env)), mode)) != mode:
        env.close()
        mode, env = other, _made(factory, config, other)
    if problem := _why_undrawn(env, mode):
        env.close()
        raise ValueError(f"{factory.name} {problem}")
    return env


def _made(factory: EnvFactory, config: AlgorithmConfig, mode: str):
    return factory.make(EnvContext({**config.env_config, "render_mode": mode}, in_evaluation=True))


def _modes_of(env) -> tuple[str, ...]:
    """The render modes that an environment lists in its metadata."""
    return tuple(mode for mode in (getattr(env, "metadata", None) or {}).get("render_modes", ()) if mode is not None)


def _why_undrawn(env, mode: str) -> str | None:
    """Reason why an environment that was made with this render mode cannot be rendered; None if it can."""
    made, offered = getattr(env, "render_mode", None), _modes_of(env)
    if isinstance(env, VectorEnv) or getattr(env, "num_envs", 1) != 1:
        return "is a vector environment, which cannot be shown. Returns without a video: rllib evaluate"
    if made != mode:
        return (
            f"does not draw itself: made with render_mode={mode!r}, it has render_mode={made!r}. A class of your own "
            "gets it with its config, and keeps it as self.render_mode."
        )
    if offered and mode not in offered:
        return (
            f"draws itself in the render modes {', '.join(offered)} alone, and here {mode} is needed: videos are of "
            "rgb_array, images [height, width, 3] that render() returns. rllib play shows ansi as text."
        )
    return None


def undrawn_environment(config: AlgorithmConfig):
    """The environment of a config, made without a render_mode."""
    return playable_environment(config).make(EnvContext(config.env_config, in_evaluation=True))


def render_modes(config: AlgorithmConfig) -> tuple[str, ...]:
    """The render modes that the environment of a config lists in its metadata."""
    env = undrawn_environment(config)
    try:
        return _modes_of(env)
    finally:
        env.close()


def play_episode(algorithm, env, seed: int | None, explore: bool, draw: Callable[[], None]) -> tuple[float, int]:
    """Plays an episode of one agent, calling `draw` after reset and each step; returns its return and its length."""
    config, player = algorithm.config, algorithm.make_player(explore=explore)
    observation, info = env.reset(seed=seed)
    total, length, reward, over = 0.0, 0, None, False
    draw()
    while not over:
        mask = None
        if config.action_mask_from == "info":
            mask = info[config.action_mask_key]
        elif config.action_mask_from == "method":
            mask = env.get_wrapper_attr(METHOD)()
        observation, reward, terminated, truncated, info = env.step(player.act(observation, reward, mask))
        total, length, over = total + float(reward), length + 1, terminated or truncated
        draw()
    return total, length


def key_in_infos(config: AlgorithmConfig) -> str | None:
    """Key of the mask of legal actions in infos; None if infos have no masks."""
    return config.action_mask_key if config.action_mask_from == "info" else None


class EvaluationVideos:
    """Plays episodes in this process after an evaluation, and writes them as an animated GIF.

    Args:
        config: settings of the algorithm. evaluation_videos is the number of episodes in each file; the first episode
            always has the same seed, so that files can be compared.

    Raises:
        ValueError: if the environment cannot be rendered, or its `render_fps` is no number that videos can have.
        ImportError: without the package that writes videos.
    """

    def __init__(self, config: AlgorithmConfig):
        VideoFile("needed.gif", DEFAULT_FPS)  # raises for a missing package before training starts
        self._episodes, self._explore = config.evaluation_videos, config.explores_in_evaluation
        self._env = drawn_environment(config.get_evaluation_config_object(), "rgb_array")
        self._fps = fps_of(self._env)
        self._env.reset()
        self._env.render()  # raises if a package for rendering is missing
        self._agents = None
        if is_multi_agent(self._env):
            from rllib.env.multi_agent.played_episodes import PlayedEpisodes

            self._agents = PlayedEpisodes(self._env, mask_key=key_in_infos(config))

    def record(self, algorithm) -> str:
        """Writes videos/iteration_000012.gif in the algorithm's directory; returns that name, for the results."""
        name = f"videos/iteration_{algorithm.metrics.iteration + 1:06}.gif"
        frames = 0
        with VideoFile(Path(algorithm.directory, name), self._fps) as video:

            def draw() -> None:
                nonlocal frames
                frames += 1
                if frames <= MOST_FRAMES:
                    video.add(self._env.render())

            if self._agents is not None:
                self._agents.reseed(algorithm.seed)
            for number in range(self._episodes):
                if self._agents is not None:
                    self._agents.play(algorithm.make_player(explore=self._explore), draw)
                else:
                    play_episode(algorithm, self._env, algorithm.seed if number == 0 else None, self._explore, draw)
        return name

    def stop(self) -> None:
        """Closes the environment."""
        self._env.close()
