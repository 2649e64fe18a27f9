"""Goal environments: Dict observations that say which goal is desired and which one was achieved.

They have the interface of gymnasium-robotics: observations have the keys observation, achieved_goal and desired_goal.
compute_reward(achieved_goal, desired_goal, info) gives the reward that a step would have had for any desired goal, and
compute_terminated, which is optional, whether the task would have ended with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from rllib.config.conflicts import Unfit
from rllib.models.observations.flat_spaces import Leaf, flat_leaves

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
REWARD, TERMINATED = "compute_reward", "compute_terminated"
# Allowed difference of a computed reward from the step's: observations are stored in float32.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Goals:
    """Columns of the goals in stored observations [B, K], [B, G] each.

    Attributes:
        achieved, desired: the columns.
        space: space of a goal: Box, Discrete or MultiBinary.
    """

    achieved: slice
    desired: slice
    space: spaces.Space

    @staticmethod
    def of(observation_space: spaces.Space) -> "Goals":
        """Finds the columns of the goals in an observation space.

        Raises:
            ValueError: if there are none.
        """
        found: dict[str, Leaf] = {}
        for leaf in flat_leaves(observation_space) if isinstance(observation_space, spaces.Dict) else ():
            found |= {key: leaf for key in (ACHIEVED, DESIRED) if leaf.path.endswith(f"[{key!r}]")}
        if len(found) < 2:
            raise _needs(f"This environment's observation space is {observation_space}.")
        achieved, desired = found[ACHIEVED], found[DESIRED]
        alike = type(achieved.space) is type(desired.space) and _form(achieved.space) == _form(desired.space)
        if not alike or not isinstance(desired.space, spaces.Box | spaces.Discrete | spaces.MultiBinary):
            raise _needs(
                "Both goals must be of one space, a Box, Discrete or MultiBinary, but achieved_goal is "
                f"{achieved.space} and desired_goal {desired.space}."
            )
        return Goals(slice(achieved.start, achieved.stop), slice(desired.start, desired.stop), desired.space)

    def values(self, columns: np.ndarray) -> np.ndarray:
        """Goals [B, *goal] as the environment gives them, from stored ones [B, G]."""
        if isinstance(self.space, spaces.Discrete):
            return columns.argmax(1) + self.space.start
        return columns.reshape(-1, *self.space.shape).astype(self.space.dtype)

    def computed(self, env, method: str, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[dict]):
        """Results of compute_reward or compute_terminated for B steps; None if the environment has no such method.

        It is called once if it answers with B numbers, else step by step.

        Args:
            env: the environment, with its wrappers.
            method: REWARD or TERMINATED.
            achieved, desired: stored goals [B, G].
            infos: of the steps.

        Returns:
            [B].

        Raises:
            ValueError: if a result is not finite, or is no number.
        """
        function = goal_method(env, method)
        if function is None:
            return None
        achieved, desired = self.values(achieved), self.values(desired)
        found = np.asarray(function(achieved, desired, infos))
        if found.shape != (len(achieved),):
            found = np.array([function(*step) for step in zip(achieved, desired, infos)])
        if found.ndim != 1 or found.dtype.kind not in "biuf" or not np.isfinite(found).all():
            raise ValueError(f"{method} must give a finite number for each step, but gave {found[:3].tolist()}")
        return found


def goal_method(env, name: str):
    """The method of this name of the environment, or of the one inside its wrappers; None if there is none."""
    while env is not None:
        if callable(found := getattr(env, name, None)):
            return found
        env = getattr(env, "env", None)
    return None


def require_goals(observation_space: spaces.Space, env) -> Goals:
    """The goals of an environment, after a check that it is one with goals.

    Raises:
        ValueError: if it is not.
    """
    goals = Goals.of(observation_space)
    if goal_method(env, REWARD) is None:
        raise _needs(f"{type(getattr(env, 'unwrapped', env)).__name__} has no method {REWARD}.")
    return goals


def check_computed(
    goals: Goals, env, following: np.ndarray, rewards: np.ndarray, terminated: np.ndarray, infos: Sequence[dict]
) -> None:
    """Compares what the environment computes for steps that were made with what the steps gave.

    Args:
        goals: see above.
        env: the environment.
        following: [B, K] stored observations that followed the steps.
        rewards, terminated: [B] of the steps.
        infos: B dicts, as workers have them.

    Raises:
        ValueError: if they differ.
    """
    achieved, desired = following[:, goals.achieved], following[:, goals.desired]
    for method, given, what in ((REWARD, rewards, "reward"), (TERMINATED, terminated, "terminated")):
        try:
            computed = goals.computed(env, method, achieved, desired, infos)
        except Exception as error:
            error.add_note(
                f"{method} was called with {len(rewards)} goals at once and as many info dicts, which have the keys "
                "that .environment(info_columns={...}) names"
            )
            raise
        if computed is None:
            continue
        differs = ~np.isclose(computed.astype(float), given.astype(float), TOLERANCE, TOLERANCE)
        if differs.any():
            t = int(differs.argmax())
            raise ValueError(
                f"{method}(achieved_goal, desired_goal, info) gives {computed[t]} for a step whose {what} was "
                f"{given[t]}. For the goal achieved after a step and the one desired they must be equal. Correct it; "
                ".environment(disable_env_checking=True) trains without this check."
            )


def _form(space: spaces.Space):
    return space.n if isinstance(space, spaces.Discrete) else (space.shape, space.dtype)


def _needs(problem: str) -> Unfit:
    return Unfit(
        "Hindsight replay needs a goal environment: Dict observations with the keys observation, achieved_goal and "
        "desired_goal, and a method compute_reward(achieved_goal, desired_goal, info), as in gymnasium-robotics. "
        f"{problem}",
        "Use such an environment, or another type, such as .training(replay_buffer_config={'type': 'ReplayBuffer'}).",
        {"replay_buffer_config": {"type": "ReplayBuffer"}},
    )
