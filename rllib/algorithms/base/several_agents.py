"""The methods of an algorithm for environments with several agents: adding and removing policies, and acting."""

import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space

from rllib.acting.agent_player import AgentPlayer
from rllib.acting.inference import Acting, Inference, under_plain_names
from rllib.algorithms.base.policies import (
    by_message,
    make_policies,
    policy_configs,
    refuse_other_network,
    refuse_to_learn,
    settings_of_copy,
)
from rllib.algorithms.base.space_rules import naming_settings
from rllib.evaluation.callbacks import hears
from rllib.notices import log_once, log_unused_arguments
from rllib.policies import PolicySpec
from rllib.policy import Policy
from rllib.sample_batch import DEFAULT_POLICY

if TYPE_CHECKING:
    from rllib.algorithms.base.agents import Agents


_ALL_POLICIES = "evaluation always has all policies"


@under_plain_names
class SeveralAgents(Acting):
    """Methods of an algorithm for runs with several agents.

    Attributes:
        agents: the policies of the run; None where there is one agent.
    """

    agents: "Agents | None"

    def add_policy(
        self,
        policy_id: str,
        policy_cls: Any = None,
        policy: Policy | None = None,
        *,
        observation_space: Space | None = None,
        action_space: Space | None = None,
        config: Mapping[str, Any] | None = None,
        policy_state: Mapping[str, np.ndarray] | None = None,
        policy_mapping_fn: Any = None,
        policies_to_train: Any = None,
        evaluation_workers: bool = True,
    ) -> Policy | None:
        """Adds a policy to a run with several agents; workers use it from their next fragment on.

        Args:
            policy_id: a new id.
            policy_cls: class that acts instead of a network, as in PolicySpec.
            policy: a policy whose network the new policy gets, with a copy of its weights and filter.
            observation_space, action_space: spaces of the policy's agents; by default read from the agents that are
                mapped to it.
            config: settings in which the policy differs from the run, in addition to those of `policy`, if it is one of
                the run's. The network of `policy` is kept: settings that ask for another one are refused.
            policy_state: the new policy's weights and filter, from `Policy.get_state`.
            policy_mapping_fn: replaces the mapping; running episodes keep the old mapping until they end.
            policies_to_train: replaces the setting of this name; None keeps the present value.
            evaluation_workers: False has no effect, and a warning says so: evaluation always has all policies.

        Returns:
            the policy; None for a hand-written policy.

        Raises:
            ValueError: if the id is in use, the spaces are not known, the network of `policy` does not fit to the
                settings, or the run has one agent.
        """
        log_unused_arguments("add_policy", _ALL_POLICIES, evaluation_workers=not evaluation_workers)
        for name, given, kind in (("policy", policy, Policy), ("policy_state", policy_state, Mapping)):
            if not (given is None or isinstance(given, kind)):
                wanted = "a Policy" if kind is Policy else "what Policy.get_state() returns"
                raise ValueError(f"add_policy({policy_id!r}, {name}={given!r:.80}): it must be {wanted}, or None")
        agents = self._several_agents()
        # The settings by which the given policy's network was made.
        source = next((agents.specs[own].config for own, each in self.policies.items() if each is policy), None) or {}
        if source:
            config = settings_of_copy(self.config, source, config or {})
        spec = PolicySpec(policy_cls, observation_space, action_space, config)
        if policy is not None and observation_space is None:
            spec = replace(spec, observation_space=policy.observation_space, action_space=policy.action_space)
        changes = policy_mapping_fn, policies_to_train
        changed = self._policy_changes.with_policy(agents, self.config, policy_id, spec, *changes)
        try:
            if policy is not None and policy_id in changed.spaces:
                configs = (policy_configs(self.config, {policy_id: own})[policy_id] for own in (config or {}, source))
                asked = (self.make_policy_spec(*changed.spaces[policy_id], each) for each in configs)
                refuse_other_network(policy_id, policy.spec, *asked)
            made = self._enter(policy_id, changed, policy, policy_state) if policy_id in changed.spaces else None
            with naming_settings(self.config):
                self._change_to(changed)
        except BaseException:  # the run continues without the policy
            self._leave(policy_id)
            raise
        return made

    def remove_policy(
        self,
        policy_id: str = DEFAULT_POLICY,
        *,
        policy_mapping_fn: Any = None,
        policies_to_train: Any = None,
        evaluation_workers: bool = True,
    ) -> None:
        """Removes a policy; running episodes keep it until they end. Arguments as for `add_policy`.

        Raises:
            ValueError: if there is no such policy (a KeyError as well), or the mapping still names it.
        """
        log_unused_arguments("remove_policy", _ALL_POLICIES, evaluation_workers=not evaluation_workers)
        changes = policy_mapping_fn, policies_to_train
        changed = self._policy_changes.without_policy(self._several_agents(), self.config, policy_id, *changes)
        self._change_to(changed)
        self._leave(policy_id)

    def _leave(self, policy_id: str) -> None:
        """Drops a policy and all data by its id, which another policy may get later."""
        if policy_id in self.trainees:
            self.end_training(policy_id)
        for of_policies in (self.policies, self._inferences, self._policy_configs):
            of_policies.pop(policy_id, None)
        left = {each: own for each, own in self._rollout_settings.policies.items() if each != policy_id}
        self._rollout_settings = replace(self._rollout_settings, policies=left)
        self.metrics.forget(policy_id)

    def set_policy_mapping_fn(self, policy_mapping_fn: Any) -> None:
        """Sets the mapping of agents to policies for episodes that begin from now on."""
        agents = self._several_agents()
        self._go_on_with(self._policy_changes.with_mapping(agents, self.config, policy_mapping_fn))

    def set_policies_to_train(self, policies_to_train: Any) -> None:
        """Sets which policies learn; the others are frozen. Episodes start over if a policy starts or stops learning.

        A frozen policy keeps only its weights and filter: if it learns again, its optimizer is reset, and so are other
        parts of its training (critics, a replay, coefficients). A function that returns False keeps these parts.

        Args:
            policies_to_train: as in `.multi_agent()`: ids of policies, a function, or None for all.
        """
        agents = self._several_agents()
        self._change_to(self._policy_changes.with_trained(agents, self.config, policies_to_train))

    def _several_agents(self) -> "Agents":
        """The agents of the run.

        Raises:
            ValueError: if the run has one agent.
        """
        if self.agents is None:
            raise ValueError(
                "policies are added and removed where several agents act, but this run's environment has one agent. "
                "rllib.env.make_multi_agent(env) makes an environment of several copies of it."
            )
        return self.agents

    def _enter(
        self, policy_id: str, agents: "Agents", given: Policy | None, state: Mapping[str, np.ndarray] | None
    ) -> Policy:
        """Makes a policy that is a network, with new weights, a copy of the given policy's, or those in `state`."""
        own = {policy_id: agents.overrides[policy_id]} if policy_id in agents.overrides else {}
        configs = policy_configs(self.config, own)
        self.config.log_without_effect(by_message(configs))
        self._policy_configs.update(configs)
        spaces = agents.spaces[policy_id]
        specs = self._described({policy_id: spaces}, agents.overrides)
        if given is None:
            number = agents.settings.numbers[policy_id]
            made = make_policies({policy_id: spaces}, self.config_of, specs, self.seed, number)
            policy = made[policy_id]
        else:
            policy = Policy(given.spec)
            policy.observation_space, policy.action_space = spaces
            policy.config = self.config_of(policy_id)
            policy.set_state(given.get_state())
        if state is not None:
            policy.set_state(state)
        self.policies[policy_id] = policy
        self.callbacks.on_create_policy(policy_id=policy_id, policy=policy)
        settings = self._acting_settings, self._acting_rng, policy.distribution
        self._inferences[policy_id] = Inference(*spaces, *settings)
        return policy

    def _change_to(self, agents: "Agents") -> None:
        """`_go_on_with`, with a warning about the lost parts of policies that learn again.

        Raises:
            ValueError: if the network of a policy that is to learn does not fit its settings.
        """
        trained = set(self.trainees)
        for policy_id in agents.settings.trained - trained:
            if not _is_to_learn(agents, policy_id):
                continue
            policy = self.policies[policy_id]
            spaces = policy.observation_space, policy.action_space
            refuse_to_learn(policy_id, policy.spec, self.make_policy_spec(*spaces, self.config_of(policy_id)))
        self._go_on_with(agents)
        again = sorted(each for each in self.trainees if each not in trained and self.trainees[each].num_updates)
        if again:
            message = (
                f"only weights and filter were kept of policies that learn again ({', '.join(again)}): optimizer, "
                "critics, replay and coefficients start again. A function as policies_to_train that returns False for "
                "a while keeps them."
            )
            log_once("policies that learn again", message, logging.WARNING)

    def _go_on_with(self, agents: "Agents") -> None:
        """Sets the agents of learners, workers and evaluation; keeps the previous ones if a policy cannot learn."""
        before, trained = (self.agents, self._rollout_settings), list(self.trainees)
        self.agents = agents
        try:
            policies = {
                policy_id: self._rollout_settings.policies.get(policy_id) or self._policy_settings(policy_id)
                for policy_id in agents.spaces
            }
            self._rollout_settings = replace(self._rollout_settings, policies=policies, agents=agents.settings)
            for policy_id in self._trained_ids():
                if policy_id not in trained:
                    self.begin_training(policy_id)
                    policies[policy_id] = self._taught(policies[policy_id], self.trainees[policy_id])
            self._rollout_settings = replace(self._rollout_settings, policies=policies)
        except BaseException:
            self.agents, self._rollout_settings = before
            for policy_id in self.trainees.keys() - set(trained):
                self.end_training(policy_id)
            raise
        for policy_id in trained:
            if policy_id not in agents.settings.trained:
                self.end_training(policy_id)
        self.workers.change_settings(self._rollout_settings)
        self._evaluations.change_agents(policies, agents.settings)
        self._note_unheard_policies()

    def _note_unheard_policies(self) -> None:
        """Warns of frozen policies whose rows a hook does not get, since workers record none of them."""
        if self.agents is None or not hears(self.callbacks, "on_postprocess_trajectory"):
            return
        if frozen := sorted(self.agents.spaces.keys() - self.agents.settings.trained):
            message = (
                f"on_postprocess_trajectory gets no rows of policies that do not learn ({', '.join(frozen)}): they are "
                "not recorded. With a function as policies_to_train, which returns False for these policies, they are."
            )
            log_once(f"hooks without rows of frozen policies {frozen}", message, logging.WARNING)

    @property
    def _mapping(self) -> Callable[..., str] | None:
        return self.agents and self.agents.mapping

    def _hand_written(self, policy_id: str) -> Any:
        factory = self.agents and self.agents.settings.hand_written.get(policy_id)
        if not factory:
            return None
        made = self._made_by_hand.get(policy_id)
        if made is None or made[0] is not factory:
            made = self._made_by_hand[policy_id] = factory, factory()
        return made[1]

    @cached_property
    def _made_by_hand(self) -> dict[str, tuple[Callable[[], Any], Any]]:
        """Policy id -> factory of a hand-written policy, and the object that it made for this process."""
        return {}

    def make_player(
        self,
        num_episodes: int | None = None,
        *,
        explore: bool = False,
        policy_id: str | None = None,
        agent_id: Hashable = None,
        policies: Mapping[Hashable, str] | None = None,
    ) -> Any:
        """Makes a Player, or, with several agents and no policy named, an AgentPlayer of one episode.

        Args:
            num_episodes, explore, policy_id, agent_id: as for `Acting.make_player`.
            policies: agent -> policy id that replaces the mapping's; other agents keep the mapping.

        Raises:
            ValueError: for an unknown agent or policy.
        """
        if self.agents is None or policy_id is not None:
            return super().make_player(num_episodes, explore=explore, policy_id=policy_id, agent_id=agent_id)
        agents = self.agents
        if policies:
            self._policy_changes.check_slots(agents, policies)
        return AgentPlayer(
            self,
            agents.mapping,
            agents.settings.hand_written,
            explore=explore,
            with_masks=self._acting_settings.with_masks,
            policies=policies,
        )

    @property
    def _policy_changes(self):
        from rllib.algorithms.base import policy_changes

        return policy_changes


def _is_to_learn(agents: "Agents", policy_id: str) -> bool:
    """Whether policies_to_train lets a policy learn now; a function that needs a batch to say so may."""
    try:
        return bool(agents.trains(policy_id, None))
    except Exception:
        return True
