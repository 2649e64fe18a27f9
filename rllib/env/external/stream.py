"""The stream of an external environment: its own loop submits its episodes, several at a time."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from rllib.env.external.exchange import RunEnded, StepRequest
from rllib.env.external.source import EpisodeSource
from rllib.env.multi_agent.agent_spaces import AgentID, AgentOrder
from rllib.env.streams.base import MAX_FAILURES_IN_A_ROW
from rllib.errors import SampleTimeoutError

if TYPE_CHECKING:
    from rllib.env.policy_server.weights import PublishedPolicy

logger = logging.getLogger("rllib.env")


class EnvironmentReplaced(Exception):
    """The loop of an external environment raised, and the environment was replaced: all its episodes are void."""


class ExternalSpaces:
    """Spaces of the agents of an external environment: its space, or the entry of a dict of spaces by agent.

    Args:
        env: the environment.
    """

    def __init__(self, env: EpisodeSource):
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
    """One external environment, with several running episodes.

    Args:
        env: the environment; the constructor starts its loop.
        num_envs: largest number of episodes at a time.
        worker: description of the worker that owns the stream, for error messages.
        remake: makes a new environment, which replaces one whose loop raised. None: the loop's errors are raised.
    """

    def __init__(
        self, env: EpisodeSource, num_envs: int, worker: str, remake: Callable[[], EpisodeSource] | None = None
    ):
        self._env, self.num_envs, self._where = env, num_envs, f"external environment of {worker}"
        self._remake, self._num_failures = remake, 0
        self._environment_made: Callable[[int, EpisodeSource], None] | None = None
        self._first: dict[int, tuple[Mapping, Mapping]] = {}
        self._orders: dict[int, AgentOrder] = {}
        self._num_ended = self._num_requests = 0
        self._failure: BaseException | None = None
        self._start(env)

    def _start(self, env: EpisodeSource) -> None:
        env.open()
        self._env, self._failure = env, None
        self._loop = threading.Thread(target=self._run, args=(env,), name=f"rllib-{type(env).__name__}", daemon=True)
        self._loop.start()

    @property
    def environments(self) -> list[EpisodeSource]:
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
        """Spaces of the agents, the same for each index."""
        return ExternalSpaces(self._env)

    def watch(self, environment_made: Callable[[int, EpisodeSource], None]) -> None:
        """Calls this function with (0, environment) for each environment that replaces a failed one."""
        self._environment_made = environment_made

    def reseed(self, seeds: Sequence[int]) -> None:
        """Does nothing: the random numbers of the environment are drawn by its own loop."""

    @property
    def acts_by_copies(self) -> bool:
        """Whether the loops outside may act by copies of the policy."""
        return self._env.publishes_policy

    def publish(self, policy: "PublishedPolicy") -> None:
        """Sends the policy to the external loops, if they act by copies of it."""
        self._env.publish(policy)

    # ------------------------------------------------------------------ step requests

    def serve(self, answer: Callable[[list[StepRequest]], bool], timeout_s: float) -> bool:
        """Has step requests answered until `answer` returns True (Exchange.serve).

        Returns:
            whether `answer` returned True; False if no step request came for timeout_s.

        Raises:
            the exception of `run`; RuntimeError if it has returned.
            EnvironmentReplaced: instead of the exception, where environments are replaced.
        """

        def counted(requests: list[StepRequest]) -> bool:
            self._num_requests += len(requests)
            self._num_failures = 0
            return answer(requests)

        if self._failure is None and self._env.exchange.serve(counted, timeout_s):
            return True
        if self._failure is not None:
            self._end_failed()
        return False

    def silence(self, timeout_s: float) -> SampleTimeoutError:
        """The error raised when no step request came for this time."""
        return SampleTimeoutError(
            f"the {self._where} ({type(self._env).__name__}) was not asked for an action for {timeout_s:g} s. "
            f"{self._env.describe_silence()} .rollouts(sample_timeout_s=...) sets how long it may be silent."
        )

    def arrived(self) -> list[StepRequest]:
        """Takes the step requests that have come since `answer` was called, for use within it (Exchange.arrived)."""
        requests = self._env.exchange.arrived()
        self._num_requests += len(requests)
        return requests

    def _run(self, env: EpisodeSource) -> None:
        try:
            env.run()
        except BaseException as error:
            error.add_note(f"in run() of the {self._where}, after {self._num_requests:,} steps")
            self._failure = error
        else:
            self._failure = RuntimeError(
                f"run() of {type(env).__name__} has returned after {self._num_ended:,} episodes; it must not return "
                "while the process lives"
            )
            self._remake = None  # the run() of a new environment would return as well
        env.exchange.wake()

    def _end_failed(self) -> NoReturn:
        """Ends the calls of a loop that has failed, and replaces its environment if there is `remake`."""
        failure, env = self._failure, self._env
        self._num_failures += 1
        env.exchange.end(RunEnded(f"the loop of {type(env).__name__} has ended: {failure}"))
        is_wanted = self._remake is not None and isinstance(failure, Exception)
        if not is_wanted or self._num_failures > MAX_FAILURES_IN_A_ROW:
            raise failure
        logger.warning("the %s raised; it is replaced by a new one", self._where, exc_info=failure)
        env.close()
        self._start(self._remake())
        if self._environment_made is not None:
            self._environment_made(0, self._env)
        raise EnvironmentReplaced from failure

    def begin(self, index: int, request: StepRequest) -> None:
        """Begins an episode with its first step request, whose observations the `reset` of this index returns."""
        self._first[index] = request.step.observations, request.step.infos
        self._orders[index] = AgentOrder()

    def episode_ended(self) -> None:
        """Counts an episode."""
        self._num_ended += 1

    def order(self, index: int) -> AgentOrder:
        """Order of the agents in the episode of this index."""
        return self._orders[index]

    def reset(self, index: int) -> tuple[Mapping, Mapping]:
        """Observations and infos of the episode that has begun."""
        return self._first.pop(index)

    def warn_of_dropped_row(self, agent: AgentID) -> None:
        """Does nothing: the loop outside chooses which agents have a final observation."""

    def close(self) -> None:
        """Ends the loop's calls, and closes the environment."""
        self._env.exchange.end(RunEnded("the run that this environment samples for has ended"))
        self._env.close()
