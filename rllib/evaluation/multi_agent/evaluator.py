"""Evaluation with several agents: whole episodes, in environments that training does not use."""

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rllib.env.episodes import Episode
from rllib.env.spaces.actions import action_mapper
from rllib.evaluation import seeding
from rllib.evaluation.episode_hooks import EpisodeHooks
from rllib.evaluation.evaluator import Budget, Duration, EvaluationWorker
from rllib.evaluation.multi_agent.agent_lane import AgentLane, ChoosingLane
from rllib.evaluation.multi_agent.environment_episode import OutOfSlotsError
from rllib.evaluation.multi_agent.hand_written_lane import HandWrittenLane
from rllib.evaluation.multi_agent.lane_set import LaneSet, double_slots
from rllib.evaluation.patience import Patience
from rllib.evaluation.settings import RolloutSettings


class MultiAgentEvaluationWorker(EvaluationWorker):
    """A worker that plays whole episodes of environments with several agents.

    Arguments as for Worker; the settings have `agents`.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._num_slots = self.settings.agents.first_slots()
        self._hand_written = self.settings.agents.make_hand_written()

    def change_settings(self, settings: RolloutSettings) -> None:
        """Plays with other policies or another mapping from the next evaluation on."""
        numbers, present = settings.agents.numbers, self.settings.agents.numbers
        for policy_id in list(self.policies):
            if numbers.get(policy_id) != present.get(policy_id):  # removed, or another policy with its id
                del self.policies[policy_id]
        super().change_settings(settings)
        self._num_slots, self._hand_written = settings.agents.first_slots(), settings.agents.make_hand_written()

    @property
    def policy_map(self) -> Mapping[str, Any]:
        return ChainMap(self.policies, self._hand_written)

    @property
    def _open_stream(self) -> Callable[..., Any]:
        return self.settings.open_agents

    def play_episodes(self, duration: Duration, round_index: int, explore: bool = False) -> list[Episode]:
        """Plays episodes of the environments, until all of their agents have ended, and returns them.

        Arguments and errors as for EvaluationWorker. Where an environment does not list its possible agents, the
        evaluation starts over when more agents of a policy appear than it has slots.
        """
        while True:
            try:
                return super().play_episodes(duration, round_index, explore)
            except OutOfSlotsError as error:
                double_slots(self._num_slots, *error.args)

    def _play(
        self, budget: Budget, patience: Patience, indices: range, round_index: int, explore: bool
    ) -> list[Episode]:
        hooks = EpisodeHooks(self.callbacks, self, in_evaluation=True)
        hooks.report_environments(hooks.environment_made)

        def make_lane(policy_id: str, number: int, count: int, describe: Callable[[int], str]) -> AgentLane:
            settings, agents = self.settings, self.settings.agents
            keys = [(index, round_index, number, i) for index in indices for i in range(self._num_slots[policy_id])]
            if policy_id in self._hand_written:
                chooser, rngs = self._hand_written[policy_id], self._rngs(keys)
                return HandWrittenLane(chooser, policy_id, count, describe=describe, rngs=rngs)
            policy, spaces = self.policies[policy_id], agents.spaces[policy_id]
            mapper = action_mapper(spaces[1], policy.distribution, settings.normalize_actions, settings.clip_actions)
            rngs = self._rngs(keys) if explore else None
            how = {"describe": describe, "rngs": rngs, "exploration": policy.exploration}
            return ChoosingLane(policy, *spaces, count, mapper, **how)

        key = round_index, seeding.EVALUATION_ENVIRONMENTS
        heard = hooks if hooks.follows_episodes else None
        lanes = LaneSet(self, self.stream, indices, self._num_slots, make_lane, episode_key=key, hooks=heard)
        finished = self._play_all(lanes, budget, patience)
        hooks.report()
        return finished

    def _rngs(self, keys: Iterable[tuple[int, ...]]) -> list[np.random.Generator]:
        return [seeding.generator(self.settings.seed, seeding.EVALUATION_ACTIONS, *key) for key in keys]

    def _play_all(self, lanes: LaneSet, budget: Budget, patience: Patience) -> list[Episode]:
        """Plays in each environment until its part of the budget is spent."""
        finished: list[Episode] = []
        playing = [each for each in lanes.episodes if budget.playing[each.index]]
        steps = 0
        lanes.start(playing)
        while playing:
            lanes.receive()
            steps += 1
            patience.check(budget.playing, steps)
            lanes.act()
            over = lanes.step(playing)
            for each in over:
                if each.result is not None:
                    finished.append(each.result)
                    budget.spend(each.index, each.result.length)
            playing = [each for each in playing if budget.playing[each.index]]
            lanes.start(each for each in over if budget.playing[each.index])
        return finished
