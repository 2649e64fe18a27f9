"""The policies of a multi-agent run: ids, spaces and settings, which policies learn, and which agent acts by which.

setup = make_agents(config, examined)
setup.spaces["p0"], setup.overrides["p0"], setup.settings
"""

import fnmatch
import inspect
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.policies import with_settings
from rllib.config.conflicts import Mistake, surrounded
from rllib.did_you_mean import did_you_mean
from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.multi_agent.examine import ExaminedAgents
from rllib.env.spaces.row_selection import RowSelection
from rllib.errors import UnknownPolicyError
from rllib.evaluation.multi_agent.settings import AgentSettings
from rllib.policies import PolicySpec, RandomPolicy
from rllib.policy import Policy
from rllib.processes import unpicklable_part
from rllib.result import ALL_POLICIES
from rllib.sample_batch import DEFAULT_POLICY

logger = logging.getLogger(__name__)

# Number of probed episodes: the mapping is called for them before any real episode starts.
PROBED_EPISODES = 32

# Characters that some file systems do not allow in names of directories.
_NOT_IN_IDS = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f\ud800-\udfff]|[ .]$')
# Largest number of bytes of an id in UTF-8: file systems allow names of 255 bytes.
_LONGEST_ID = 200


@dataclass(frozen=True)
class Agents:
    """Policies of a run with several agents.

    Attributes:
        environment: its agents and their spaces.
        specs: policy id -> its description.
        spaces: policy id -> observation space and action space, for policies that are networks.
        overrides: policy id -> settings in which the policy differs from the run.
        mapping: (agent, episode, worker) -> policy id.
        to_train: policies_to_train as it was given.
        settings: settings of the workers.
        trains: (policy id, batch) -> whether the policy learns from the batch.
        acting: ids of the policies that agents have in some probed episode; empty if the agents are not known.
        num_made: number of policies of the run so far, including removed ones.
        first: the initial object of the run; None: this one.
    """

    environment: ExaminedAgents
    specs: Mapping[str, PolicySpec]
    spaces: Mapping[str, tuple[Space, Space]]
    overrides: Mapping[str, Mapping[str, Any]]
    mapping: "PolicyMapping"
    to_train: Any
    settings: AgentSettings
    trains: Callable[[str, Any], bool]
    acting: frozenset[str]
    num_made: int
    first: "Agents | None" = None

    @property
    def beginning(self) -> "Agents":
        """The initial agents and policies of the run."""
        return self.first or self

    def nobody_learns(self, acted: Collection[str], episodes: int) -> bool:
        """Whether no agent seems to act by a policy that learns.

        Args:
            acted: ids of the policies that have acted in these episodes; used if the agents are not known.
            episodes: number of these episodes.
        """
        acting = self.acting or (acted if episodes >= PROBED_EPISODES else ())
        return not self.settings.trained or (bool(acting) and self.settings.trained.isdisjoint(acting))


def make_agents(config: AlgorithmConfig, examined: ExaminedAgents) -> Agents:
    """Reads the section `.multi_agent` for an environment.

    Raises:
        ValueError: for a mistake, such as an invalid id, or a policy whose agents have different spaces.
    """
    plain = "own" if examined.agents else "shared"
    own = {"policies": plain, "policy_mapping_fn": None, "policies_to_train": None}
    here = {"num_rollout_workers": 0, "evaluation_num_workers": 0}
    with config.blamed("policies", remedies=[own]):
        specs = _specs(config.policies, examined)
    with config.blamed("model", remedies=[{"model": {"of_policies": {}}}]):
        specs = _with_models(specs, config.model.get("of_policies", {}))
    with config.blamed("policy_mapping_fn", "policies", remedies=[own]):
        mapping = make_mapping(config.policy_mapping_fn, specs, examined)
    if config.num_rollout_workers or config.evaluation_num_workers:
        with config.blamed("policy_mapping_fn", *here, remedies=[here]):
            _check_travels(mapping)
    with config.blamed("policies", "policy_mapping_fn", remedies=[own]):
        found, num_slots = probed(mapping, specs, examined)
        spaces = {policy_id: spaces_of(policy_id, spec, found, examined) for policy_id, spec in specs.items()}
        by_hand = {
            policy_id: hand_written(policy_id, spec, *spaces[policy_id], config.action_mask_key)
            for policy_id, spec in specs.items()
            if spec.policy_class is not None
        }
        learned = {policy_id: pair for policy_id, pair in spaces.items() if policy_id not in by_hand}
        check_fit(learned, found, examined)
    with config.blamed("policies_to_train", remedies=[{"policies_to_train": None}]):
        names, trains = trained(config.policies_to_train, specs, learned, found)
    overrides = {
        policy_id: own_settings(policy_id, spec.config, config)
        for policy_id, spec in specs.items()
        if spec.config and policy_id in learned
    }
    settings = AgentSettings(
        policy_of=mapping,
        spaces=spaces,
        num_slots=num_slots if examined.are_known else {},
        trained=frozenset(names),
        hand_written=by_hand,
        numbers={policy_id: number for number, policy_id in enumerate(spaces)},
        fixed=fixed_policies(mapping, examined),
        counts_agent_steps=config.count_steps_by == "agent_steps",
    )
    to_train = config.policies_to_train
    parts = examined, specs, learned, overrides, mapping, to_train, settings, trains, frozenset(found), len(spaces)
    return Agents(*parts)


def in_other_environment(agents: Agents, examined: ExaminedAgents) -> AgentSettings:
    """The settings of workers that use the policies of a run in another environment.

    Raises:
        ValueError: if an agent of this environment has no policy, or one that does not fit.
    """
    found, num_slots = probed(agents.mapping, agents.specs, examined)
    check_fit(agents.settings.spaces, found, examined)
    slots, fixed = num_slots if examined.are_known else {}, fixed_policies(agents.mapping, examined)
    return replace(agents.settings, num_slots=slots, fixed=fixed)


# ------------------------------------------------------------------ policies


def _with_models(specs: dict[str, PolicySpec], models: Mapping[str, Mapping]) -> dict[str, PolicySpec]:
    """Adds the network settings that `model` has for single policies to their specs; a spec's own settings win."""
    for policy_id, model in models.items():
        if policy_id not in specs:
            raise ValueError(
                f"there are settings of a network for {policy_id!r}, but no such policy; there are {', '.join(specs)}. "
                "Name it in .multi_agent(policies=...)."
            )
        specs[policy_id] = _with_model(specs[policy_id], model)
    return specs


def _with_model(spec: PolicySpec, model: Mapping[str, Any]) -> PolicySpec:
    own = dict(spec.config or {})
    settings = {**model, **own.get("model", {})}
    network = settings.get("custom_model")
    description = getattr(network, "policy_description", None)  # the network is an RLModule (rllib/core)
    if spec.policy_class is None and description is not None and description.acts_by_hand(network):
        from rllib.core.modules.acting_module import ActingModule

        given = {"module_class": network, "model_config": dict(settings.get("custom_model_config", {}))}
        return replace(spec, policy_class=ActingModule, config=given)
    return replace(spec, config={**own, "model": settings})


def _specs(given: Any, examined: ExaminedAgents) -> dict[str, PolicySpec]:
    """Policy id -> its spec."""
    if given is None:
        given = [DEFAULT_POLICY]
    elif given == "shared":
        given = ["shared"]
    elif given == "own":
        if not examined.agents:
            raise ValueError(
                "policies='own' makes a policy for each agent, but this environment does not say which agents there "
                "are. Name the policies, and say who acts by which: .multi_agent(policies=['p0', 'p1'], "
                "policy_mapping_fn=...), or use policies='shared'"
            )
        given = [str(agent) for agent in examined.agents]
    elif isinstance(given, str):
        given = [given]
    if not isinstance(given, Collection):
        raise ValueError(
            f"policies={given!r:.80} must be ids, such as ['p0', 'p1'], a dict of id -> PolicySpec, 'shared' for one "
            "policy, or 'own' for one of each agent"
        )
    items = given.items() if isinstance(given, Mapping) else [(policy_id, None) for policy_id in given]
    specs = {}
    for policy_id, spec in items:
        check_policy_id(policy_id)
        specs[policy_id] = without_own_class(PolicySpec.of(spec, policy_id))
    if not specs:
        raise ValueError("policies is empty: name at least one, such as .multi_agent(policies=['shared'])")
    return dict(sorted(specs.items()))


def without_own_class(spec: PolicySpec) -> PolicySpec:
    """The spec, without its policy_class if that is `Policy`, the class of the algorithm's own policies."""
    given = spec.policy_class
    # A class may say which one it represents, as that of rllib.compat.programs does; its subclasses do not.
    is_own = inspect.isclass(given) and vars(given).get("stands_for", given) is Policy
    return replace(spec, policy_class=None) if is_own else spec


def check_policy_id(policy_id: Any) -> None:
    """Checks a policy id.

    Raises:
        ValueError: unless the id can be the name of a directory and a key of results.
    """
    if policy_id == ALL_POLICIES:
        raise ValueError(
            f"a policy cannot have the id {ALL_POLICIES!r}, under which results have the counts of all policies. Give "
            "it another id."
        )
    is_name = isinstance(policy_id, str) and policy_id and not _NOT_IN_IDS.search(policy_id)
    if not is_name or len(policy_id.encode()) > _LONGEST_ID:
        raise ValueError(
            f"a policy's id is a string that can be the name of a directory in checkpoints, of at most {_LONGEST_ID} "
            f'bytes, without <>:"/\\|?* and control characters, and without a dot or a space at its end, but '
            f"{policy_id!r:.80} was given"
        )


def spaces_of(
    policy_id: str, spec: PolicySpec, found: Mapping[str, Sequence[AgentID]], examined: ExaminedAgents
) -> tuple[Space, Space]:
    """Spaces of a policy: the spaces in its spec, else the spaces of its agents, which have to be equal."""
    given = spec.observation_space, spec.action_space
    if all(space is not None for space in given):
        return given
    agents = found.get(policy_id, ())
    pairs = {agent: examined.spaces[agent] for agent in agents}
    if not pairs:
        kinds = list(examined.spaces.values())
        if kinds and all(pair == kinds[0] for pair in kinds):
            pairs = {None: kinds[0]}
        else:
            raise ValueError(
                f"policy {policy_id!r} has no agent in {PROBED_EPISODES} probed episodes: give its spaces, "
                "PolicySpec(observation_space=..., action_space=...), or leave it out"
            )
    first, *others = pairs.items()
    for kind, position in (("observation", 0), ("action", 1)):
        for agent, pair in others:
            if given[position] is None and pair[position] != first[1][position]:
                raise ValueError(
                    f"policy {policy_id!r} is mapped to agents with different {kind} spaces: {first[0]!r} "
                    f"{first[1][position]}, {agent!r} {pair[position]}. Give them policies of their own, such as "
                    ".multi_agent(policies='own'), or wrap the environment so that the spaces are equal."
                )
    return tuple(first[1][i] if given[i] is None else given[i] for i in (0, 1))


def spaces_given(agents: Agents, policy_id: str, examined: ExaminedAgents) -> list[Space]:
    """Distinct observation spaces of a policy's agents in an environment whose observations contain more keys.

    For a policy that no agent acts by yet: the only observation space that contains the policy's own, [] otherwise.

    Args:
        agents: agents of the run.
        policy_id: id of the policy.
        examined: agents of this environment, whose names may differ from the run's if the environment invents names.
    """
    found, _ = probed(agents.mapping, agents.specs, examined)
    own, by_agent = agents.spaces[policy_id][0], {agent: space for agent, (space, _) in examined.spaces.items()}
    if policy_id in found:
        return _different(by_agent[agent] for agent in found[policy_id])
    alike = _different(space for space in by_agent.values() if _holds(space, own))
    return alike if len(alike) == 1 else []


def _different(given: Iterable[Space]) -> list[Space]:
    found: list[Space] = []
    for space in given:
        if space not in found:
            found.append(space)
    return found


def _holds(space: Space, part: Space) -> bool:
    """Whether the observations of `space` contain all of an observation of `part`."""
    try:
        RowSelection(space, part)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class SpacesOfPolicies:
    """Returns an agent's spaces, which are its policy's, for environments without spaces.

    Attributes:
        pairs: policy id -> observation space and action space.
        mapping: (agent, episode, worker) -> policy id.
    """

    pairs: Mapping[str, tuple[Space, Space]]
    mapping: Callable[..., str]

    def __call__(self, agent: AgentID) -> tuple[Space, Space]:
        policy_id = self.mapping(agent, ProbedEpisode(0), None)
        if policy_id not in self.pairs:
            what = f"policy_mapping_fn gave agent {agent!r} the policy {policy_id!r}"
            raise unknown_policy(what, policy_id, self.pairs)
        return self.pairs[policy_id]


def spaces_of_policies(config: AlgorithmConfig) -> SpacesOfPolicies | None:
    """Function of an agent that returns its policy's spaces; None unless all PolicySpecs give both spaces."""
    specs = {policy_id: PolicySpec.of(spec, policy_id) for policy_id, spec in config.policies.items()}
    pairs = {policy_id: (spec.observation_space, spec.action_space) for policy_id, spec in specs.items()}
    if any(space is None for pair in pairs.values() for space in pair):
        return None
    given = config.policy_mapping_fn
    if given is None:
        given = dict.fromkeys("*", next(iter(specs))) if len(specs) == 1 else {name: name for name in specs}
    elif isinstance(given, str):
        given = {"*": given}
    return SpacesOfPolicies(pairs, PolicyMapping(given if callable(given) else TableMapping(given)))


def check_fit(
    learned: Mapping[str, tuple[Space, Space]], found: Mapping[str, Sequence[AgentID]], examined: ExaminedAgents
) -> None:
    """Checks that networks can act for the agents that are mapped to them; bounds of Boxes may differ.

    Args:
        learned: policy id -> its spaces.
        found: policy id -> its agents.
        examined: agents of the environment.

    Raises:
        ValueError: if observations or actions of an agent have another form than the policy's.
    """
    for policy_id, pair in learned.items():
        for agent in found.get(policy_id, ()):
            for kind, own, of_agent in zip(("observation", "action"), pair, examined.spaces[agent]):
                if own != of_agent and _form(own) != _form(of_agent):
                    raise ValueError(
                        f"policy {policy_id!r} has the {kind} space {own}, but agent {agent!r}, which is mapped to it, "
                        f"has {of_agent}. Map the agent to a policy with its spaces, or make one with them."
                    )


def _form(space: Space) -> Any:
    """The properties of a space that must be equal in two spaces for the same network."""
    if isinstance(space, spaces.Box):
        return space.shape
    if isinstance(space, spaces.Tuple):
        return [_form(part) for part in space.spaces]
    if isinstance(space, spaces.Dict):
        return {name: _form(part) for name, part in space.spaces.items()}
    return repr(space)


def hand_written(
    policy_id: str, spec: PolicySpec, observation_space: Space, action_space: Space, mask_key: str | None
) -> Callable[[], Any]:
    """Makes a factory of the object that acts; random actions are legal by the mask named in the run's settings.

    Raises:
        ValueError: if the object cannot act, or its class is derived from `Policy`.
    """
    acts = spec.policy_class
    is_network = inspect.isclass(acts) and issubclass(acts, Policy)
    if not (is_network or callable(getattr(acts, "compute_actions", None))):
        raise ValueError(
            f"policy_class={acts!r:.80} of policy {policy_id!r} must be a class or an object with compute_actions("
            "observations, state_batches=None, **kwargs), or None for the algorithm's own policy"
        )
    _settings_of(policy_id, spec.config or {})
    if inspect.isclass(acts):
        if issubclass(acts, Policy):
            raise ValueError(
                f"{acts.__name__} is derived from rllib.Policy, a network with its weights, and cannot act as a policy "
                "that is written by hand. Derive it from rllib.policies.HandWrittenPolicy, and define "
                "compute_actions(observations, state_batches=None, **kwargs). Where the algorithm's own policy is "
                "meant, leave policy_class out."
            )
        is_random = issubclass(acts, RandomPolicy) and mask_key is not None
        masked = {"action_mask_key": mask_key} if is_random else {}
        return partial(acts, observation_space, action_space, {**masked, **(spec.config or {})})
    return partial(_itself, acts)


def _itself(chooser: Any) -> Any:
    return chooser


def _settings_of(policy_id: str, given: Any) -> Mapping[str, Any]:
    """The given settings of a policy, which must be a dict."""
    if not isinstance(given, Mapping):
        raise ValueError(
            f"config={given!r:.80} of policy {policy_id!r} must be a dict of the settings in which it differs "
            "from the run, such as {'lr': 1e-3}."
        )
    return given


def own_settings(policy_id: str, given: Mapping[str, Any], config: AlgorithmConfig) -> Mapping[str, Any]:
    """Settings of a policy under their canonical names, without those that no policy may own.

    Raises:
        ValueError: if a setting that no policy may own differs from the run's value.
    """
    try:
        own = type(config).overrides(**_settings_of(policy_id, given))
    except (TypeError, ValueError) as error:
        raise surrounded(error, after=f"These are settings of the policy {policy_id!r}.") from error
    of_policy = {name for name, setting in config.settings.items() if setting.of_policy}
    of_run = own.keys() - of_policy
    foreign = [name for name in of_run if own[name] != config[name]]
    if foreign:
        problem = f"policies[{policy_id!r}] sets {', '.join(sorted(foreign))}, which belongs to the run."
        rest = {name: value for name, value in own.items() if name in of_policy}
        advice = f"A policy's own settings can be {', '.join(sorted(of_policy))}."
        raise config.error(Mistake(problem, ("policies",), with_settings(config, policy_id, [rest]), advice))
    return {name: value for name, value in own.items() if name not in of_run}


def listed(policies_to_train: Any) -> list:
    """The ids in policies_to_train.

    Raises:
        ValueError: if policies_to_train is no collection of ids.
    """
    if isinstance(policies_to_train, str):
        return [policies_to_train]
    if not isinstance(policies_to_train, Collection) or isinstance(policies_to_train, Mapping):
        raise ValueError(
            f"policies_to_train={policies_to_train!r:.80} must be ids of policies, a function (policy_id, batch) -> "
            "bool, or None for all"
        )
    return list(policies_to_train)


def trained(
    given: Any, specs: Mapping[str, PolicySpec], learned: Mapping[str, Any], found: Collection[str]
) -> tuple[Collection[str], Callable[[str, Any], bool]]:
    """Ids of the policies that learn, and the function that says whether one learns from a batch.

    Args:
        given: policies_to_train.
        specs: policy id -> spec, for all policies.
        learned: policy id -> its spaces, for the policies that are networks.
        found: ids of the policies by which agents act, as far as they are known.
    """
    if given is None:
        return learned.keys(), _always
    if callable(given):
        try:
            inspect.signature(given).bind("", None)
        except TypeError:
            raise ValueError(
                f"policies_to_train={given!r:.80} must take (policy_id, batch), and say whether it learns"
            ) from None
        except ValueError:  # builtins without a signature
            pass
        return learned.keys(), given
    names = listed(given)
    for name in names:
        if name not in specs:
            hint = did_you_mean(name, specs, repr)
            raise ValueError(f"policies_to_train names {name!r}, but there are {', '.join(specs)}.{hint}")
        if name not in learned:
            raise ValueError(f"policies_to_train names {name!r}, which is written by hand and does not learn")
    if not names:
        logger.warning("policies_to_train is empty: nothing is trained")
    elif found and set(found).isdisjoint(names):
        logger.warning("policies_to_train=%s: no agent acts by any of these: nothing is trained", names)
    return [name for name in learned if name in names], _always


def _always(policy_id: str, batch: Any) -> bool:
    return True


# ------------------------------------------------------------------ the mapping of agents to policies


class ProbedEpisode:
    """The argument `episode` of the mapping in calls before any real episode.

    Attributes:
        episode_id: number of the episode.
        id_: the same number as a string.
        env_id: 0.
        worker: None.
        user_data: an empty dict.
    """

    env_id, worker = 0, None

    def __init__(self, episode_id: int):
        self.episode_id, self.id_ = episode_id, str(episode_id)
        self.rng = np.random.default_rng(episode_id)
        self.user_data: dict[str, Any] = {}


class PolicyMapping:
    """Returns the policy id of an agent by calling a user's function with the arguments that it takes.

    Args:
        function: takes (agent), (agent, episode), or (agent, episode, worker); `worker` is passed by keyword if the
            function allows it.
    """

    def __init__(self, function: Callable[..., str]):
        self.function, self._arity = function, _arity(function)

    def __call__(self, agent: AgentID, episode: Any, worker: Any = None) -> str:
        if self._arity == "keywords":
            return self.function(agent, episode, worker=worker)
        return self.function(*(agent, episode, worker)[: self._arity])


def _arity(function: Callable) -> int | str:
    """Number of arguments that a mapping function takes, or "keywords" where it takes `worker` as one."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return 1
    for arity, (args, kwargs) in {
        "keywords": ((0, 0), {"worker": 0}),
        3: ((0, 0, 0), {}),
        2: ((0, 0), {}),
        1: ((0,), {}),
    }.items():
        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            continue
        return arity
    raise ValueError(
        f"policy_mapping_fn={function!r:.80} must take (agent_id), (agent_id, episode), or (agent_id, episode, worker, "
        "**kwargs)"
    )


class TableMapping:
    """A mapping given as data: patterns of agents' names -> policy ids; the first pattern that matches counts.

    Args:
        table: such as {"agent_0": "main", "adversary_*": "other"}; shell-style patterns. A key that is no string, such
            as a number, is the id of an agent.
    """

    def __init__(self, table: Mapping[AgentID, str]):
        self.table = dict(table)
        self._known: dict[AgentID, str] = {}

    def __call__(self, agent: AgentID) -> str:
        policy_id = self._known.get(agent)
        if policy_id is None:
            policy_id = self._known[agent] = self._found(agent)
        return policy_id

    def _found(self, agent: AgentID) -> str:
        name = str(agent)
        for pattern, policy_id in self.table.items():
            if fnmatch.fnmatchcase(name, pattern if isinstance(pattern, str) else _pattern_of(pattern)):
                return policy_id
        raise ValueError(
            f"policy_mapping_fn has no pattern for agent {agent!r}, only {', '.join(map(str, self.table))}. Add it, or "
            "'*' for all that are left."
        )


def _pattern_of(agent: AgentID) -> str:
    """The pattern that matches only the name of this agent."""
    return re.sub(r"([*?\[])", r"[\1]", str(agent))


def make_mapping(given: Any, specs: Mapping[str, PolicySpec], examined: ExaminedAgents) -> PolicyMapping:
    """The mapping of agents to policies.

    Args:
        given: a function, a table of patterns, the id of a policy for all agents, or None: all agents act by the single
            policy, or each agent by the policy with its name.
        specs: policies by id.
        examined: agents of the environment.

    Raises:
        ValueError: if it names an unknown policy, or is None and the names of agents and policies do not match.
    """
    if isinstance(given, TableMapping):
        given = given.table
    if callable(given):
        return PolicyMapping(given)
    if isinstance(given, str):
        given = {"*": given}
    if given is None and len(specs) == 1:
        given = dict.fromkeys("*", next(iter(specs)))
    if given is None:
        missing = [agent for agent in examined.agents if str(agent) not in specs]
        if missing:
            raise ValueError(
                f"there are {len(specs)} policies ({', '.join(specs)}) and no policy_mapping_fn, and agent "
                f"{missing[0]!r} has no policy of its name. Give policy_mapping_fn=lambda agent_id, episode, **kwargs: "
                '..., or a table such as {"agent_*": "p0"}.'
            )
        given = {_pattern_of(agent): str(agent) for agent in examined.agents}
    if not isinstance(given, Mapping) or not given:
        raise ValueError(
            f"policy_mapping_fn={given!r:.80} must be a function (agent_id, episode, worker, **kwargs) -> policy id, a "
            'table such as {"agent_*": "p0"}, or the id of one policy for all agents'
        )
    for policy_id in given.values():
        if policy_id not in specs:
            raise unknown_policy(f"policy_mapping_fn names the policy {policy_id!r}", policy_id, specs)
    return PolicyMapping(TableMapping(given))


def mapping_data(mapping: PolicyMapping) -> Any:
    """The value of `policy_mapping_fn` that makes this mapping: a table, or the user's function."""
    return mapping.function.table if isinstance(mapping.function, TableMapping) else mapping.function


def fixed_policies(mapping: PolicyMapping, examined: ExaminedAgents) -> dict[AgentID, str] | None:
    """Agent -> policy id, where the mapping is a table and all agents are known; else None."""
    if not examined.are_known or not isinstance(mapping.function, TableMapping):
        return None
    return {agent: mapping.function(agent) for agent in examined.agents}


def _check_travels(mapping: PolicyMapping) -> None:
    """Raises ValueError for a mapping that cannot be sent to workers; it names the object to blame."""
    if culprit := unpicklable_part(mapping.function, "policy_mapping_fn"):
        raise ValueError(
            f"{culprit}, which cannot be pickled, and so cannot be sent to the workers. Leave it out of the function, "
            "give a table such as {'agent_*': 'p0'}, or use .rollouts(num_rollout_workers=0)."
        )


def unknown_policy(what: str, policy_id: Any, known: Collection[str]) -> UnknownPolicyError:
    """The error for an id that no policy has."""
    return UnknownPolicyError(
        f"{what}, but there are {', '.join(known)}.{did_you_mean(policy_id, known, repr)} Add it to "
        f".multi_agent(policies=...), or use algo.add_policy({policy_id!r})."
    )


def probed(
    mapping: PolicyMapping, specs: Mapping[str, PolicySpec], examined: ExaminedAgents
) -> tuple[dict[str, list[AgentID]], dict[str, int]]:
    """Calls the mapping for PROBED_EPISODES episodes.

    Returns:
        policy id -> agents that are mapped to it in some episode; policy id -> largest number of its agents in one
        episode, at least 1.
    """
    found: dict[str, list[AgentID]] = {}
    most: dict[str, int] = {}
    for number in range(PROBED_EPISODES):
        episode = ProbedEpisode(number)
        counts: dict[str, int] = {}
        for agent in examined.agents:
            try:
                policy_id = mapping(agent, episode, None)
            except Exception as error:
                error.add_note(f"policy_mapping_fn was asked for agent {agent!r} in a probed episode, number {number}")
                raise
            if not isinstance(policy_id, str):
                raise ValueError(
                    f"policy_mapping_fn must return the id of a policy, a string, but gave {policy_id!r} for agent "
                    f"{agent!r}"
                )
            if policy_id not in specs:
                what = f"policy_mapping_fn gave agent {agent!r} the policy {policy_id!r}"
                raise unknown_policy(what, policy_id, specs)
            counts[policy_id] = counts.get(policy_id, 0) + 1
            if agent not in found.setdefault(policy_id, []):
                found[policy_id].append(agent)
        for policy_id, count in counts.items():
            most[policy_id] = max(most.get(policy_id, 0), count)
    return found, {policy_id: max(most.get(policy_id, 1), 1) for policy_id in specs}
