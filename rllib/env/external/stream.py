"""The stream of an external environment: its episodes are handed over by its own loop, each in a place of its own."""

import threading
from collections.abc import Callable, Mapping, Sequence

from rllib.env.external.exchange import RunEnded, Turn
from rllib.env.external.external_env import ExternalEnv
from rllib.env.external.weights import PublishedPolicy
from rllib.env.multi_agent.agent_spaces import AgentID, AgentOrder
from rllib.errors import SampleTimeoutError


class ExternalSpaces:
    """Spaces of the agents of an external environment: its space, or the entry of a dict of spaces by agent.

    Args:
        env: the environment.
    """

    def __init__(self, env: ExternalEnv):
        self._env = env

    def observation(self, agent: AgentID):
        """The observation space of an agent."""
        return _of_agent(self._env.observation_space, agent)

    def action(self, agent: AgentID):
        """The action space of an agent."""
        return _of_agent(self._env.action_space, agent)


def _of_agent(space, agent: AgentID):
    return space[agent] if isinstance(space, dict) and agent in space else space


class ExternalStream:
    """One external environment, whose running episodes stand in places.

    Args:
        env: the environment; its loop starts here.
        num_places: most episodes at once.
        worker: owner, for messages.
    """

    def __init__(self, env: ExternalEnv, num_places: int, worker: str):
        self._env, self.num_envs, self._where = env, num_places, f"external environment of {worker}"
        self._first: dict[int, tuple[Mapping, Mapping]] = {}
        self._orders: dict[int, AgentOrder] = {}
        self._num_ended = self._num_turns = 0
        self._failure: BaseException | None = None
        env.open()
        self._loop = threading.Thread(target=self._run, name=env.name, daemon=True)
        self._loop.start()

    @property
    def environments(self) -> list[ExternalEnv]:
        """The environment."""
        return [self._env]

    @property
    def observation_space(self):
        """The observation space of the policy, or a dict by agent."""
        return self._env.observation_space

    @property
    def action_space(self):
        """The action space of the policy, or a dict by agent."""
        return self._env.action_space

    def spaces(self, index: int) -> ExternalSpaces:
        """Spaces of the agents, in each place the same."""
        return ExternalSpaces(self._env)

    def watch(self, environment_made) -> None:
        """Does nothing: the environment is not replaced."""

    def reseed(self, seeds: Sequence[int]) -> None:
        """Does nothing: the environment's own loop draws what is random in it."""

    @property
    def acts_by_copies(self) -> bool:
        """Whether the loops outside may act by copies of the policy."""
        return self._env.publishes_policy

    def publish(self, policy: PublishedPolicy) -> None:
        """Gives the loops outside the policy that acts from now on, where they act by copies of it."""
        self._env.publish(policy)

    # ------------------------------------------------------------------ turns

    def serve(self, answer: Callable[[list[Turn]], bool], timeout_s: float) -> None:
        """Has turns answered until `answer` returns that it is enough (Exchange.serve).

        Raises:
            the exception of `run`; RuntimeError if it has returned.
            SampleTimeoutError: if nobody has asked for timeout_s.
        """

        def counted(turns: list[Turn]) -> bool:
            self._num_turns += len(turns)
            return answer(turns)

        if self._failure is None and self._env.exchange.serve(counted, timeout_s):
            return
        if self._failure is not None:
            self._env.exchange.end(RunEnded(f"the loop of {type(self._env).__name__} has ended: {self._failure}"))
            raise self._failure
        raise SampleTimeoutError(
            f"nobody has asked the {self._where} ({type(self._env).__name__}) for an action for {timeout_s:g} s. "
            f"{self._env.describe_silence()} .rollouts(sample_timeout_s=...) sets how long it may be silent."
        )

    def arrived(self) -> list[Turn]:
        """Takes the turns that have come since; for the `answer` of `serve` (Exchange.arrived)."""
        turns = self._env.exchange.arrived()
        self._num_turns += len(turns)
        return turns

    def _run(self) -> None:
        try:
            self._env.run()
        except BaseException as error:
            error.add_note(f"in run() of the {self._where}, after {self._num_turns:,} steps")
            self._failure = error
        else:
            self._failure = RuntimeError(
                f"run() of {type(self._env).__name__} has returned after {self._num_ended:,} episodes; it should go on "
                "as long as the process lives"
            )
        self._env.exchange.wake()

    def place(self, index: int, turn: Turn) -> None:
        """Puts the first turn of an episode into a place, whose `reset` gives its observations."""
        self._first[index] = turn.step.observations, turn.step.infos
        self._orders[index] = AgentOrder()

    def episode_ended(self) -> None:
        """Counts an episode."""
        self._num_ended += 1

    def order(self, index: int) -> AgentOrder:
        """Positions of the agents of the episode in a place."""
        return self._orders[index]

    def reset(self, index: int) -> tuple[Mapping, Mapping]:
        """Observations and infos of the episode that was put into a place."""
        return self._first.pop(index)

    def warn_of_dropped_row(self, agent: AgentID) -> None:
        """Does nothing: the loop outside chooses which agents have a final observation."""

    def close(self) -> None:
        """Ends the loop's calls, and closes the environment."""
        self._env.exchange.end(RunEnded("the run that this environment samples for has ended"))
        self._env.close()
