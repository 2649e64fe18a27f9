"""Actions for observations as an environment gives them, outside of training: in deployment and users' own loops."""

import itertools
import logging
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from rllib.acting.agent_player import PlayedEpisode
from rllib.acting.player import Player
from rllib.env.factories.adapter import ActionRow, Adapter, StepInputs
from rllib.env.factories.adapters import ADAPTERS
from rllib.env.factories.masks import ActionMask
from rllib.env.multi_agent.agent_parts import AgentParts
from rllib.env.spaces.actions import action_mapper, of_each
from rllib.env.spaces.batches import rows_of
from rllib.env.spaces.observations import ArrayColumn, observation_column
from rllib.env.spaces.supported import all_fit, mismatch, too_large
from rllib.env.streams.rewards import FLOAT32_MAX
from rllib.errors import NoActionError, UnknownPolicyError
from rllib.hand_written import choose
from rllib.models.distributions.standard import Distribution
from rllib.policy import Policy
from rllib.progress import counted
from rllib.sample_batch import DEFAULT_POLICY, VF_PREDS

logger = logging.getLogger(__name__)

A = TypeVar("A", bound=Adapter)
C = TypeVar("C")

# The adapters' items in checkpoints, where there are none.
_NO_ADAPTERS: dict[str, Any] = {
    "ignored_keys": [], "teacher_keys": [], "critic_keys": [], "told": None, "augmentation": None, "agents": None,
}  # fmt: skip


def under_plain_names(mixin: type[C]) -> type[C]:
    """Lets Python's messages about the arguments of a mixin's methods name these alone; users do not know the class."""
    for method in vars(mixin).values():
        function = getattr(method, "__func__", method)
        if isinstance(function, FunctionType):
            function.__qualname__ = function.__name__
    return mixin


@dataclass(frozen=True)
class ActingSettings:
    """Conversions of observations and actions between an environment and a policy.

    Attributes:
        normalize_actions, clip_actions: as for env.actions.ActionMapper.
        adapters: change the environment's observations into the policy's inputs, innermost first.
        explore: whether actions are sampled, unless a call says otherwise.
    """

    normalize_actions: bool = True
    clip_actions: bool = False
    adapters: tuple[Adapter, ...] = ()
    explore: bool = True

    def to_json(self) -> dict[str, Any]:
        """JSON-able data; `from_json` reads it."""
        adapters = {adapter.json_name: adapter.to_json() for adapter in self.adapters}
        rest = {name: getattr(self, name) for name in ("normalize_actions", "clip_actions", "explore")}
        return {**_NO_ADAPTERS, **adapters, **rest}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ActingSettings":
        """The settings among the items of `data`."""
        found = [(kind, data.get(kind.json_name)) for kind in (*ADAPTERS, AgentParts)]
        adapters = tuple(kind.from_json(given) for kind, given in found if given)
        return cls(data["normalize_actions"], data["clip_actions"], adapters, data["explore"])

    def adapter(self, kind: type[A]) -> A | None:
        """The adapter of a class, if there is one."""
        return next((adapter for adapter in self.adapters if isinstance(adapter, kind)), None)

    def with_masks(self, observations: Sequence, action_masks: Sequence | None) -> Sequence:
        """Observations as policies that are written by hand get them in training: with masks that stand next to them.

        Raises:
            NoActionError: if a mask is missing.
        """
        adapter = self.adapter(ActionMask)
        if adapter is None:
            return observations
        return [adapter.joined(*each) for each in zip(observations, action_masks or itertools.repeat(None))]


@under_plain_names
class Acting:
    """Methods that act with the present policies of an algorithm, or with a loaded policy."""

    policies: dict[str, Policy]
    _inferences: Mapping[str, "Inference"]
    _acting_settings: "ActingSettings"

    @abstractmethod
    def _explored_by(self, policy_id: str = DEFAULT_POLICY) -> dict[str, Any]:
        """Current keyword arguments of the action distribution's `noise` (epsilon, ...)."""

    def compute_single_action(
        self,
        observation,
        state: Sequence[np.ndarray] | None = None,
        *,
        explore: bool | None = None,
        prev_action=None,
        prev_reward: float | None = None,
        full_fetch: bool = False,
        action_mask=None,
        policy_id: str | None = None,
        agent_id: Hashable = None,
        **of_rllib,
    ) -> Any:
        """The action for one observation, in the environment's own units.

        Args:
            observation: as the environment gives it.
            state: required for a policy with a memory: `get_policy().get_initial_state()` for the first observation of
                an episode (where several act, `get_policy(agent_id=agent)`), then the state that the previous call
                returned.
            prev_action, prev_reward: the action before and its reward, for policies that read them
                (lstm_use_prev_action, lstm_use_prev_reward); None with the first observation of an episode.
            explore: sample it; False takes the most likely one. By default the config's `explore`.
            full_fetch: return the state and what the network computed as well.
            action_mask: of the legal actions, where the environment gives masks in the info or by a method.
            policy_id: id of the policy that acts; None: the only one, or that of the agent.
            agent_id: the agent, where several act: the mapping says by which policy, and a policy may read it
                (agent_id_in_observation).
            of_rllib: info, timestep and episode, which have no effect; unsquash_action and clip_action, as the config
                has them.

        Returns:
            the action; if a state is given or with `full_fetch`, (action, state, fetches): the state for the next
            observation ([] without a memory), and a dict with action_dist_inputs, and with action_logp and vf_preds
            where the policy has them.

        Raises:
            ValueError: for an observation of another form than the space's (one beyond its bounds is a warning, once),
                a state that does not fit the policy, or a mask that is missing or leaves no legal action.
        """
        if of_rllib:
            self._check_of_rllib(of_rllib)
        states = None if state is None else [state]
        policy_id = self._acting_policy(policy_id, agent_id)
        if state is None:
            self._refuse_no_state(policy_id, self._first_state(policy_id))
        how = {"explore": explore, "full_fetch": full_fetch, "policy_id": policy_id}
        inputs = {"prev_action": prev_action, "prev_reward": prev_reward, "action_masks": action_mask}
        inputs |= {"agent_ids": agent_id}
        how |= {name: None if value is None else [value] for name, value in inputs.items()}
        answer = self.compute_actions([observation], states, **how)
        if state is None and not full_fetch:
            return answer[0]
        actions, states, fetches = answer
        if not (state or full_fetch):  # [], as a policy without a memory has it
            return actions[0]
        return actions[0], states[0], {name: rows[0] for name, rows in fetches.items()}

    # The name of Ray 0.8.
    compute_action = compute_single_action

    def _check_of_rllib(self, given: Mapping[str, Any]) -> None:
        """Refuses arguments that ask for another action than `compute_single_action` gives.

        Raises:
            TypeError: naming the argument.
        """
        settings = next(iter(self._inferences.values())).settings
        known = {"unsquash_action": settings.normalize_actions, "clip_action": settings.clip_actions}
        for name, value in given.items():
            if name in known:
                if value not in (None, known[name]):
                    raise TypeError(
                        f"{name}={value!r}: actions are converted as the config says. Use get_policy()."
                        "compute_single_action(observation) for actions in the policy's own units"
                    )
            elif name not in ("info", "timestep", "episode"):
                raise TypeError(f"compute_single_action() got an unexpected keyword argument {name!r}")

    def predict(
        self,
        observation,
        state: Sequence | None = None,
        episode_start: bool | Sequence[bool] | np.ndarray | None = None,
        deterministic: bool = False,
        action_masks: Sequence | None = None,
    ) -> tuple[Any, Any]:
        """The action for one observation, or the actions for several, and the state after it, as in Stable-Baselines3.

        Args:
            observation: as the environment gives it; or N of them as a vector environment gives them, an array
                [N, ...], or for Dict and Tuple spaces a dict or tuple of such arrays.
            state: of a policy with a memory, what the previous call returned; None with the first observation of an
                episode.
            episode_start: bool, or bool [N]: whether an episode begins here, with a new state.
            deterministic: take the most likely actions instead of sampled ones.
            action_masks: the mask of the legal actions, or N of them, where the environment gives masks in the info or
                by a method.

        Returns:
            the action, or N of them (an array; a list for Tuple and Dict spaces), and the state for the next call: None
            for a policy without a memory.

        Raises:
            ValueError: as for `compute_single_action`, or for another number of states or starts than observations.
        """
        _check_choice("deterministic", deterministic, (True, False))
        rows = inference_of(self).rows_of(observation)
        if rows is not None:
            return self._predicted_rows(rows, state, episode_start, explore=not deterministic, masks=action_masks)
        if state is None or (episode_start is not None and np.all(episode_start)):
            state = self.get_policy().get_initial_state()
        how = {"explore": not deterministic, "full_fetch": True, "action_mask": action_masks}
        action, state, _ = self.compute_single_action(observation, state, **how)
        return action, state or None

    def _predicted_rows(
        self, rows: Sequence, states: Sequence | None, starts, *, explore: bool, masks: Sequence | None
    ) -> tuple[Sequence, list | None]:
        """`predict` of several observations."""
        count, first = len(rows), self.get_policy().get_initial_state()
        states = [first] * count if states is None else list(states)
        starts = np.zeros(count, bool) if starts is None else np.reshape(starts, -1)
        if not len(states) == len(starts) == count:
            raise ValueError(
                f"{counted(count, 'observation')} cannot have {len(states)} states and {len(starts)} values of "
                "episode_start. Give the states that the previous call returned, and a bool for each observation."
            )
        states = [first if begins else state for state, begins in zip(states, starts, strict=True)]
        actions, states, _ = self.compute_actions(rows, states, explore=explore, full_fetch=True, action_masks=masks)
        return actions, states if first else None

    def compute_actions(
        self,
        observations: Sequence | Mapping | np.ndarray,
        state: Sequence | Mapping | None = None,
        *,
        explore: bool | None = None,
        prev_action: Sequence | Mapping | None = None,
        prev_reward: Sequence | Mapping | None = None,
        full_fetch: bool = False,
        action_masks: Sequence | Mapping | None = None,
        agent_ids: Sequence[Hashable] | None = None,
        policy_id: str | None = None,
    ) -> Any:
        """Actions for several observations; see `compute_single_action`.

        Where several agents act, a dict of observations by agent without a policy_id is answered agent by agent, each
        by the policy that the mapping names.

        Args:
            observations: a sequence of them, or a dict by agent.
            state: a state for each of them, in the same form.
            explore, full_fetch, policy_id: as for `compute_single_action`.
            prev_action, prev_reward, action_masks: one for each of them, in the same form.
            agent_ids: the agent of each observation of a sequence, for a policy that reads it.

        Returns:
            actions: an array (for Tuple and Dict spaces a list), or a dict by agent. If a state is given or with
            `full_fetch`, (actions, states, fetches): a state for each in the same form, and a dict of arrays with a row
            for each.
        """
        _check_choice("explore", explore, (None, True, False))
        if policy_id is None and isinstance(observations, Mapping) and self._mapping is not None:
            inputs = {"prev_action": prev_action, "prev_reward": prev_reward, "action_masks": action_masks}
            return self._actions_by_agent(observations, state, inputs, explore=explore, full_fetch=full_fetch)
        policy_id = self._acting_policy(policy_id)
        agents = list(observations) if isinstance(observations, Mapping) else None
        first = self._first_state(policy_id)
        if agents is not None:
            self._refuse_agents_without_state(dict.fromkeys(agents, policy_id), state, first)
        elif state is None:
            self._refuse_no_state(policy_id, f"[{first} for _ in observations]")
        if agents is not None:
            agent_ids = agents
            observations = [observations[agent] for agent in agents]
            per_agent = state, prev_action, prev_reward, action_masks
            state, prev_action, prev_reward, action_masks = (
                given and [given[agent] for agent in agents] for given in per_agent
            )
        fetches: dict[str, np.ndarray] | None = None if state is None and not full_fetch else {}
        if (chooser := self._hand_written(policy_id)) is not None:
            actions, states = choose(chooser, self._acting_settings.with_masks(observations, action_masks), state)
        else:
            inputs = action_masks, prev_action, prev_reward, agent_ids
            actions, states = self._of_network(policy_id, observations, state, explore, fetches, *inputs)
        if agents is not None:
            actions, states = dict(zip(agents, actions)), dict(zip(agents, states))
        return actions if fetches is None else (actions, states, fetches)

    def _of_network(self, policy_id: str, observations, state, explore: bool | None, fetches, *inputs) -> tuple:
        """Actions and states of a policy that is a network; arguments as for Inference.compute_actions."""
        policy = self._network(policy_id)
        # A policy that was put into `policies` by hand acts in the same environment.
        inference = self._inferences.get(policy_id) or self._inferences[DEFAULT_POLICY]
        explore = inference.settings.explore if explore is None else explore
        return inference.compute_actions(policy, observations, state, explore, fetches, *inputs)

    def _hand_written(self, policy_id: str) -> Any:
        """The object that acts in place of a network; None where the policy is one."""
        return None

    @property
    def _mapping(self) -> Callable[..., str] | None:
        """Function (agent, episode, worker) -> policy id; None where there is one agent."""
        return None

    def _acting_policy(self, policy_id: str | None, agent_id: Hashable = None) -> str:
        """The policy that a call means."""
        if policy_id is not None:
            return policy_id
        if self._mapping is not None and agent_id is not None:
            return self._mapping(agent_id, PlayedEpisode(0), None)
        if DEFAULT_POLICY in self.policies or self._hand_written(DEFAULT_POLICY) is not None:
            return DEFAULT_POLICY
        if len(self.policies) == 1:
            return next(iter(self.policies))
        raise UnknownPolicyError(
            f"it is not said which policy is meant: there are {', '.join(self.policies)}. Give policy_id=..., or "
            "agent_id=... for the policy of an agent, to get_policy or compute_single_action."
        )

    def _actions_by_agent(self, observations: Mapping, state: Mapping | None, inputs: Mapping, **how) -> Any:
        """`compute_actions` of a dict by agent, each by the agent's policy."""
        actions, states, fetches = {}, {}, {}
        policies = {agent: self._acting_policy(None, agent) for agent in observations}
        self._refuse_agents_without_state(policies, state, "algo.get_policy(agent_id=agent).get_initial_state()")
        for agent, observation in observations.items():
            given = {name: values and [values[agent]] for name, values in inputs.items()}
            given |= {"agent_ids": [agent], "policy_id": policies[agent]}
            states_of = None if state is None else [state[agent]]
            answer = self.compute_actions([observation], states_of, **given, **how)
            if state is None and not how["full_fetch"]:
                actions[agent] = answer[0]
            else:
                actions[agent], states[agent] = answer[0][0], answer[1][0]
                fetches[agent] = {name: rows[0] for name, rows in answer[2].items()}
        return actions if state is None and not how["full_fetch"] else (actions, states, fetches)

    def _first_state(self, policy_id: str) -> str:
        """What a program writes for the state of a policy before an episode."""
        is_only = policy_id == DEFAULT_POLICY or len(self.policies) == 1
        return f"algo.get_policy({'' if is_only else repr(policy_id)}).get_initial_state()"

    def _refuse_no_state(self, policy_id: str, first: str, whose: str = "each observation needs a state") -> None:
        """Raises a NoActionError if a policy has a memory, where no state was given.

        Args:
            policy_id: id of the policy.
            first: what a program writes for what was to be given.
            whose: what lacks the state, a clause.
        """
        policy = self.policies.get(policy_id)
        if policy is None or not policy.state_size or self._hand_written(policy_id) is not None:
            return
        raise NoActionError(
            f"this policy has a memory: {whose}, a list with {_described(policy.get_initial_state())}, but got None.",
            f"Give state={first} with the first observation of an episode, and then the state that the previous call "
            "returned.",
        )

    def _refuse_agents_without_state(self, policies: Mapping[Hashable, str], state: Any, first: str) -> None:
        """The same for observations by agent.

        Args:
            policies: agent -> id of its policy.
            state: as it was given; of other agents as well, perhaps.
            first: what a program writes for the state of `agent` before an episode.
        """
        for agent, policy_id in policies.items():
            if state is None or agent not in state:
                every = f"{{agent: {first} for agent in observations}}"
                self._refuse_no_state(policy_id, every, f"agent {agent!r} needs a state")

    def make_player(
        self,
        num_episodes: int | None = None,
        *,
        explore: bool = False,
        policy_id: str | None = None,
        agent_id: Hashable = None,
    ) -> Any:
        """Makes a Player, which acts in episodes and remembers states of a memory, previous actions and rewards.

        Where several agents act and no policy is named, it is an AgentPlayer, which takes and gives dicts by agent.

        Args:
            num_episodes: number of episodes side by side; None: one, whose observations and actions come alone.
            explore: sample the actions; False takes the most likely ones.
            policy_id: id of the policy that acts; None: the only one, or that of each agent.
            agent_id: the agent that acts, for a policy that reads it.
        """
        policy_id = policy_id or DEFAULT_POLICY
        return Player(self, num_episodes, explore=explore, policy_id=policy_id, agent_id=agent_id)

    def get_policy(self, policy_id: str | None = None, *, agent_id: Hashable = None) -> Any:
        """A policy; of one that is written by hand, the object that acts.

        Args:
            policy_id: its id; None: the only policy, or that of the agent.
            agent_id: an agent, where several act.

        Raises:
            UnknownPolicyError: (a KeyError and ValueError) if there is no such policy, or it is not clear which is
                meant.
        """
        policy_id = self._acting_policy(policy_id, agent_id)
        chooser = self._hand_written(policy_id)
        return self._network(policy_id) if chooser is None else chooser

    def _network(self, policy_id: str = DEFAULT_POLICY) -> Policy:
        """The policy with this id, which has a network; it explores as the run does now."""
        if policy_id not in self.policies:
            raise UnknownPolicyError(f"there is no policy {policy_id!r}; this algorithm has {', '.join(self.policies)}")
        policy = self.policies[policy_id]
        policy.exploration = self._explored_by(policy_id)
        return policy


def inference_of(acting: Acting, policy_id: str | None = None) -> "Inference":
    """The conversions with which a policy acts; None: the only one."""
    own = acting._inferences
    return own.get(policy_id or DEFAULT_POLICY) or next(iter(own.values()))


class Inference:
    """From observations to actions, both in the environment's own units.

    Args:
        observation_space, action_space: spaces of the environment.
        settings: conversions of observations and actions between environment and policies.
        rng: draws the actions that are sampled.
        distribution: distribution of the policies' actions.

    Attributes:
        rng, settings: the same.
    """

    def __init__(
        self,
        observation_space,
        action_space,
        settings: ActingSettings,
        rng: np.random.Generator,
        distribution: Distribution,
    ):
        self.rng, self.settings = rng, settings
        self._adapters = settings.adapters
        self._takes_masks = settings.adapter(ActionMask) is not None
        self._action_row = ActionRow(action_space)
        self._space = observation_space
        # Until the first warning: an observation that is a rounding error outside still gets its action.
        self._minds_bounds = True
        self._column = observation_column(observation_space)
        mapping = settings.normalize_actions, settings.clip_actions
        self._mapper = action_mapper(action_space, distribution, *mapping)

    def compute_actions(
        self,
        policy: Policy,
        observations: Sequence,
        states: Sequence | None,
        explore: bool,
        fetches: dict | None,
        action_masks: Sequence | None = None,
        prev_actions: Sequence | None = None,
        prev_rewards: Sequence | None = None,
        agent_ids: Sequence | None = None,
    ) -> tuple[Sequence, list[list[np.ndarray]]]:
        """One action for each observation.

        Args:
            policy: acts.
            observations: N of them.
            states: of a policy with a memory, the state before each observation, in the form of
                `Policy.get_initial_state`.
            explore: sample the actions.
            fetches: as for `Policy.choose`; without vf_preds where observations lack what the value alone reads.
            action_masks: a mask for each observation, where the environment does not give them in its observations.
            prev_actions, prev_rewards: the action before each observation, as the environment took it, and its reward,
                where the policy reads them; None where an episode begins.
            agent_ids: the agent of each observation, where the policy reads it.

        Returns:
            N actions, an array or, for Tuple and Dict, a list; and the state after each observation.

        Raises:
            ValueError: for an observation that is not in the space, a state that does not fit the policy, or a mask
                that is missing or leaves no legal action.
        """
        rows = self._rows_at_once(observations) if action_masks is None else None
        if rows is None:
            given = states, prev_actions, prev_rewards, action_masks, agent_ids
            given = observations, *(_or_none(each, observations) for each in given)
            rows = np.stack([self._row(policy, *each) for each in zip(*given, strict=True)])
        memory = _memory(policy, states, len(rows))
        drawn = policy.choose(rows, explore, self.rng, state=memory, fetches=fetches)
        if fetches and any(any(map(adapter.lacks, observations)) for adapter in self._adapters):
            fetches.pop(VF_PREDS, None)
        actions = of_each(self._mapper.space, self._mapper.to_env(drawn))
        return actions, _states(policy, memory, len(rows))

    def rows_of(self, observation) -> Sequence | None:
        """The single observations of a batch, as a vector environment gives it; None for anything else."""
        if type(observation) is np.ndarray and observation.shape == self._space.shape and not self._adapters:
            return None  # the usual observation, and quick
        return rows_of(self.given_space, observation)

    @property
    def given_space(self):
        """The space of the observations that `compute_actions` takes: the environment's, but for keys without use."""
        space = self._space
        for adapter in reversed(self._adapters):
            space = adapter.own_space(space)
        return space

    def _rows_at_once(self, observations: Sequence) -> np.ndarray | None:
        """Observations that are arrays, and lie in the space, as batches store them; None: look at each."""
        if self._adapters or not isinstance(self._column, ArrayColumn):
            return None
        try:
            rows = np.asarray(observations)
        except ValueError:  # of different shapes
            return None
        if not len(rows) or not all_fit(self._space, rows, bounded=self._minds_bounds):
            return None
        with np.errstate(over="ignore"):  # infinite numbers are refused by the look at each
            stored = rows.astype(self._column.dtype, copy=False)
        return stored if stored.dtype.kind != "f" or np.isfinite(stored).all() else None

    def _row(self, policy, observation, state, prev_action, prev_reward, action_mask, agent_id) -> np.ndarray:
        """The observation as batches store it."""
        for adapter in reversed(self._adapters):
            observation, action_mask = adapter.taken_apart(observation, action_mask)
        if action_mask is not None and not self._takes_masks:
            known = "takes masks as a part of the observation alone" if policy.is_masked else "knows of no masks"
            raise NoActionError(
                f"action_mask={action_mask!r:.80} has no use here: this policy {known}. Leave it out.",
                "Or train with .environment(action_mask_from='info').",
            )
        inputs = StepInputs(self._action_row, self._space, state, prev_action, prev_reward, action_mask, agent_id)
        for adapter in self._adapters:
            observation = adapter.row(observation, inputs)
        problem = mismatch(self._space, observation, bounded=False)
        if problem := problem or too_large(self._space, observation, "observation", FLOAT32_MAX):
            if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict):
                problem = "this is the pair (observation, info) that reset() returns; give its first part alone"
            raise ValueError(f"no action can be computed: {problem}")
        if self._minds_bounds and (problem := mismatch(self._space, observation)):
            self._minds_bounds = False
            logger.warning("the %s; the policy acts on it, and further ones are not reported", problem)
        return self._column.row(observation)


def _or_none(values: Sequence | None, observations: Sequence) -> Sequence:
    return [None] * len(observations) if values is None else values


def _memory(policy: Policy, states: Sequence | None, count: int) -> np.ndarray | None:
    """The states before `count` observations in one array [count, size]; None for a policy without a memory."""
    initial = policy.get_initial_state()
    shapes = [part.shape for part in initial]
    if states is None and not shapes:
        return None
    fit = isinstance(states, Sequence) and len(states) == count
    if fit:
        states = [policy.with_value_state(each) if isinstance(each, list | tuple) else each for each in states]
    if fit and all(isinstance(each, list | tuple) and [np.shape(part) for part in each] == shapes for each in states):
        return np.array([np.concatenate(each, axis=None) for each in states], np.float32) if shapes else None
    if not shapes:
        raise ValueError(f"this policy has no memory, so its state is [], but got {states!r:.80}; explore is a keyword")
    raise NoActionError(
        f"this policy has a memory: each observation needs a state, a list with {_described(initial)}, "
        f"but got {states!r:.80}.",
        "Give what get_initial_state() of the policy returns with the first observation of an episode, and then the "
        "state that the previous call returned.",
    )


def _states(policy: Policy, memory: np.ndarray | None, count: int) -> list[list[np.ndarray]]:
    """The states [count, size] in the form of `Policy.get_initial_state`."""
    if memory is None:
        return [[] for _ in range(count)]
    return [list(parts) for parts in zip(*policy.state_parts(memory))]


def _described(state: Sequence[np.ndarray]) -> str:
    listed = [str(list(part.shape)) for part in state]
    return f"an array of shape {listed[0]}" if len(listed) == 1 else f"arrays of shapes {', '.join(listed)}"


def _check_choice(name: str, value: Any, allowed: tuple) -> None:
    """Raises a TypeError for a text, say, which would count as True."""
    if value not in allowed:
        raise TypeError(f"{name}={value!r:.80} must be {' or '.join(map(str, allowed))}")
